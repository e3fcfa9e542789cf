package fleet

import (
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-10.4: a binding that reports made is an admin's once an admin repeats it, and stays that.
func TestRepeatedBindingIsTheAdmins(t *testing.T) {
	l := newLog(t)
	l.must(addShard("shard-0", "sim"))
	reported := &pb.Operation{Kind: &pb.Operation_BindCluster{BindCluster: &pb.BindCluster{ClusterId: "red", ShardId: "shard-0", Source: v1.ClusterBinding_SOURCE_REPORT}}}
	for _, step := range []struct {
		op   *pb.Operation
		want v1.ClusterBinding_Source
	}{{reported, v1.ClusterBinding_SOURCE_REPORT}, {bind("red", "shard-0", false), v1.ClusterBinding_SOURCE_ADMIN}, {reported, v1.ClusterBinding_SOURCE_ADMIN}} {
		l.must(step.op)
		if got := l.s.Cluster("red").GetSource(); got != step.want {
			t.Fatalf("source %s, want %s", got, step.want)
		}
	}
}
