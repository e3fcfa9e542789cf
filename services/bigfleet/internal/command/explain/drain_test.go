package explain

import (
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// SHARD-17.5, SHARD-17.11: what happens to the machine at the deadline depends on why it is drained, and on whether the provider
// has its Drain already.
func TestDrainSaysWhatTheDeadlineDoes(t *testing.T) {
	const (
		stays = ". If Pods are left at 2026-11-23T20:00:00Z, the machine stays; with --drain-deadline-policy=force the shard takes it."
		taken = ". At 2026-11-23T20:00:00Z the machine is taken with the Pods that are still on it."
	)
	for _, c := range []struct {
		kind  pb.ActionKind
		state pb.MachineState
		drain *pb.DrainView
		want  string
	}{
		{pb.ActionKind_ACTION_KIND_RECLAIM, pb.MachineState_MACHINE_STATE_CONFIGURED, &pb.DrainView{PodsLeft: 2, DeadlineUnixNanos: 1_795_464_000_000_000_000, BlockingBudgets: []string{"default/web"}},
			"Draining: 2 Pods left, blocked by disruption budget default/web" + stays},
		{pb.ActionKind_ACTION_KIND_RECLAIM, pb.MachineState_MACHINE_STATE_DRAINING, &pb.DrainView{DeadlineUnixNanos: 1_795_464_000_000_000_000}, "Draining: 0 Pods left" + taken},
		{pb.ActionKind_ACTION_KIND_PREEMPT, pb.MachineState_MACHINE_STATE_CONFIGURED, &pb.DrainView{PodsLeft: 1, DeadlineUnixNanos: 1_795_464_000_000_000_000}, "Draining: 1 Pod left" + taken},
		{pb.ActionKind_ACTION_KIND_PREEMPT, pb.MachineState_MACHINE_STATE_CONFIGURED, &pb.DrainView{PodsLeft: 1}, "Draining: 1 Pod left."},
	} {
		m := &pb.GetMachineResponse{Machine: &pb.MachineView{Machine: &pb.Machine{State: c.state}}, Operation: &pb.DecisionRecord{Kind: c.kind}, Drain: c.drain}
		if got := drain(m); got != c.want {
			t.Errorf("%v, %v: %q, want %q", c.kind, c.state, got, c.want)
		}
	}
}
