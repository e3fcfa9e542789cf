package shard_test

import (
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// Scenario 15, SHARD-7.3: a second dial wins; the old stream ends with ABORTED, and its late clean-up leaves the new one.
func TestNewestSessionWins(t *testing.T) {
	s := start(t, NewProvider(slots(1)...).Serve(t))
	old := Connect(t, s.Addr, "red", AllFeatures...)
	Await(t, old, "the hello ack", func(m *pb.ShardMessage) (bool, bool) { return true, m.GetAck().GetEcho() == "hello" })
	next := Connect(t, s.Addr, "red", AllFeatures...)
	if err := old.Ended(t); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("the old stream ended with %v", err)
	}
	next.Rollup(Need("2", 0))
	Await(t, next, "the ack of a roll-up", func(m *pb.ShardMessage) (bool, bool) { return true, m.GetAck().GetEcho() == "rollup" })
	Eventually(t, "one session is shown", func() bool { return s.status(t).Sessions == 1 })
}

// SHARD-7.3, 8.4: the first roll-up of a session is never taken for a frame without a session, however fast it follows the Hello.
func TestFirstRollupIsNeverLost(t *testing.T) {
	s := start(t, NewProvider().Serve(t))
	for i := range 60 {
		o := Dial(t, s.Addr, "red")
		o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: "red", ProtocolVersion: "v1alpha1"}}})
		o.Rollup(Need(fmt.Sprint(i%7+1), 0))
		o.Start()
		Await(t, o, "the ack of the first roll-up", func(m *pb.ShardMessage) (bool, bool) { return true, m.GetAck().GetEcho() == "rollup" })
	}
}

// SHARD-2.1, 12.1, 13.16, issue 2: a shard that is started again rebuilds its state from the provider, reclaims nothing
// and buys nothing twice; its epoch grows.
func TestRestartRebuildsFromTheProvider(t *testing.T) {
	p := NewProvider(slots(4)...).Serve(t)
	first := start(t, p)
	o := Connect(t, first.Addr, "red", AllFeatures...)
	o.Rollup(Need("8", 5))
	Eventually(t, "two machines serve", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 2 })
	epoch := first.status(t).ShardEpoch
	o.Close()
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	second := start(t, p, func(c *shard.Config) { c.DataDir = first.Dir })
	Eventually(t, "the shard is ready", func() bool { return second.status(t).Ready })
	if st := second.status(t); st.ShardEpoch <= epoch || st.MachinesByState["MACHINE_STATE_CONFIGURED"] != 2 {
		t.Errorf("status %v after epoch %d", st, epoch)
	}
	time.Sleep(500 * time.Millisecond) // cycles run without any demand known
	if n := len(p.Calls("Drain", "Delete")); n != 0 {
		t.Errorf("%d machines were taken before any demand was known", n)
	}
	o = Connect(t, second.Addr, "red", AllFeatures...)
	o.Rollup(Need("8", 5))
	Eventually(t, "the need is met by the old machines", func() bool {
		_, rows := second.needs(t, &pb.InspectNeedsRequest{})
		return len(rows) == 1 && rows[0].Status == pb.NeedState_NEED_STATE_MET
	})
	if n := len(p.Calls("Create")); n != 2 {
		t.Errorf("%d Creates in all", n)
	}
	l, err := second.Read.ListMachines(t.Context(), connect.NewRequest(&pb.ListMachinesRequest{States: []pb.MachineState{pb.MachineState_MACHINE_STATE_CONFIGURED}}))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range l.Msg.Machines {
		if m.Priority != 5 || m.ProfileFingerprint == "" {
			t.Errorf("the attribution was lost: %v", m)
		}
	}
}

// SHARD-2.6, 24.1, 5.4, scenario 57: a pause ordered by RPC, of a shard without a coordinator, holds over a restart, and is
// lifted by its id.
func TestPauseSurvivesARestart(t *testing.T) {
	p := NewProvider(slots(2)...).Serve(t)
	first := start(t, p)
	got, err := first.Admin.PauseActuation(t.Context(), connect.NewRequest(&pb.PauseActuationRequest{Reason: "looking"}))
	if err != nil {
		t.Fatal(err)
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	second := start(t, p, func(c *shard.Config) { c.DataDir = first.Dir })
	o := Connect(t, second.Addr, "red", AllFeatures...)
	o.Rollup(Need("4", 0))
	Eventually(t, "the need is planned and held back", func() bool {
		_, rows := second.needs(t, &pb.InspectNeedsRequest{})
		return len(rows) == 1 && rows[0].Detail == pb.NeedDetail_NEED_DETAIL_PAUSED
	})
	if n := len(p.Calls()); n != 0 {
		t.Errorf("%d calls while paused", n)
	}
	if _, err := second.Admin.ResumeActuation(t.Context(), connect.NewRequest(&pb.ResumeActuationRequest{PauseId: got.Msg.Pause.PauseId, Reason: "seen"})); err != nil {
		t.Fatal(err)
	}
	Eventually(t, "the machine is configured", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 1 })
}

// SHARD-23.1, 28.6: history and the stream of decisions tell what happened to a machine, in order and with all that is known of it.
func TestDecisionsCanBeRead(t *testing.T) {
	p := NewProvider(slots(1)...).Serve(t)
	s := start(t, p)
	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Rollup(Need("2", 0))
	Eventually(t, "the machine is configured", func() bool { return s.status(t).MachinesByState["MACHINE_STATE_CONFIGURED"] == 1 })
	h, err := s.Read.GetMachineHistory(t.Context(), connect.NewRequest(&pb.GetMachineHistoryRequest{Subject: &pb.GetMachineHistoryRequest_MachineId{MachineId: "m1"}}))
	if err != nil {
		t.Fatal(err)
	}
	var ended []string
	for _, r := range h.Msg.Records {
		if r.Type == pb.RecordType_RECORD_TYPE_ENDED {
			ended = append(ended, r.Kind.String()+" "+r.Outcome)
			if r.Sequence == 0 || r.AtUnixNanos == 0 || r.ShardEpoch == 0 || r.Cycle == 0 || r.OperationId == "" || r.MachineId != "m1" || r.Provider != "test" ||
				r.ClusterId != "red" || r.ProfileFingerprint == "" || r.RowId != "row-2" || r.Cause == "" || r.PricePerHour != 1 || r.DurationNanos <= 0 ||
				r.FenceSequence == 0 || r.ShardId != "shard-0" {
				t.Errorf("a record of an ended operation lacks something: %v", r)
			}
		}
	}
	if fmt.Sprint(ended) != "[ACTION_KIND_BOOTSTRAP success ACTION_KIND_PROVISION success]" {
		t.Errorf("ended %v", ended)
	}
	w, err := s.Read.WatchDecisions(t.Context(), connect.NewRequest(&pb.WatchDecisionsRequest{FromSequence: 1, MachineId: "m1"}))
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for w.Receive() {
		n++
	}
	if w.Err() != nil || n != len(h.Msg.Records) {
		t.Errorf("streamed %d of %d, %v", n, len(h.Msg.Records), w.Err())
	}
	c, err := s.Read.GetCost(t.Context(), connect.NewRequest(&pb.GetCostRequest{GroupBy: []string{"cluster"}}))
	if err != nil || len(c.Msg.Points[0].Rows) != 1 || c.Msg.Points[0].Rows[0].Group[0] != "red" {
		t.Errorf("cost %v, %v", c, err)
	}
}
