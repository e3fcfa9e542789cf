package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// domainCandidates is a candidate index of what one domain has left for one Need. It serves one question; its memory is reused.
type domainCandidates struct {
	mk     *candidateIndex
	groups []*supplyGroup
}

// candidatesIn fills a candidate index with what one domain has left for w.
func (ts *topologies) candidatesIn(into *domainCandidates, cl *clusterState, w *needState, t *topState, d int, k inventory.Pool) {
	all := ts.cat.groupsOf(w.bucket)
	ts.keys = ts.keys[:0]
	for i, cell := range t.top.Domains[d].Cells[k] {
		if n := ts.left(t, d, k, i); n > 0 && cl.fits(w, cell.Class) {
			ts.keys = append(ts.keys, uint64(all.rank[cell.Class])<<32|uint64(i))
		}
	}
	slices.Sort(ts.keys)
	if into.mk == nil {
		into.mk = &candidateIndex{}
	}
	m := into.mk
	m.m, m.f, m.bucket = cl.matcher(w), cl.f, w.bucket
	m.groups = m.groups[:0]
	supply := uint32(0)
	for _, key := range ts.keys {
		i := int(uint32(key))
		class := t.top.Domains[d].Cells[k][i].Class
		if len(m.groups) == 0 || ts.cat.SupplyNumber[class] != supply {
			supply = ts.cat.SupplyNumber[class]
			if len(m.groups) == len(into.groups) {
				into.groups = append(into.groups, &supplyGroup{})
			}
			s := into.groups[len(m.groups)]
			s.slots = s.slots[:0]
			m.groups = append(m.groups, s)
		}
		s := m.groups[len(m.groups)-1]
		s.slots = append(s.slots, slot{class, ts.left(t, d, k, i)})
	}
	for _, s := range m.groups {
		s.fill(func(class uint32) int64 { return match.EffectiveCost(ts.w.Inventory.Class(class), w.bucket) })
		s.gen, s.head = ts.free.gen, [2]int32{}
	}
	m.index()
}
