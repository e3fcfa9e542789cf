package inventory

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// ENG-21.3: section 8 asks whether a class has anything in stock, Idle or Speculative; that one of the two ran out is no change.
func TestStockIsOfIdleAndSpeculativeTogether(t *testing.T) {
	tb := New(symbol.NewSpace())
	put := func(id string, s State) Index {
		at, _ := tb.Put(Machine{ID: id, Provider: "p", State: s, InstanceType: "m5", Zone: "z", HostProvider: "p", HostRef: id})
		return at
	}
	idle, slot := put("a", Idle), put("b", Speculative)
	since := tb.StockVersion()
	tb.Move(idle, Configured, "blue")
	tb.Move(idle, Idle, "")
	if got := tb.StockVersion(); got != since {
		t.Errorf("the class had a Speculative machine all the time, and its stock changed %d times", got-since)
	}
	tb.Move(idle, Configured, "blue")
	tb.Move(slot, Creating, "")
	if got := tb.StockVersion(); got != since+1 {
		t.Errorf("the class has nothing in stock any more, and its stock changed %d times", got-since)
	}
}

// ENG-12.7: a machine is withheld from a cluster once, for however many reasons: what counts machines that are left takes it off once.
func TestAMachineIsAvoidedOnce(t *testing.T) {
	tb := New(symbol.NewSpace())
	i, _ := tb.Put(Machine{ID: "a", Provider: "p", State: Speculative, InstanceType: "m5", Zone: "z"})
	red := tb.Space().Clusters.Intern("red")
	for n, do := range []func() bool{
		func() bool { return tb.Withhold(i, Withheld{Reason: WithheldBackoff, Cluster: "red"}) },
		func() bool { return tb.Withhold(i, Withheld{Reason: WithheldNotJoined, Cluster: "red"}) },
		func() bool { return tb.Lift(i, WithheldBackoff, "red") },
	} {
		if !do() || len(tb.Avoided(red)) != 1 {
			t.Errorf("step %d: avoided %v, want the machine once", n, tb.Avoided(red))
		}
	}
	if tb.Lift(i, WithheldNotJoined, "red"); len(tb.Avoided(red)) != 0 {
		t.Errorf("the last mark is gone, and %v is avoided", tb.Avoided(red))
	}
}
