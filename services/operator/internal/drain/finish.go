package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
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
		t.d.Record(events.Event{Regarding: upcoming.Subject(id), Warning: true, Reason: "DrainDeadline", Message: text})
	case outcomeStopped:
		t.d.Show(id, upcoming.DrainNone, "")
		t.report(pb.DrainState_DRAIN_STATE_STOPPED, text)
		t.d.Record(events.Event{Regarding: upcoming.Subject(id), Reason: "DrainStopped", Message: "The drain of node " + t.node + " was stopped: " + stopMessage[text] + "."})
	}
}

// stopMessage explains why a drain was stopped.
var stopMessage = map[string]string{
	reasonUser:      "someone made the node schedulable again; BigFleet leaves it alone until the next instruction for it",
	reasonCancelled: "the shard cancelled it because the cluster still needs the machine; the node is schedulable as before",
	reasonAbandoned: "its deadline passed and the shard still reports the machine as configured; the node is schedulable as before",
}

// giveBack ends a cancelled or abandoned drain and restores its node (OP-8.15).
func (d *Drainer) giveBack(ctx context.Context, t *drain, reason, why string) {
	d.mu.Lock()
	stop, uncordon := t.stop, !t.state.WasUnschedulable
	d.mu.Unlock()
	if stop != nil {
		stop()
		<-t.done
	}
	for pause := errorRetryMin; ; pause = min(2*pause, errorRetryMax) {
		err := t.patchNode(ctx, releasePatch(uncordon))
		if err == nil || apierrors.IsNotFound(err) {
			break
		}
		d.Log.Warn("the drain of a node could not be undone", "node", t.node, "err", err)
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
	d.mu.Lock()
	t.ended = false // it may have ended at its deadline; the cancellation takes precedence
	d.mu.Unlock()
	t.finish(outcomeStopped, reason)
	d.mu.Lock()
	if d.drains[t.node] == t {
		delete(d.drains, t.node)
	}
	d.mu.Unlock()
	d.Log.Info("the drain of a node is cancelled", "node", t.node, "machine", t.state.Machine, "uncordoned", uncordon, "why", why)
}

// report sends the progress of the drain to the shard (OP-8.13).
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

// progress is the part of a report whose change is worth a new report: counts of Pods and blocking budgets.
func (t *drain) progress() string {
	budgets := t.budgets()
	t.attempts.mu.Lock()
	defer t.attempts.mu.Unlock()
	return fmt.Sprint(t.total, t.evicted, t.terminating, t.protected, budgets)
}

// undisturbed names the Pods marked do-not-disrupt that block the drain, because the machine is not needed (OP-9.2).
func (t *drain) undisturbed() []string {
	t.d.mu.Lock()
	voluntary := t.state.voluntary()
	t.d.mu.Unlock()
	if !voluntary {
		return nil
	}
	t.attempts.mu.Lock()
	defer t.attempts.mu.Unlock()
	return slices.Clone(t.protected)
}

// reportBlocked writes an event that names what blocks the drain, and its deadline, and repeats it while it blocks (OP-8.17).
func (t *drain) reportBlocked() {
	budgets, names := t.budgets(), t.undisturbed()
	t.d.mu.Lock()
	id, blocked, deadline := t.state.Machine, t.blocked, t.state.deadline()
	t.d.mu.Unlock()
	var why []string
	if len(budgets) > 0 {
		why = append(why, fmt.Sprintf("disruption budgets block the eviction of %d Pods: %s", blocked, strings.Join(budgets, ", ")))
	}
	if len(names) > 0 {
		why = append(why, "Pods marked do-not-disrupt stay: "+strings.Join(names, ", "))
	}
	if len(why) > 0 {
		t.d.Record(events.Event{Regarding: upcoming.Subject(id), Warning: true, Reason: "DrainBlocked", Message: fmt.Sprintf(
			"Node %s: %s. BigFleet retries until %s.", t.node, strings.Join(why, "; "), deadline.UTC().Format(time.TimeOnly+" MST"))})
	}
}

// notifyPodOwners writes an event for each Pod that has to leave the node (OP-14.3).
func (t *drain) notifyPodOwners() {
	t.d.mu.Lock()
	grace, why := time.Until(t.state.deadline()).Round(time.Second), causeMessage[t.state.Cause]
	if t.state.Cause == pb.ReclaimInstruction_CAUSE_PREEMPT.String() {
		why = fmt.Sprintf("a workload of priority %d needs the machine", t.state.PreemptorPriority)
	}
	t.d.mu.Unlock()
	for _, p := range t.d.Pods.On(t.node) {
		if pods.Evictable(p) && p.DeletionTimestamp == nil {
			t.d.Record(events.Event{Regarding: PodSubject(p), Reason: "DrainStarted",
				Message: fmt.Sprintf("Node %s is being drained within %v: %s.", t.node, grace, why)})
		}
	}
}

var causeMessage = map[string]string{
	"": "the shard reclaims the machine", // resumed from an older operator
	pb.ReclaimInstruction_CAUSE_UNSPECIFIED.String(): "the shard reclaims the machine",
	pb.ReclaimInstruction_CAUSE_VOLUNTARY.String():   "the cluster has more machines than it needs",
	pb.ReclaimInstruction_CAUSE_ADMIN.String():       "an administrator requested it",
}

// PodSubject is a Pod as the subject of an event.
func PodSubject(p *pods.Pod) events.Subject {
	return events.Subject{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}
