package cover

import (
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Search carries out the cover rule (ENG-13.1 to 13.7) for one question after the other. It counts machines per group; Listed says which machines
// these are.
type Search struct {
	free *FreePool

	// The question.
	mk       *Index
	pool     inventory.Pool
	domain   *inventory.Domain // of a candidate index of one domain, else nil
	left     *Domains          // what is taken of it
	domainAt int32
	byClass  bool              // the lists of classes are those of the domain
	avoid    []Slot            // free machines that this cluster must not take, by class
	Spare    []inventory.Index // these machines
	unit     []int64
	input    []int64 // the residual at the start
	whole    bool    // of a machine whole units count (ENG-4.12)
	perHost  int32   // and at most so many; 0 is no limit

	// The work.
	rest   []int64
	need   []int64 // what one machine must have
	active []int   // dimensions that are positive in input
	shift  []uint8 // of the weight of each of them
	used   []int32 // by group: tentatively taken
	seq    []pick  // bulk steps in order
	ends   []ending
	Picks  []pick // the answer
	best   []pick
	sum    []Sum // by active dimension: supply of list, less input
	total  Sum
	ids    []orderedPick
	walks  []walker
	cuts   groupAmounts
	last   asked
}

// pick is n machines of a group.
type pick struct{ Group, N int32 }

// ending is a finish of 13.4: what the first at bulk steps took, and one machine of a group.
type ending struct {
	at    int
	group int32
}

// available is how many machines of a group are free and not yet taken by this cover.
func (c *Search) available(sh *supplyGroup, gr *priceTier, g int32) int32 {
	n := -c.used[g]
	for i := gr.from; i < gr.to; i++ {
		s := &sh.slots[i]
		if c.domain != nil {
			n += s.N
		} else {
			n += c.free.free[c.pool][s.Class]
		}
		for _, a := range c.avoid {
			if a.Class == s.Class {
				n -= a.N
			}
		}
	}
	return n
}

// front returns the cheapest group of a supply group with something left, or -1.
func (c *Search) front(s int32) int32 {
	sh, base := &c.mk.groups[s], c.mk.base[s]
	if sh.gen != c.free.Gen {
		sh.gen, sh.head = c.free.Gen, [2]int32{}
	}
	head := &sh.head[c.pool]
	for g := *head; int(g) < len(sh.tiers); g++ {
		if c.available(sh, &sh.tiers[g], base+g) > 0 {
			return base + g
		}
		if g == *head && c.domain == nil && c.used[base+g] == 0 && len(c.avoid) == 0 {
			*head++ // free machines only become fewer while Needs get allocations
		}
	}
	return -1
}

// Run answers the question. Picks is the answer: groups and counts, in no order. Run reports whether the residual is covered; if not,
// everything that contributes is in the answer (ENG-13.7).
func (c *Search) Run() bool {
	if c.last.answers(c) {
		c.Picks = append(c.Picks[:0], pick{c.last.group, 1})
		c.last.fresh = true
		return true
	}
	c.prepare()
	for {
		best, end := c.look()
		g := best.group
		if g < 0 {
			break
		}
		if end.group == g && len(c.seq) == 0 {
			// One machine is the best by share and the cheapest that covers all: every candidate is that machine, nothing of it
			// can be dropped, and what could stand in for it would have to cover all at a lower price.
			c.Picks = append(c.Picks, pick{g, 1})
			c.last.note(c, g, best.tied || end.tied)
			return true
		}
		if end.group >= 0 {
			c.ends = append(c.ends, ending{len(c.seq), end.group})
		}
		sup := c.amountOf(g)
		q := c.bulk(g, sup)
		c.used[g] += q
		c.seq = append(c.seq, pick{g, q})
		left := false
		for _, j := range c.active {
			hi, lo := bits.Mul64(uint64(sup[j]), uint64(q))
			if hi != 0 || lo >= uint64(c.rest[j]) {
				c.rest[j] = 0
			} else {
				c.rest[j] -= int64(lo)
				left = true
			}
		}
		if !left {
			break
		}
	}
	covered := match.IsZero(c.rest)
	if !covered {
		c.Picks = c.merge(c.Picks[:0], len(c.seq), -1)
	} else {
		c.settle()
		c.swap()
	}
	for _, p := range c.seq {
		c.used[p.Group] = 0
	}
	for _, p := range c.Picks {
		c.used[p.Group] = 0
	}
	return covered
}

// asked is the last question that one machine of a group was the answer to. Free machines only become fewer, which makes
// nothing else better: as long as the group has one, the answer to an equal question is the same.
type asked struct {
	mk          *Index
	pool        inventory.Pool
	gen         uint32 // of the free pools
	unit, input []int64
	whole       bool
	perHost     int32
	fresh       bool // it was asked in the allocation at hand
	group       int32
}

func (x *asked) note(c *Search, g int32, tied bool) {
	if tied || c.domain != nil || len(c.avoid) > 0 {
		return
	}
	x.mk, x.pool, x.gen, x.whole, x.perHost, x.group = c.mk, c.pool, c.free.Gen, c.whole, c.perHost, g
	x.fresh = true
	x.unit, x.input = append(x.unit[:0], c.unit...), append(x.input[:0], c.input...)
}

func (x *asked) answers(c *Search) bool {
	if x.mk != c.mk || x.gen != c.free.Gen || x.pool != c.pool || x.whole != c.whole || x.perHost != c.perHost || c.domain != nil || len(c.avoid) > 0 ||
		!slices.Equal(x.input, c.input) || !slices.Equal(x.unit, c.unit) {
		return false
	}
	return c.available(&c.mk.groups[c.mk.of[x.group]], c.mk.tier(x.group), x.group) > 0
}

func (c *Search) prepare() {
	c.fitUsed()
	c.cuts.begin(c)
	c.seq, c.ends, c.Picks = c.seq[:0], c.ends[:0], c.Picks[:0]
	c.rest = append(c.rest[:0], c.input...)
	c.active, c.shift = c.active[:0], c.shift[:0]
	top := 0
	for j, x := range c.input {
		if x > 0 {
			c.active = append(c.active, j)
			top = max(top, bits.Len64(uint64(x)))
		}
	}
	for _, j := range c.active {
		c.shift = append(c.shift, uint8(top-bits.Len64(uint64(c.input[j]))))
	}
}

// fitUsed makes room to count what is taken of each group.
func (c *Search) fitUsed() {
	if n := len(c.mk.of); n > len(c.used) {
		c.used = append(c.used, make([]int32, n-len(c.used))...)
	}
}
