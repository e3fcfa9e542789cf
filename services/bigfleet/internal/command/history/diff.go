package history

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// compare shows what two cycles of a shard planned differently (OPS-4.18).
func compare(ctx context.Context, a *app.App, args []string, cycles []int64) error {
	if len(cycles) != 2 || cycles[0] < 1 || cycles[1] <= cycles[0] {
		return exit.Usagef("--diff %v: write two cycles, the earlier first, for example --diff 1200,1300", cycles)
	}
	req := &bigfleetv1alpha1.CompareCyclesRequest{FirstCycle: cycles[0], SecondCycle: cycles[1]}
	if len(args) == 1 {
		s, err := subject.Parse(args[0], subject.Cluster)
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
	for i, got := range answers {
		if got == nil {
			continue
		}
		if !a.Format.ForPeople() {
			if err := a.Format.Message(a.Out, *got); err != nil {
				return err
			}
			continue
		}
		sayDiff(a, shards[i].Label(), cycles, *got)
	}
	return failed
}

func sayDiff(a *app.App, shard string, cycles []int64, r *bigfleetv1alpha1.CompareCyclesResponse) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintln(a.Out, output.Line(format, args...)) }
	line("%s, plan of cycle %d against that of cycle %d:", shard, cycles[1], cycles[0])
	if len(r.GetAdded())+len(r.GetRemoved())+len(r.GetNeeds()) == 0 {
		line("  no difference")
	}
	say := func(mark string, records []*bigfleetv1alpha1.DecisionRecord) {
		for _, d := range records {
			line("%s %-10s %s  cluster %s  %s", mark, output.Enum("ACTION_KIND_", d.GetKind().String()), d.GetMachineId(), output.Dash(d.GetClusterId()), d.GetCause())
		}
	}
	say("+", r.GetAdded())
	say("-", r.GetRemoved())
	for _, n := range r.GetNeeds() {
		of := n.GetAfter()
		if of == nil {
			of = n.GetBefore()
		}
		line("~ need/%s: %s -> %s", subject.NeedName(of), state(n.GetBefore()), state(n.GetAfter()))
	}
}

func state(n *bigfleetv1alpha1.NeedView) string {
	if n == nil {
		return "absent"
	}
	return output.Enum("NEED_STATE_", n.GetStatus().String())
}
