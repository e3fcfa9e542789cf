package core

import (
	"maps"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
)

// SHARD-28.1: everything that is recorded, digested or stored has a form.
func TestEverythingWrittenHasAForm(t *testing.T) {
	for _, v := range []any{
		Started{}, SessionOpened{}, SessionClosed{}, RollupArrived{}, BootstrapAnswered{}, ReclaimAcked{}, NodeReported{}, DrainReported{},
		UnplacedReported{}, ListPage{}, ListDone{}, GetDone{}, CommandDone{}, CoordinatorReplied{}, AdminAsked{}, Tick{}, Stopping{},
		CheckpointAsked{}, PlanDiffered{},
		Command{}, GetMachine{}, ListMachines{}, PullBootstrap{}, DropBlob{}, SendReclaim{}, SendNodeState{}, SendHint{}, SendNeedStatus{},
		SendAck{}, CloseSession{}, AckInstruction{}, Notice{}, Persist{}, Record{}, Superseded{}, WakeAt{}, Snapshot{}, JournalEntry{}, Control{},
	} {
		codec.Check(v)
	}
}

// SHARD-28.3: an order that waits for the Lists of more than a thousand providers waits for as many after a restore.
func TestListingOrderSurvivesManyProviders(t *testing.T) {
	c := New(nil)
	c.admin.done = map[int64]int{7: 1_200, 9: 1}
	b := codec.Marshal(c.live().Snapshot())
	var s Snapshot
	if err := codec.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	s.Config.CycleInterval = Second
	back, _ := Restore(nil, &s)
	if !maps.Equal(back.admin.done, c.admin.done) {
		t.Errorf("orders wait for %v after a restore, want %v", back.admin.done, c.admin.done)
	}
	old, _ := Restore(nil, &Snapshot{Config: s.Config, Packed: []savedCount{{N: 7_002}}})
	if old.admin.done[7] != 2 {
		t.Errorf("a checkpoint of an older version gives %v", old.admin.done)
	}
}
