package cover

import (
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Ask states a question: a Need of the cluster lacks rest and takes from one pool. many says that only whole units of a machine count for it, and
// perHost how many at most; 0 is no limit (ENG-4.12a).
// Where it may choose from is said next, by Everywhere or In.
func (c *Search) Ask(free *FreePool, cluster symbol.ID, k inventory.Pool, unit, rest []int64, many bool, perHost int32) {
	c.pool, c.domain = k, nil
	c.AvoidFor(free, cluster, k, nil)
	c.unit = append(c.unit[:0], unit...)
	c.input = append(c.input[:0], rest...)
	c.whole, c.perHost = many && !slices.Equal(c.unit, c.input), perHost
}

// Everywhere lets the cover choose from a candidate index. It reports whether there is anything.
func (c *Search) Everywhere(k *Index) bool {
	c.mk = k
	return len(k.groups) > 0
}

// In lets the cover choose from what one domain has left. It reports whether there is anything.
func (c *Search) In(x *DomainIndex, t *Domains, d int32) bool {
	c.mk, c.domain, c.byClass, c.left, c.domainAt = &x.mk, &t.Top.Domains[d], t.ByClass, t, d
	return len(c.mk.groups) > 0
}

// AvoidFor collects the free machines of a pool that the cluster must not take. only restricts them, for instance to a domain; nil means all.
func (c *Search) AvoidFor(free *FreePool, cluster symbol.ID, k inventory.Pool, only func(i inventory.Index) bool) {
	c.free, c.avoid, c.Spare = free, c.avoid[:0], c.Spare[:0]
	for _, i := range free.inv.Avoided(cluster) {
		r := free.inv.Row(i)
		if (k == inventory.IdlePool) != (r.Seen() == inventory.Idle) || free.IsTaken(i) || only != nil && !only(i) {
			continue
		}
		c.Spare = append(c.Spare, i)
		at := slices.IndexFunc(c.avoid, func(s Slot) bool { return s.Class == r.Class })
		if at < 0 {
			at = len(c.avoid)
			c.avoid = append(c.avoid, Slot{Class: r.Class})
		}
		c.avoid[at].N++
	}
}

// Avoided is how many machines of a class AvoidFor has collected.
func (c *Search) Avoided(class uint32) int32 {
	for _, a := range c.avoid {
		if a.Class == class {
			return a.N
		}
	}
	return 0
}

// CostOf is the effective cost of one machine of a group of the answer.
func (c *Search) CostOf(p pick) uint64 { return uint64(c.mk.tier(p.Group).cost) }

// NewAllocation says that what follows is asked in another allocation.
func (c *Search) NewAllocation() { c.last.fresh = false }

// HasFree reports whether a pool has a free machine of a candidate index that holds the unit.
func (c *Search) HasFree(free *FreePool, x *Index, unit []int64, k inventory.Pool) bool {
	c.free, c.domain, c.avoid, c.Spare = free, nil, c.avoid[:0], c.Spare[:0]
	c.mk, c.pool = x, k
	c.fitUsed()
	for s := range c.mk.groups {
		if match.Covers(c.mk.supply(int32(s)), unit) && c.front(int32(s)) >= 0 {
			return true
		}
	}
	return false
}

// Cheapest returns the cost and the order of the cheapest single machine that covers what a search was asked, if there is one.
func Cheapest(c *Search) (cost int64, order uint32) {
	c.prepare()
	_, end := c.look()
	if end.group < 0 {
		return math.MaxInt64, math.MaxUint32
	}
	return end.cost, c.first(end.group)
}

// answer is one machine of a group that was the whole answer, without a tie.
type answer struct {
	Gen     uint32 // of the free pools
	Pool    inventory.Pool
	Cost    int64
	Supply  []int64
	Classes []Slot
}

// LastAnswer returns the answer of the allocation at hand, if it was of that kind.
func (c *Search) LastAnswer() (a answer, ok bool) {
	x := &c.last
	if x.mk == nil || x.gen != c.free.Gen || !x.fresh {
		return a, false
	}
	gr, s := x.mk.tier(x.group), x.mk.of[x.group]
	return answer{x.gen, x.pool, gr.cost, x.mk.supply(s), x.mk.groups[s].slots[gr.from:gr.to]}, true
}
