package shard_test

import (
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// Scenario 35, SHARD-3.10, 20.7: a process that a provider shows a newer epoch continues running, so that nothing starts it
// again with an epoch above its successor's. It sends nothing any more, says why to its sessions and to readers, refuses
// new sessions, is not ready and is alive.
func TestSupersededProcessStays(t *testing.T) {
	p := NewProvider(slots(6)...).Serve(t)
	s := start(t, p)
	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Rollup(Need("4", 0))
	Eventually(t, "a machine serves", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 1 })
	p.Set(func(p *Provider) {
		p.Before = func(c Call) error {
			return rpc.NewError(connect.CodeFailedPrecondition, "stale token", &pb.FenceDetail{ShardId: c.Shard, MachineId: c.Machine,
				OfferedEpoch: c.Epoch, OfferedSequence: c.Sequence, MarkEpoch: c.Epoch + 1, MarkSequence: 1})
		}
	})
	o.Rollup(Need("12", 0))
	err := o.Ended(t)
	if connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "superseded") {
		t.Errorf("the session ended with %v", err)
	}
	Eventually(t, "readers see it", func() bool { return s.status(t).GetSuperseded() })
	_, ready := s.tel.Health.Ready()
	if _, dead := s.tel.Health.Live(); s.status(t).GetReady() || ready == nil || dead != nil {
		t.Errorf("ready %v, /readyz %v, /healthz %v", s.status(t).GetReady(), ready, dead)
	}
	calls := len(p.Calls())
	again := Dial(t, s.Addr, "red")
	again.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: "red", ProtocolVersion: "v1alpha1"}}})
	again.Start()
	if err := again.Ended(t); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a new session ended with %v", err)
	}
	if _, err := s.Admin.ReconcileNow(t.Context(), connect.NewRequest(&pb.ReconcileNowRequest{Reason: "look"})); connect.CodeOf(err) == connect.CodeUnavailable {
		t.Errorf("the process is gone: %v", err)
	}
	if n := len(p.Calls()); n != calls {
		t.Errorf("%d commands after the last one", n-calls)
	}
}

// SHARD-7.10: at --max-sessions a new cluster is refused, with a code that says so; a replacement never is.
func TestSessionsAreLimited(t *testing.T) {
	s := start(t, NewProvider().Serve(t), func(c *shard.Config) { c.SessionsMax = 2 })
	red, blue := Connect(t, s.Addr, "red"), Connect(t, s.Addr, "blue")
	Eventually(t, "both are installed", func() bool { return s.status(t).GetSessions() == 2 })
	hello := func(name string) *Operator {
		o := Dial(t, s.Addr, name)
		o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: name, ProtocolVersion: "v1alpha1"}}})
		o.Start()
		return o
	}
	if err := hello("green").Ended(t); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("the third cluster got %v", err)
	}
	next := hello("red")
	Await(t, next, "the hello ack", func(m *pb.ShardMessage) (bool, bool) { return true, m.GetAck().GetEcho() == "hello" })
	if err := red.Ended(t); connect.CodeOf(err) != connect.CodeAborted {
		t.Errorf("the replaced session got %v", err)
	}
	blue.Close()
	Eventually(t, "there is room again", func() bool { return s.status(t).GetSessions() == 1 })
	Await(t, hello("green"), "the hello ack", func(m *pb.ShardMessage) (bool, bool) { return true, m.GetAck().GetEcho() == "hello" })
}

// SHARD-20.4, 15.1: every attempt of a command carries a value of one counter of the process that no other attempt had, in
// the order of sending; a refused attempt is not repeated by the RPC layer, but by the core with a new one.
func TestTokensAreFresh(t *testing.T) {
	p := NewProvider(slots(6)...).Serve(t)
	failed := map[string]bool{}
	p.Set(func(p *Provider) {
		p.Before = func(c Call) error { // under no lock of the provider: one call per machine and RPC fails
			if key := c.RPC + c.Machine; c.RPC == "Create" && !failed[key] {
				failed[key] = true
				return connect.NewError(connect.CodeResourceExhausted, nil)
			}
			return nil
		}
	})
	s := start(t, p, func(c *shard.Config) { c.ExecuteConcurrency, c.ProviderConcurrency = 4, 1 })
	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Rollup(Need("4", 0))
	Eventually(t, "a machine serves", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 1 })
	last, creates := int64(0), 0
	for _, c := range p.Calls() {
		if c.Shard != "shard-0" || c.Epoch != s.status(t).GetShardEpoch() || c.Sequence <= last {
			t.Errorf("%s of %s has the token (%s, %d, %d) after %d", c.RPC, c.Machine, c.Shard, c.Epoch, c.Sequence, last)
		}
		last = c.Sequence
		if c.RPC == "Create" {
			creates++
		}
	}
	if first := p.Calls()[0].Sequence; first != 1 {
		t.Errorf("the first token is %d", first)
	}
	if creates < 2 {
		t.Errorf("%d Creates, of which the first was refused: %+v", creates, p.Calls())
	}
}

// SHARD-3.13: the shard's port answers Connect, gRPC and gRPC-Web, over HTTP/2 without TLS.
func TestProtocolsOfThePort(t *testing.T) {
	s := start(t, NewProvider().Serve(t))
	for name, opts := range map[string][]connect.ClientOption{"connect": nil, "connect with JSON": {connect.WithProtoJSON()}, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}} {
		got, err := readOver(t, s.Addr, opts...).GetStatus(t.Context(), connect.NewRequest(&pb.GetStatusRequest{}))
		if err != nil || got.Msg.GetShardId() != "shard-0" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// SHARD-2.8, 14.12: a provider that cannot be reached pauses its own commands and nothing else: demand that another one can
// serve is served, and what is in excess there is given back.
func TestOneProviderAway(t *testing.T) {
	small := []*pb.Machine{Slot("small-1", 1, "1", "4Gi"), Slot("small-2", 1, "1", "4Gi")}
	away, there := NewProvider(small...).Serve(t), NewProvider(slots(3)...).Serve(t)
	s := start(t, away, func(c *shard.Config) {
		c.Providers = []shard.Provider{{Name: "away", Addr: away.Addr}, {Name: "there", Addr: there.Addr}}
		c.ReclaimCapSet = true
	})
	Eventually(t, "both were listed", func() bool { return s.status(t).GetReady() })
	gone := func(Call) error { return connect.NewError(connect.CodeUnavailable, nil) }
	away.Set(func(p *Provider) {
		p.Before = gone
		p.OnList = func(*pb.MachineList) error { return connect.NewError(connect.CodeUnavailable, nil) }
	})
	o := Connect(t, s.Addr, "red", AllFeatures...)
	big := &pb.CapacityNeed{AggregateResources: map[string]string{"cpu": "8"}, MinUnit: map[string]string{"cpu": "4"}, RowId: "big"}
	o.Rollup(Need("1", 9), big)
	Eventually(t, "the other provider's machines serve", func() bool { return there.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) >= 2 })
	o.Rollup(Need("1", 9))
	Eventually(t, "and are given back", func() bool { return there.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) <= 1 })
	if n := away.Count(pb.MachineState_MACHINE_STATE_SPECULATIVE); n != 2 {
		t.Errorf("%d slots are left at the provider that no plan reached", n)
	}
	away.Set(func(p *Provider) { p.Before, p.OnList = nil, nil })
	Eventually(t, "its inventory is fresh again", func() bool {
		for _, q := range s.status(t).GetProviders() {
			if q.GetLastError() != "" {
				return false
			}
		}
		return true
	})
}
