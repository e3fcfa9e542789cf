// Package top is `bigfleet top`: who gets machines first, where the line is below which nobody gets any, and what it costs.
package top

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

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
		Example: "  bigfleet top\n  bigfleet top --once\n  bigfleet top --once -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			// On a terminal it is live; elsewhere, and for programs, one picture, unless --watch asks for more.
			a.Watch = a.Watch || a.Terminal && a.Format.ForPeople()
			a.Watch = a.Watch && !once
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
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	answers, failed := fleet.Each(ctx, f, shards, "reading the needs", func(ctx context.Context, s fleet.Shard) (picture, error) { return look(ctx, s, rows) })
	var list output.List
	for i, p := range answers {
		if p == nil {
			continue
		}
		if !a.Format.ForPeople() {
			for _, n := range p.needs {
				list.Items, list.Shards, list.Names = append(list.Items, n), append(list.Shards, shards[i].Label()), append(list.Names, "need/"+subject.NeedName(n))
			}
			continue
		}
		if err := show(a, shards[i].Label(), *p); err != nil {
			return err
		}
	}
	if !a.Format.ForPeople() {
		if err := a.Format.Write(a.Out, list); err != nil {
			return err
		}
	}
	return failed
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

func show(a *app.App, label string, p picture) error {
	s := p.status
	line := func(format string, args ...any) { _, _ = fmt.Fprintln(a.Out, output.Line(format, args...)) }
	line("%s  cycle %d, %s ago, %.1f ms   %s   %d machines   %d clusters   reclaim budget %.1f", cmp.Or(s.GetShardId(), label), s.GetCycle(), output.Age(a.Now(), s.GetCycleAtUnixNanos()),
		float64(s.GetCycleDurationNanos())/1e6, output.Dollars(s.GetCostPerHour()), total(s.GetMachinesByState()), s.GetSessions(), s.GetReclaimTokens())
	line("in flight: %s   waiting: %s   needs: %d, %d unmet%s", words(s.GetInFlight()), words(s.GetWaiting()), p.header.GetTotalNeeds(), p.header.GetUnsatisfiedNeeds(), reasons(p.needs))
	if p.header.GetCycle() == 0 {
		line("no evaluation yet: demand is unknown, not zero")
	}
	l := output.List{Columns: []output.Column{{Head: "NEED"}, {Head: "PRIORITY"}, {Head: "STATUS"}, {Head: "COVERED"}, {Head: "MACHINES"}, {Head: "ON THE WAY"}, {Head: "COST"}, {Head: "WAITS"}, {Head: "WHY"}}}
	cut := -1
	for i, n := range p.needs {
		if cut < 0 && n.GetStatus() == bigfleetv1alpha1.NeedState_NEED_STATE_SHORT {
			cut = i
		}
		covered := "100%"
		if !n.GetSatisfied() {
			covered = fmt.Sprintf("%.0f%%", float64(n.GetCoveragePerMille())/10)
		}
		l.Rows = append(l.Rows, []string{
			subject.ShortNeed(n), fmt.Sprint(n.GetNeed().GetPriority()), output.Enum("NEED_STATE_", n.GetStatus().String()), covered, fmt.Sprint(n.GetClaimedMachineCount()),
			fmt.Sprint(n.GetOnTheWayCount()), output.Dollars(n.GetCostUsdPerHour()), output.Age(a.Now(), n.GetUnmetSinceUnixNanos()), output.Dash(n.GetDetailText()),
		})
	}
	if cut >= 0 {
		mark := make([]string, len(l.Columns))
		mark[0] = "---- needs below this line are short ----"
		l.Rows = slices.Insert(l.Rows, cut, mark)
	}
	if len(l.Rows) == 0 {
		return nil
	}
	return output.Table.Write(a.Out, l)
}

func total(m map[string]int32) (n int32) {
	for _, v := range m {
		n += v
	}
	return n
}

func words(m map[string]int32) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] != 0 {
			out = append(out, fmt.Sprintf("%d %s", m[k], output.Enum("ACTION_KIND_", k)))
		}
	}
	if len(out) == 0 {
		return "nothing"
	}
	return strings.Join(out, ", ")
}

// reasons counts the shown needs that are not satisfied by their reason.
func reasons(needs []*bigfleetv1alpha1.NeedView) string {
	count := map[string]int32{}
	for _, n := range needs {
		if !n.GetSatisfied() {
			count[output.Enum("UNMET_REASON_", n.GetUnmetReason().String())]++
		}
	}
	if len(count) == 0 {
		return ""
	}
	return " (" + words(count) + ")"
}
