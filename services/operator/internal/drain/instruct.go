package drain

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/upcoming"
)

// Instruct starts what an instruction asks for and returns the answer: which nodes are cordoned and draining now, and
// why the others are not. It returns within a few seconds; what could not be cordoned by then keeps being tried.
func (d *Drainer) Instruct(ctx context.Context, in *pb.ReclaimInstruction) *pb.ReclaimAck {
	received := time.Now()
	ack := &pb.ReclaimAck{InstructionId: in.InstructionId}
	var started []target
	for _, t := range d.targets(in) {
		if t.failure != nil {
			ack.Failures = append(ack.Failures, t.failure)
			d.reportUnresolved(t)
			continue
		}
		if t.drain = d.join(in, t, received); t.drain != nil {
			started = append(started, t)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, replyWithin)
	defer cancel()
	for _, t := range started {
		if failure := t.drain.cordonOutcome(ctx, t.entry); failure != nil {
			ack.Failures = append(ack.Failures, failure)
			continue
		}
		ack.NodesStarted++
		select { // the object says Draining before the shard hears it (OP-8.4)
		case <-t.drain.shown:
		case <-ctx.Done():
		}
	}
	d.Log.Info("reclaim", "instruction", in.InstructionId, "nodes", in.Nodes, "machines", in.MachineIds, "grace_seconds", in.GracePeriodSeconds,
		"cause", in.Cause.String(), "preemptor_priority", in.PreemptorPriority, "started", ack.NodesStarted, "failures", len(ack.Failures))
	return ack
}

// target is one entry of an instruction.
type target struct {
	entry, machine string
	node           *corev1.Node
	failure        *pb.NodeFailure
	drain          *drain
}

// targets resolves the entries (OP-10.4).
func (d *Drainer) targets(in *pb.ReclaimInstruction) []target {
	out := make([]target, 0, len(in.Nodes))
	for i, entry := range in.Nodes {
		t := target{entry: entry, machine: entry}
		var how machine.Match
		if len(in.MachineIds) == len(in.Nodes) && in.MachineIds[i] != "" {
			t.machine = in.MachineIds[i]
			if t.node, how = d.Machines.Find(t.machine); how == machine.None && entry != t.machine {
				// The shard names a node that nothing here connects with the machine: it is another machine's, or none.
				if _, t.node, how = d.Machines.Resolve(entry); how != machine.None && how != machine.Foreign {
					how = machine.Ambiguous
				}
			}
		} else {
			t.machine, t.node, how = d.Machines.Resolve(entry)
		}
		switch how {
		case machine.Foreign:
			t.failure = &pb.NodeFailure{Node: entry, Reason: pb.NodeFailure_REASON_NOT_FOUND,
				Message: fmt.Sprintf("Node %s is not a machine of BigFleet: it has neither the label nor the provider id of one. It was not changed.", entry)}
		case machine.None:
			t.failure = &pb.NodeFailure{Node: entry, Reason: pb.NodeFailure_REASON_NOT_FOUND,
				Message: fmt.Sprintf("No Node of this cluster belongs to machine %s or is named %s.", t.machine, entry)}
		case machine.Ambiguous:
			t.failure = &pb.NodeFailure{Node: entry, Reason: pb.NodeFailure_REASON_AMBIGUOUS,
				Message: fmt.Sprintf("More than one Node could be machine %s; none was cordoned.", t.machine)}
		}
		out = append(out, t)
	}
	return out
}

// reportUnresolved logs, counts and records an entry that names no Node. The machine would be taken without one eviction (OP-10.6).
func (d *Drainer) reportUnresolved(t target) {
	if t.failure.Reason == pb.NodeFailure_REASON_NOT_FOUND {
		d.Instruments.NodesNotFound.Inc()
	}
	d.Log.Warn("a reclaim names a node that cannot be drained", "machine", t.machine, "entry", t.entry, "reason", t.failure.Reason.String())
	d.Record(events.Event{Regarding: upcoming.Subject(t.machine), Warning: true, Reason: "ReclaimWithoutNode", Message: t.failure.Message})
}

// join gives the entry its drain: the one that runs on the node, or a new one. It returns nil when the entry belongs to
// an instruction that was stopped or taken back.
func (d *Drainer) join(in *pb.ReclaimInstruction, t target, received time.Time) *drain {
	grace := time.Duration(in.GracePeriodSeconds) * time.Second
	if grace <= 0 {
		grace = graceDefault
	}
	s := state{Instruction: in.InstructionId, Machine: t.machine, Deadline: ceilSeconds(received.Add(grace)),
		WasUnschedulable: t.node.Spec.Unschedulable, PreemptorPriority: in.PreemptorPriority, Cause: in.Cause.String()}
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.remember(in.InstructionId)
	_, seen := known.nodes[t.entry]
	known.nodes[t.entry] = t.node.Name
	run := d.drains[t.node.Name]
	if run != nil && run.uid != t.node.UID {
		run = nil // of a Node that had the name before
	}
	switch {
	case run != nil && run.outcome == outcomeStopped && seen:
		return nil // a person stopped it, and the shard only repeats itself (OP-8.16)
	case run != nil && (!run.ended || run.outcome == outcomeDrained || seen):
		run.tighten(s, received)
		return run
	case run != nil && run.outcome == outcomeDeadline:
		s.WasUnschedulable = run.state.WasUnschedulable // asked again after the deadline: our own cordon is no person's
	}
	return d.start(t.node, s, false)
}

// Cancel takes an instruction back: evictions stop, and nodes become as they were (OP-8.15). Unknown ones do nothing.
func (d *Drainer) Cancel(c *pb.ReclaimCancel) {
	d.mu.Lock()
	defer d.mu.Unlock()
	known := d.instructions[c.InstructionId]
	for name, t := range d.drains {
		_, named := t.instructions[c.InstructionId]
		if !named && (known == nil || t.state.Instruction != c.InstructionId) {
			continue
		}
		if len(c.MachineIds) > 0 && !slices.Contains(c.MachineIds, t.state.Machine) {
			continue
		}
		if t.releasing || d.base == nil {
			continue
		}
		t.releasing = true
		d.Log.Info("a reclaim is cancelled", "instruction", c.InstructionId, "machine", t.state.Machine, "node", name, "reason", c.Reason)
		d.tasks.Go(func() { d.giveBack(d.base, t, reasonCancelled, c.Reason) })
	}
}

// ceilSeconds keeps a deadline whole in the annotation without shortening it.
func ceilSeconds(t time.Time) int64 { return t.Add(time.Second - time.Nanosecond).Unix() }
