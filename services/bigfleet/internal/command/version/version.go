// Package version is `bigfleet version`: what this binary is, and what the reachable shards are.
package version

import (
	"context"
	"fmt"
	"runtime/debug"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
)

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var client bool
	c := &cobra.Command{
		Use: "version", Args: cobra.NoArgs, Short: "Versions of this command and of every reachable shard", Example: "  bigfleet version --client",
		RunE: func(c *cobra.Command, _ []string) error { return run(c.Context(), a, client) },
	}
	c.Flags().BoolVar(&client, "client", false, "ask no server")
	return c
}

func run(ctx context.Context, a *app.App, client bool) error {
	_, _ = fmt.Fprintf(a.Out, "client  %s\n", own())
	if client {
		return nil
	}
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	answers, failed := fleet.Each(ctx, f, shards, "reading the version", func(ctx context.Context, s fleet.Shard) (string, error) {
		got, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
		if err != nil {
			return "", err
		}
		return got.Msg.GetVersion(), nil
	})
	for i, v := range answers {
		if v != nil {
			_, _ = fmt.Fprintf(a.Out, "%s  %s\n", shards[i].Label(), *v)
		}
	}
	return failed
}

// own reads what the Go toolchain stamped into the binary.
func own() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	out := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && out == "(devel)" {
			out += " " + s.Value[:min(12, len(s.Value))]
		}
	}
	return out + " " + info.GoVersion
}
