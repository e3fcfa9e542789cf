package order

import (
	"context"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
)

// NewDryRun returns `dry-run on|off`.
func NewDryRun(a *app.App) *cobra.Command {
	c := &cobra.Command{
		Use: "dry-run on|off", Args: cobra.ExactArgs(1), ValidArgs: []string{"on", "off"},
		Short: "Switch dry run on or off: decide without acting, or act again", Example: "  bigfleet dry-run off --reason 'first day is over'",
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		on := args[0] == "on"
		if !on && args[0] != "off" {
			return exit.Usagef("%q is neither on nor off", args[0])
		}
		return order{
			says: "Switches dry run %s.", argument: "switch",
			send: func(ctx context.Context, a *app.App, s fleet.Shard, _ string) (proto.Message, error) {
				return answer(s.Admin.SetDryRun(ctx, connect.NewRequest(&bigfleetv1alpha1.SetDryRunRequest{DryRun: on, Reason: a.Reason, ValidateOnly: a.DryRun})))
			},
			message: func(m proto.Message) string {
				if m.(*bigfleetv1alpha1.SetDryRunResponse).GetDryRun() {
					return "dry run: decisions are made but not executed"
				}
				return "acting"
			},
		}.run(c.Context(), a, app.Verb(c), args[0])
	}
	return a.Mutates(c)
}
