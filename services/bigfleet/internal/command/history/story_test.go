package history

import (
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// user-asks 2, SHARD-18.9: a machine that was released because its Node took no Pods says so, while it leaves and afterwards. Notes of later
// records of the same operation are about the operation, not about its cause.
func TestStoryOfACordonedMachine(t *testing.T) {
	record := func(kind pb.RecordType, outcome, detail string) *pb.DecisionRecord {
		return &pb.DecisionRecord{Type: kind, OperationId: "op-1", Kind: pb.ActionKind_ACTION_KIND_RECLAIM, Cause: "phase3.excess", ClusterId: "red", RowId: "r1", Outcome: outcome, Detail: detail}
	}
	first := record(pb.RecordType_RECORD_TYPE_STARTED, "", "Its Node took no Pods: cordoned since 08:00 UTC.")
	again := record(pb.RecordType_RECORD_TYPE_STARTED, "", "asked again")
	for begins, records := range map[string][]*pb.DecisionRecord{
		"Left cluster red at ":                {record(pb.RecordType_RECORD_TYPE_ENDED, "success", ""), again, first},
		"Has been leaving cluster red since ": {again, first},
	} {
		said := strings.Join(Story(time.Now(), records), "\n")
		if !strings.HasPrefix(said, begins) || !strings.Contains(said, "Its Node took no Pods: cordoned since 08:00 UTC. No Pod was left on it, so it is released.") || strings.Contains(said, "No need uses it") || strings.Contains(said, "asked again") {
			t.Errorf("%q", said)
		}
	}
	if said, cause := Sentence(first), Cause(first); said != "Its Node took no Pods: cordoned since 08:00 UTC. No Pod was left on it, so it is released." || cause != "took no Pods" {
		t.Errorf("history says %q, %q", said, cause)
	}
}
