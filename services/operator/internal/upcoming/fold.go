package upcoming

import (
	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// stage is where a machine is, as its UpcomingNode should show it.
type stage struct {
	phase   v1alpha1.NodePhase
	leaving bool   // it was Draining since it was last given to this cluster
	gone    bool   // the object is to be deleted; phase Drained is shown first if it was leaving
	failure string // why, while Failed
	broken  bool   // Failed by the provider's word, and not by the deadline of a drain
}

// fold applies one node state (OP-12.1, OP-12.2). known says that the state has a number of the contract.
func fold(s stage, m *pb.NodeStateUpdate) (next stage, known bool) {
	next, known = stage{leaving: s.leaving}, true
	switch m.State {
	case pb.MachineState_MACHINE_STATE_SPECULATIVE, pb.MachineState_MACHINE_STATE_CREATING:
		next.phase = v1alpha1.NodeProvisioning
	case pb.MachineState_MACHINE_STATE_IDLE:
		next.phase = v1alpha1.NodeLaunched
		if s.leaving {
			next.phase, next.gone = v1alpha1.NodeDrained, true
		}
	case pb.MachineState_MACHINE_STATE_CONFIGURING:
		next.phase, next.leaving = v1alpha1.NodeRegistered, false
	case pb.MachineState_MACHINE_STATE_CONFIGURED:
		next.phase, next.leaving = v1alpha1.NodeReady, false
	case pb.MachineState_MACHINE_STATE_DRAINING, pb.MachineState_MACHINE_STATE_DELETING:
		next.phase, next.leaving = v1alpha1.NodeDraining, true
		if s.phase == v1alpha1.NodeDrained || s.phase == v1alpha1.NodeFailed && s.leaving && !s.broken {
			next.phase, next.failure = s.phase, s.failure // the drain ended; the machine is still leaving
		}
	case pb.MachineState_MACHINE_STATE_FAILED:
		next.phase, next.failure, next.broken = v1alpha1.NodeFailed, m.LastError, true
	default:
		next.phase, known = v1alpha1.NodeProvisioning, false
	}
	if m.Released && next.phase != v1alpha1.NodeFailed {
		next.gone = true
		if s.leaving {
			next.phase = v1alpha1.NodeDrained
		}
	}
	return next, known
}

// DrainState is what the drain of a machine does to its object.
type DrainState int

const (
	DrainNone    DrainState = iota // no drain, or one that was taken back
	DrainRunning                   // evicting
	DrainDone                      // no Pod is left that has to go
	DrainFailed                    // the deadline came first
)

// drained applies the state of a drain to a stage (OP-8.4, OP-8.11, OP-8.12, OP-8.15).
func drained(s stage, d DrainState, why string) stage {
	if s.broken { // a machine that failed stays Failed, whatever becomes of its Pods
		s.leaving = d != DrainNone
		return s
	}
	switch d {
	case DrainRunning:
		s.phase, s.leaving, s.failure = v1alpha1.NodeDraining, true, ""
	case DrainDone:
		s.phase, s.leaving, s.failure = v1alpha1.NodeDrained, true, ""
	case DrainFailed:
		s.phase, s.leaving, s.failure = v1alpha1.NodeFailed, true, why
	case DrainNone:
		if s.leaving {
			s.phase, s.leaving, s.failure = v1alpha1.NodeReady, false, ""
		}
	}
	return s
}
