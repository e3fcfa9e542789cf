package planner

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// drawAllocations draws allocations that differ in few bits, and in which bits is drawn, too. Places are in order or not.
func drawAllocations(rt *rapid.T) []allocation {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 3))
	list := make([]allocation, rapid.IntRange(1, 5*radixMin).Draw(rt, "allocations"))
	ranks, arrivals := []uint64{r.Uint64() >> 8}, []uint64{math.MaxUint64}
	for range r.IntN(6) {
		ranks = append(ranks, ranks[0]^1<<r.IntN(48))
		arrivals = append(arrivals, r.Uint64()>>r.IntN(64))
	}
	wide := int32(1) << r.IntN(24)
	for i := range list {
		list[i] = allocation{rank: ranks[r.IntN(len(ranks))], arrival: arrivals[r.IntN(len(arrivals))], cl: int32(i) / 7 * wide, need: int32(i) % 7 * wide}
	}
	switch r.IntN(3) {
	case 0: // out of order
		r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
	case 1: // clusters in order, not what is in them
		for from := 0; from+7 <= len(list); from += 7 {
			part := list[from : from+7]
			r.Shuffle(7, func(i, j int) { part[i], part[j] = part[j], part[i] })
		}
	}
	return list
}

// ENG-7.2: however many allocations there are, and whatever a list before them left behind, they come in the order of comparison.
func TestAllocationsOfAnyNumberAreInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var s allocationSorter
		for range 3 {
			list := drawAllocations(rt)
			want := slices.Clone(list)
			slices.SortFunc(want, compareAllocations)
			stand := make([]pendingNeed, len(list))
			for i := range list {
				stand[i].allocation = list[i]
			}
			byOrder := slices.Clone(stand)
			keys := s.order(byOrder)
			s.sortPending(stand)
			s.sort(list)
			for i := range want {
				at := i
				if keys != nil {
					at = int(keys[i].at)
				}
				if list[i] != want[i] || stand[i].allocation != want[i] || byOrder[at].allocation != want[i] {
					rt.Fatalf("allocation %d is %+v, %+v and %+v, not %+v", i, list[i], stand[i].allocation, byOrder[at].allocation, want[i])
				}
			}
		}
	})
}

// ENG-23.5: a cold plan of many needs reads one line of memory for each need and machine.
func TestNeedsAndMachinesAreCacheLines(t *testing.T) {
	if n, m := unsafe.Sizeof(needState{}), unsafe.Sizeof(machineState{}); n != 64 || m != 64 {
		t.Errorf("a need has %d bytes and a machine %d, want 64", n, m)
	}
}
