// Package top is `bigfleet top`: who gets machines first, below which priority none gets any, and what it costs.
package top

import (
	"context"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// rowsDefault fits a terminal together with the head.
const rowsDefault = 30

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var rows int
	var once bool
	c := &cobra.Command{
		Use: "top", Args: cobra.NoArgs, Short: "Show needs by precedence, actions and spend, live",
		Long: "Shows needs in the order in which they get machines, what is in flight, and what it costs. On a terminal it repaints each second, and keys\n" +
			"change it: q quits, s and S sort by the next or the previous column, r reverses, / filters, u shows unmet needs only, the arrows scroll,\n" +
			"Esc resets. If the output is not a terminal, it prints one screen.",
		Example: "  bigfleet top\n  bigfleet top --once\n  bigfleet top --once -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			// On a terminal it is live; elsewhere, and for programs, one picture, unless --watch asks for more.
			people := a.Terminal && a.Format.ForPeople()
			if people && a.Asks && a.Typing != nil && !once {
				a.Watch = true // no notes on a screen of its own
				if !c.Flags().Changed("rows") {
					rows = liveRows
				}
				return live(c.Context(), a, rows)
			}
			a.Watch = (a.Watch || people) && !once
			return a.Read(c.Context(), func(ctx context.Context) error { return run(ctx, a, rows) })
		},
	}
	c.Flags().IntVar(&rows, "rows", rowsDefault, "number of needs to show for each shard; 0 means all")
	c.Flags().BoolVar(&once, "once", false, "print one screen and exit, for scripts")
	return a.Watchable(c)
}

// picture is what one shard shows.
type picture struct {
	status *bigfleetv1alpha1.GetStatusResponse
	header *bigfleetv1alpha1.InspectNeedsHeader
	needs  []*bigfleetv1alpha1.NeedView
}

func run(ctx context.Context, a *app.App, rows int) error {
	seen := gather(ctx, a, rows)
	var list output.List
	for i, p := range seen.pictures {
		if p == nil {
			continue
		}
		if !a.Format.ForPeople() {
			for _, n := range p.needs {
				list.Items, list.Shards, list.Names = append(list.Items, n), append(list.Shards, seen.labels[i]), append(list.Names, "need/"+subject.NeedName(n))
			}
			continue
		}
		if err := (view{}).show(a.Out, a.Now(), seen.labels[i], *p); err != nil {
			return err
		}
	}
	if !a.Format.ForPeople() {
		if err := a.Format.Write(a.Out, list); err != nil {
			return err
		}
	}
	return seen.failed
}

// gather asks every shard.
func gather(ctx context.Context, a *app.App, rows int) (seen sight) {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return sight{failed: err}
	}
	for _, s := range shards {
		seen.labels = append(seen.labels, s.Label())
	}
	seen.pictures, seen.failed = fleet.Each(ctx, f, shards, "reading the needs", func(ctx context.Context, s fleet.Shard) (picture, error) { return look(ctx, s, rows) })
	return seen
}

func look(ctx context.Context, s fleet.Shard, rows int) (p picture, err error) {
	status, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
	if err != nil {
		return p, err
	}
	p.status = status.Msg
	stream, err := s.Read.InspectNeeds(ctx, connect.NewRequest(&bigfleetv1alpha1.InspectNeedsRequest{Limit: int32(max(rows, 0))}))
	if err != nil {
		return p, err
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		if h := stream.Msg().GetHeader(); h != nil {
			p.header = h
		}
		if n := stream.Msg().GetNeed(); n != nil {
			p.needs = append(p.needs, n)
		}
	}
	return p, stream.Err()
}
