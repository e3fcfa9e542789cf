package planner

import (
	"math"
	"slices"
)

// allocation names a Need in allocation order (ENG-7.2): the rank with higher first, the arrival with unknown last, the cluster and
// the position in it, which are in order themselves.
type allocation struct {
	rank, arrival uint64
	cl, need      int32
}

func allocationOf(cl *clusterState, w *needState) allocation {
	f := cl.need(w).Form
	t := allocation{cl: cl.at, need: w.at, arrival: math.MaxUint64}
	t.rank = ^(uint64(uint32(f.Priority)^1<<31)<<16 | uint64(f.Interruption)<<8 | uint64(f.Reclamation))
	if cl.need(w).Arrival != 0 {
		t.arrival = uint64(cl.need(w).Arrival) ^ 1<<63
	}
	return t
}

// priority is that of the Need.
func (t allocation) priority() int32 { return int32(uint32(^t.rank>>16) ^ 1<<31) }

func compareAllocations(a, b allocation) int {
	switch {
	case a.rank != b.rank:
		return sign(a.rank < b.rank)
	case a.arrival != b.arrival:
		return sign(a.arrival < b.arrival)
	case a.cl != b.cl:
		return sign(a.cl < b.cl)
	case a.need != b.need:
		return sign(a.need < b.need)
	}
	return 0
}

func sign(before bool) int {
	if before {
		return -1
	}
	return 1
}

// allocationSorter sorts by allocation order, byte by byte, the least significant first, and only by the bytes in which allocations differ:
// ranks are few and arrivals often equal, so that two or three passes do instead of a dozen comparisons for each allocation.
type allocationSorter struct {
	plain           bool // fastPaths.noRadix
	keys, spare     []keyed
	unsorted        []allocation
	unsortedPending []pendingNeed
}

// keyed is one column of an allocation, and where in the list the allocation is.
type keyed struct {
	key uint32
	at  int32
}

const radixMin = 128 // fewer are sorted by comparison

// sort sorts a list.
func (s *allocationSorter) sort(list []allocation) {
	if s.plain || len(list) < radixMin {
		slices.SortFunc(list, compareAllocations)
		return
	}
	s.arrange(len(list), func(i int32) *allocation { return &list[i] })
	s.unsorted = append(s.unsorted[:0], list...)
	for i, k := range s.keys {
		list[i] = s.unsorted[k.at]
	}
	s.shrink()
}

// sortPending sorts pending Needs into allocation order.
func (s *allocationSorter) sortPending(list []pendingNeed) {
	if s.plain || len(list) < radixMin {
		slices.SortFunc(list, func(a, b pendingNeed) int { return compareAllocations(a.allocation, b.allocation) })
		return
	}
	s.arrange(len(list), func(i int32) *allocation { return &list[i].allocation })
	s.unsortedPending = append(s.unsortedPending[:0], list...)
	for i, k := range s.keys {
		list[i] = s.unsortedPending[k.at]
	}
	s.shrink()
}

// order returns the allocation order of pending Needs. A short list is sorted in place instead, and the answer is nil.
func (s *allocationSorter) order(list []pendingNeed) []keyed {
	if s.plain || len(list) < radixMin {
		s.sortPending(list)
		return nil
	}
	s.arrange(len(list), func(i int32) *allocation { return &list[i].allocation })
	keys := s.keys
	s.keys = nil
	s.shrink()
	return keys
}

// shrink gives back the room of long lists, which are rare.
func (s *allocationSorter) shrink() {
	if cap(s.keys)+cap(s.spare)+cap(s.unsortedPending)+cap(s.unsorted) > keepAllocations {
		*s = allocationSorter{plain: s.plain}
	}
}

// keepAllocations is for up to how many allocations the room to sort them is kept for the next plan.
const keepAllocations = 1 << 13

// arrange leaves in keys which allocation comes where.
func (s *allocationSorter) arrange(n int, of func(i int32) *allocation) {
	s.keys, s.spare = slices.Grow(s.keys[:0], n)[:n], slices.Grow(s.spare[:0], n)[:n]
	first, before := *of(0), *of(0)
	var differ allocation // the bits in which any two differ
	sorted := true        // by place
	for i := range s.keys {
		t := of(int32(i))
		s.keys[i].at = int32(i)
		sorted = sorted && (t.cl > before.cl || t.cl == before.cl && t.need >= before.need)
		before = *t
		differ.rank |= t.rank ^ first.rank
		differ.arrival |= t.arrival ^ first.arrival
		differ.cl |= t.cl ^ first.cl
		differ.need |= t.need ^ first.need
	}
	if sorted {
		differ.cl, differ.need = 0, 0
	}
	for column := range allocationColumns {
		bits := differ.column(column)
		if bits == 0 {
			continue
		}
		for i := range s.keys {
			s.keys[i].key = of(s.keys[i].at).column(column)
		}
		s.radix(bits)
	}
}

// radix sorts keys by the bytes that differ. Equal ones stay in their order.
func (s *allocationSorter) radix(differ uint32) {
	for shift := 0; shift < 32; shift += 8 {
		if differ>>shift&0xff == 0 {
			continue
		}
		var count [256]int32
		for i := range s.keys {
			count[byte(s.keys[i].key>>shift)]++
		}
		at := int32(0)
		for b, n := range count {
			count[b] = at
			at += n
		}
		for _, k := range s.keys {
			b := byte(k.key >> shift)
			s.spare[count[b]] = k
			count[b]++
		}
		s.keys, s.spare = s.spare, s.keys
	}
}

const allocationColumns = 6

// column is a part of the order as a number: first the place of the Need, which counts least, then arrival, then rank.
func (t *allocation) column(i int) uint32 {
	switch i {
	case 0:
		return uint32(t.need) // neither is negative
	case 1:
		return uint32(t.cl)
	case 2:
		return uint32(t.arrival)
	case 3:
		return uint32(t.arrival >> 32)
	case 4:
		return uint32(t.rank)
	}
	return uint32(t.rank >> 32)
}
