package upcoming

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
)

// Resynced says that the shard has mentioned every machine it knows of since the session opened: objects of other
// machines are deleted, but for young failures and nodes that are being drained (OP-12.10).
func (w *Writer) Resynced() {
	now := time.Now()
	w.mu.Lock()
	w.resynced = w.session
	w.adoptAll()
	gone := w.prune(now)
	w.mu.Unlock()
	for _, id := range gone {
		w.queue.Add(id)
	}
}

// prune ends the objects of machines that a session with a complete replay has not mentioned. A young failure and a drain that runs stay
// for a later look. The caller holds the lock.
func (w *Writer) prune(now time.Time) (gone []string) {
	if w.resynced == 0 || w.resynced != w.session {
		return nil
	}
	for id, e := range w.entries {
		if e.session == w.session || e.stage.gone || w.Draining(id) || e.stage.phase == v1alpha1.NodeFailed && now.Sub(e.failed) < failedKept {
			continue
		}
		e.stage = stage{phase: e.stage.phase, gone: true}
		gone = append(gone, id)
	}
	if len(gone) > 0 {
		w.Log.Info("UpcomingNodes that the shard no longer knows are deleted", "machines", gone)
	}
	return gone
}

// adoptAll starts an entry for every object of an earlier process.
func (w *Writer) adoptAll() {
	for _, o := range w.objects {
		if id := o.Spec.MachineID; id != "" {
			if e := w.entry(id); e.written == nil && !e.stage.gone {
				e.written = o
			}
		}
	}
}

// sweep deletes failures that were shown long enough, and looks for nodes that never joined.
func (w *Writer) sweep(now time.Time) {
	w.mu.Lock()
	maps.DeleteFunc(w.removed, func(_ types.UID, at time.Time) bool { return now.Sub(at) > removedKept })
	w.adoptAll()
	again := w.prune(now)
	var overdue []string
	for id, e := range w.entries {
		if e.stage.phase == v1alpha1.NodeFailed && !e.stage.gone && !w.Draining(id) {
			kept := failedKeptUnheard
			if e.frame.GetReleased() {
				kept = failedKept
			}
			node, _ := w.Machines.Find(id)
			if now.Sub(e.failed) >= kept && (e.frame.GetReleased() || w.resynced == 0 && node == nil) {
				e.stage.gone = true
				again = append(again, id)
			}
		}
		if w.late(id, now) {
			overdue = append(overdue, id)
			again = append(again, id)
		}
	}
	w.mu.Unlock()
	w.Instruments.NodesNeverJoined.Set(float64(len(overdue)))
	for _, id := range again {
		w.queue.Add(id)
	}
	for _, id := range overdue {
		w.Record(events.Event{Regarding: Subject(id), Warning: true, Reason: ReasonNeverJoined,
			Message: "Machine " + id + " is configured, but its Node has not become Ready within " + w.JoinTimeout.String() + "."})
	}
	conflicts := 0
	for _, id := range w.Machines.IDs() {
		if _, how := w.Machines.Find(id); how == machine.Ambiguous {
			conflicts++
		}
	}
	w.Instruments.IdentityConflicts.Set(float64(conflicts))
}

func (w *Writer) late(id string, now time.Time) bool {
	m, known := w.Machines.Machine(id)
	if !known {
		return false
	}
	node, _ := w.Machines.Find(id)
	if node == nil {
		return w.overdue(m, time.Time{}, now)
	}
	ready, since, _ := machine.Ready(node)
	return !ready && w.overdue(m, since, now)
}

// Subject is the UpcomingNode of a machine as the subject of an event.
func Subject(id string) events.Subject {
	return events.Subject{APIVersion: v1alpha1.GroupVersion().String(), Kind: "UpcomingNode", Name: Name(id)}
}
