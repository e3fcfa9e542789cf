package engine

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// A turn is over when it has chosen. What follows concerns its own cluster and the choice of nobody else: the actions, records
// and claims of the machines, what they leave over for others of the cluster, and the shares of its next Need. That is a chore. A second
// goroutine does chores while the next turns choose, in turn order as before. Nobody waits for it: a turn that comes to a
// cluster whose chore has not been begun does it itself.

// chore is what is left to do for a Need that has chosen all that it lacked from one pool.
type chore struct {
	state    atomic.Uint32
	number   uint32
	cl       *clusterState
	w        *want
	pool     inventory.Pool
	machines []inventory.Index
	kinds    []takenKind // of each of them
	acts     []Action    // room for as many
	ids      []uint32
	tells    bool          // it is to tell topologies of the machines, and nothing else,
	sums     []*domainSums // and these are asked for soon
	room     int           // how many machines the cluster will take at the least, if it has none
}

// States of a chore.
const (
	choreDone uint32 = iota
	choreOpen
	choreBegun
)

// chores is the chores of the plan at work. Each cluster has one at a time.
type chores struct {
	on     bool
	given  int        // before they were on
	ring   []chore    // by number
	of     []uint32   // by cluster: the number of the last one, or 0
	told   uint32     // the number of the last one that tells topologies, or 0
	last   uint32     // the number of the newest,
	seen   int        // of queue,
	gangs  []foreseen // and what was found there
	_      [64]byte
	head   atomic.Uint32 // for the second goroutine
	asleep atomic.Bool
	stop   atomic.Bool
	_      [64]byte
	wake   chan struct{}
	done   sync.WaitGroup
}

const (
	choresAhead = 256   // chores that may wait: a power of two
	choresMin   = 256   // turns that take something before a second goroutine is worth its while; less where ParallelMin is small
	choresIdle  = 30000 // looks for a new chore before it sleeps
)

// beginChores says that turns may give chores away from now on.
func (p *planning) beginChores() {
	c := &p.chores
	c.on, c.given = false, 0
	if p.workers() == 1 {
		c.given = -1
	}
}

// offer reports whether a turn should give its chore away. A second goroutine comes once it has enough to do.
func (c *chores) offer(p *planning) bool {
	if c.on {
		return len(p.late) == 0
	}
	if c.given < 0 {
		return false
	}
	c.given++ // where most turns are of gangs or in runs, another goroutine costs more than it saves
	if c.given < min(choresMin, 4*max(1, p.policy.ParallelMin)) || 4*c.given < p.res.Counters.Turns {
		return false
	}
	c.on = true
	if c.ring == nil {
		c.ring, c.wake = make([]chore, choresAhead), make(chan struct{}, 1)
	}
	c.told, c.seen = 0, 0
	c.of = append(c.of[:0], make([]uint32, len(p.states))...)
	if len(p.crew) == 0 {
		p.crew = append(p.crew, &scratch{})
	}
	c.stop.Store(false)
	x, from := p.crew[0], c.last
	c.done.Go(func() { c.help(p, x, from) })
	return len(p.late) == 0
}

// endChores waits until all are done.
func (p *planning) endChores() {
	c := &p.chores
	c.given = -1
	if !c.on {
		return
	}
	c.finish(p)
	c.on = false
	c.stop.Store(true)
	c.rouse()
	c.done.Wait()
	for i := range c.ring {
		c.ring[i].forget()
	}
	c.gangs = nil
}

// help does chores, oldest first, until it is told to stop.
func (c *chores) help(p *planning, x *scratch, at uint32) {
	for looks := 0; ; {
		head := c.head.Load()
		if at == head {
			if c.stop.Load() {
				return
			}
			if looks++; looks < choresIdle {
				if looks%128 == 0 {
					runtime.Gosched()
				}
				continue
			}
			looks = 0
			c.asleep.Store(true)
			if c.head.Load() == at && !c.stop.Load() {
				<-c.wake
			} else if !c.asleep.CompareAndSwap(true, false) {
				<-c.wake // somebody has called already
			}
			continue
		}
		looks = 0
		if head-at > choresAhead {
			at = head - choresAhead // the turns have done those before
		}
		at++
		c.ring[at%choresAhead].try(p, x)
	}
}

// rouse wakes the second goroutine if it sleeps.
func (c *chores) rouse() {
	if c.asleep.Load() && c.asleep.CompareAndSwap(true, false) {
		c.wake <- struct{}{}
	}
}

// try does a chore that nobody has begun.
func (x *chore) try(p *planning, s *scratch) {
	if x.state.Load() == choreOpen && x.state.CompareAndSwap(choreOpen, choreBegun) {
		x.do(p, s)
		x.state.Store(choreDone)
	}
}

// settle makes sure that a chore is done.
func (x *chore) settle(p *planning) {
	if x.state.Load() == choreDone {
		return
	}
	x.try(p, &p.x)
	for looks := 1; x.state.Load() != choreDone; looks++ {
		if looks%64 == 0 {
			runtime.Gosched()
		}
	}
}

// forget lets go what a chore was about.
func (x *chore) forget() {
	x.cl, x.w, x.machines, x.kinds, x.acts, x.ids, x.sums = nil, nil, nil, nil, nil, nil, nil
}

// await makes sure that nothing is left to do for a cluster.
func (c *chores) await(p *planning, cl *clusterState) {
	if !c.on || c.of[cl.at] == 0 {
		return
	}
	if x := &c.ring[c.of[cl.at]%choresAhead]; x.number == c.of[cl.at] {
		x.settle(p)
	}
	c.of[cl.at] = 0
}

// busy reports whether the second goroutine may be at work on a cluster.
func (c *chores) busy(at int32) bool {
	if !c.on || c.of[at] == 0 {
		return false
	}
	x := &c.ring[c.of[at]%choresAhead]
	return x.number == c.of[at] && x.state.Load() != choreDone
}

// finish makes sure that nothing is left to do for anybody.
func (c *chores) finish(p *planning) {
	if !c.on {
		return
	}
	for i := range c.ring {
		c.ring[i].settle(p)
	}
}

// give leaves to the second goroutine what w has taken since stock.list was from long.
func (c *chores) give(p *planning, cl *clusterState, w *want, k inventory.Pool, from int) {
	n := len(p.stock.list) - from
	p.roomForActions(n)
	p.spoil(cl)
	if k == inventory.SpeculativePool {
		p.bought = true
	}
	x := c.next(p)
	at := len(p.acts)
	p.acts, p.ids = p.acts[:at+n], p.ids[:at+n]
	x.cl, x.w, x.pool = cl, w, k
	x.machines, x.kinds = p.stock.list[from:from+n:from+n], p.stock.kinds[from:from+n:from+n]
	x.acts, x.ids = p.acts[at:at+n:at+n], p.ids[at:at+n:at+n]
	x.room = p.takesPerTurn()
	c.of[cl.at] = c.last
	c.open(x)
}

// next is a new chore that is to be filled in and opened.
func (c *chores) next(p *planning) *chore {
	if c.last++; c.last == 0 {
		c.last = choresAhead
	}
	x := &c.ring[c.last%choresAhead]
	x.settle(p)
	x.number, x.tells, x.sums = c.last, false, x.sums[:0]
	return x
}

// open makes a chore known.
func (c *chores) open(x *chore) {
	x.state.Store(choreOpen)
	c.head.Store(c.last)
	c.rouse()
}

// do carries out a chore.
func (x *chore) do(p *planning, s *scratch) {
	if x.tells {
		p.tellOf(x.machines, x.kinds)
		for _, s := range x.sums {
			s.sync()
		}
		return
	}
	cl, w, inv := x.cl, x.w, p.w.Inventory
	sum := uint32(0)
	for _, i := range x.machines { // side by side: see lookAhead
		sum += inv.Row(i).Order
	}
	s.ahead = sum
	if x.pool == inventory.SpeculativePool {
		w.bits |= wBought
	}
	for n, i := range x.machines {
		r, class := inv.Row(i), x.kinds[n].class()
		x.acts[n], x.ids[n] = acquisition(cl, w, i, x.pool, inv.Class(class)), r.Order
		sortIn(x.acts, x.ids, n, 0)
		cl.keepFree(p, w, i, class, r, x.room)
	}
	cl.settleOffers(w, s)
	cl.shareAhead(p, w, s)
}

// shareAhead gives the Need of the cluster that has the next turn its shares: nothing happens to the cluster before.
func (cl *clusterState) shareAhead(p *planning, w *want, x *scratch) {
	if cl.loose > 0 || len(cl.flight) > 0 {
		return
	}
	for at := int(w.at) + 1; at < len(cl.wants); at++ {
		n := &cl.wants[at]
		if !cl.short(n) || held(n) || cl.beyondHelp(n) {
			continue
		}
		if n.receives() {
			cl.share(p, n, x, func(*local) bool { return true })
			cl.shared = n.at + 1
		}
		return
	}
}
