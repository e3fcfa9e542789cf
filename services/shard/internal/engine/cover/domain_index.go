package cover

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
)

// DomainIndex is a candidate index of what one domain has left for one Need. It serves one question; its memory is reused.
type DomainIndex struct {
	mk     *Index
	groups []*supplyGroup
	keys   []uint64
}

// Fill makes the candidate index from classes and how many machines of each are left.
func (x *DomainIndex) Fill(c *Indexes, free *FreePool, f *match.Projection, b demand.Bucket, slots []Slot) {
	all := c.groupsOf(b)
	x.keys = x.keys[:0]
	for i, s := range slots {
		x.keys = append(x.keys, uint64(all.rank[s.Class])<<32|uint64(i))
	}
	slices.Sort(x.keys)
	if x.mk == nil {
		x.mk = &Index{}
	}
	m := x.mk
	m.f, m.bucket, m.groups = f, b, m.groups[:0]
	supply := uint32(0)
	for _, key := range x.keys {
		from := slots[uint32(key)]
		if len(m.groups) == 0 || c.SupplyNumber[from.Class] != supply {
			supply = c.SupplyNumber[from.Class]
			if len(m.groups) == len(x.groups) {
				x.groups = append(x.groups, &supplyGroup{})
			}
			s := x.groups[len(m.groups)]
			s.slots = s.slots[:0]
			m.groups = append(m.groups, s)
		}
		s := m.groups[len(m.groups)-1]
		s.slots = append(s.slots, from)
	}
	for _, s := range m.groups {
		c.cutTiers(s, b)
		s.gen, s.head = free.Gen, [2]int32{}
	}
	m.index()
}
