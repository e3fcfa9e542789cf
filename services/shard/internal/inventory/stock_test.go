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
