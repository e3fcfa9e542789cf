package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// storyMax bounds how many lines a story has.
const storyMax = 6

// Story says how a machine came where it is, oldest first: since when it is in its cluster and for what it came there, or how it left
// the last one and what has become of it since. records are of that machine, newest first.
func Story(now time.Time, records []*pb.DecisionRecord) (said []string) {
	ended := map[string]bool{}
	for i, r := range records {
		over := r.GetType() == pb.RecordType_RECORD_TYPE_ENDED && r.GetOutcome() == "success"
		line, whole, leaving, emptied := "", false, false, false
		switch drains := r.GetKind() == pb.ActionKind_ACTION_KIND_RECLAIM || r.GetKind() == pb.ActionKind_ACTION_KIND_PREEMPT; {
		case over && drains:
			line, whole, emptied = "Left cluster "+r.GetClusterId(), true, true
		case over && r.GetKind() == pb.ActionKind_ACTION_KIND_DELETE:
			line = "Returned to its provider"
		case over && r.GetKind() == pb.ActionKind_ACTION_KIND_BOOTSTRAP:
			line, whole = "Became a Node of cluster "+r.GetClusterId(), true
		case r.GetType() == pb.RecordType_RECORD_TYPE_STARTED && drains && !ended[r.GetOperationId()]:
			leaving, emptied = true, true
		}
		if r.GetType() == pb.RecordType_RECORD_TYPE_ENDED {
			ended[r.GetOperationId()] = true
		}
		why := Why(r)
		switch r.GetType() {
		case pb.RecordType_RECORD_TYPE_MACHINE_VANISHED, pb.RecordType_RECORD_TYPE_MACHINE_FAILED, pb.RecordType_RECORD_TYPE_UNEXPECTED_EDGE, pb.RecordType_RECORD_TYPE_INTERRUPTION:
			line, why = happened[r.GetType()], Sentence(r)
		}
		if detail := begun(records[i:], r.GetOperationId()); emptied && strings.HasPrefix(detail, noPods) {
			why = empty(r, detail)
		} else if emptied {
			why = strings.TrimSpace(why + " " + detail)
		}
		if leaving {
			said = append(said, output.Line("Has been leaving cluster %s since %s (%s): %s", r.GetClusterId(), output.Time(r.GetAtUnixNanos()), output.Age(now, r.GetAtUnixNanos()), why))
		}
		if whole && r.GetCause() == "phase1.handover" {
			why = first(records[i:], why)
		}
		if line != "" {
			took := ""
			if d := r.GetDurationNanos(); d != 0 && whole {
				took = ", after " + time.Duration(d).Round(100*time.Millisecond).String()
			}
			said = append(said, output.Line("%s at %s (%s ago%s): %s", line, output.Time(r.GetAtUnixNanos()), output.Age(now, r.GetAtUnixNanos()), took, why))
		}
		if whole || len(said) == storyMax {
			break
		}
	}
	slices.Reverse(said)
	return said
}

// Entered is when a machine entered its state by an action of an earlier process of its shard, of which only the records are left; 0 where
// the shard itself knows since when, or no record does. records are of that machine, newest first.
func Entered(m *pb.MachineView, records []*pb.DecisionRecord) int64 {
	if !m.GetStateSinceStart() {
		return 0
	}
	for _, r := range records {
		switch {
		case r.GetAtUnixNanos() >= m.GetStateSinceUnixNanos():
			continue
		case r.GetType() != pb.RecordType_RECORD_TYPE_ENDED && r.GetToState() != r.GetFromState(): // it changed without an action
			if r.GetToState() == m.GetMachine().GetState() {
				return r.GetAtUnixNanos()
			}
			return 0
		case r.GetType() != pb.RecordType_RECORD_TYPE_ENDED || r.GetOutcome() != "success":
			continue
		}
		state := pb.MachineState_MACHINE_STATE_IDLE
		switch r.GetKind() {
		case pb.ActionKind_ACTION_KIND_BOOTSTRAP:
			state = pb.MachineState_MACHINE_STATE_CONFIGURED
		case pb.ActionKind_ACTION_KIND_DELETE:
			state = pb.MachineState_MACHINE_STATE_SPECULATIVE
		}
		if state == m.GetMachine().GetState() && (state != pb.MachineState_MACHINE_STATE_CONFIGURED || r.GetClusterId() == m.GetMachine().GetCluster()) {
			return r.GetAtUnixNanos()
		}
		return 0
	}
	return 0
}

// begun is what the first record of an operation says beside its cause: why a Node took no Pods.
func begun(records []*pb.DecisionRecord, operation string) (detail string) {
	for _, r := range records {
		if r.GetOperationId() == operation && r.GetType() == pb.RecordType_RECORD_TYPE_STARTED {
			detail = r.GetDetail()
		}
	}
	return detail
}

// first is why a machine that was handed over began its way to the cluster: it was bought, or taken from a need.
func first(records []*pb.DecisionRecord, why string) string {
	for _, r := range records {
		if r.GetType() != pb.RecordType_RECORD_TYPE_STARTED {
			continue
		}
		switch r.GetKind() {
		case pb.ActionKind_ACTION_KIND_PROVISION, pb.ActionKind_ACTION_KIND_PREEMPT, pb.ActionKind_ACTION_KIND_RECLAIM:
			return Why(r)
		}
	}
	return why
}

var happened = map[pb.RecordType]string{
	pb.RecordType_RECORD_TYPE_MACHINE_VANISHED: "Vanished from its provider", pb.RecordType_RECORD_TYPE_MACHINE_FAILED: "Failed",
	pb.RecordType_RECORD_TYPE_UNEXPECTED_EDGE: "Changed without an action of BigFleet", pb.RecordType_RECORD_TYPE_INTERRUPTION: "Interruption",
}

// name is what -o name prints of a record.
func name(r *pb.DecisionRecord) string {
	return fmt.Sprintf("record/%s/%d", r.GetShardId(), r.GetSequence())
}
