package planner_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
)

// ENG-S23, ENG-13.9: a hard spread counts Pods. kube-scheduler wants each zone to hold at most what the emptiest one holds, and the skew.
func TestASpreadCountsPods(t *testing.T) {
	const free = `
		machines a1..a9 cpu=10 zone=a price=1 speculative
		machines b1..b9 cpu=10 zone=b price=2 speculative
		machines c1..c9 cpu=10 zone=c price=3 speculative`
	for name, c := range map[string]struct {
		world string
		want  string // ids of the machines that are bought
		short bool
	}{
		"one machine holds all three Pods": {"need red/x cpu=3 unit=cpu:1 spread=zone:1" + free, "a1 b1 c1", false},
		"one Pod takes the cheapest zone":  {"need red/x cpu=1 unit=cpu:1 spread=zone:1" + free, "a1", false},
		"a wide skew needs fewer zones":    {"need red/x cpu=3 unit=cpu:1 spread=zone:5" + free, "a1", false},
		"more than a machine in each zone": {"need red/x cpu=34 unit=cpu:1 spread=zone:1" + free, "a1 a2 b1 b2 c1 c2", false},
		"too few zones":                    {"need red/x cpu=4 unit=cpu:1 spread=zone:1,4" + free, "a1 b1 c1", true},
		"one Pod for each zone":            {"need red/x cpu=3 unit=cpu:1 spread=zone:1,2147483647" + free, "a1 b1 c1", false},
		"a zone and a host":                {`need red/x cpu=6 unit=cpu:1 spread=zone:1 per-host=1` + free, "a1 a2 b1 b2 c1 c2", false},
		"a full node makes its zone count": {`need red/x cpu=4 unit=cpu:4 spread=zone:1
			need red/y cpu=2 in=zone:d
			machine d1 cpu=2 zone=d configured=red for=y
			machine a1 cpu=8 zone=a speculative`, "a1", false},
		"and two Pods do not run beside it": {`need red/x cpu=8 unit=cpu:4 spread=zone:1
			need red/y cpu=2 in=zone:d
			machine d1 cpu=2 zone=d configured=red for=y
			machine a1 cpu=8 zone=a speculative`, "a1", true},
		"nodes of one zone serve all": {`need red/x cpu=3 unit=cpu:1 spread=zone:1
			machine m1 cpu=10 zone=a configured=red for=x
			machine b1 cpu=10 zone=b speculative`, "", false},
		"and of another zone as soon as it has one": {`need red/x cpu=3 unit=cpu:1 spread=zone:1
			need red/y cpu=2 unit=cpu:2 in=zone:b
			machine m1 cpu=10 zone=a configured=red for=x
			machine m2 cpu=2 zone=b configured=red for=y
			machine b1 cpu=10 zone=b speculative`, "b1", false},
		"others leave room": {`need red/x cpu=3 unit=cpu:1 spread=zone:1
			need red/y cpu=20 unit=cpu:10 in=zone:a
			need red/z cpu=12 unit=cpu:12 in=zone:b
			machine m1 cpu=21 zone=a configured=red for=y
			machine m2 cpu=13 zone=b configured=red for=z` + free, "c1", false},
		"the other zone is sold out": {`need red/x cpu=5 unit=cpu:1 spread=zone:1
			machine m1 cpu=1 zone=b speculative
			machines a1..a3 cpu=3 zone=a speculative`, "a1 m1", true},
		"a node on its way lets another hold less": {`cluster red sharing=0
			need red/x cpu=8 unit=cpu:2 spread=zone:1 priority=9
			need red/y cpu=8 unit=cpu:2
			machine m1 cpu=8 zone=a configured=red for=y
			machine m2 cpu=2 zone=b idle`, "", true},
	} {
		s := newScript()
		s.lines(c.world)
		r := both(t, s.w)
		bought := map[string]bool{}
		for _, a := range r.Actions {
			if a.Kind == engine.Provision {
				bought[s.w.Inventory.ID(a.Machine)] = true
			}
		}
		if got := strings.Join(slices.Sorted(maps.Keys(bought)), " "); got != c.want || (len(r.Short) > 0) != c.short {
			t.Errorf("%s: bought %s, short %v; want %s, short %v", name, got, len(r.Short) > 0, c.want, c.short)
		}
	}
}

// ENG-13.9, 7.3: whatever Pods a hard spread has and wherever kube-scheduler put them, no machine that one of them runs on is given back while
// empty machines of the row are there.
func TestASpreadKeepsTheMachinesOfItsPods(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 945))
		zones, skew := 2+r.IntN(3), 1+r.IntN(2)
		var world strings.Builder
		room, held := make([]int, zones), make([]int, zones)
		for z := range room {
			room[z] = 1 + r.IntN(6)
		}
		pods := 0
		for pods < 12 { // as kube-scheduler does
			may := slices.DeleteFunc(r.Perm(zones), func(z int) bool { return held[z] == room[z] || held[z] >= slices.Min(held)+skew })
			if len(may) == 0 {
				break
			}
			held[may[0]]++
			pods++
		}
		fmt.Fprintf(&world, "need red/x cpu=%d unit=cpu:2 spread=zone:%d\n", 2*pods, skew)
		inUse := map[string]bool{}
		for z := range room {
			on := r.Perm(room[z])[:held[z]]
			for i := range room[z] {
				id, holds := fmt.Sprintf("m%d-%d", z, i), "nothing"
				if slices.Contains(on, i) {
					holds, inUse[id] = "1", true
				}
				fmt.Fprintf(&world, "machine %s cpu=2 zone=z%d price=%d configured=red for=x holds=%s\n", id, z, 1+r.IntN(2), holds)
			}
		}
		s := newScript()
		s.lines(world.String())
		for _, a := range planner.Plan(engine.Input{World: s.w}).Actions {
			if id := s.w.Inventory.ID(a.Machine); inUse[id] {
				t.Fatalf("seed %d: %s of %s, which holds a Pod, in\n%s", seed, a.Kind, id, world.String())
			}
		}
	}
}
