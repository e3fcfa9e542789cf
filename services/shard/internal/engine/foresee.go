package engine

// Topologies hear of what was taken when a gang asks, and each set of supplies that gangs ask for is added up by domain. Half of what a
// gang costs in a cold plan is to catch up with what others took since. With a second goroutine that is a chore, too.

// foreseen is the sums that a gang will ask for.
type foreseen struct {
	at   int // its place in queue
	sums *domainSums
}

// foresee looks for gangs among the turns that come, and has topologies told of what was taken, and that added up for these gangs,
// meanwhile.
func (p *planning) foresee() {
	c := &p.chores
	var near [gangsApart]int
	gangs := 0
	for c.seen = max(c.seen, p.at); c.seen < min(p.at+3*aheadTurns, len(p.queue)); c.seen++ {
		if s := p.next(c.seen); s.gang && s.turns() {
			if gangs < gangsApart {
				near[gangs] = c.seen
			}
			gangs++
		}
	}
	if gangs <= gangsApart {
		for _, at := range near[:gangs] {
			if s := p.next(at); !c.busy(s.turn.cl) {
				if sums := p.sumsAhead(p.state(s.turn)); sums != nil {
					c.gangs = append(c.gangs, foreseen{at, sums})
				}
			}
		}
	}
	for len(c.gangs) > 0 && c.gangs[0].at < p.at {
		c.gangs = c.gangs[1:]
	}
	if len(p.tops) == 0 || len(c.gangs) == 0 && len(p.stock.list) < p.told+tellTogether {
		return
	}
	c.awaitTold(p)
	x := c.next(p)
	x.tells = true
	for _, g := range c.gangs {
		x.sums = append(x.sums, g.sums)
	}
	n := len(p.stock.list)
	x.machines, x.kinds = p.stock.list[p.told:n:n], p.stock.kinds[p.told:n:n]
	p.told, c.told = n, c.last
	c.open(x)
}

// gangsApart is how many gangs may be seen at once: those that follow one another closely have little to catch up with.
const gangsApart = 3

// tellTogether is how many machines topologies are told of if no gang is near.
const tellTogether = 128

// sumsAhead is the sums for a gang if somebody has asked for such before.
func (p *planning) sumsAhead(cl *clusterState, w *want) *domainSums {
	t := p.topologyOf(w.key)
	if t == nil {
		return nil
	}
	for _, k := range t.counts {
		if k.m == cl.matcher(w) && k.plan == p.plans {
			p.chores.awaitTold(p)
			return p.sumsFor(cl, w, k)
		}
	}
	return nil
}

// awaitTold makes sure that nobody else is at work on topologies.
func (c *chores) awaitTold(p *planning) {
	if !c.on || c.told == 0 {
		return
	}
	if x := &c.ring[c.told%choresAhead]; x.number == c.told {
		x.settle(p)
	}
	c.told = 0
}
