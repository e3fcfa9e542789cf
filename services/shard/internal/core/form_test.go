package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
)

// SHARD-28.1: everything that is recorded, digested or stored has a form.
func TestEverythingWrittenHasAForm(t *testing.T) {
	for _, v := range []any{
		Started{}, SessionOpened{}, SessionClosed{}, RollupArrived{}, BootstrapAnswered{}, ReclaimAcked{}, NodeReported{}, DrainReported{},
		UnplacedReported{}, ListPage{}, ListDone{}, GetDone{}, CommandDone{}, CoordinatorReplied{}, AdminAsked{}, Tick{}, Stopping{},
		CheckpointAsked{},
		Command{}, GetMachine{}, ListMachines{}, PullBootstrap{}, DropBlob{}, SendReclaim{}, SendNodeState{}, SendHint{}, SendNeedStatus{},
		SendAck{}, CloseSession{}, AckInstruction{}, Notice{}, Persist{}, Record{}, Superseded{}, WakeAt{}, Snapshot{}, JournalEntry{}, Control{},
	} {
		codec.Check(v)
	}
}
