// Package version is `bigfleet version`: what this binary is, what the reachable servers are, and whether they go together.
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
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/skew"
)

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var client bool
	c := a.Watchable(&cobra.Command{
		Use: "version", Args: cobra.NoArgs, Short: "Versions of this command and of every reachable server", Example: "  bigfleet version --client",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.Read(c.Context(), func(ctx context.Context) error { return run(ctx, a, client) })
		},
	})
	c.Flags().BoolVar(&client, "client", false, "ask no server")
	return c
}

// server is one that answered.
type server struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

func run(ctx context.Context, a *app.App, client bool) error {
	all := []server{{"client", own()}}
	var failed error
	runs := skew.Versions{}
	runs.Add("this command", release())
	if !client {
		var servers []server
		servers, failed = ask(ctx, a)
		all = append(all, servers...)
		for _, s := range servers {
			runs.Add(s.Name, s.Version)
		}
	}
	if a.Format == output.JSONL {
		for _, s := range all {
			if err := a.Format.Value(a.Out, s); err != nil {
				return err
			}
		}
	} else if !a.Format.ForPeople() {
		if err := a.Format.Value(a.Out, map[string]any{"versions": all}); err != nil {
			return err
		}
	} else {
		for _, s := range all {
			_, _ = fmt.Fprintf(a.Out, "%s  %s\n", s.Name, s.Version)
		}
	}
	if got := runs.Judge(); got.Minors > 1 {
		a.Notef("warning: %s; %d minor versions apart is too far. %s", got.Say, got.Minors, skew.Fix)
	}
	return failed
}

// ask asks every replica of the coordinator and every shard; one replica that is away is no failure.
func ask(ctx context.Context, a *app.App) (out []server, failed error) {
	f, shards, failed := a.Shards(ctx)
	if f == nil {
		return nil, failed
	}
	if !f.Direct() {
		replicas, err := f.Replicas()
		if err != nil {
			return nil, err
		}
		for _, c := range replicas {
			bounded, cancel := f.Deadline(ctx)
			got, err := c.Admin.GetCoordinatorStatus(bounded, connect.NewRequest(&bigfleetv1alpha1.GetCoordinatorStatusRequest{}))
			cancel()
			if err == nil {
				out = append(out, server{"coordinator " + got.Msg.GetNodeId(), got.Msg.GetBuild()})
			}
		}
	}
	if failed != nil {
		return out, failed
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
			out = append(out, server{"shard " + shards[i].Label(), *v})
		}
	}
	return out, failed
}

// release is the version of this binary, if it was built as one.
func release() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return ""
}

// own reads what the Go toolchain stamped into the binary.
func own() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	out := info.Main.Version
	if out == "(devel)" { // what every role calls it
		out = "devel"
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && out == "devel" {
			out += " " + s.Value[:min(12, len(s.Value))]
		}
	}
	return out + " " + info.GoVersion
}
