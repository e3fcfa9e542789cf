package engine

import (
	"cmp"
	"math"
	"math/big"
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// supplyGroup is the machines of a pool that are alike for one Need: equal effective cost and equal supply. Grouping by
// more than that would make the answer depend on how classes are split.
type supplyGroup struct {
	cost   int64
	whole  resource.Vector // supply without overhead, which groups
	supply resource.Vector
	free   []*nMachine // by id
}

func (n *naive) group(d *nNeed, list []*nMachine) []*supplyGroup {
	var out []*supplyGroup
next:
	for _, m := range list {
		for _, g := range out {
			if g.cost == n.cost(d, m) && g.whole.Equal(&m.supply) {
				g.free = append(g.free, m)
				continue next
			}
		}
		out = append(out, &supplyGroup{cost: n.cost(d, m), whole: m.supply, supply: n.yields(d, m), free: []*nMachine{m}})
	}
	for _, g := range out {
		slices.SortFunc(g.free, byID)
	}
	return out
}

// clipped is the share of ENG-13.2: powers of two of the pool's residual, applied to what is left. It saturates.
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

// bestGroup is the choice of ENG-13.3.
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
func finisher(groups []*supplyGroup, rest resource.Vector) *nMachine {
	var best *nMachine
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

// cover is ENG-13.3 to 13.7: what d takes from a pool for the residual.
func (n *naive) cover(d *nNeed, residual resource.Vector, pool []*nMachine) []*nMachine {
	groups := n.group(d, pool)
	rest := residual
	var taken []*nMachine
	var candidates [][]*nMachine
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
	var best []*nMachine
	for _, c := range candidates {
		c = n.withoutSpare(d, residual, c)
		if best == nil || n.cheaper(d, c, best) {
			best = c
		}
	}
	return n.swapped(d, residual, best, pool)
}

func (n *naive) total(d *nNeed, list []*nMachine) *big.Int {
	sum := new(big.Int)
	for _, m := range list {
		sum.Add(sum, big.NewInt(n.cost(d, m)))
	}
	return sum
}

// cheaper: lower total cost, then fewer machines; the earlier one stays at a tie.
func (n *naive) cheaper(d *nNeed, a, b []*nMachine) bool {
	c := n.total(d, a).Cmp(n.total(d, b))
	return c < 0 || c == 0 && len(a) < len(b)
}

func (n *naive) covers(d *nNeed, residual resource.Vector, list []*nMachine) bool {
	for _, m := range list {
		residual = residual.Sub(n.yields(d, m))
	}
	return residual.IsZero()
}

// dearest sorts by effective cost, dearest first, then larger id first.
func (n *naive) dearest(d *nNeed, list []*nMachine) []*nMachine {
	out := slices.Clone(list)
	slices.SortFunc(out, func(a, b *nMachine) int { return cmp.Or(cmp.Compare(n.cost(d, b), n.cost(d, a)), byID(b, a)) })
	return out
}

// withoutSpare is the drop of ENG-13.5.
func (n *naive) withoutSpare(d *nNeed, residual resource.Vector, list []*nMachine) []*nMachine {
	for _, m := range n.dearest(d, list) {
		if fewer := slices.DeleteFunc(slices.Clone(list), func(x *nMachine) bool { return x == m }); n.covers(d, residual, fewer) {
			list = fewer
		}
	}
	return list
}

// swapped is ENG-13.6.
func (n *naive) swapped(d *nNeed, residual resource.Vector, list, pool []*nMachine) []*nMachine {
again:
	for range 8 {
		for _, out := range n.dearest(d, list) {
			rest := slices.DeleteFunc(slices.Clone(list), func(x *nMachine) bool { return x == out })
			var in *nMachine
			for _, m := range pool {
				if slices.Contains(list, m) || n.cost(d, m) >= n.cost(d, out) || !n.covers(d, residual, append(slices.Clone(rest), m)) {
					continue
				}
				if in == nil || cmp.Or(cmp.Compare(n.cost(d, m), n.cost(d, in)), byID(m, in)) < 0 {
					in = m
				}
			}
			if in != nil {
				list = n.withoutSpare(d, residual, append(rest, in))
				continue again
			}
		}
		break
	}
	return list
}

// known lists the values of d's spread key that count for the smallest count, with their counts (ENG-13.9).
func (n *naive) known(d *nNeed) map[string]int {
	out := map[string]int{}
	for _, m := range n.machines {
		bound := m.state.Bound() && m.m.Cluster == d.c.d.Name
		if v, has := attr(&m.m, d.spread.Key); has && (bound && n.usable(d, m) || n.free(d, m)) {
			out[v] += 0
		}
	}
	for _, m := range slices.Concat(d.claims, d.promised) {
		v, has := attr(&m.m, d.spread.Key)
		if _, ok := out[v]; has && (ok || m.acquired) {
			out[v]++
		}
	}
	return out
}

// mayGo reports whether one more machine under v keeps the skew. A value that nothing has made known counts 0.
func mayGo(counts map[string]int, v string, skew int32) bool {
	low := counts[v]
	for _, c := range counts {
		low = min(low, c)
	}
	return counts[v] <= low+int(skew)-1
}

// eligible reports whether one more machine where m is keeps the skew of d.
func (n *naive) eligible(d *nNeed, m *nMachine) bool {
	v, has := attr(&m.m, d.spread.Key)
	return has && mayGo(n.known(d), v, d.spread.MaxSkew)
}

// coverSpread is ENG-13.9.
func (n *naive) coverSpread(d *nNeed, residual resource.Vector, pool []*nMachine) []*nMachine {
	counts := n.known(d)
	rest := residual
	var taken []*nMachine
	var candidates [][]*nMachine
	for !rest.IsZero() {
		groups := n.group(d, slices.DeleteFunc(slices.Clone(pool), func(m *nMachine) bool {
			v, has := attr(&m.m, d.spread.Key)
			return !has || slices.Contains(taken, m) || !mayGo(counts, v, d.spread.MaxSkew)
		}))
		g := bestGroup(groups, rest, residual)
		if g == nil {
			break
		}
		if f := finisher(groups, rest); f != nil {
			candidates = append(candidates, append(slices.Clone(taken), f))
		}
		taken = append(taken, g.free[0])
		counts[value(g.free[0], d.spread.Key)]++
		rest = rest.Sub(g.supply)
	}
	if rest.IsZero() {
		candidates = append(candidates, taken)
	}
	var best []*nMachine
	for _, c := range candidates {
		if best == nil || n.cheaper(d, c, best) {
			best = c
		}
	}
	if best == nil {
		return taken
	}
	return best
}
