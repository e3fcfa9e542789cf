package sim

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// report is the shell's side of the coordinator, again and again: what instructions changed is put on the disk, then the
// answers go out with a report, and a reply becomes an event. A reply that does not come in time is a failure, and the
// answers go again.
func (p *process) report() {
	w := p.w
	if p.dead || w.coord == nil || w.fail != nil {
		return
	}
	again := func(d int64) { w.after(d, p.report) }
	if p.frozen || p.publish == nil {
		again(second)
		return
	}
	p.storeAcks()
	x := shardReport{from: p, view: p.publish.Status.Coord.View, acks: p.acks, back: p.returned()}
	p.acks = nil
	over := false
	finish := func(r core.CoordinatorReplied) {
		if over || p.dead {
			return
		}
		if over = true; r.Failed {
			p.acks = append(x.acks, p.acks...)
		} else if r.Term >= p.lineage.Term { // the client keeps the mark before anybody obeys (COORD-7.12)
			if p.lineage = (core.Lineage{Term: r.Term, UUID: r.UUID}); p.owns {
				p.s.disk.control[keyLineage] = codec.Marshal(p.lineage)
			}
		}
		p.step(r)
		again(reportEvery*9/10 + w.coord.r.between(0, reportEvery/5))
	}
	w.after(reportLimit, func() { finish(core.CoordinatorReplied{Failed: true, Text: "no answer in time"}) })
	late := int64(0)
	if w.roll(CoordinatorSlow) {
		late = w.coord.r.between(second, 2*reportLimit)
	}
	w.after(w.coord.delay(), func() {
		if w.coord.away > w.now {
			return
		}
		r := w.coord.answer(x)
		w.after(late+w.coord.delay(), func() { finish(r) })
	})
}

func (co *coordinator) delay() int64 { return co.r.spread(co.w.latency/4+1, co.w.latency*4) }

// storeAcks puts on the disk what the answers speak of; a hint of the same key that waits is older.
func (p *process) storeAcks() {
	for _, a := range p.unstored {
		if p.owns {
			for _, x := range a.store {
				p.forgetHint(x)
				p.s.disk.put(x)
			}
		}
		if a.ack != nil {
			p.acks = append(p.acks, *a.ack)
		}
		for _, id := range a.given {
			p.given[id] = true
		}
		p.w.coord.gaveBack(p, a.given)
	}
	p.unstored = nil
}

// word is a message to the coordinator.
type word struct {
	ack   *core.AckInstruction
	given []string // machines whose exception ended here
	store []core.Persist
}

// returned are the machines that were given back, until a view comes without them.
func (p *process) returned() (out []string) {
	if v := p.publish.Status.Coord.View; v != nil {
		for _, e := range v.Returned {
			if p.given[e.Machine] {
				out = append(out, e.Machine)
			}
		}
	}
	return out
}

func (p *process) forgetHint(x core.Persist) {
	kept := p.unsaved[:0]
	for _, h := range p.unsaved {
		if h.Bucket != x.Bucket || h.Key != x.Key {
			kept = append(kept, h)
		}
	}
	p.unsaved = kept
}

// Keys of the bucket "control", as the shell spells them.
const (
	keyLineage = "lineage"
	keyView    = "view"
	keyDone    = "done"
	keyDomains = "domains"
)

// restore reads back what a coordinator has ordered.
func (d *disk) restore(c *core.Control) error {
	read := func(key string, into any) error {
		if raw, ok := d.control[key]; ok {
			return codec.Unmarshal(raw, into)
		}
		return nil
	}
	if err := read(keyLineage, &c.Coordinator); err != nil {
		return err
	}
	if _, ok := d.control[keyView]; ok {
		c.View = &core.View{}
		if err := read(keyView, c.View); err != nil {
			return err
		}
	}
	var done core.DoneSet
	var domains core.DomainSet
	if err := read(keyDone, &done); err != nil {
		return err
	}
	if err := read(keyDomains, &domains); err != nil {
		return err
	}
	c.Done, c.Domains, c.Removed = done.Acks, domains.Domains, string(d.control[core.KeyRemoved])
	for _, key := range sortedKeys(d.reserved) {
		var r core.Reservation
		if err := codec.Unmarshal(d.reserved[key], &r); err != nil {
			return err
		}
		c.Reservations = append(c.Reservations, r)
	}
	return nil
}
