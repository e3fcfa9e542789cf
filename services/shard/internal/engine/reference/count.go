package reference

import (
	"math/big"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// contributes reports whether what m still has to give reduces the residual (ENG-6.4).
func (n *State) contributes(d *Need, m *Machine, rest resource.Vector) bool {
	s := n.worth(d, m)
	if d.Spread != nil {
		_, more := n.roomsNow(d).with(d, m, n.unitsOn(d, m))
		return more && !rest.IsZero()
	}
	return s.Touches(&rest)
}

// worth is what m counts for d, whole, when the shares of others on it stay.
func (n *State) worth(d *Need, m *Machine) resource.Vector {
	s := n.Supply(m, d.Cluster)
	for _, sh := range m.shares {
		if sh.to != d {
			s = s.Sub(sh.taken)
		}
	}
	return d.Gives(s)
}

// credited is what counts for d now, section 15 aside.
func (n *State) credited(d *Need) resource.Vector {
	if d.Spread != nil {
		return n.servedOn(d, slices.DeleteFunc(slices.Clone(d.claims), func(m *Machine) bool { return m.kept }), d.received)
	}
	var sum resource.Vector
	for _, m := range d.claims {
		if !m.kept {
			sum = sum.Add(n.worth(d, m))
		}
	}
	for _, s := range d.received {
		sum = sum.Add(s.credit)
	}
	return sum
}

// residual is what d lacks.
func (n *State) residual(d *Need) resource.Vector {
	if d.Spread != nil {
		return d.Aggregate.Sub(n.servedOn(d, n.has(d), d.received))
	}
	r := d.Aggregate.Sub(n.credited(d))
	for _, m := range d.promised {
		r = r.Sub(n.Yields(d, m))
	}
	return r
}

func (n *State) isShort(d *Need) bool {
	r := n.residual(d)
	return !r.IsZero()
}

// claim makes m count for d, whole (ENG-3.7).
func (n *State) claim(d *Need, m *Machine) {
	m.claim, m.kept = d, false
	d.claims = append(d.claims, m)
	d.received = slices.DeleteFunc(d.received, func(s *Share) bool { return s.on == m })
	m.shares = slices.DeleteFunc(m.shares, func(s *Share) bool { return s.to == d })
}

// drop ends the claim of d on m.
func (n *State) drop(d *Need, m *Machine) {
	m.claim, m.kept = nil, false
	d.claims = slices.DeleteFunc(d.claims, func(x *Machine) bool { return x == m })
}

// claimWhileShort claims the listed machines one after the other, as far as d is short and they contribute (ENG-9.2, ENG-6.4). With a
// hard spread it begins again whenever it claims something: a machine may let one contribute that comes before it.
func (n *State) claimWhileShort(d *Need, list []*Machine) {
	for again := true; again; {
		again = false
		for _, m := range list {
			rest := n.residual(d)
			if rest.IsZero() {
				return
			}
			if !slices.Contains(d.claims, m) && n.contributes(d, m, rest) {
				n.claim(d, m)
				if again = d.Spread != nil; again {
					break
				}
			}
		}
	}
}

// score adds up the covered part of each dimension, in millionths (ENG-10.2).
func score(have, want resource.Vector, capped bool) *big.Int {
	sum := new(big.Int)
	for i := range want.Len() {
		v := have.Get(want.Dim(i))
		if capped {
			v = min(v, want.Val(i))
		}
		t := new(big.Int).Mul(big.NewInt(v), big.NewInt(1_000_000))
		sum.Add(sum, t.Quo(t, big.NewInt(want.Val(i))))
	}
	return sum
}
