package upcoming

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

func (b *bench) there(id string) bool {
	b.server.mu.Lock()
	defer b.server.mu.Unlock()
	_, ok := b.server.objects[Name(id)]
	return ok
}

func (b *bench) says(state pb.MachineState, released bool, ids ...string) {
	for _, id := range ids {
		b.Update(&pb.NodeStateUpdate{MachineId: id, State: state, Released: released})
	}
	time.Sleep(passingMax)
}

// OP-12.1, OP-12.10: what a complete replay does not mention goes at once; a failure that is younger than an hour when it is an hour old, in
// the same session, and not before; one that the shard still speaks of stays.
func TestPruneAfterAReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, time.Millisecond)
		b.Opened()
		b.says(pb.MachineState_MACHINE_STATE_CONFIGURED, false, "ready")
		b.says(pb.MachineState_MACHINE_STATE_FAILED, false, "failed", "spoken-of")
		failed := time.Now()
		b.Opened()
		b.says(pb.MachineState_MACHINE_STATE_FAILED, false, "spoken-of")
		if !b.there("ready") {
			t.Error("pruned before the replay is complete")
		}
		b.Resynced()
		time.Sleep(time.Second)
		if b.there("ready") || !b.there("failed") || !b.there("spoken-of") {
			t.Errorf("after the replay: not mentioned %v, failed %v, spoken of %v", b.there("ready"), b.there("failed"), b.there("spoken-of"))
		}
		time.Sleep(time.Until(failed.Add(failedKept - passingMax - time.Second)))
		if !b.there("failed") {
			t.Error("a failure went before its hour")
		}
		time.Sleep(passingMax + sweepEvery + 2*time.Second)
		if b.there("failed") {
			t.Error("a failure of a machine that is gone stays for more than an hour")
		}
		time.Sleep(100 * time.Hour)
		if !b.there("spoken-of") {
			t.Error("a failure that the shard speaks of is gone")
		}
	})
}

// OP-12.1, OP-12.10: without the end of a replay nothing goes but failures older than a day without a Node; a released failure is kept an hour.
func TestPruneWithoutAReplay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, time.Millisecond)
		b.Opened()
		b.says(pb.MachineState_MACHINE_STATE_CONFIGURED, false, "ready")
		b.Machines.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "with-node", Labels: map[string]string{v1alpha1.LabelMachineID: "with-node"}}})
		b.says(pb.MachineState_MACHINE_STATE_FAILED, false, "failed", "with-node")
		failed := time.Now()
		b.says(pb.MachineState_MACHINE_STATE_FAILED, false, "released")
		b.says(pb.MachineState_MACHINE_STATE_FAILED, true, "released")
		b.Opened()
		time.Sleep(failedKept - time.Minute)
		if !b.there("released") {
			t.Error("a released failure went before its hour")
		}
		time.Sleep(2*time.Minute + sweepEvery)
		if b.there("released") {
			t.Error("a released failure stays for more than an hour")
		}
		time.Sleep(time.Until(failed.Add(failedKeptUnheard - passingMax - time.Second)))
		if !b.there("failed") || !b.there("ready") {
			t.Errorf("before a day: failed %v, ready %v", b.there("failed"), b.there("ready"))
		}
		time.Sleep(passingMax + sweepEvery + 2*time.Second)
		if b.there("failed") || !b.there("with-node") || !b.there("ready") {
			t.Errorf("after a day: failed %v, failed with a Node %v, ready %v", b.there("failed"), b.there("with-node"), b.there("ready"))
		}
	})
}

// OP-12.10: the cache hears of an object's last change and of its end after it was deleted here. It is not taken for one of an earlier process
// meanwhile, and not written again.
func TestADeletedObjectStaysDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, time.Millisecond)
		b.Opened()
		b.says(pb.MachineState_MACHINE_STATE_CONFIGURED, false, "m")
		b.server.mu.Lock()
		late := b.server.objects[Name("m")]
		b.server.mu.Unlock()
		b.says(pb.MachineState_MACHINE_STATE_CONFIGURED, true, "m")
		if b.there("m") {
			t.Fatal("the object of a released machine is there")
		}
		b.SetObject(&late)
		time.Sleep(sweepEvery + time.Second)
		b.DeleteObject(&late)
		time.Sleep(time.Minute)
		if b.there("m") {
			t.Error("the object is there again")
		}
	})
}
