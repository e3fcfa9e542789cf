package engine

import (
	"math"
	"slices"
)

// turn names a Need in turn order (ENG-7.2): the rank with higher first, the arrival with unknown last, the cluster and
// the position in it, which are in order themselves.
type turn struct {
	rank, arrival uint64
	cl, want      int32
}

func turnOf(cl *clusterState, w *want) turn {
	f := cl.need(w).Form
	t := turn{cl: cl.at, want: w.at, arrival: math.MaxUint64}
	t.rank = ^(uint64(uint32(f.Priority)^1<<31)<<16 | uint64(f.Interruption)<<8 | uint64(f.Reclamation))
	if cl.need(w).Arrival != 0 {
		t.arrival = uint64(cl.need(w).Arrival) ^ 1<<63
	}
	return t
}

// priority is that of the Need.
func (t turn) priority() int32 { return int32(uint32(^t.rank>>16) ^ 1<<31) }

func compareTurn(a, b turn) int {
	switch {
	case a.rank != b.rank:
		return sign(a.rank < b.rank)
	case a.arrival != b.arrival:
		return sign(a.arrival < b.arrival)
	case a.cl != b.cl:
		return sign(a.cl < b.cl)
	case a.want != b.want:
		return sign(a.want < b.want)
	}
	return 0
}

func sign(before bool) int {
	if before {
		return -1
	}
	return 1
}

// turnSorter sorts by turn order, byte by byte, the least significant first, and only by the bytes in which turns differ:
// ranks are few and arrivals often equal, so that two or three passes do instead of a dozen comparisons for each turn.
type turnSorter struct {
	keys, spare []keyed
	turns       []turn
	standing    []standing
}

// keyed is one column of a turn, and where in the list the turn is.
type keyed struct {
	key uint32
	at  int32
}

const radixMin = 128 // fewer are sorted by comparison

// sort sorts a list.
func (s *turnSorter) sort(list []turn) {
	if len(list) < radixMin {
		slices.SortFunc(list, compareTurn)
		return
	}
	s.arrange(len(list), func(i int32) *turn { return &list[i] })
	s.turns = append(s.turns[:0], list...)
	for i, k := range s.keys {
		list[i] = s.turns[k.at]
	}
	s.shrink()
}

// sortStanding sorts what stands by its turns.
func (s *turnSorter) sortStanding(list []standing) {
	if len(list) < radixMin {
		slices.SortFunc(list, func(a, b standing) int { return compareTurn(a.turn, b.turn) })
		return
	}
	s.arrange(len(list), func(i int32) *turn { return &list[i].turn })
	s.standing = append(s.standing[:0], list...)
	for i, k := range s.keys {
		list[i] = s.standing[k.at]
	}
	s.shrink()
}

// order says which of what stands comes where. It sorts a short list, and returns nil.
func (s *turnSorter) order(list []standing) []keyed {
	if len(list) < radixMin {
		s.sortStanding(list)
		return nil
	}
	s.arrange(len(list), func(i int32) *turn { return &list[i].turn })
	keys := s.keys
	s.keys = nil
	s.shrink()
	return keys
}

// shrink gives back the room of long lists, which are rare.
func (s *turnSorter) shrink() {
	if cap(s.keys)+cap(s.spare)+cap(s.standing)+cap(s.turns) > keepTurns {
		*s = turnSorter{}
	}
}

// keepTurns is for up to how many turns the room to sort them is kept for the next plan.
const keepTurns = 1 << 13

// arrange leaves in keys which turn comes where.
func (s *turnSorter) arrange(n int, of func(i int32) *turn) {
	s.keys, s.spare = slices.Grow(s.keys[:0], n)[:n], slices.Grow(s.spare[:0], n)[:n]
	first, before := *of(0), *of(0)
	var differ turn // the bits in which any two differ
	sorted := true  // by place
	for i := range s.keys {
		t := of(int32(i))
		s.keys[i].at = int32(i)
		sorted = sorted && (t.cl > before.cl || t.cl == before.cl && t.want >= before.want)
		before = *t
		differ.rank |= t.rank ^ first.rank
		differ.arrival |= t.arrival ^ first.arrival
		differ.cl |= t.cl ^ first.cl
		differ.want |= t.want ^ first.want
	}
	if sorted {
		differ.cl, differ.want = 0, 0
	}
	for column := range turnColumns {
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
func (s *turnSorter) radix(differ uint32) {
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

const turnColumns = 6

// column is a part of the order as a number: first the place of the Need, which counts least, then arrival, then rank.
func (t *turn) column(i int) uint32 {
	switch i {
	case 0:
		return uint32(t.want) // neither is negative
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
