// Package version is `bigfleet version`: what this binary is, what the reachable servers are, and whether they go together.
package version

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/skew"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var client bool
	c := a.Watchable(&cobra.Command{
		Use: "version", Args: cobra.NoArgs, Short: "Show the versions of this command and of every reachable server", Example: "  bigfleet version --client",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.Read(c.Context(), func(ctx context.Context) error { return run(ctx, a, client) })
		},
	})
	c.Flags().BoolVar(&client, "client", false, "show only this command's version; contact no server")
	return c
}

// server is one that answered.
type server struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	*built         // of this command; servers tell only their version
}

// built is the rest of what was linked into this binary; "unknown" for what was not (OPS-1.4).
type built struct {
	Commit string `json:"commit"`
	Date   string `json:"date"`
	Go     string `json:"go"`
}

func (s server) String() string {
	if s.built == nil {
		return s.Name + "  " + s.Version
	}
	return fmt.Sprintf("%s  %s, commit %s, built %s, %s", s.Name, s.Version, s.Commit, s.Date, s.Go)
}

// own is this binary.
func own(b telemetry.Build) server {
	return server{"client", b.Version, &built{b.Commit, b.Date, b.Go}}
}

func run(ctx context.Context, a *app.App, client bool) error {
	this := telemetry.ReadBuild()
	all := []server{own(this)}
	var failed error
	runs := skew.Versions{}
	runs.Add("this command", release(this))
	if !client {
		var servers []server
		servers, failed = ask(ctx, a)
		all = append(all, servers...)
		for _, s := range servers {
			runs.Add(s.Name, s.Version)
		}
	}
	if !a.Format.ForPeople() {
		l := output.List{Columns: []output.Column{{Head: "SERVER"}, {Head: "VERSION"}}}
		for _, s := range all {
			l.Objects, l.Rows, l.Names = append(l.Objects, s), append(l.Rows, []string{s.Name, s.Version}), append(l.Names, strings.ReplaceAll(s.Name, " ", "/"))
		}
		if err := a.Format.Write(a.Out, l); err != nil {
			return err
		}
	} else {
		for _, s := range all {
			_, _ = fmt.Fprintln(a.Out, s)
		}
	}
	if got := runs.Judge(); got.Minors > 1 {
		a.Notef("warning: %s; %d minor versions apart is not supported. %s", got.Message, got.Minors, skew.Fix)
	}
	return failed
}

// ask asks every replica of the coordinator and every shard; one replica that is away is not a failure.
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
				out = append(out, server{Name: "coordinator " + got.Msg.GetNodeId(), Version: got.Msg.GetBuild()})
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
			out = append(out, server{Name: "shard " + shards[i].Label(), Version: *v})
		}
	}
	return out, failed
}

// release is the version of this binary, if it was built as one.
func release(b telemetry.Build) string {
	if b.Version == "devel" {
		return ""
	}
	return b.Version
}
