package reference

import (
	"cmp"
	"math/big"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// inUnits reports whether the aggregate of d is a number of whole units (ENG-4.12).
func (d *Need) inUnits() bool {
	whole := d.MinUnit.Times(units(d.Aggregate, d.MinUnit))
	return !whole.IsZero() && whole.Equal(&d.Aggregate)
}

// roundUp makes the aggregate whole units: what a hard spread counts (ENG-13.9). A unit that names too little cannot be counted.
func (d *Need) roundUp() {
	k := int64(0)
	for i := range d.Aggregate.Len() {
		u := d.MinUnit.Get(d.Aggregate.Dim(i))
		if u == 0 {
			return
		}
		x := d.Aggregate.Val(i)
		k = max(k, x/u+min(x%u, 1))
	}
	d.Aggregate = d.MinUnit.Times(k)
}

// perHost is how many units of d one machine may hold, or 0 (ENG-4.12a).
func (d *Need) perHost() int64 {
	if !d.inUnits() || d.Aggregate.Equal(&d.MinUnit) && d.Elsewhere.IsZero() {
		return 0
	}
	return int64(d.Form.MaxPerHost)
}

// Gives is what an amount contributes to d: whole units, or all of it.
func (d *Need) Gives(room resource.Vector) resource.Vector {
	if !d.inUnits() {
		return room
	}
	k := units(room, d.MinUnit)
	if most := d.perHost(); most > 0 {
		k = min(k, most)
	}
	return d.MinUnit.Times(k)
}

// Yields is what m contributes to d when nothing is on it.
func (n *State) Yields(d *Need, m *Machine) resource.Vector { return d.Gives(n.Supply(m, d.Cluster)) }

// packedInUnits distributes the units of a donor over its credited machines, one after the other (ENG-11.3).
func (n *State) packedInUnits(g *Need, list []*Machine) map[*Machine]resource.Vector {
	out := map[*Machine]resource.Vector{}
	left, at := rooms{"": units(g.Aggregate, g.MinUnit)}, func(*Machine) string { return "" }
	if g.Spread != nil {
		at = func(m *Machine) string { return Value(m, g.Spread.Key) }
		left = n.layers(g, list)
	}
	for _, m := range list {
		k := min(left[at(m)], units(n.worth(g, m), g.MinUnit))
		out[m] = g.MinUnit.Times(k)
		left[at(m)] -= k
	}
	return out
}

// packed distributes the aggregate of a donor over its credited machines (ENG-11.3). Shares already given are left out, so that
// a donor whose claims change never takes back what others count on (ENG-11.7).
func (n *State) packed(g *Need) map[*Machine]resource.Vector {
	list := slices.DeleteFunc(slices.Clone(g.claims), func(m *Machine) bool { return m.kept })
	slices.SortFunc(list, packOrder)
	if g.inUnits() {
		return n.packedInUnits(g, list)
	}
	out := map[*Machine]resource.Vector{}
	rest := g.Aggregate
	for _, m := range list {
		room := n.worth(g, m)
		num, den := big.NewInt(1), big.NewInt(1) // f
		for i := range rest.Len() {
			a, b := big.NewInt(room.Get(rest.Dim(i))), big.NewInt(rest.Val(i))
			if new(big.Int).Mul(a, den).Cmp(new(big.Int).Mul(num, b)) < 0 {
				num, den = a, b
			}
		}
		var use resource.Vector
		for i := range rest.Len() {
			t := new(big.Int).Mul(num, big.NewInt(rest.Val(i)))
			t.Add(t, new(big.Int).Sub(den, big.NewInt(1))).Quo(t, den)
			use = use.With(rest.Dim(i), min(t.Int64(), room.Get(rest.Dim(i))))
		}
		out[m] = use
		rest = rest.Sub(use)
	}
	for _, m := range list {
		more := n.worth(g, m).Sub(out[m]).Min(rest)
		out[m] = out[m].Add(more)
		rest = rest.Sub(more)
	}
	return out
}

// offered is what the donor leaves unused on m, times the sharing level, less the shares already given (ENG-11.4).
func (n *State) offered(m *Machine) resource.Vector {
	c := m.claim.Cluster
	free := n.Supply(m, c).Sub(n.packed(m.claim)[m])
	var out resource.Vector
	for i := range free.Len() {
		t := new(big.Int).Mul(big.NewInt(free.Val(i)), big.NewInt(int64(c.Facts.SharingPerMille)))
		out = out.With(free.Dim(i), t.Quo(t, big.NewInt(1000)).Int64())
	}
	for _, s := range m.shares {
		out = out.Sub(s.taken)
	}
	return out
}

// units is how many whole units u fit into what is offered.
func units(offered, u resource.Vector) int64 {
	k := int64(-1)
	for i := range u.Len() {
		if x := offered.Get(u.Dim(i)) / u.Val(i); k < 0 || x < k {
			k = x
		}
	}
	return max(k, 0)
}

// sharedOn is how many units of d are shares on m already.
func sharedOn(d *Need, m *Machine) (k int64) {
	for _, s := range m.shares {
		if s.to == d {
			k += s.units
		}
	}
	return k
}

// unitsFor is how many units of d are an amount, rounded up in its largest dimension.
func (d *Need) unitsFor(amount resource.Vector) (k int64) {
	for i := range d.MinUnit.Len() {
		r, u := amount.Get(d.MinUnit.Dim(i)), d.MinUnit.Val(i)
		k = max(k, r/u+min(r%u, 1))
	}
	return k
}

// reserved is how many units that d lacks shares do not serve: those of its room that its own machines do not hold yet (ENG-11.16).
func (n *State) reserved(d *Need) int64 {
	if d.row >= engine.FoldedRow || d.Cluster.HeadroomOf(int(d.row)) <= 0 {
		return 0
	}
	held := d.unitsFor(d.Aggregate) - d.unitsFor(n.residual(d))
	for _, s := range d.received {
		held -= s.units
	}
	return d.Cluster.ReservedOf(int(d.row), held)
}

// share gives d shares on the machines that keep selects, as far as it is short (ENG-11.2, ENG-11.5, 11.6).
func (n *State) share(d *Need, keep func(m *Machine) bool) {
	if !n.Policy.Sharing || d.Same != nil || d.MinUnit.IsZero() {
		return
	}
	type offer struct {
		m *Machine
		k int64
	}
	var offers []offer
	for _, m := range n.Machines {
		if m.claim == nil || m.claim == d || m.claim.Cluster != d.Cluster || m.kept || m.goesTo != nil || !keep(m) || !n.Match(d, m) {
			continue
		}
		if d.Spread != nil {
			if _, has := attr(&m.Machine, d.Spread.Key); !has {
				continue
			}
		}
		k := units(n.offered(m), d.MinUnit)
		if most := d.perHost(); most > 0 {
			k = min(k, max(0, most-sharedOn(d, m)))
		}
		if k > 0 {
			offers = append(offers, offer{m, k})
		}
	}
	slices.SortFunc(offers, func(a, b offer) int { return cmp.Or(cmp.Compare(b.k, a.k), packOrder(a.m, b.m)) })
	reserved := n.reserved(d)
	for again := true; again; {
		again = false
		useless := 0
		for i := range offers {
			o := &offers[i]
			rest := n.residual(d)
			need := d.unitsFor(rest) - reserved
			if need <= 0 {
				return
			}
			k := min(o.k, need)
			if d.Spread != nil { // one share may let another one count (ENG-13.9)
				k = n.shareable(d, o.m, o.k, need)
				o.k -= k
				again = again || k > 0
			}
			if k == 0 {
				if useless++; useless == n.Policy.ShareLooks {
					break
				}
				continue
			}
			taken := d.MinUnit.Times(k)
			s := &Share{to: d, on: o.m, units: k, taken: taken, credit: taken.Min(rest)}
			// A second share on the same machine in the same plan adds to the first one's machine, not to its units.
			o.m.shares = append(o.m.shares, s)
			d.received = append(d.received, s)
		}
	}
}
