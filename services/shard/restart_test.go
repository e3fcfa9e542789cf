package shard_test

import (
	"fmt"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// scattered is the operator of a cluster whose scheduler put all Pods of two rows on the machine of one of them.
func scattered(v *virtual, busy string) *Operator {
	o := ConnectOver(v.t, v.ln.DialContext, "red", append([]string{"node-contents"}, AllFeatures...)...)
	v.ends = append(v.ends, o.Close)
	o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{LastOfFullSet: true}}})
	for i := range 2 {
		id := fmt.Sprintf("red-%d", i)
		held := &pb.NodeContents{EmptySinceUnixNanos: time.Now().UnixNano()}
		if id == busy {
			held = &pb.NodeContents{Pods: 8, DisruptionCostCents: 8}
		}
		o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{MachineId: id, NodeName: "n-" + id, Present: true, Ready: true, Contents: held}}})
	}
	return o
}

// SHARD-13.20, ENG-11.19: a shard that is started again on its data directory knows whose Pods run on machines of other rows. It buys no
// machine for them.
func TestARestartDoesNotShowInTheBill(t *testing.T) {
	p := NewProvider(Host("red-0", pb.MachineState_MACHINE_STATE_CONFIGURED, "red"), Host("red-1", pb.MachineState_MACHINE_STATE_CONFIGURED, "red"), Slot("s-0", 1, "4", "16Gi"))
	web, api := Need("4", 0), Need("4", 1)
	web.RowId, api.RowId = "web", "api"
	dir := t.TempDir()
	runs := func(lives time.Duration) {
		inVirtualTime(t, p, func(c *shard.Config) { c.DataDir = dir }, func(v *virtual) {
			wait(time.Second)
			o := scattered(v, "red-1")
			for began := time.Now(); time.Since(began) < lives; wait(10 * time.Second) {
				o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_UnplacedPods{UnplacedPods: &pb.UnplacedPods{UnboundStated: true}}})
				o.Rollup(web, api)
			}
		})
	}
	runs(10 * time.Minute)
	if p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) != 1 || len(p.Calls("Drain")) != 1 {
		t.Fatalf("the machine that stays empty is not given back: %v", p.Calls())
	}
	before := len(p.Calls("Create", "Configure"))
	for range 2 {
		runs(10 * time.Minute)
	}
	if n := len(p.Calls("Create", "Configure")) - before; n != 0 {
		t.Errorf("two restarts took %d machines at constant demand", n)
	}
}
