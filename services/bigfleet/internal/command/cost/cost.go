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
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/when"
)

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var by []string
	var log record
	var waste bool
	c := &cobra.Command{
		Use: "cost", Args: cobra.NoArgs,
		Short: "Show costs in dollars per hour by cluster, type, zone and more",
		Long: "Shows what the machines cost per hour: those that serve, those that are idle and kept for a while, and those in motion. Money that\n" +
			"is spent without need is named on stderr. With --waste it shows, for each cluster, what was asked for, what was bought, and what is\n" +
			"paid for and not used. With --record it contacts no server: it follows the costs over a shard's decision log, from its beginning or\n" +
			"between two times, and adds up what was spent.\n\nWhat a team costs now is in `bigfleet get needs --team NAME -o wide`. A time is " + when.Forms + ".",
		Example: "  bigfleet cost\n  bigfleet cost --waste\n  bigfleet cost --waste -o csv\n  bigfleet cost --by provider,type\n  bigfleet cost --record /var/lib/bigfleet-shard --by cluster --points 24\n  bigfleet cost --record /var/lib/bigfleet-shard --from 09:00 --to 17:00",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := check(by); err != nil {
				return err
			}
			if waste {
				if log.Dir != "" || c.Flags().Changed("by") {
					return exit.Usagef("--waste shows clusters as they are now: leave out --by and --record")
				}
				return a.Read(c.Context(), func(ctx context.Context) error { return wasted(ctx, a) })
			}
			if log.Dir != "" {
				if a.Watch {
					return exit.Usagef("--watch needs running shards and cannot be used with --record")
				}
				return recorded(c.Context(), a, by, log)
			}
			if log != (record{Points: pointsDefault}) {
				return exit.Usagef("--from, --to, --points, --epoch and --stop-at need a decision log: name the --data-dir of a shard with --record")
			}
			return a.Read(c.Context(), func(ctx context.Context) error { return run(ctx, a, by) })
		},
	}
	c.Flags().BoolVar(&waste, "waste", false, "show what is paid for and not used, the largest first")
	c.Flags().StringVar(&log.Dir, "record", "", "follow the costs over a recorded decision log in this directory instead of asking running shards")
	c.Flags().StringVar(&log.From, "from", "", "with --record: count from this age or time; default: the beginning of the log")
	c.Flags().StringVar(&log.To, "to", "", "with --record: count up to this age or time; default: the end of the log")
	c.Flags().IntVar(&log.Points, "points", pointsDefault, "with --record: approximate number of points in time, evenly spaced")
	c.Flags().Int64Var(&log.Epoch, "epoch", 0, "with --record: epoch of the process that wrote the log; 0 means the newest")
	c.Flags().Int64Var(&log.StopAt, "stop-at", 0, "with --record: stop before this step; 0 means the end of the log")
	c.Flags().StringSliceVar(&by, "by", []string{"cluster"}, "grouping, up to three of cluster, priority, provider, type, capacity, zone, penalty")
	return a.Watchable(c)
}

// sum is one group over all shards.
type sum struct {
	group                      []string
	machines                   int32
	serving, idle, moving, all float64
	arriving                   float64 // of moving: bought and not there yet
}

// groups are the keys that a shard groups by (ShardRead.GetCost).
var groups = []string{"cluster", "priority", "provider", "type", "capacity", "zone", "penalty"}

func check(by []string) error {
	for _, b := range by {
		if !slices.Contains(groups, b) {
			return exit.Usagef("--by %s is unknown: use up to three of %s", b, strings.Join(groups, ", "))
		}
	}
	if len(by) > 3 {
		return exit.Usagef("--by takes at most three, not %d", len(by))
	}
	return nil
}

func run(ctx context.Context, a *app.App, by []string) error {
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
	list.Columns = columns(by)
	groups := map[string]*sum{}
	for i, got := range answers {
		if got == nil {
			continue
		}
		list.Items, list.Shards = append(list.Items, proto.Message(*got)), append(list.Shards, shards[i].Label())
		if points := (*got).GetPoints(); len(points) > 0 {
			add(groups, points[len(points)-1].GetRows())
		}
	}
	for _, s := range sorted(groups) {
		list.Rows = append(list.Rows, s.row())
		list.Names = append(list.Names, "cost/"+strings.Join(s.group, "/"))
	}
	if len(list.Items) == 0 && failed != nil {
		return failed
	}
	if a.Format.ForPeople() && len(list.Rows) > 1 {
		list.Rows, list.Names = append(list.Rows, total(groups, len(by)).row()), append(list.Names, "")
	}
	if a.Format.ForPeople() {
		a.Notef("prices as stated by the providers")
	}
	if err := a.Format.Write(a.Out, list); err != nil {
		return err
	}
	if a.Format.ForPeople() && !a.Watch {
		odd(ctx, a, f, shards)
	}
	return failed
}

func columns(by []string) (out []output.Column) {
	for _, by := range by {
		out = append(out, output.Column{Head: strings.ToUpper(by)})
	}
	for _, head := range []string{"MACHINES", "SERVING", "IDLE", "IN MOTION", "TOTAL"} {
		out = append(out, output.Column{Head: head})
	}
	return out
}

func (s *sum) row() []string {
	row := append(slices.Clone(s.group), strconv.Itoa(int(s.machines)), output.Dollars(s.serving), output.Dollars(s.idle), output.Dollars(s.moving), output.Dollars(s.all))
	for i := range s.group {
		row[i] = output.Dash(row[i])
	}
	return row
}

func add(groups map[string]*sum, rows []*bigfleetv1alpha1.CostRow) {
	for _, r := range rows {
		if r.GetMachines() == 0 { // a cluster that only requests
			continue
		}
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
			case bigfleetv1alpha1.MachineState_MACHINE_STATE_CREATING.String(), bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURING.String():
				s.arriving += dollars
				s.moving += dollars
			default:
				s.moving += dollars
			}
		}
	}
}

// total adds groups up.
func total(groups map[string]*sum, columns int) *sum {
	all := &sum{group: make([]string, columns)}
	all.group[0] = "TOTAL"
	for _, s := range sorted(groups) { // in one order, so that the last digit is the same each time
		all.machines, all.serving, all.idle, all.moving, all.all = all.machines+s.machines, all.serving+s.serving, all.idle+s.idle, all.moving+s.moving, all.all+s.all
	}
	return all
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
