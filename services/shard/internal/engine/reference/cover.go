package reference

import (
	"cmp"
	"math"
	"math/big"
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// covering finds the cheapest machines for a residual (ENG-13.1 to 13.7).
type covering struct{ *State }

// supplyGroup is the machines of a pool that are alike for one Need: equal effective cost and equal supply. Grouping by
// more than that would make the answer depend on how classes are split.
type supplyGroup struct {
	cost   int64
	whole  resource.Vector // supply without overhead, which groups
	supply resource.Vector
	free   []*Machine // by id
}

func (n covering) group(d *Need, list []*Machine) []*supplyGroup {
	var out []*supplyGroup
next:
	for _, m := range list {
		for _, g := range out {
			if g.cost == n.Cost(d, m) && g.whole.Equal(&m.supply) && (g.free[0].typ == m.typ || !n.World.Demand.Learnt(g.free[0].typ) && !n.World.Demand.Learnt(m.typ)) {
				g.free = append(g.free, m)
				continue next
			}
		}
		out = append(out, &supplyGroup{cost: n.Cost(d, m), whole: m.supply, supply: n.Yields(d, m), free: []*Machine{m}})
	}
	for _, g := range out {
		slices.SortFunc(g.free, byID)
	}
	return out
}

// clipped is how much of the residual one machine covers, each dimension weighed by a power of two of the first residual
// (ENG-13.2). It saturates.
func clipped(supply, rest, input resource.Vector) *big.Int {
	top := 0
	for i := range input.Len() {
		top = max(top, bits.Len64(uint64(input.Val(i))))
	}
	sum := new(big.Int)
	for i := range input.Len() {
		d := input.Dim(i)
		t := big.NewInt(min(supply.Get(d), rest.Get(d)))
		sum.Add(sum, t.Lsh(t, uint(top-bits.Len64(uint64(input.Val(i))))))
	}
	if limit := new(big.Int).SetUint64(math.MaxUint64); sum.Cmp(limit) > 0 {
		return limit
	}
	return sum
}

// bestGroup is the group with the lowest cost per covered share (ENG-13.3).
func bestGroup(groups []*supplyGroup, rest, input resource.Vector) *supplyGroup {
	var best *supplyGroup
	var bestShare *big.Int
	for _, g := range groups {
		if len(g.free) == 0 || !g.supply.Touches(&rest) {
			continue
		}
		s := clipped(g.supply, rest, input)
		if best != nil {
			a := new(big.Int).Mul(big.NewInt(g.cost), bestShare)
			b := new(big.Int).Mul(big.NewInt(best.cost), s)
			if c := cmp.Or(a.Cmp(b), bestShare.Cmp(s), cmp.Compare(g.cost, best.cost), byID(g.free[0], best.free[0])); c >= 0 {
				continue
			}
		}
		best, bestShare = g, s
	}
	return best
}

// finisher is the cheapest single machine that covers all that is left (ENG-13.4).
func finisher(groups []*supplyGroup, rest resource.Vector) *Machine {
	var best *Machine
	var cost int64
	for _, g := range groups {
		if len(g.free) == 0 || !g.supply.Covers(&rest) {
			continue
		}
		if best == nil || cmp.Or(cmp.Compare(g.cost, cost), byID(g.free[0], best)) < 0 {
			best, cost = g.free[0], g.cost
		}
	}
	return best
}

// bulk is how many machines of a group one step takes.
func bulk(g *supplyGroup, rest resource.Vector) int {
	q := int64(math.MaxInt64)
	for i := range rest.Len() {
		if s := g.supply.Get(rest.Dim(i)); s > 0 {
			q = min(q, rest.Val(i)/s)
		}
	}
	return int(min(max(q, 1), int64(len(g.free))))
}

// cover is what d takes from a pool for the residual: greedy steps by cost per share, a single machine that finishes at each
// step as a candidate, then drops and swaps (ENG-13.3 to 13.7).
func (n covering) cover(d *Need, residual resource.Vector, pool []*Machine) []*Machine {
	groups := n.group(d, pool)
	rest := residual
	var taken []*Machine
	var candidates [][]*Machine
	for !rest.IsZero() {
		g := bestGroup(groups, rest, residual)
		if g == nil {
			break
		}
		if f := finisher(groups, rest); f != nil {
			candidates = append(candidates, append(slices.Clone(taken), f))
		}
		q := bulk(g, rest)
		taken = append(taken, g.free[:q]...)
		g.free = g.free[q:]
		rest = rest.Sub(g.supply.Times(int64(q)))
	}
	if !rest.IsZero() {
		return taken
	}
	candidates = append(candidates, taken)
	var best []*Machine
	for _, c := range candidates {
		c = n.withoutUnneeded(d, residual, c)
		if best == nil || n.cheaper(d, c, best) {
			best = c
		}
	}
	return n.swapped(d, residual, best, pool)
}

// total is the effective cost of a list.
func (n covering) total(d *Need, list []*Machine) *big.Int {
	sum := new(big.Int)
	for _, m := range list {
		sum.Add(sum, big.NewInt(n.Cost(d, m)))
	}
	return sum
}

// cheaper: lower total cost, then fewer machines; the earlier one stays at a tie.
func (n covering) cheaper(d *Need, a, b []*Machine) bool {
	c := n.total(d, a).Cmp(n.total(d, b))
	return c < 0 || c == 0 && len(a) < len(b)
}

// covers reports whether a list covers the residual.
func (n *State) covers(d *Need, residual resource.Vector, list []*Machine) bool {
	for _, m := range list {
		residual = residual.Sub(n.Yields(d, m))
	}
	return residual.IsZero()
}

// dearest sorts by effective cost, dearest first, then larger id first.
func (n covering) dearest(d *Need, list []*Machine) []*Machine {
	out := slices.Clone(list)
	slices.SortFunc(out, func(a, b *Machine) int { return cmp.Or(cmp.Compare(n.Cost(d, b), n.Cost(d, a)), byID(b, a)) })
	return out
}

// withoutUnneeded drops machines without which the rest still covers, dearest first (ENG-13.5).
func (n covering) withoutUnneeded(d *Need, residual resource.Vector, list []*Machine) []*Machine {
	for _, m := range n.dearest(d, list) {
		if fewer := slices.DeleteFunc(slices.Clone(list), func(x *Machine) bool { return x == m }); n.covers(d, residual, fewer) {
			list = fewer
		}
	}
	return list
}

// swapped replaces machines by cheaper ones as long as the residual stays covered (ENG-13.6).
func (n covering) swapped(d *Need, residual resource.Vector, list, pool []*Machine) []*Machine {
again:
	for range 8 {
		for _, out := range n.dearest(d, list) {
			rest := slices.DeleteFunc(slices.Clone(list), func(x *Machine) bool { return x == out })
			var in *Machine
			for _, m := range pool {
				if slices.Contains(list, m) || n.Cost(d, m) >= n.Cost(d, out) || !n.covers(d, residual, append(slices.Clone(rest), m)) {
					continue
				}
				if in == nil || cmp.Or(cmp.Compare(n.Cost(d, m), n.Cost(d, in)), byID(m, in)) < 0 {
					in = m
				}
			}
			if in != nil {
				list = n.withoutUnneeded(d, residual, append(rest, in))
				continue again
			}
		}
		break
	}
	return list
}
