package coordinate

import (
	"context"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
)

func newBindCluster(a *app.App) *cobra.Command {
	var rebind bool
	o := order{
		use: "bind CLUSTER SHARD", args: 2, short: "Bind a cluster to a shard", example: "  bigfleet clusters bind red shard-0",
		says: func(args []string) string {
			if rebind {
				return "Binds cluster " + args[0] + " to shard " + args[1] + " and takes it from its current shard. Configure its operator to dial the new shard too."
			}
			return "Binds cluster " + args[0] + " to shard " + args[1] + "."
		},
		send: func(ctx context.Context, c caller, args []string) (proto.Message, error) {
			return call(ctx, c, c.Admin.BindCluster, &bigfleetv1alpha1.BindClusterRequest{ClusterId: args[0], ShardId: args[1], Rebind: rebind, ValidateOnly: c.app.DryRun})
		},
	}
	c := o.command(a)
	c.Flags().BoolVar(&rebind, "rebind", false, "take it from the shard that has it now; that shard releases its machines first")
	return c
}
