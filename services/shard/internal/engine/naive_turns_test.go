package engine

import (
	"cmp"
	"math/big"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// pooled says that a machine is in a free pool, whoever asks (withheld for single clusters aside).
func (n *naive) pooled(m *nMachine) bool {
	return !m.foreign && (m.state == inventory.Idle || m.state == inventory.Speculative) && m.promise == nil && m.claim == nil &&
		m.goesTo == nil && !withheldFor(m, "")
}

func withheldFor(m *nMachine, cluster string) bool {
	return slices.ContainsFunc(m.marks, func(w inventory.Withheld) bool { return w.Cluster == "" || w.Cluster == cluster })
}

// free says that d may acquire m (ENG-12.7).
func (n *naive) free(d *nNeed, m *nMachine) bool {
	return n.pooled(m) && !withheldFor(m, d.c.d.Name) && n.usable(d, m)
}

// turns is section 12: one turn at most (ENG-12.2), the steps of ENG-12.3, nothing but turn order between clusters (ENG-12.8).
// A held Need has none (ENG-18.1); partial success is kept (ENG-12.4).
func (n *naive) turns() {
	for _, d := range n.needs {
		if d.hold != demand.NotHeld || !n.short(d) {
			continue
		}
		if d.same != nil {
			if !n.chooseDomain(d) {
				continue
			}
		} else {
			n.claimWhileShort(d, n.bound(d.c, func(m *nMachine) bool { return m.claim == nil && n.usable(d, m) }))
			n.share(d, func(m *nMachine) bool { return true })
			n.claimWhileShort(d, n.comingFree(d))
		}
		n.acquire(d, inventory.Idle)
		n.acquire(d, inventory.Speculative)
		n.reattribute(d)
	}
}

// inside reports whether m is where d may take machines: the chosen domain of a gang.
func inside(d *nNeed, m *nMachine) bool {
	return d.same == nil || d.chosen && value(m, d.same.Key) == d.domain
}

// acquire takes free machines of one pool by the cover rule: the candidates of ENG-13.1.
func (n *naive) acquire(d *nNeed, pool inventory.State) {
	rest := n.residual(d)
	if rest.IsZero() {
		return
	}
	var list []*nMachine
	for _, m := range n.machines {
		if m.state == pool && n.free(d, m) && inside(d, m) {
			list = append(list, m)
		}
	}
	var taken []*nMachine
	if d.spread != nil {
		taken = n.coverSpread(d, rest, list)
	} else {
		taken = n.cover(d, rest, list)
	}
	for _, m := range taken {
		n.claim(d, m)
		m.acquired = true
	}
}

// domainOf is what 10.6 looks at, for one value.
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
func (n *naive) domains(d *nNeed) []*domainOf {
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
	for _, m := range n.machines {
		if !n.usable(d, m) || !n.contributes(d, m, d.n.Aggregate) {
			continue
		}
		v, s := value(m, d.same.Key), n.worth(d, m)
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
			if m.state == inventory.Idle {
				o.with = o.with.Add(s)
			}
			o.total = o.total.Add(s)
			o.count++
		}
	}
	want := d.n.Aggregate
	for _, o := range out {
		o.covers, o.satisfiable = o.creditable.Covers(&want), o.total.Covers(&want)
		o.sOwn, o.sCredit = score(o.own, want, true), score(o.creditable, want, true)
		o.sWith, o.sTo, o.over = score(o.with, want, true), score(o.total, want, true), score(o.total, want, false)
	}
	return out
}

// creditable: what a gang holds or kept, unclaimed bound machines, and its Own in flight that nobody else was credited.
func (n *naive) creditable(d *nNeed, m *nMachine) bool {
	switch {
	case m.claim == d:
		return !m.acquired
	case m.claim != nil || m.shunned:
		return false
	case m.state.Bound():
		return m.m.Cluster == d.c.d.Name
	}
	return n.own(d, m)
}

// chooseDomain is the first part of a gang's turn: ENG-10.6 and 10.7; without any bucket nothing is acquired (ENG-10.12).
func (n *naive) chooseDomain(d *nNeed) bool {
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
	d.domain, d.chosen, d.possible = best.value, true, best.satisfiable
	var may []*nMachine
	for _, m := range n.machines {
		if n.creditable(d, m) && n.usable(d, m) {
			may = append(may, m)
		}
	}
	held := slices.Clone(d.claims)
	d.claims = nil
	for _, m := range held {
		m.claim, m.kept = nil, false
	}
	n.claimWhileShort(d, n.walk(d, may))
	slices.SortFunc(held, byID)
	for _, m := range held {
		if m.claim == nil {
			n.letGo(m)
		}
	}
	return true
}

// letGo is the rule of ENG-11.8 for a machine that its gang gave up: the first of those who use a share of it claims it.
func (n *naive) letGo(m *nMachine) {
	var first *nNeed
	for _, s := range m.shares {
		if first == nil || before(s.to, first) < 0 {
			first = s.to
		}
	}
	if first != nil {
		n.claim(first, m)
	}
}

// reattribute is ENG-12.5.
func (n *naive) reattribute(d *nNeed) {
	lower := func(m *nMachine) bool {
		return m.claim != nil && m.claim != d && m.claim.n.Form.Priority < d.n.Form.Priority && n.usable(d, m) && inside(d, m)
	}
	rank := func(a, b *nMachine) int { return demand.CompareRank(&b.claim.n.Form.Profile, &a.claim.n.Form.Profile) }
	list := n.bound(d.c, lower)
	slices.SortStableFunc(list, func(a, b *nMachine) int { return cmp.Or(rank(a, b), keepOrder(a, b)) })
	flying := n.coming(d.c, lower)
	slices.SortStableFunc(flying, func(a, b *nMachine) int { return cmp.Or(rank(a, b), byID(a, b)) })
	list = append(list, flying...)
	for _, m := range list {
		rest := n.residual(d)
		if rest.IsZero() {
			return
		}
		s := n.supply(m, d.c)
		for _, sh := range m.shares {
			if sh.to.n.Form.Priority >= d.n.Form.Priority && sh.to != d {
				s = s.Sub(sh.taken)
			}
		}
		if s = d.gives(s); !s.Touches(&rest) {
			continue
		}
		n.displace++
		for _, sh := range slices.Clone(m.shares) {
			if sh.to.n.Form.Priority < d.n.Form.Priority {
				n.displace++
				m.shares = slices.DeleteFunc(m.shares, func(x *nShare) bool { return x == sh })
				sh.to.received = slices.DeleteFunc(sh.to.received, func(x *nShare) bool { return x == sh })
			}
		}
		n.drop(m.claim, m) // its turn is still to come (ENG-12.6)
		n.claim(d, m)
	}
}

// lastLook is ENG-12.9.
func (n *naive) lastLook() {
	for _, d := range n.needs {
		n.lookAgain(d)
	}
}

func (n *naive) lookAgain(d *nNeed) {
	if !n.short(d) || d.same != nil && !d.chosen {
		return
	}
	for _, m := range n.bound(d.c, func(m *nMachine) bool {
		return m.claim == nil && m.goesTo == nil && n.usable(d, m) && inside(d, m)
	}) {
		if rest := n.residual(d); n.contributes(d, m, rest) && (d.spread == nil || n.eligible(d, m)) {
			n.claim(d, m)
		}
	}
	for _, m := range n.comingFree(d) {
		if rest := n.residual(d); inside(d, m) && n.contributes(d, m, rest) && (d.spread == nil || n.eligible(d, m)) {
			n.claim(d, m)
		}
	}
}

// comingFree lists what is in flight for d's cluster and nobody claims: d's Own first, then the others by id.
func (n *naive) comingFree(d *nNeed) []*nMachine {
	free := func(m *nMachine) bool { return m.claim == nil && m.goesTo == nil && n.usable(d, m) }
	own := n.coming(d.c, func(m *nMachine) bool { return free(m) && n.own(d, m) })
	others := n.coming(d.c, func(m *nMachine) bool { return free(m) && !n.own(d, m) })
	slices.SortFunc(others, byID)
	return append(own, others...)
}

// hardware names what a machine is, labels aside. Whether a class is exhausted (13.10) is asked for this, so that the
// answer does not depend on how label keys split classes (ENG-6.5).
func hardware(m *inventory.Machine) string {
	var b strings.Builder
	write := func(s string) { b.WriteString(s); b.WriteByte(0) }
	write(m.Provider)
	write(m.InstanceType)
	write(m.Zone)
	write(m.CapacityType.String())
	write(big.NewInt(m.Price).String())
	write(big.NewInt(int64(m.Probability)).String())
	for _, list := range [][]resource.Quantity{m.Resources, m.Allocatable} {
		list = slices.Clone(list)
		slices.SortFunc(list, func(a, b resource.Quantity) int { return strings.Compare(a.Name, b.Name) })
		for _, q := range list {
			if q.Milli > 0 && q.Name != "" {
				write(q.Name)
				write(big.NewInt(q.Milli).String())
			}
		}
		write("")
	}
	for _, t := range m.Taints {
		write(t.Key)
		write(t.Value)
		write(t.Effect)
	}
	return b.String()
}

// exchange is ENG-13.10.
func (n *naive) exchange() {
	left := map[string]int{}
	for _, m := range n.machines {
		if n.pooled(m) && m.state == inventory.Speculative {
			left[hardware(&m.m)]++
		}
	}
	var list []*nNeed
	for _, d := range n.needs {
		if d.same != nil || d.spread != nil || n.short(d) || len(n.bought(d)) == 0 {
			continue
		}
		for _, m := range n.machines {
			if h := hardware(&m.m); m.state == inventory.Speculative && n.openSpec[h] > 0 && left[h] == 0 && n.wasFree(d, m) {
				list = append(list, d)
				break
			}
		}
	}
	for improved := true; improved && !n.spent; {
		improved = false
		for b := range list {
			for a := range b {
				improved = n.try(list[b], list[a]) || improved
			}
		}
		for c := range list {
			for b := range c {
				for a := range b {
					improved = n.try(list[c], list[b], list[a]) || improved
				}
			}
		}
	}
	n.out.Counters.ExchangeTries, n.out.Counters.ExchangeSaved = n.tries, n.saved
}

// wasFree reports whether d could have taken m before the turns.
func (n *naive) wasFree(d *nNeed, m *nMachine) bool {
	return !m.foreign && m.promise == nil && !withheldFor(m, d.c.d.Name) && n.usable(d, m)
}

// bought lists the Speculative machines that d took, if none of them carries a share.
func (n *naive) bought(d *nNeed) []*nMachine {
	var out []*nMachine
	for _, m := range d.claims {
		if m.acquired && m.state == inventory.Speculative {
			if len(m.shares) > 0 {
				return nil
			}
			out = append(out, m)
		}
	}
	return out
}

// try lets the listed Needs give back what they bought and buy again in the listed order.
func (n *naive) try(order ...*nNeed) bool {
	old := make([][]*nMachine, len(order))
	was := new(big.Int)
	for i, d := range order {
		if old[i] = n.bought(d); len(old[i]) == 0 {
			return false
		}
	}
	if n.spent = n.spent || n.tries+len(order) > n.p.ExchangeTries; n.spent {
		return false
	}
	n.tries += len(order)
	for i, d := range order {
		for _, m := range old[i] {
			was.Add(was, big.NewInt(n.cost(d, m)))
			n.drop(d, m)
			m.acquired = false
		}
	}
	is := new(big.Int)
	ok := true
	for _, d := range order {
		n.acquire(d, inventory.Speculative)
		for _, m := range n.bought(d) {
			is.Add(is, big.NewInt(n.cost(d, m)))
		}
		ok = ok && !n.short(d)
	}
	if ok && is.Cmp(was) < 0 && !n.wanted(old) {
		n.saved += new(big.Int).Sub(was, is).Int64()
		return true
	}
	for _, d := range order {
		for _, m := range n.bought(d) {
			n.drop(d, m)
			m.acquired = false
		}
	}
	for i, d := range order {
		for _, m := range old[i] {
			n.claim(d, m)
			m.acquired = true
		}
	}
	return false
}

// wanted reports whether a short Need could use one of the machines that were given back and not taken again.
func (n *naive) wanted(lists [][]*nMachine) bool {
	for _, list := range lists {
		for _, m := range list {
			for _, d := range n.needs {
				if m.claim != nil || d.hold != demand.NotHeld || !n.short(d) || !inside(d, m) || !n.free(d, m) {
					continue
				}
				if n.contributes(d, m, n.residual(d)) {
					return true
				}
			}
		}
	}
	return false
}
