package inventory

import (
	"math/rand/v2"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
	"pgregory.net/rapid"
)

// ENG-P20, ENG-5.1, ENG-5.2, ENG-5.3: on random walks over legal edges a machine has a host and a cluster exactly in the states that
// have one, is in one pool at most, and comes back to where it began with the id it had.
func TestWalksKeepTheRules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 20))
		tab := New(symbol.NewSpace())
		const n = 8
		for k := range n {
			tab.Put(Machine{ID: string(rune('a' + k)), State: Speculative, CapacityType: CapacityType(r.IntN(5))})
		}
		clusters := []string{"blue", "red"}
		for range 300 {
			i, _ := tab.Find(string(rune('a' + r.IntN(n))))
			from, to := tab.State(i), State(1+r.IntN(states-1))
			if !legal(from, to) {
				continue
			}
			cluster := ""
			switch {
			case to == Configuring:
				cluster = clusters[r.IntN(2)]
			case to == Configured || to == Draining:
				cluster = tab.Cluster(i)
			}
			if !tab.Move(i, to, cluster) || tab.State(i) != to {
				rt.Fatalf("%s to %s is legal and was not done", from, to)
			}
			if to == Failed { // what a repair makes of it is an observation
				tab.Move(i, Speculative, "")
			}
			check(rt, tab)
		}
	})
}

func check(t *rapid.T, tab *Table) {
	free := map[Index]int{}
	for id := range uint32(tab.Classes()) {
		for _, pool := range tab.Class(id).Pools {
			for _, chunk := range pool.Chunks() {
				for _, i := range chunk {
					free[i]++
				}
			}
		}
	}
	n := 0
	for i := range tab.All() {
		n++
		s := tab.State(i)
		wantsCluster := s == Configuring || s == Configured || s == Draining
		if (tab.Cluster(i) != "") != wantsCluster {
			t.Fatalf("%s is %s in cluster %q", tab.ID(i), s, tab.Cluster(i))
		}
		if s.Hosted() != (s == Idle || s == Configuring || s == Configured || s == Draining || s == Deleting) || s.Bound() && !s.Hosted() {
			t.Fatalf("%s: hosted %v", s, s.Hosted())
		}
		if want := s == Idle || s == Speculative; (free[i] == 1) != want {
			t.Fatalf("%s is %s and in %d pools", tab.ID(i), s, free[i])
		}
	}
	if n != tab.Len() || n != 8 {
		t.Fatalf("%d machines", n)
	}
}

// legal reports whether the state machine has an edge from one state to another (ENG-5.2). Commands take legal edges
// only; facts may show any.
func legal(from, to State) bool {
	switch from {
	case Speculative:
		return to == Creating
	case Creating:
		return to == Idle || to == Failed
	case Idle:
		return to == Configuring || to == Deleting
	case Configuring:
		return to == Configured || to == Failed || to == Idle
	case Configured:
		return to == Draining
	case Draining:
		return to == Idle || to == Failed
	case Deleting:
		return to == Speculative || to == Failed
	}
	return false
}
