package inspect

import (
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// SHARD-23.6: who took a machine is named to readers of the fleet and to itself, and to no other tenant. What is shared is not changed.
func TestRecordsNameNoOtherTenant(t *testing.T) {
	record := &pb.DecisionRecord{ClusterId: "red", MachineId: "m", PreemptorClusterId: "blue", PreemptorFingerprint: "f1-b", PreemptorRowId: "row-b", PreemptorPriority: 7}
	before := proto.CloneOf(record)
	for reader, named := range map[string]bool{"": true, "blue": true, "red": false} {
		for _, got := range append(veiled(reader, []*pb.DecisionRecord{record}), veil(reader, record)) {
			if is := got.PreemptorClusterId != "" && got.PreemptorFingerprint != "" && got.PreemptorRowId != ""; is != named || got.PreemptorPriority != 7 || got.MachineId != "m" {
				t.Errorf("%q reads %v", reader, got)
			}
			if !named && (got.PreemptorClusterId+got.PreemptorFingerprint+got.PreemptorRowId) != "" {
				t.Errorf("%q reads a part of the name: %v", reader, got)
			}
		}
	}
	if !proto.Equal(record, before) {
		t.Errorf("the record itself is changed: %v", record)
	}
}
