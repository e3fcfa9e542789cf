// Package cost is `bigfleet cost`: dollars per hour by group, with idle and in-flight spend apart. Prices are the providers' words.
package cost

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var by []string
	c := &cobra.Command{
		Use: "cost", Args: cobra.NoArgs,
		Short:   "Dollars per hour by cluster, type, zone and more",
		Example: "  bigfleet cost\n  bigfleet cost --by provider,type",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.Read(c.Context(), func(ctx context.Context) error { return run(ctx, a, by) })
		},
	}
	c.Flags().StringSliceVar(&by, "by", []string{"cluster"}, "grouping, up to three of cluster, priority, provider, type, capacity, zone, penalty")
	return a.Watchable(c)
}

// sum is one group over all shards.
type sum struct {
	group                      []string
	machines                   int32
	serving, idle, moving, all float64
}

// groups are the keys that a shard groups by (ShardRead.GetCost).
var groups = []string{"cluster", "priority", "provider", "type", "capacity", "zone", "penalty"}

func run(ctx context.Context, a *app.App, by []string) error {
	for _, b := range by {
		if !slices.Contains(groups, b) {
			return exit.Usagef("--by %s is unknown: use up to three of %s", b, strings.Join(groups, ", "))
		}
	}
	if len(by) > 3 {
		return exit.Usagef("--by takes at most three, not %d", len(by))
	}
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	answers, failed := fleet.Each(ctx, f, shards, "reading costs", func(ctx context.Context, s fleet.Shard) (*bigfleetv1alpha1.GetCostResponse, error) {
		got, err := s.Read.GetCost(ctx, connect.NewRequest(&bigfleetv1alpha1.GetCostRequest{GroupBy: by}))
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	})
	var list output.List
	for _, by := range by {
		list.Columns = append(list.Columns, output.Column{Head: strings.ToUpper(by)})
	}
	for _, head := range []string{"MACHINES", "SERVING", "IDLE", "IN MOTION", "TOTAL"} {
		list.Columns = append(list.Columns, output.Column{Head: head})
	}
	groups := map[string]*sum{}
	for _, got := range answers {
		if got == nil {
			continue
		}
		list.Items = append(list.Items, proto.Message(*got))
		if points := (*got).GetPoints(); len(points) > 0 {
			add(groups, points[len(points)-1].GetRows())
		}
	}
	for _, s := range sorted(groups) {
		row := append(slices.Clone(s.group), strconv.Itoa(int(s.machines)), output.Dollars(s.serving), output.Dollars(s.idle), output.Dollars(s.moving), output.Dollars(s.all))
		for i := range s.group {
			row[i] = output.Dash(row[i])
		}
		list.Rows = append(list.Rows, row)
		list.Names = append(list.Names, "cost/"+strings.Join(s.group, "/"))
	}
	if len(list.Items) == 0 && failed != nil {
		return failed
	}
	if a.Format.ForPeople() {
		a.Notef("prices are what the providers state")
	}
	if err := a.Format.Write(a.Out, list); err != nil {
		return err
	}
	return failed
}

func add(groups map[string]*sum, rows []*bigfleetv1alpha1.CostRow) {
	for _, r := range rows {
		key := strings.Join(r.GetGroup(), "\x00")
		s := groups[key]
		if s == nil {
			s = &sum{group: r.GetGroup()}
			groups[key] = s
		}
		s.machines += r.GetMachines()
		for state, dollars := range r.GetCostPerHourByState() {
			s.all += dollars
			switch state {
			case bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED.String():
				s.serving += dollars
			case bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE.String():
				s.idle += dollars
			default:
				s.moving += dollars
			}
		}
	}
}

// sorted puts the dearest group first.
func sorted(groups map[string]*sum) []*sum {
	out := make([]*sum, 0, len(groups))
	for _, s := range groups {
		out = append(out, s)
	}
	slices.SortFunc(out, func(x, y *sum) int {
		return cmp.Or(cmp.Compare(y.all, x.all), slices.Compare(x.group, y.group))
	})
	return out
}
