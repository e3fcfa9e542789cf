package cover

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// supplyGroup is classes with equal supply, in groups of equal effective cost for one interruption bucket, cheapest first. What
// is not the cheapest of its supply group is never better than what is (ENG-13), so a choice looks at one group per supply group.
//
// Groups are cut by full supply, not by class: how labels split classes must not change a choice (ENG-6.5).
type supplyGroup struct {
	tiers []priceTier
	slots []Slot // of each group
	gen   uint32 // of the free pools that head is about
	head  [2]int32
}

type priceTier struct {
	cost     int64
	from, to int32 // slots
}

// Slot is one class of a group. N is used by candidate indexes of one domain only: how many are free there.
type Slot struct {
	Class uint32
	N     int32
}

// Index is what Needs with one matcher, one projection and one interruption bucket can choose from, sorted for the cover
// rule. Nothing in it depends on what is free, so it is kept from plan to plan.
type Index struct {
	m       *match.Matcher
	f       *match.Projection
	bucket  demand.Bucket
	version uint64

	zones map[*inventory.Topology]*zones // its parts by domain

	groups []supplyGroup
	slots  []Slot      // of all supply groups, one after the other
	tiers  []priceTier // of all supply groups
	base   []int32     // number of the first group of each supply group; groups are numbered through the candidate index
	of     []int32     // supply group of each group
	sup    []int64     // by supply group: supply in the projection
	byCost []int32     // the supply groups, those with the cheapest group first
	costs  []int64     // by supply group: of that group
}

// addGroup adds a supply group of slots that are sorted by cost. cost is by class.
func (k *Index) addGroup(slots []Slot, cost func(class uint32) int64) {
	from := len(k.tiers)
	for i, x := range slots {
		c := cost(x.Class)
		if n := len(k.tiers); n > from && k.tiers[n-1].cost == c {
			k.tiers[n-1].to++
			continue
		}
		k.tiers = append(k.tiers, priceTier{cost: c, from: int32(i), to: int32(i + 1)})
	}
	k.groups = append(k.groups, supplyGroup{tiers: k.tiers[from:], slots: slots})
}

func (k *Index) tier(g int32) *priceTier {
	s := k.of[g]
	return &k.groups[s].tiers[g-k.base[s]]
}

func (k *Index) supply(s int32) []int64 {
	n := int32(len(k.f.Dims))
	return k.sup[s*n : s*n+n : s*n+n]
}

// index numbers the groups and sorts the supply groups, once these are in place.
func (k *Index) index() {
	groups := 0
	for i := range k.groups {
		groups += len(k.groups[i].tiers)
	}
	n, dims := len(k.groups), len(k.f.Dims)
	k.base, k.of = slices.Grow(k.base[:0], n), slices.Grow(k.of[:0], groups)
	k.sup, k.costs, k.byCost = slices.Grow(k.sup[:0], n*dims), slices.Grow(k.costs[:0], n), slices.Grow(k.byCost[:0], n)
	for i := range k.groups {
		s := &k.groups[i]
		k.base = append(k.base, int32(len(k.of)))
		for range s.tiers {
			k.of = append(k.of, int32(i))
		}
		k.sup = append(k.sup, k.f.Supply(s.slots[0].Class)...)
		k.costs, k.byCost = append(k.costs, s.tiers[0].cost), append(k.byCost, int32(i))
	}
	slices.SortFunc(k.byCost, func(a, b int32) int { return cmp.Compare(k.costs[a], k.costs[b]) })
}

// addShare adds a weighted amount to a share, saturating.
func addShare(share uint64, x int64, shift uint8) uint64 {
	sum, carry := bits.Add64(share, uint64(x)<<shift, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// compareRatio compares a÷x with b÷y.
func compareRatio(a int64, x uint64, b int64, y uint64) int {
	ahi, alo := bits.Mul64(uint64(a), y)
	bhi, blo := bits.Mul64(uint64(b), x)
	switch {
	case ahi != bhi:
		return cmp.Compare(ahi, bhi)
	case alo != blo:
		return cmp.Compare(alo, blo)
	}
	return 0
}

// DomainIndex is a candidate index of what one domain has left for one Need. It serves one question; its memory is reused.
type DomainIndex struct{ mk Index }

// Fill makes the candidate index from classes and how many machines of each are left.
func (x *DomainIndex) Fill(c *Indexes, m *match.Matcher, f *match.Projection, b demand.Bucket, slots []Slot) {
	x.mk.m, x.mk.f, x.mk.bucket = m, f, b
	c.fill(&x.mk, slots)
}
