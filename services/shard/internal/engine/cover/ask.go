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

// None is the cost of no machine.
const None = math.MaxUint64

// CheapestOf returns the cost of the cheapest free machine of a candidate index that holds the unit, or None.
func (c *Search) CheapestOf(free *FreePool, x *Index, unit []int64, k inventory.Pool) (cost uint64) {
	c.free, c.domain, c.avoid, c.Spare = free, nil, c.avoid[:0], c.Spare[:0]
	c.mk, c.pool, cost = x, k, None
	c.fitUsed()
	for _, s := range x.byCost {
		if uint64(x.costs[s]) >= cost {
			break
		}
		if match.Covers(x.supply(s), unit) {
			if g := c.front(s); g >= 0 {
				cost = min(cost, uint64(x.tier(g).cost))
			}
		}
	}
	return cost
}

// FirstOf returns the first free machine of a class in a domain, by id, but for those that AvoidFor has collected.
func (c *Search) FirstOf(t *Domains, d int32, k inventory.Pool, class uint32) (m Machine, order uint32) {
	x := t.cursor(d, k, class)
	if !x.known || c.free.IsTaken(x.first.Index) || t.ByClass || len(c.Spare) > 0 {
		c.pool, c.domain, c.byClass, c.left, c.domainAt = k, &t.Top.Domains[d], t.ByClass, t, d
		var w walker
		c.walk(&w, class)
		x.known, x.first, x.order = len(c.Spare) == 0, Machine{w.at, class}, w.order
	}
	return x.first, x.order
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
