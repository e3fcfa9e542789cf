package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// canStart reports whether what a gang has, what is free and what serves lower priorities in its cluster are enough for its Pods that start
// together (ENG-12.10).
func (al *allocator) canStart(cl *clusterState, w *needState) bool {
	lacks := lacksToStart(cl, w, cl.rest(w))
	if match.IsZero(lacks) {
		return true
	}
	match.Subtract(lacks, al.freeFor(cl, w))
	from := lower(cl, w)
	if cl.lastClaimed < from {
		return match.IsZero(lacks)
	}
	for _, list := range [2][]int32{cl.bound, cl.flight} {
		for _, at := range list {
			if servesFrom(cl, w, from, at) {
				match.Subtract(lacks, al.gain(cl, w, from, &cl.machines[at]))
			}
		}
	}
	return match.IsZero(lacks)
}

// gain is what a machine would count for w beyond the shares that w has on it, which end when it claims the machine.
func (al *allocator) gain(cl *clusterState, w *needState, from int32, l *machineState) []int64 {
	out := slices.Clone(al.displaceable(cl, w, from, l))
	for i := l.shares; i >= 0; i = cl.shares[i].nextOn {
		if s := &cl.shares[i]; s.to == w.at {
			match.Subtract(out, cl.moreAt(s.vec, 1))
		}
	}
	return out
}

// lacksToStart is the part of a residual that a gang needs before any of its Pods run (ENG-4.13): nothing of what is no such gang.
func lacksToStart(cl *clusterState, w *needState, rest []int64) []int64 {
	out := slices.Clone(rest)
	if w.bits&wGang == 0 {
		clear(out)
		return out
	}
	if w.bits&wWhole == 0 {
		return out
	}
	least := int64(cl.need(w).Form.MinMembers)
	for j, u := range cl.unit(w) {
		beyond := max(0, cl.aggregate(w)[j]-resource.MulSat(u, least))
		out[j] = max(0, out[j]-beyond)
	}
	return out
}

// freeFor is what the free machines that w may take count for it. The next call overwrites the result.
func (al *allocator) freeFor(cl *clusterState, w *needState) []int64 {
	sum := slices.Grow(al.sum[:0], cl.dimensions())[:cl.dimensions()]
	al.sum = sum
	clear(sum)
	if w.bits&wSame != 0 {
		if t := al.acquirer.tops.of(w.key); t != nil && w.bits&wChosen != 0 {
			if d, known := t.Top.Domain(w.domain); known {
				al.gangs.freeIn(cl, w, t, int(d), inventory.IdlePool, sum)
				al.gangs.freeIn(cl, w, t, int(d), inventory.SpeculativePool, sum)
			}
		}
		return sum
	}
	m := cl.matcher(w)
	for k := range inventory.Pool(2) {
		if !al.acquirer.free.Any(m, k) {
			continue
		}
		al.cover.AvoidFor(al.acquirer.free, cl.d.ID, k, nil)
		for _, class := range m.Classes[al.acquirer.free.First(m, k):] {
			left := int64(al.acquirer.free.Left(k, class) - al.cover.Avoided(class))
			if left <= 0 || !cl.fits(w, class) {
				continue
			}
			for j, s := range cl.amount(w, class) {
				sum[j] = resource.AddSat(sum[j], resource.MulSat(s, left))
			}
		}
	}
	return sum
}
