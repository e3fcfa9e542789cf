package drain

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/notes"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/upcoming"
)

// finish ends a drain. text is the reason of a stop, or what went wrong.
func (t *drain) finish(outcome, text string) {
	t.d.mu.Lock()
	if t.ended {
		t.d.mu.Unlock()
		return
	}
	t.ended, t.outcome, t.blocked = true, outcome, 0
	id := t.state.Machine
	t.d.mu.Unlock()
	t.d.Instruments.DrainDuration.WithLabelValues(outcome).Observe(time.Since(t.begun).Seconds())
	t.d.Log.Info("a drain ended", "node", t.node, "machine", id, "outcome", outcome, "detail", text, "duration", time.Since(t.begun).Round(time.Millisecond))
	switch outcome {
	case outcomeDrained, outcomeGone:
		t.d.Show(id, upcoming.DrainDone, "")
		t.report(pb.DrainState_DRAIN_STATE_DONE, "")
	case outcomeDeadline:
		t.d.Show(id, upcoming.DrainFailed, text)
		t.report(pb.DrainState_DRAIN_STATE_DEADLINE_EXCEEDED, "")
		t.d.Note(notes.Note{About: upcoming.Subject(id), Warning: true, Reason: "DrainDeadline", Message: text})
	case outcomeStopped:
		t.d.Show(id, upcoming.DrainNone, "")
		t.report(pb.DrainState_DRAIN_STATE_STOPPED, text)
		t.d.Note(notes.Note{About: upcoming.Subject(id), Reason: "DrainStopped", Message: "the drain of node " + t.node + " was stopped: " + stopped[text]})
	}
}

// stopped says to people why a drain was stopped.
var stopped = map[string]string{
	reasonUser:      "a person made the node schedulable again; it is left alone until the next instruction for it",
	reasonCancelled: "the fleet needs the machine here after all; the node is as it was before",
	reasonAbandoned: "the time is over, and the fleet speaks of the machine as if there was no drain; the node is as it was before",
}

// giveBack ends a drain that is taken back and makes its node as it was before (OP-8.15).
func (d *Drainer) giveBack(ctx context.Context, t *drain, reason, why string) {
	d.mu.Lock()
	stop, uncordon := t.stop, !t.state.WasUnschedulable
	d.mu.Unlock()
	if stop != nil {
		stop()
		<-t.over
	}
	for pause := errorRetryMin; ; pause = min(2*pause, errorRetryMax) {
		err := t.patchNode(ctx, releasePatch(uncordon))
		if err == nil || apierrors.IsNotFound(err) {
			break
		}
		d.Log.Warn("a node could not be given back", "node", t.node, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
	d.mu.Lock()
	t.ended = false // it may have ended at its deadline; what counts now is that it was taken back
	d.mu.Unlock()
	t.finish(outcomeStopped, reason)
	d.mu.Lock()
	if d.drains[t.node] == t {
		delete(d.drains, t.node)
	}
	d.mu.Unlock()
	d.Log.Info("a node is given back", "node", t.node, "machine", t.state.Machine, "uncordoned", uncordon, "why", why)
}

// report tells the shard how the drain is going (OP-8.13).
func (t *drain) report(s pb.DrainState, reason string) {
	t.d.mu.Lock()
	r := &pb.DrainReport{
		InstructionId: t.state.Instruction, MachineId: t.state.Machine, State: s, Reason: reason,
		PodsBlocked: int32(t.blocked), DeadlineUnixNanos: t.state.deadline().UnixNano(),
	}
	t.d.mu.Unlock()
	r.BlockingBudgets = t.budgets()
	t.attempts.mu.Lock()
	r.PodsTotal, r.PodsEvicted, r.PodsTerminating = int32(t.total), int32(t.evicted), int32(t.terminating)
	r.ProtectedPods = append(r.ProtectedPods, t.protected...)
	t.attempts.mu.Unlock()
	t.d.Report(r)
}

// standing is what a report would say that people wait for: Pods that go and what blocks them.
func (t *drain) standing() string {
	budgets := t.budgets()
	t.attempts.mu.Lock()
	defer t.attempts.mu.Unlock()
	return fmt.Sprint(t.total, t.evicted, t.terminating, budgets)
}

// complain tells people which budgets hold the drain up, and until when; now and then again while it is so (OP-8.17).
func (t *drain) complain() {
	budgets := t.budgets()
	if len(budgets) == 0 {
		return
	}
	t.d.mu.Lock()
	id, blocked, deadline := t.state.Machine, t.blocked, t.state.deadline()
	t.d.mu.Unlock()
	t.d.Note(notes.Note{About: upcoming.Subject(id), Warning: true, Reason: "DrainBlocked", Message: fmt.Sprintf(
		"node %s: %d Pods are held by the disruption budgets %s; their eviction is tried again until %s, when the machine's provider takes over",
		t.node, blocked, strings.Join(budgets, ", "), deadline.UTC().Format(time.TimeOnly+" MST"))})
}

// announce tells the owners of the Pods that they have to go (OP-14.3).
func (t *drain) announce() {
	t.d.mu.Lock()
	grace, why := time.Until(t.state.deadline()).Round(time.Second), causes[t.cause]
	if t.cause == pb.ReclaimInstruction_CAUSE_PREEMPT {
		why = fmt.Sprintf("a workload of priority %d needs the machine", t.state.PreemptorPriority)
	}
	t.d.mu.Unlock()
	for _, p := range t.d.Pods.On(t.node) {
		if pods.Evictable(p) && p.DeletionTimestamp == nil {
			t.d.Note(notes.Note{About: PodSubject(p), Reason: "DrainStarted",
				Message: fmt.Sprintf("node %s is being drained within %v: %s", t.node, grace, why)})
		}
	}
}

var causes = map[pb.ReclaimInstruction_Cause]string{
	pb.ReclaimInstruction_CAUSE_UNSPECIFIED: "the fleet takes the machine back",
	pb.ReclaimInstruction_CAUSE_VOLUNTARY:   "the cluster has more machines than it needs",
	pb.ReclaimInstruction_CAUSE_ADMIN:       "an administrator asked for it",
}

// PodSubject is a Pod as the subject of an event.
func PodSubject(p *pods.Pod) notes.Subject {
	return notes.Subject{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}
