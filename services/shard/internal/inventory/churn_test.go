package inventory

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// ENG-21.11: machines come and go with ids, hosts, labels and marks of their own. What is kept grows with those that are there, not with
// those that were, and those that are there keep what they have.
func TestChurnLeavesNothingBehind(t *testing.T) {
	tab := New(symbol.NewSpace())
	const alive, rounds = 50, 600
	machine := func(k int) Machine {
		m := Machine{ID: fmt.Sprintf("m%06d-%s", k, strings.Repeat("i", k%150)), HostRef: fmt.Sprint("host", k, strings.Repeat("h", 100)), HostProvider: "p",
			State: Idle, Provider: "p"}
		for l := range 6 {
			m.Labels = append(m.Labels, Label{Key: fmt.Sprint("key", l), Value: fmt.Sprint("v", k, l)})
		}
		return m
	}
	held := func(k int) int64 { return int64(k+1) * 1000 }
	for k := range alive * rounds {
		i, _ := tab.Put(machine(k))
		tab.SetPromise(i, &Promise{Cluster: "red", Expires: held(k)})
		for again := range 3 { // stored again each time, and only the last counts
			tab.Withhold(i, Withheld{Reason: WithheldQuota, Until: held(k) + int64(again)})
		}
		if k >= alive {
			gone, ok := tab.Find(machine(k - alive).ID)
			if !ok {
				t.Fatalf("machine %d is lost", k-alive)
			}
			tab.Remove(gone)
		}
		tab.Advance(1)
	}
	if len(tab.expiry) > 2048+8*alive || tab.ids.size > 4*blockSize || tab.hosts.size > 4*blockSize || len(tab.labelSets.words) > 4096+12*6*alive {
		t.Errorf("kept: %d times, %d bytes of ids, %d of hosts, %d words of labels", len(tab.expiry), tab.ids.size, tab.hosts.size, len(tab.labelSets.words))
	}
	for k := alive * (rounds - 1); k < alive*rounds; k++ {
		want := machine(k)
		i, ok := tab.Find(want.ID)
		if !ok || fmt.Sprint(tab.Machine(i)) != fmt.Sprint(want) {
			t.Fatalf("machine %d is %+v, want %+v", k, tab.Machine(i), want)
		}
	}
	first := alive * (rounds - 1)
	if gone := tab.Advance(held(first+9) + 2); len(gone) != 20 {
		t.Errorf("%d promises and marks end with the time of the tenth machine, not 20: %v", len(gone), gone)
	}
}

// ENG-P15: what all machines cost together is right also where the sum leaves 64 bits and comes back.
func TestTheBillIsExactBeyond64Bits(t *testing.T) {
	tab := New(symbol.NewSpace())
	for k := range 6 {
		tab.Put(Machine{ID: fmt.Sprint("m", k), State: Idle, Price: math.MaxInt64})
	}
	tab.Put(Machine{ID: "cheap", State: Idle, Price: 7})
	if tab.Billed() != math.MaxInt64 {
		t.Errorf("%d, not the most there is", tab.Billed())
	}
	for k := range 6 {
		i, _ := tab.Find(fmt.Sprint("m", k))
		tab.Remove(i)
	}
	if tab.Billed() != 7 {
		t.Errorf("%d is left of 7", tab.Billed())
	}
}
