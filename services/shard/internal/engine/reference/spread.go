package reference

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// known lists the values of d's spread key that count for the smallest count, with their counts (ENG-13.9).
func (n *State) known(d *Need) map[string]int {
	out := map[string]int{}
	for _, m := range n.Machines {
		bound := m.Seen.Bound() && m.Cluster == d.Cluster.Name
		if v, has := attr(&m.Machine, d.Spread.Key); has && (bound && n.Usable(d, m) || n.free(d, m)) {
			out[v] += 0
		}
	}
	for _, m := range slices.Concat(d.claims, d.promised) {
		v, has := attr(&m.Machine, d.Spread.Key)
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
func (n *State) eligible(d *Need, m *Machine) bool {
	v, has := attr(&m.Machine, d.Spread.Key)
	return has && mayGo(n.known(d), v, d.Spread.MaxSkew)
}

// coverSpread is cover with one machine at a time, each where the skew allows one more (ENG-13.9).
func (n covering) coverSpread(d *Need, residual resource.Vector, pool []*Machine) []*Machine {
	counts := n.known(d)
	rest := residual
	var taken []*Machine
	var candidates [][]*Machine
	for !rest.IsZero() {
		groups := n.group(d, slices.DeleteFunc(slices.Clone(pool), func(m *Machine) bool {
			v, has := attr(&m.Machine, d.Spread.Key)
			return !has || slices.Contains(taken, m) || !mayGo(counts, v, d.Spread.MaxSkew)
		}))
		g := bestGroup(groups, rest, residual)
		if g == nil {
			break
		}
		if f := finisher(groups, rest); f != nil {
			candidates = append(candidates, append(slices.Clone(taken), f))
		}
		taken = append(taken, g.free[0])
		counts[Value(g.free[0], d.Spread.Key)]++
		rest = rest.Sub(g.supply)
	}
	if rest.IsZero() {
		candidates = append(candidates, taken)
	}
	var best []*Machine
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
