package inventory

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// ENG-5.1, ENG-P15: what exists costs its price and nothing else does. A refused Create leaves a Failed machine without a host.
func TestOnlyWhatExistsIsBilled(t *testing.T) {
	tab := New(symbol.NewSpace())
	for _, c := range []struct {
		name   string
		m      Machine
		exists bool
	}{
		{"available to buy", Machine{State: Speculative}, false},
		{"Create on its way", Machine{State: Creating}, false},
		{"Create refused", Machine{State: Failed, LastError: "the provider refused Create: out of stock"}, false},
		{"idle", Machine{State: Idle}, true},
		{"serving", Machine{State: Configured, Cluster: "red", HostRef: "h"}, true},
		{"being deleted", Machine{State: Deleting, HostRef: "h"}, true},
		{"failed with its host", Machine{State: Failed, HostRef: "h", LastError: "no answer"}, true},
		{"failed, and its host is lost", Machine{State: Failed, HostRef: "h", Failure: FailureHostLost}, false},
	} {
		c.m.ID, c.m.Provider, c.m.Price = "m", "cloud", 7
		i, _ := tab.Put(c.m)
		want := int64(0)
		if c.exists {
			want = 7
		}
		if c.m.Exists() != c.exists || tab.Exists(i) != c.exists || tab.Billed() != want {
			t.Errorf("%s: exists %v and %v, billed %d", c.name, c.m.Exists(), tab.Exists(i), tab.Billed())
		}
	}
}
