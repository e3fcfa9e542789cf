package sim

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// waits keeps an event until the plan is made that is made beside the loop, if it may not come before (SHARD-6.11). Of the roll-ups of a cluster none overtakes another.
func (p *process) waits(e core.Event) bool {
	if !p.making {
		return false
	}
	switch e := e.(type) {
	case core.PartMade:
		p.making = false
		return false
	case core.Tick: // the core wants another one when the plan is made
		return true
	case core.RollupArrived:
		earlier := func(x core.Event) bool { r, is := x.(core.RollupArrived); return is && r.Cluster == e.Cluster }
		if p.core.Takes(e) && !slices.ContainsFunc(p.waiting, earlier) {
			return false
		}
	}
	p.waiting = append(p.waiting, e)
	return true
}

// besideLoop makes what the core wants to be made beside the loop. It is made at once, as nothing that it is made of may change, and said to be made after a while.
func (p *process) besideLoop() {
	work, ends := p.core.Beside()
	if work == nil {
		p.goOn()
		return
	}
	p.making = true
	work()
	p.w.after(p.w.beside.between(millisecond, second/2), func() { p.step(ends) })
}

// goOn gives the core what waited for a plan that is made.
func (p *process) goOn() {
	for !p.making && !p.dead && len(p.waiting) > 0 {
		e := p.waiting[0]
		p.waiting = p.waiting[1:]
		p.step(e)
	}
}
