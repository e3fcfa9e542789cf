package engine

import (
	"cmp"
	"slices"
	"sort"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// turns is section 12: open Needs acquire, one after the other.
func (p *planning) turns() {
	p.queue, p.late = p.standing, p.late[:0]
	p.runs.begin(len(p.states))
	p.unmet.begin()
	p.beginChores()
	p.inOrder(func(cl *clusterState, w *want, s *standing) {
		p.chores.await(p, cl)
		if len(p.runs.pending[cl.at]) > 0 {
			p.settlePending(cl)
		}
		p.runs.joined[cl.at], p.cover.last.fresh = 0, false
		given := false
		if cl.short(w) || cl.shared == w.at+1 {
			p.res.Counters.Turns++
			if given = p.takeTurn(cl, w); !given {
				cl.settleOffers(w, &p.x)
			}
		}
		if s == nil {
			return
		}
		if !given && cl.short(w) {
			p.noteIdle(s, w)
			p.noteUnmet(p.at-1, s, w.mayPreempt())
		}
		if s.bare {
			p.noteRefusal(cl, w, s.ask)
		} else if s.ask != 0 && len(p.w.Inventory.Avoided(cl.d.ID)) == 0 { // else others may have a better answer
			p.answer(s.ask)
		}
	}, p.runOn)
	p.endChores()
	p.settleRuns()
	p.unmet.asked, p.unmet.known = p.queue, p.displace == 0
	p.dropSpoiled()
	p.queue = nil
}

// inOrder visits the Needs of queue, which is in turn order, and those that openLate adds meanwhile, each in its place.
// runOn may take several of queue at once. visit is told what is in the queue, or nil.
func (p *planning) inOrder(visit func(cl *clusterState, w *want, s *standing), runOn func() bool) {
	read := 0
	for p.at = 0; p.at < len(p.queue) || len(p.late) > 0; {
		if len(p.late) == 0 && runOn() {
			continue
		}
		if p.at >= read && p.at < len(p.queue) {
			p.lookAhead()
			if p.chores.on {
				p.foresee()
			}
			read = p.at + aheadTurns
		}
		if len(p.late) > 0 && (p.at == len(p.queue) || compareTurn(p.late[0], p.next(p.at).turn) < 0) {
			cl, w := p.state(p.popLate())
			w.bits &^= wLate
			p.ownActs = 0
			visit(cl, w, nil)
			continue
		}
		s := p.next(p.at)
		p.at++
		if !s.turns() {
			p.noteUnmet(p.at-1, s, false)
			continue
		}
		cl, w := p.state(s.turn)
		if p.ownActs = 0; p.chores.on && len(p.late) == 0 {
			p.ownActs = len(p.acts) // a Need of queue has taken nothing before
		}
		visit(cl, w, s)
	}
	p.ownActs = 0
}

// lookAhead reads what the next turns will read. Every Need lies in another cluster than the one before; a processor fetches
// many lines of memory in the time of one if none of them says where the next one is.
func (p *planning) lookAhead() {
	var next [aheadTurns]*standing
	n := 0
	for at := p.at; at < min(p.at+aheadTurns, len(p.queue)); at++ {
		if s := p.next(at); !p.chores.busy(s.turn.cl) && !p.passes(s) {
			next[n] = s
			n++
		}
	}
	sum := 0
	for _, s := range next[:n] { // each line that turns look at
		cl := p.states[s.turn.cl]
		sum += int(cl.at) + len(cl.loc) + len(cl.offer) + len(cl.least) + cl.open
	}
	for _, s := range next[:n] {
		cl, w := p.state(s.turn)
		sum += int(w.vec) + int(cl.d.Facts.SharingPerMille) + len(p.w.Inventory.Avoided(cl.d.ID))
		if n := len(cl.loc); n < cap(cl.loc) { // where the next machine goes
			sum += int(cl.loc[:n+1][n].idx)
		}
		if n := len(cl.vec); n < cap(cl.vec) {
			sum += int(cl.vec[:n+1][n])
		}
		if len(cl.offer) > 0 {
			sum += int(cl.offer[0]) + int(cl.givers[0].want)
		}
	}
	for _, s := range next[:n] {
		cl, w := p.state(s.turn)
		sum += int(cl.rest(w)[0])
	}
	p.ahead = sum
}

// aheadTurns is about how many lines of memory a processor fetches at once.
const aheadTurns = 16

// queued reports whether the turn of a Need is still to come.
func (p *planning) queued(cl *clusterState, w *want) bool {
	if w.bits&wLate != 0 {
		return true
	}
	t := turnOf(cl, w)
	i := p.at + sort.Search(len(p.queue)-p.at, func(i int) bool { return compareTurn(p.next(p.at+i).turn, t) >= 0 })
	return i < len(p.queue) && p.next(i).turn == t && p.next(i).turns()
}

// beyondHelp reports whether no class matches and fits: then nothing that a turn or preemption could do helps.
func (cl *clusterState) beyondHelp(w *want) bool {
	d := cl.hopeless(w)
	return d == DetailNoMatch || d == DetailTooSmall
}

// openLate gives a Need that has lost something a turn, if none is to come yet (12.6).
func (p *planning) openLate(cl *clusterState, w *want) {
	p.displace++
	p.spoil(cl)
	p.chores.finish(p) // no more are given away until it has had its turn
	if held(w) || p.queued(cl, w) {
		return
	}
	w.bits |= wLate
	h := append(p.late, turnOf(cl, w))
	for c := len(h) - 1; c > 0; {
		up := (c - 1) / 2
		if compareTurn(h[up], h[c]) <= 0 {
			break
		}
		h[up], h[c] = h[c], h[up]
		c = up
	}
	p.late = h
}

func (p *planning) popLate() turn {
	h := p.late
	t := h[0]
	h[0] = h[len(h)-1]
	h = h[:len(h)-1]
	for up := 0; ; {
		c := 2*up + 1
		if c >= len(h) {
			break
		}
		if c+1 < len(h) && compareTurn(h[c+1], h[c]) < 0 {
			c++
		}
		if compareTurn(h[up], h[c]) <= 0 {
			break
		}
		h[up], h[c] = h[c], h[up]
		up = c
	}
	p.late = h
	return t
}

// takeTurn is ENG-12.3. It reports whether the end of the turn is a chore: the cluster is not to be touched any more.
func (p *planning) takeTurn(cl *clusterState, w *want) (given bool) {
	if cl.shared == w.at+1 {
		cl.shared = 0
	} else if w.bits&wSame != 0 {
		if !p.gangTurn(cl, w) {
			return false
		}
	} else {
		if cl.loose > 0 {
			p.spoil(cl)
			cl.claimLoose(w, nil)
		}
		shares := len(cl.shares)
		cl.share(p, w, &p.x, func(*local) bool { return true })
		last := w.lastOne
		cl.claimComing(w, nil)
		if len(cl.shares) > shares || w.lastOne != last {
			p.spoil(cl)
		}
	}
	if p.acquire(cl, w, inventory.IdlePool) || p.acquire(cl, w, inventory.SpeculativePool) {
		return true
	}
	p.reattribute(cl, w)
	return false
}

// acquire takes free machines of one pool by the cover rule. It reports whether what is to be done about them is a chore.
func (p *planning) acquire(cl *clusterState, w *want, k inventory.Pool) (given bool) {
	if !cl.short(w) || !p.anyFree(cl.matcher(w), k) {
		return false
	}
	c := &p.cover
	c.ask(p, cl, w, k, cl.rest(w))
	switch {
	case w.bits&wSpread != 0:
		return p.acquireSpread(cl, w, k)
	case w.bits&wSame != 0:
		t := p.topology(w.key)
		d, ok := t.top.Domain(w.domain)
		if !ok {
			return false
		}
		if len(c.spare) > 0 {
			c.avoidFor(cl, k, func(i inventory.Index) bool {
				v, has := p.w.Inventory.Value(i, w.key)
				return has && v == w.domain
			})
		}
		p.domainMarket(cl, w, t, int(d), k)
		c.mk, c.domain, c.byClass, c.left, c.domainAt = &p.local, &t.top.Domains[d], t.byClass, t, d
		p.here = place{t, d}
		defer func() { p.here = place{} }()
	default:
		c.everywhere(cl, w)
	}
	if len(c.mk.shelves) == 0 {
		return false
	}
	covered := c.cover()
	p.taking = p.taking[:0]
	for _, pk := range c.list {
		p.taking = c.listed(p.taking, pk.group, pk.n)
	}
	return p.takeAll(cl, w, k, covered && w.bits&wSame == 0)
}

// ask puts the question of a Need that is short of rest, but for where.
func (c *coverer) ask(p *planning, cl *clusterState, w *want, k inventory.Pool, rest []int64) {
	c.stock, c.pool, c.domain, c.mask = &p.stock, k, nil, nil
	c.avoidFor(cl, k, nil)
	c.unit = append(c.unit[:0], cl.unit(w)...)
	c.input = append(c.input[:0], rest...)
	c.whole = w.bits&wMany != 0 && !slices.Equal(c.unit, c.input)
}

// everywhere says that a machine may be anywhere.
func (c *coverer) everywhere(cl *clusterState, w *want) {
	c.mk, c.mask = cl.cat.storeOf(cl.matcher(w), cl.f, w.bucket)
}

// avoidFor notes which free machines the cluster must not take, of those that only selects; nil selects all.
func (c *coverer) avoidFor(cl *clusterState, k inventory.Pool, only func(i inventory.Index) bool) {
	c.avoid, c.spare = c.avoid[:0], c.spare[:0]
	for _, i := range c.stock.inv.Avoided(cl.d.ID) {
		r := c.stock.inv.Row(i)
		if (k == inventory.IdlePool) != (r.Seen() == inventory.Idle) || c.stock.isTaken(i) || only != nil && !only(i) {
			continue
		}
		c.spare = append(c.spare, i)
		at := slices.IndexFunc(c.avoid, func(s slot) bool { return s.class == r.Class })
		if at < 0 {
			at = len(c.avoid)
			c.avoid = append(c.avoid, slot{class: r.Class})
		}
		c.avoid[at].n++
	}
}

// domainMarket makes the market of what one domain has left for w.
func (p *planning) domainMarket(cl *clusterState, w *want, t *topState, d int, k inventory.Pool) {
	all := p.cat.shelvesOf(w.bucket)
	p.keys = p.keys[:0]
	for i, cell := range t.top.Domains[d].Cells[k] {
		if n := p.left(t, d, k, i); n > 0 && cl.fits(w, cell.Class) {
			p.keys = append(p.keys, uint64(all.rank[cell.Class])<<32|uint64(i))
		}
	}
	slices.Sort(p.keys)
	m := &p.local
	m.m, m.f, m.bucket = cl.matcher(w), cl.f, w.bucket
	m.shelves = m.shelves[:0]
	supply := uint32(0)
	for _, key := range p.keys {
		i := int(uint32(key))
		class := t.top.Domains[d].Cells[k][i].Class
		if len(m.shelves) == 0 || p.cat.supply[class] != supply {
			supply = p.cat.supply[class]
			if len(m.shelves) == len(p.racks) {
				p.racks = append(p.racks, &shelf{})
			}
			s := p.racks[len(m.shelves)]
			s.slots = s.slots[:0]
			m.shelves = append(m.shelves, s)
		}
		s := m.shelves[len(m.shelves)-1]
		s.slots = append(s.slots, slot{class, p.left(t, d, k, i)})
	}
	for _, s := range m.shelves {
		s.fill(func(class uint32) int64 { return effectiveCost(p.w.Inventory.Class(class), w.bucket) })
		s.gen, s.head = p.stock.gen, [2]int32{}
	}
	m.index()
}

// takeAll takes the machines that were chosen for w, which may cover it. It reports whether all but that is a chore.
func (p *planning) takeAll(cl *clusterState, w *want, k inventory.Pool, covered bool) (given bool) {
	if covered && len(p.taking) > 0 && !p.muted && p.chores.offer(p) {
		from := len(p.stock.list)
		for _, x := range p.taking {
			p.stock.take(x.idx, x.class, k)
		}
		p.chores.give(p, cl, w, k, from)
		return true
	}
	if len(p.taking) > 1 {
		p.readRows(p.taking)
	}
	for _, x := range p.taking {
		p.take(cl, w, x.idx, k)
	}
	return false
}

// readRows reads the rows of machines that are about to be taken, side by side: see lookAhead.
func (p *planning) readRows(list []free) {
	inv, sum := p.w.Inventory, uint32(0)
	for _, x := range list {
		sum += inv.Row(x.idx).Order
	}
	p.ahead = int(sum)
}

// reattribute is ENG-12.5: machines of the own cluster, bound ones and then those in flight, that serve a lower priority
// are credited to w instead.
func (p *planning) reattribute(cl *clusterState, w *want) {
	if !cl.short(w) || cl.wants[len(cl.wants)-1].priority >= w.priority {
		return
	}
	p.reattributeFrom(cl, w, cl.bound, cl.keep)
	if cl.short(w) && len(cl.flight) > 0 {
		p.reattributeFrom(cl, w, cl.flight, func(a, b int32) int { return cmp.Compare(cl.loc[a].order, cl.loc[b].order) })
	}
}

func (p *planning) reattributeFrom(cl *clusterState, w *want, from []int32, order func(a, b int32) int) {
	priority := w.priority
	var values []int64
	if w.bits&wSame != 0 {
		values = cl.values(p.w.Inventory, w.key)
	}
	list := p.x.list[:0]
	for _, at := range from {
		l := &cl.loc[at]
		if l.claim < 0 || cl.wants[l.claim].priority >= priority || l.bits&lShunned != 0 || !cl.usable(w, l) ||
			values != nil && values[at] != int64(w.domain) {
			continue
		}
		list = append(list, at)
	}
	slices.SortFunc(list, func(a, b int32) int {
		x, y := cl.need(&cl.wants[cl.loc[a].claim]), cl.need(&cl.wants[cl.loc[b].claim])
		return cmp.Or(demand.CompareRank(&y.Form.Profile, &x.Form.Profile), order(a, b))
	})
	for _, at := range list {
		if !cl.short(w) {
			break
		}
		l := &cl.loc[at]
		worth := append(p.buf[:0], cl.supply(l)...)
		p.buf = worth
		for i := l.shares; i >= 0; i = cl.shares[i].nextOn {
			if s := &cl.shares[i]; s.to != w.at && cl.wants[s.to].priority >= priority {
				less(worth, cl.at_(s.vec, 0))
			}
		}
		if !touches(cl.inUnits(w, worth), cl.rest(w)) {
			continue
		}
		for i := l.shares; i >= 0; {
			next := cl.shares[i].nextOn
			if loser := &cl.wants[cl.shares[i].to]; loser.priority < priority {
				cl.dropShare(i)
				cl.recount(loser)
				p.openLate(cl, loser)
			}
			i = next
		}
		loser := &cl.wants[l.claim]
		cl.release(at)
		cl.recount(loser)
		p.openLate(cl, loser)
		cl.claim(w, at)
		p.spoil(cl)
	}
	p.x.list = list
}
