package core

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// requestList sends a List. At most one per provider runs (SHARD-13.1).
func (c *reconciler) requestList(p *provider, full bool) {
	if p.list != nil {
		p.NeedFull = p.NeedFull || full
		return
	}
	c.lists++
	full = full || p.NeedFull || len(p.Cursor) == 0
	p.NeedFull = false
	p.list = &list{id: c.lists, full: full, asked: c.mutations, started: c.now}
	e := ListMachines{List: c.lists, Provider: p.Name, Paged: p.Paged, Timeout: listTimeout}
	if !full {
		e.Cursor = p.Cursor
	}
	c.emit(e)
}

// driveReconcile sends the Lists and Gets that are due.
func (c *reconciler) driveReconcile() {
	for _, p := range c.providers {
		if p.list == nil {
			switch {
			case p.NeedFull && c.now >= p.NextList:
				c.requestList(p, true)
			case c.rollups.mustRead(p):
				c.requestList(p, !c.incremental(p))
			case p.Listed && c.now >= p.NextFull && (p.Fails == 0 || c.now >= p.NextList): // a dead provider is not asked without a pause
				c.requestList(p, true)
			case c.now >= p.NextList && (p.Listed || p.Fails > 0):
				c.requestList(p, !c.incremental(p) || !p.Listed)
			}
		}
		c.pollInflight(p)
		c.sendGets(p)
		if p.list == nil {
			c.timers.add(max(p.NextList, c.now+Millisecond), timerList, p.Name)
		}
	}
}

// incremental reports whether the cursor is to be used (SHARD-13.2).
func (c *reconciler) incremental(p *provider) bool {
	switch c.cfg.Incremental {
	case IncrementalOff:
		return false
	case IncrementalOn:
		return true
	}
	return p.Paged || p.Advanced
}

// pollInflight looks faster at machines whose command was accepted: after the poll interval, then at an eighth of the
// age of the youngest such operation, never slower than the reconcile interval (SHARD-13.3).
func (c *reconciler) pollInflight(p *provider) {
	waits := func(o *operation) bool { return !o.Deleted && o.Provider == p.Name && o.Phase == phaseWaiting }
	if !p.Listed || !slices.ContainsFunc(c.ops.list, waits) {
		return
	}
	if p.PollAt == 0 {
		p.PollAt = p.Youngest + c.cfg.InflightPollInterval
	}
	if c.now < p.PollAt {
		c.timers.add(p.PollAt, timerList, p.Name)
		return
	}
	var waiting []*operation // at most one more than are asked for
	for _, o := range c.ops.list {
		if waits(o) && len(waiting) <= inflightGetsMax {
			waiting = append(waiting, o)
		}
	}
	pause := min(max(c.cfg.InflightPollInterval, (c.now-p.Youngest)/8), c.cfg.ReconcileInterval)
	switch {
	case c.incremental(p) && len(p.Cursor) > 0:
		if p.list == nil {
			c.requestList(p, false)
		}
	case len(waiting) <= inflightGetsMax:
		for _, o := range waiting {
			c.want(p.Name, o.Machine, getForPoll)
		}
	default:
		pause = max(pause, Second, 4*p.LastTook)
		if p.list == nil {
			c.requestList(p, true)
		}
	}
	p.PollAt = c.now + pause
	c.timers.add(p.PollAt, timerList, p.Name)
}

// listOf finds the provider whose List has an id.
func (c *reconciler) listOf(id int64) *provider {
	for _, p := range c.providers {
		if p.list != nil && p.list.id == id {
			return p
		}
	}
	return nil
}

// listPage merges part of a List.
func (c *reconciler) listPage(e ListPage) {
	p := c.listOf(e.List)
	if p == nil {
		return
	}
	inv := c.world.Inventory
	c.reduced.page = &ListPage{List: e.List, Rejected: e.Rejected[:len(e.Rejected):len(e.Rejected)]}
	for k := range e.Rows {
		e.Rows[k].Machine.Provider = p.Name
		f := e.Rows[k]
		i, known := inv.Find(f.Machine.ID)
		if known && inv.Provider(i) != p.Name {
			x := RejectedID{ID: f.Machine.ID, Reason: "identity", Text: "another provider lists a machine with this id"}
			c.rejectMachine(x, p)
			c.reduced.keepRejected(x)
			continue
		}
		if most := cmp.Or(c.cfg.MachinesMax, machinesMax); !known && int64(inv.Len()) >= most {
			x := RejectedID{ID: f.Machine.ID, Reason: "too_many", Text: fmt.Sprintf("the shard has %d machines, which is the most that it takes", most)}
			c.rejectMachine(x, p)
			c.reduced.keepRejected(x)
			continue
		}
		if known && c.cols.at(i).listed == p.list.id {
			x := RejectedID{ID: f.Machine.ID, Reason: "identity", Text: "listed twice"}
			c.rejectMachine(x, p)
			c.reduced.keepRejected(x)
			continue
		}
		p.list.seen++
		wasRejected := false
		if len(p.rejects) > 0 {
			_, wasRejected = p.rejects[f.Machine.ID]
			delete(p.rejects, f.Machine.ID)
		}
		i, did := c.merger.mergeAt(i, known, f, p.list.asked)
		switch did {
		case mergedAdopted:
			p.list.changed++
		case mergedSetAside:
			p.owed[f.Machine.ID] = true
		}
		if back := c.sawInList(p, i); did != mergedNothing || wasRejected || back {
			c.reduced.keepRow(e.Rows, k)
		}
	}
	for _, r := range e.Rejected {
		c.rejectMachine(r, p)
		if i, known := inv.Find(r.ID); known && inv.Provider(i) == p.Name {
			c.sawInList(p, i) // a rejected record still counts as seen
		}
	}
}

// sawInList notes that a List showed a machine, and reports whether it had been missing before.
func (c *reconciler) sawInList(p *provider, i inventory.Index) (back bool) {
	if i == inventory.None || !c.world.Inventory.Live(i) {
		return false
	}
	x := c.cols.at(i)
	back = x.absent != absence{}
	if x.listed != p.list.id {
		p.list.shown++
	}
	x.listed, x.absent = p.list.id, absence{}
	return back
}

// rejectMachine counts a refused record, and records it when it is news.
func (c *reconciler) rejectMachine(r RejectedID, p *provider) {
	c.sample(MetricMachinesRejected, r.Reason, 1)
	if p.rejects[r.ID] == r.Reason {
		return
	}
	if len(p.rejects) < rejectsMax {
		p.rejects[r.ID] = r.Reason
	}
	c.record(Record{Type: RecordMachineRejected, Machine: r.ID, Provider: p.Name, Outcome: r.Reason, Detail: clipText(r.Text)})
}

// listDone ends a List: the cursor is stored only now, when everything before it was merged (SHARD-13.8).
func (c *reconciler) listDone(e ListDone) {
	p := c.listOf(e.List)
	if p == nil {
		return
	}
	l := p.list
	p.list = nil
	if e.Seen == 0 {
		e.Seen = l.seen
	}
	kept := e
	kept.Reduced = true
	c.reduced.done = &kept
	if e.Failed {
		c.listFailed(p, e)
		return
	}
	p.Fails, p.LastError = 0, ""
	p.LastTook, p.Read = e.Duration, l.id
	if len(p.Cursor) > 0 && string(p.Cursor) != string(e.Revision) {
		p.Advanced = true
	}
	p.Cursor, p.Paged = e.Revision, p.Paged || e.Paged
	p.Breaker.answered(c.shared, p, c.now-p.ListedAt > 2*c.cfg.ReconcileInterval)
	p.ListedAt = c.now
	p.NextList = c.now + jitter(c.cfg.ReconcileInterval, 10, p.Name, int(c.lists))
	c.emit(Sample{Metric: MetricListDuration, Label1: p.Name, Label2: listMode(l.full), Value: e.Duration})
	whole := l.full || e.Complete
	for _, id := range e.Removed {
		c.removalReported(p, id)
	}
	if whole {
		p.NextFull = c.now + c.cfg.FullReconcileInterval
		p.FullAt = c.now
		c.removeAbsent(p, l, e)
	}
	if whole && !p.Listed {
		p.Listed, p.FirstAt = true, c.now
		c.firstListed()
	}
	if c.incremental(p) { // a full List sets aside too, and the deltas after it do not repeat what it showed
		for _, id := range sortedKeys(p.owed) {
			if !c.commandInFlight(id) { // an operation that waits for this very fact would wait for the next full List
				delete(p.owed, id)
				c.want(p.Name, id, getForOwed)
			}
		}
	} else {
		clear(p.owed)
	}
	if whole {
		c.admin.answerReconcile(p, l)
	}
	c.rollups.releaseNewcomers()
}

func listMode(full bool) string {
	if full {
		return "full"
	}
	return "incremental"
}

// listFailed tries again with backoff. Decisions go on and no machine fails because of it (SHARD-13.17).
func (c *reconciler) listFailed(p *provider, e ListDone) {
	p.Fails++
	p.LastError, p.ErrorAt = fmt.Sprintf("List: %s: %s", e.Code, clipText(e.Error)), c.now
	if len(p.Cursor) > 0 {
		p.Cursor = nil // a cursor error and a broken List both mean: look at everything
	}
	r := rampList
	r.most = max(c.cfg.ReconcileInterval, Second)
	p.NextList = c.now + r.after(p.Fails)
	c.sample(MetricReconcileErrors, p.Name, 1)
	c.admin.answerReconcileFailed(p)
	c.rollups.releaseNewcomers()
}

// firstListed runs once, when the last provider has delivered its first full List.
func (c *reconciler) firstListed() {
	if !c.allListed() {
		return
	}
	c.recovery.dropJournal()
	for _, cl := range c.clusters.ordered {
		if cl.GateWaits {
			c.rollups.tryGate(cl)
		}
	}
	c.sessions.finishResyncs()
	c.ownership.endExceptions()
	c.trigger(triggerMachine)
}

// removeAbsent removes the machines that a complete List did not show (SHARD-13.10), behind the guard: an empty success
// is a provider bug more often than a vanished fleet (SHARD-13.11).
func (c *reconciler) removeAbsent(p *provider, l *list, e ListDone) {
	missing, known := c.absentFrom(p, l, e)
	if !e.Reduced {
		for _, i := range missing {
			c.reduced.done.Missing = append(c.reduced.done.Missing, c.world.Inventory.ID(i))
		}
	}
	guard := len(missing) > max(removalMin, known/10) || (e.Seen == 0 && known > 0 && len(missing) > 0)
	held := 0
	for _, i := range missing {
		a := &c.cols.at(i).absent
		if a.lists == 0 {
			a.since = c.now
		}
		a.lists++
		if guard && !(a.lists >= removalLists && c.now-a.since >= removalElapsed) {
			held++
			continue
		}
		c.removeIfUnbound(p, i)
	}
	if held != p.Held {
		c.record(Record{Type: RecordRemovalsHeld, Provider: p.Name, Detail: fmt.Sprintf("%d of %d machines are missing from a full List; removals held: %d",
			len(missing), known, held)})
		p.Held = held
	}
}

// absentFrom finds the provider's machines that a List did not show and that were not set aside.
func (c *reconciler) absentFrom(p *provider, l *list, e ListDone) (missing []inventory.Index, known int) {
	inv := c.world.Inventory
	if e.Reduced {
		for _, id := range e.Missing {
			if i, ok := inv.Find(id); ok {
				missing = append(missing, i)
			}
		}
		return missing, p.machines
	}
	if l.shown == p.machines {
		return nil, p.machines // nearly every List; none of half a million is looked at
	}
	for k := range inv.Bound() { // in the order of memory: a List of half a million rows ends in one step
		i := inventory.Index(k)
		if !inv.Live(i) || inv.Provider(i) != p.Name {
			continue
		}
		known++
		if c.cols.at(i).listed == l.id || p.owed[inv.ID(i)] || c.cols.at(i).mutation > l.asked || c.commandInFlight(inv.ID(i)) {
			continue
		}
		missing = append(missing, i)
	}
	slices.SortFunc(missing, func(a, b inventory.Index) int { return cmp.Compare(inv.Row(a).Order, inv.Row(b).Order) })
	return missing, known
}

// commandInFlight reports whether facts about a machine are set aside now (SHARD-13.6).
func (c *reconciler) commandInFlight(id string) bool {
	o := c.ops.byMachine[id]
	return o != nil && (o.Phase == phasePulling || o.Phase == phaseReady || o.Phase == phaseSending || o.Phase == phaseFenced)
}

// removeIfUnbound removes a machine that is gone; a bound one only when Get says not found.
func (c *reconciler) removeIfUnbound(p *provider, i inventory.Index) {
	inv := c.world.Inventory
	if inv.Foreign(i) {
		c.machines.removeMachine(i)
		return
	}
	if s := inv.State(i); boundState(s) || c.ops.byMachine[inv.ID(i)] != nil {
		c.want(p.Name, inv.ID(i), getForAbsent)
		return
	}
	c.commands.vanish(i, "Its provider does not list it any more.")
}

// removalReported takes a tombstone of an incremental List.
func (c *reconciler) removalReported(p *provider, id string) {
	i, ok := c.world.Inventory.Find(id)
	if !ok || c.world.Inventory.Provider(i) != p.Name || c.commandInFlight(id) {
		return
	}
	c.removeIfUnbound(p, i)
}
