package history

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/when"
)

// compare shows what two cycles of a shard planned differently (OPS-4.18).
func compare(ctx context.Context, a *app.App, args, between []string) error {
	req := &bigfleetv1alpha1.CompareCyclesRequest{}
	if len(between) > 2 {
		return exit.Usagef("--diff %s: write two cycles or times, the earlier first, for example --diff 1200,1300 or --diff 14:00,14:32", strings.Join(between, ","))
	}
	var err error
	if req.FirstCycle, req.FirstAtUnixNanos, err = moment(between[0], a.Now()); err != nil {
		return err
	}
	if len(between) == 2 {
		if req.SecondCycle, req.SecondAtUnixNanos, err = moment(between[1], a.Now()); err != nil {
			return err
		}
	}
	if (req.SecondCycle > 0 && req.SecondCycle <= req.FirstCycle) || (req.SecondAtUnixNanos > 0 && req.SecondAtUnixNanos <= req.FirstAtUnixNanos) {
		return exit.Usagef("--diff %s: write two cycles or times, the earlier first", strings.Join(between, ","))
	}
	if len(args) > 0 {
		s, err := subject.Of(args, "", subject.Cluster)
		if err != nil {
			return err
		}
		req.ClusterId = s.Name
	}
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	answers, failed := fleet.Each(ctx, f, shards, "comparing cycles", func(ctx context.Context, s fleet.Shard) (*bigfleetv1alpha1.CompareCyclesResponse, error) {
		got, err := s.Read.CompareCycles(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	})
	list := output.List{Say: Why}
	for i, got := range answers {
		if got == nil {
			continue
		}
		if a.Format.ForPeople() {
			sayDiff(a, shards[i].Label(), *got)
			continue
		}
		list.Items, list.Shards = append(list.Items, *got), append(list.Shards, shards[i].Label())
	}
	if len(list.Items) > 0 {
		if err := a.Format.Write(a.Out, list); err != nil {
			return err
		}
	}
	return failed
}

func sayDiff(a *app.App, shard string, r *bigfleetv1alpha1.CompareCyclesResponse) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintln(a.Out, output.Line(format, args...)) }
	line("%s, plan of cycle %d against that of cycle %d:", shard, r.GetSecondCycle(), r.GetFirstCycle())
	if len(r.GetAdded())+len(r.GetRemoved())+len(r.GetNeeds()) == 0 {
		line("  no difference between the plans; `bigfleet history` shows what was done")
	}
	say := func(mark string, records []*bigfleetv1alpha1.DecisionRecord) {
		for _, d := range records {
			line("%s %-10s %s  cluster %s  %s", mark, output.Enum("ACTION_KIND_", d.GetKind().String()), d.GetMachineId(), output.Dash(d.GetClusterId()), Why(d))
		}
	}
	say("+", r.GetAdded())
	say("-", r.GetRemoved())
	for _, n := range r.GetNeeds() {
		of := n.GetAfter()
		if of == nil {
			of = n.GetBefore()
		}
		from, to := state(n.GetBefore()), state(n.GetAfter())
		if from == to { // then its size or its machines are what changed
			from, to = from+with(n.GetBefore()), to+with(n.GetAfter())
		}
		line("~ need/%s: %s -> %s", subject.NeedName(of), from, to)
	}
}

func with(n *bigfleetv1alpha1.NeedView) string {
	return " with " + output.Count(int(n.GetClaimedMachineCount()), "machine")
}

// moment reads a cycle, which is a number, or a time.
func moment(text string, now time.Time) (cycle, wall int64, err error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		if n < 1 {
			return 0, 0, exit.Usagef("--diff %s: cycles begin with 1", text)
		}
		return n, 0, nil
	}
	t, err := when.Parse("diff", text, now)
	if err != nil {
		return 0, 0, err
	}
	return 0, t.UnixNano(), nil
}

func state(n *bigfleetv1alpha1.NeedView) string {
	if n == nil {
		return "absent"
	}
	return output.Enum("NEED_STATE_", n.GetStatus().String())
}
