package sim

import (
	"encoding/binary"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// send is the provider client: one attempt of one command over a network that loses, delays and doubles messages. It
// answers with CommandDone exactly once.
func (p *process) send(c core.Command) {
	w, at := p.w, p.w.providerNamed(c.Provider)
	p.tokens++
	seq := p.tokens
	p.inflight[c.Op] = c
	answered := false
	finish := func(d core.CommandDone) {
		if answered {
			return
		}
		answered = true
		delete(p.inflight, c.Op)
		d.Op, d.Attempt, d.Machine, d.Token = c.Op, c.Attempt, c.Machine, seq
		p.step(d)
	}
	b, has := p.blobs[c.Blob]
	if c.RPC == core.RPCConfigure && !has {
		w.broken("configure-without-blob", "SHARD-16.6", c.Machine, c.Cluster, "%s asks for Configure of %s with a blob that is not there", c.Op, c.Machine)
		return
	}
	if w.roll(NotSent) {
		w.after(w.delay(), func() { finish(core.CommandDone{Code: core.CodeUnavailable, Detail: "dial: no route"}) })
		return
	}
	w.after(c.Timeout, func() {
		finish(core.CommandDone{Code: core.CodeDeadlineExceeded, Sent: true, Detail: "no answer in time"})
	})
	travel := w.delay()
	switch {
	case w.now < at.cut:
		return
	case w.roll(LostRequest):
		return
	case w.roll(LateRequest):
		travel += c.Timeout + w.net.between(second, 3*minute)
	}
	deliver := func(heard bool) {
		a := at.command(p.s, c, p.epoch, seq, b.works)
		if !heard || w.roll(LostReply) || w.now < at.cut {
			return
		}
		w.after(a.wait+w.delay(), func() { finish(done(w, a)) })
	}
	w.after(travel, func() { deliver(true) })
	if w.roll(DuplicateRequest) {
		w.after(travel+w.net.between(millisecond, 2*minute), func() { deliver(false) })
	}
}

func done(w *world, a answer) core.CommandDone {
	d := core.CommandDone{Code: a.code, Sent: true, Detail: a.detail, Ack: a.fact, ProviderOp: "op", FenceEpoch: a.epoch, FenceSeq: a.seq, HasFence: a.mark}
	if a.fact != nil && w.roll(WrongAck) {
		d.AckRejected = "identity"
	}
	return d
}

// get answers GetMachine.
func (p *provider) get(to *process, g core.GetMachine) {
	w, asked := p.w, p.w.now
	d := core.GetDone{Get: g.Get, Machine: g.Machine}
	if w.roll(GetFails) || w.now < p.cut {
		d.Code, d.Error = core.CodeDeadlineExceeded, "no answer in time"
		w.after(g.Timeout, func() { to.step(d) })
		return
	}
	w.after(w.delay(), func() {
		m := p.byID[g.Machine]
		switch {
		case p.down:
			d.Code, d.Error = core.CodeUnavailable, "the provider is down"
		case m == nil:
			d.NotFound, d.Code = true, core.CodeNotFound
		default:
			f := m.fact()
			d.Row = &f
		}
		subject := m
		w.after(w.delay(), func() {
			if subject != nil && d.Row != nil {
				to.s.check.shown(to, subject, d.Row, asked, false)
			}
			to.step(d)
		})
	})
}

// cursor spells a revision of one incarnation.
func (p *provider) cursor(rev int64) []byte {
	if !p.w.cursors {
		return []byte("same")
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, uint64(p.born)), uint64(rev))
}

// list answers ListMachines, in pages.
func (p *provider) list(to *process, l core.ListMachines) {
	w, asked := p.w, p.w.now
	took := w.delay()
	if w.roll(ListSlow) {
		took += w.net.between(second, minute)
	}
	fail := func(code core.Code, text string) {
		to.step(core.ListDone{List: l.List, Failed: true, Code: code, Error: text, Duration: took})
	}
	if w.roll(ListFails) || w.now < p.cut {
		w.after(took, func() { fail(core.CodeDeadlineExceeded, "no answer in time") })
		return
	}
	w.after(took, func() {
		if p.down {
			fail(core.CodeUnavailable, "the provider is down")
			return
		}
		rows, done, lie, refused := p.view(to, l)
		if refused {
			fail(core.CodeOutOfRange, "the cursor is of another life")
			return
		}
		done.List, done.Duration = l.List, took
		p.deliver(to, asked, l, rows, done, lie)
	})
}

// deliver hands over the pages with some time between them.
func (p *provider) deliver(to *process, asked int64, l core.ListMachines, rows []core.Fact, done core.ListDone, lie bool) {
	w := p.w
	breaks := w.roll(ListBreaks)
	at, size := w.delay(), max(1, int(w.net.between(3, 4096)))
	for first := true; first || len(rows) > 0; first = false {
		n := min(size, len(rows))
		page := core.ListPage{List: l.List, Rows: rows[:n:n]}
		rows = rows[n:]
		if first && n > 0 && w.roll(RowInvalid) {
			bad := page.Rows[n-1].Machine.ID
			page.Rows, page.Rejected = page.Rows[:n-1:n-1], []core.RejectedID{{ID: bad, Reason: "price", Text: "-1 is no price"}}
		}
		if n > 0 && w.roll(RowTwice) {
			page.Rows = append(page.Rows, page.Rows[0])
		}
		w.after(at, func() {
			for i := range page.Rows {
				if m := p.byID[page.Rows[i].Machine.ID]; m != nil {
					to.s.check.shown(to, m, &page.Rows[i], asked, lie)
				}
			}
			to.step(page)
		})
		at += w.net.between(0, w.latency)
		if breaks {
			w.after(at, func() {
				to.step(core.ListDone{List: l.List, Failed: true, Code: core.CodeUnavailable, Error: "stream broke", Duration: done.Duration})
			})
			return
		}
	}
	w.after(at, func() { to.step(done) })
}

// view is what a List shows: everything, or what changed since the cursor, or a lie.
func (p *provider) view(to *process, l core.ListMachines) (rows []core.Fact, d core.ListDone, lie, refused bool) {
	w := p.w
	since, whole := int64(-1), true
	if len(l.Cursor) == 16 && w.cursors {
		born := int64(binary.BigEndian.Uint64(l.Cursor))
		since, whole = int64(binary.BigEndian.Uint64(l.Cursor[8:])), false
		if born != p.born || w.roll(CursorRefused) {
			return nil, d, false, true
		}
	}
	d.Revision, d.Paged = p.cursor(p.rev), w.paged && w.cursors
	d.Complete = whole && d.Paged
	if whole {
		if rows, ok := p.lie(to, &d); ok {
			return rows, d, true, false
		}
	}
	for _, m := range p.order {
		if m.rev > since {
			if !whole && w.roll(DeltaLost) {
				w.note(m.ID, m.Cluster, "fault delta-lost: %s is %s", m.ID, m.State)
				continue
			}
			rows = append(rows, m.fact())
		}
	}
	if !whole {
		for _, t := range p.tombs {
			if t.rev > since {
				d.Removed = append(d.Removed, t.id)
			}
		}
		slices.Sort(d.Removed)
		d.Removed = slices.Compact(d.Removed)
		d.Removed = slices.DeleteFunc(d.Removed, func(id string) bool { return p.byID[id] != nil })
		return rows, d, false, false
	}
	p.remember(rows)
	return rows, d, false, false
}

// lie answers a full List with what is not so. Which machines are concerned is noted, so that the rules excuse what
// follows from the lie itself.
func (p *provider) lie(to *process, d *core.ListDone) ([]core.Fact, bool) {
	w := p.w
	switch {
	case w.roll(ListEmpty):
		w.note("", "", "fault list-empty: %s shows no machine", p.name)
		for _, m := range p.order {
			to.s.check.hidden(m)
		}
		return nil, true
	case w.roll(ListHalved):
		w.note("", "", "fault list-halved: %s shows every other machine", p.name)
		var rows []core.Fact
		for i, m := range p.order {
			if i%2 == 0 {
				rows = append(rows, m.fact())
			} else {
				to.s.check.hidden(m)
			}
		}
		return rows, true
	case len(p.past) > 0 && w.roll(ListStale):
		old := p.past[0]
		w.note("", "", "fault list-stale: %s shows revision %d instead of %d", p.name, old.rev, p.rev)
		d.Revision = p.cursor(old.rev)
		for _, m := range p.order {
			if !slices.ContainsFunc(old.rows, func(f core.Fact) bool { return f.Machine.ID == m.ID }) {
				to.s.check.hidden(m)
			}
		}
		return old.rows, true
	}
	return nil, false
}

// remember keeps some pasts for stale Lists.
func (p *provider) remember(rows []core.Fact) {
	if p.w.rate[ListStale] == 0 {
		return
	}
	if p.past = append(p.past, snapshot{slices.Clone(rows), p.rev}); len(p.past) > 4 {
		p.past = p.past[1:]
	}
}

// bound reports whether a machine has a cluster in a state.
func bound(s inventory.State) bool {
	return s == inventory.Configuring || s == inventory.Configured || s == inventory.Draining
}
