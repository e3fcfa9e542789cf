package inspect

import (
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ENG-5.1: each machine that is shown says whether it has a host that costs its price. What can be bought has none, nor has a Create
// that is on its way or refused, nor a machine whose host is lost.
func TestMachinesSayWhetherTheyHaveAHost(t *testing.T) {
	s := New(Config{ShardID: "shard-0", View: func() *core.Publish { return &core.Publish{} }})
	seen := map[pb.MachineState]bool{pb.MachineState_MACHINE_STATE_UNSPECIFIED: true}
	for _, c := range []struct {
		name string
		m    inventory.Machine
		want bool
	}{
		{"a slot", inventory.Machine{State: inventory.Speculative}, false},
		{"a Create on its way", inventory.Machine{State: inventory.Creating}, false},
		{"an idle one", inventory.Machine{State: inventory.Idle, HostRef: "h"}, true},
		{"one that joins its cluster", inventory.Machine{State: inventory.Configuring, Cluster: "red", HostRef: "h"}, true},
		{"one that serves", inventory.Machine{State: inventory.Configured, Cluster: "red", HostRef: "h"}, true},
		{"one that is drained", inventory.Machine{State: inventory.Draining, Cluster: "red", HostRef: "h"}, true},
		{"one that is deleted", inventory.Machine{State: inventory.Deleting, HostRef: "h"}, true},
		{"one that failed on its host", inventory.Machine{State: inventory.Failed, HostRef: "h", LastError: "no answer"}, true},
		{"a refused Create", inventory.Machine{State: inventory.Failed, LastError: "refused"}, false},
		{"a lost host", inventory.Machine{State: inventory.Failed, HostRef: "h", Failure: inventory.FailureHostLost}, false},
	} {
		c.m.ID, c.m.Provider, c.m.Price = "m", "cloud", 7
		got := s.machine(&core.Publish{}, &core.MachineView{Machine: c.m})
		if got.HasHost == nil || got.GetHasHost() != c.want {
			t.Errorf("%s: has_host %v, want %v", c.name, got.HasHost, c.want)
		}
		seen[got.GetMachine().GetState()] = true
	}
	for n, name := range pb.MachineState_name {
		if !seen[pb.MachineState(n)] {
			t.Errorf("no case for %s", name)
		}
	}
}
