package reference

import (
	"cmp"
	"math/big"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// ownDomain keeps a gang where its own machines already cover it. A gang that none covers keeps them all without credit
// (ENG-10.3).
func (n crediting) ownDomain(d *Need) {
	if d.Aggregate.IsZero() {
		return
	}
	mine := n.bound(d.Cluster, func(m *Machine) bool {
		return m.claim == nil && n.own(d, m) && n.Usable(d, m) && n.contributes(d, m, d.Aggregate)
	})
	for _, v := range values(mine, d.Same.Key) {
		sum := n.sum(d, mine, func(m *Machine) bool { return Value(m, d.Same.Key) == v })
		if sum.Covers(&d.Aggregate) {
			d.domain, d.chosen = v, true
			n.claimWhileShort(d, inDomain(d, mine))
			return
		}
	}
	for _, m := range mine {
		n.claim(d, m)
		m.kept = true
	}
}

// creditDomain gives a gang the domain in which the machines of its cluster serve it best. Own machines elsewhere are kept
// while it is short (ENG-10.4).
func (n crediting) creditDomain(d *Need) {
	may := n.bound(d.Cluster, func(m *Machine) bool { return (m.claim == nil || m.claim == d) && n.Usable(d, m) })
	may = append(may, n.inFlight(d.Cluster, func(m *Machine) bool { return m.claim == nil && n.own(d, m) && n.Usable(d, m) })...)
	d.domain, d.chosen = n.bestBucket(d, may)
	if !d.chosen {
		return
	}
	kept := slices.Clone(d.claims)
	for _, m := range kept {
		n.drop(d, m)
	}
	n.claimWhileShort(d, n.claimOrder(d, may))
	for _, m := range kept {
		if n.isShort(d) && m.claim == nil && Value(m, d.Same.Key) != d.domain {
			n.claim(d, m)
			m.kept = true
		}
	}
}

// bestBucket returns the value under which the listed machines serve d best (ENG-10.4).
func (n crediting) bestBucket(d *Need, list []*Machine) (string, bool) {
	best, found := "", false
	var bestAll, bestOwn *big.Int
	bestCovers := false
	for _, v := range values(list, d.Same.Key) {
		all := n.sum(d, list, func(m *Machine) bool { return Value(m, d.Same.Key) == v })
		own := n.sum(d, list, func(m *Machine) bool { return Value(m, d.Same.Key) == v && n.own(d, m) })
		if !all.Touches(&d.Aggregate) {
			continue
		}
		a, o, covers := score(all, d.Aggregate, true), score(own, d.Aggregate, true), all.Covers(&d.Aggregate)
		better := !found
		if found {
			switch {
			case covers != bestCovers:
				better = covers
			case a.Cmp(bestAll) != 0:
				better = a.Cmp(bestAll) > 0
			case o.Cmp(bestOwn) != 0:
				better = o.Cmp(bestOwn) > 0
			}
		}
		if better {
			best, found, bestAll, bestOwn, bestCovers = v, true, a, o, covers
		}
	}
	return best, found
}

// claimOrder orders what a gang may claim in its domain as ENG-10.7 says: Own bound, other bound, Own in flight, and last what
// it holds in flight of others (ENG-9.6).
func (n *State) claimOrder(d *Need, list []*Machine) []*Machine {
	class := func(m *Machine) int {
		switch {
		case m.Seen.Bound() && n.own(d, m):
			return 0
		case m.Seen.Bound():
			return 1
		case n.own(d, m):
			return 2
		}
		return 3
	}
	out := inDomain(d, list)
	slices.SortStableFunc(out, func(a, b *Machine) int {
		if x, y := class(a), class(b); x != y || x < 2 {
			return cmp.Or(cmp.Compare(x, y), cmp.Compare(b.Seen, a.Seen), keepOrder(a, b))
		} else if x == 3 {
			return byID(a, b)
		}
		rank := map[inventory.State]int{inventory.Idle: 0, inventory.Creating: 1, inventory.Draining: 2}
		return cmp.Or(cmp.Compare(rank[a.Seen], rank[b.Seen]), byID(a, b))
	})
	return out
}

// inDomain keeps what lies in the one domain of a gang (ENG-10.1).
func inDomain(d *Need, list []*Machine) []*Machine {
	return slices.DeleteFunc(slices.Clone(list), func(m *Machine) bool { return !d.chosen || Value(m, d.Same.Key) != d.domain })
}

// values lists the values of a key on the listed machines, ascending.
func values(list []*Machine, key string) []string {
	var out []string
	for _, m := range list {
		if v, ok := attr(&m.Machine, key); ok {
			out = append(out, v)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// sum is what the selected machines count for d together.
func (n *State) sum(d *Need, list []*Machine, keep func(m *Machine) bool) resource.Vector {
	var sum resource.Vector
	for _, m := range list {
		if keep(m) {
			sum = sum.Add(n.worth(d, m))
		}
	}
	return sum
}

// domainOf is one domain as ENG-10.6 compares it.
type domainOf struct {
	value                     string
	creditable, own, with     resource.Vector // with: creditable and Idle
	total                     resource.Vector
	count                     int
	covers, satisfiable       bool
	sOwn, sCredit, sWith, sTo *big.Int // capped scores
	over                      *big.Int // uncapped score of total
}

// better is the order of ENG-10.6: no price (ENG-10.11), and no key for the tightest of several credited ones (ENG-10.8).
func (a *domainOf) better(b *domainOf) bool {
	if a.covers != b.covers {
		return a.covers
	}
	var keys []int
	switch {
	case a.covers:
		keys = []int{a.sOwn.Cmp(b.sOwn)}
		return keys[0] > 0 || keys[0] == 0 && a.value < b.value
	case a.satisfiable != b.satisfiable:
		return a.satisfiable
	case a.satisfiable:
		keys = []int{a.sCredit.Cmp(b.sCredit), a.sOwn.Cmp(b.sOwn), a.sWith.Cmp(b.sWith), b.over.Cmp(a.over)}
	default:
		keys = []int{a.sTo.Cmp(b.sTo), a.sCredit.Cmp(b.sCredit)}
	}
	keys = append(keys, cmp.Compare(a.count, b.count), strings.Compare(b.value, a.value))
	for _, k := range keys {
		if k != 0 {
			return k > 0
		}
	}
	return false
}

// domains computes 10.6 for every value of the key.
func (n acquisition) domains(d *Need) []*domainOf {
	var out []*domainOf
	at := func(v string) *domainOf {
		for _, o := range out {
			if o.value == v {
				return o
			}
		}
		o := &domainOf{value: v}
		out = append(out, o)
		return o
	}
	for _, m := range n.Machines {
		if !n.Usable(d, m) || !n.contributes(d, m, d.Aggregate) {
			continue
		}
		v, s := Value(m, d.Same.Key), n.worth(d, m)
		switch {
		case n.creditable(d, m):
			o := at(v)
			o.creditable, o.with, o.total = o.creditable.Add(s), o.with.Add(s), o.total.Add(s)
			if n.own(d, m) {
				o.own = o.own.Add(s)
			}
			o.count++
		case n.free(d, m):
			o := at(v)
			if m.Seen == inventory.Idle {
				o.with = o.with.Add(s)
			}
			o.total = o.total.Add(s)
			o.count++
		}
	}
	want := d.Aggregate
	for _, o := range out {
		o.covers, o.satisfiable = o.creditable.Covers(&want), o.total.Covers(&want)
		o.sOwn, o.sCredit = score(o.own, want, true), score(o.creditable, want, true)
		o.sWith, o.sTo, o.over = score(o.with, want, true), score(o.total, want, true), score(o.total, want, false)
	}
	return out
}

// creditable reports whether m counts for a gang without being acquired: what it holds or kept, unclaimed bound machines, and
// its own in flight that no other need was credited with.
func (n acquisition) creditable(d *Need, m *Machine) bool {
	switch {
	case m.claim == d:
		return !m.acquired
	case m.claim != nil || m.excluded:
		return false
	case m.Seen.Bound():
		return m.Cluster == d.Cluster.Name
	}
	return n.own(d, m)
}

// chooseDomain begins the allocation of a gang: it chooses the domain and claims what counts there (ENG-10.6, 10.7). Without any
// domain nothing is acquired (ENG-10.12).
func (n acquisition) chooseDomain(d *Need) bool {
	list := n.domains(d)
	if len(list) == 0 {
		d.chosen, d.domain = false, ""
		return false
	}
	best := list[0]
	for _, o := range list[1:] {
		if o.better(best) {
			best = o
		}
	}
	d.domain, d.chosen, d.satisfiable = best.value, true, best.satisfiable
	var may []*Machine
	for _, m := range n.Machines {
		if n.creditable(d, m) && n.Usable(d, m) {
			may = append(may, m)
		}
	}
	held := slices.Clone(d.claims)
	d.claims = nil
	for _, m := range held {
		m.claim, m.kept = nil, false
	}
	n.claimWhileShort(d, n.claimOrder(d, may))
	slices.SortFunc(held, byID)
	for _, m := range held {
		if m.claim == nil {
			n.letGo(m)
		}
	}
	return true
}

// letGo passes a machine that its gang gave up to the first need with a share on it (ENG-11.8).
func (n acquisition) letGo(m *Machine) {
	var first *Need
	for _, s := range m.shares {
		if first == nil || compareNeeds(s.to, first) < 0 {
			first = s.to
		}
	}
	if first != nil {
		n.claim(first, m)
	}
}

// inside reports whether m is where d may take machines: the chosen domain of a gang.
func inside(d *Need, m *Machine) bool {
	return d.Same == nil || d.chosen && Value(m, d.Same.Key) == d.domain
}
