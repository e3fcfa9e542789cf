package sim

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// quiet is how long nothing may have been started at the end of a run.
const quiet = 10 * minute

// end checks that a run has come to rest, and in the right place (SHARD-33.6).
func (c *checker) end() {
	w := c.w
	p := c.s.proc
	if p == nil || p.publish == nil || p.halted {
		w.broken("no-process", "SHARD-33.6", "", "", "at the end of the tail no process is at work")
		return
	}
	if w.coord != nil && len(w.coord.moves) > 0 {
		mv := w.coord.moves[0]
		w.broken("move-open", "COORD-12.11", "", "", "%s from %s to %s still waits for the answer to %s", mv.id, mv.from.s.id, mv.to.s.id, mv.instructionID())
	}
	c.sameInventory(p)
	c.sameNodes(p)
	c.atRest(p)
	c.satisfied(p)
}

// sameInventory: the shard believes what is so.
func (c *checker) sameInventory(p *process) {
	w := c.w
	known := map[string]bool{}
	for _, id := range p.core.Ids("", 1<<20) {
		known[id] = true
		v, _ := p.core.Machine(id)
		m := w.machine(id)
		switch {
		case m == nil:
			w.broken("ghost", "SHARD-33.6", id, v.Machine.Cluster, "%s is %s for the shard and does not exist", id, v.Machine.State)
		case m.State != v.Machine.State || bound(m.State) && m.Cluster != v.Machine.Cluster:
			if w.now-m.since < minute { // a List shows it soon
				continue
			}
			w.broken("inventory-differs", "SHARD-33.6", id, m.Cluster, "%s is %s %q at the provider and %s %q for the shard", id, m.State, m.Cluster, v.Machine.State, v.Machine.Cluster)
		case m.Price != v.Machine.Price:
			w.broken("price-differs", "SHARD-13.9", id, "", "%s costs %d and the shard believes %d", id, m.Price, v.Machine.Price)
		case c.overdue(m) && c.ownsAtEnd(m):
			w.broken("kept-idle", "ENG-16.7", id, v.Intended, "%s has been Idle for %s and costs money (flags %v, promised to %q)", id, clock(w.now-m.since), v.Flags, v.Intended)
		case m.State == inventory.Idle && (v.Attribution.Fingerprint != "" && v.Intended == ""):
			w.broken("attribution-stays", "SHARD-14.3", id, "", "%s is Idle and still bears the priority of its last workload", id)
		}
	}
	for _, q := range w.providers {
		for _, m := range q.order {
			if !known[m.ID] && !slices.ContainsFunc(c.s.disk.forgotten, func(f core.Forgotten) bool { return f.Machine == m.ID }) {
				w.broken("unknown-machine", "SHARD-33.6", m.ID, m.Cluster, "%s is %s at the provider and the shard does not know it", m.ID, m.State)
			}
		}
	}
}

// overdue: an elastic machine that has been unused for much longer than its hold.
func (c *checker) overdue(m *machine) bool {
	hold, elastic := c.w.policy.Hold.Of(m.CapacityType, m.Price)
	return elastic && m.State == inventory.Idle && c.w.now-m.since > hold+quiet
}

// sameNodes: every node object has its machine, and the reverse.
func (c *checker) sameNodes(p *process) {
	w := c.w
	for _, cl := range c.s.clusters {
		o := cl.ops[0]
		for _, q := range w.providers {
			for _, m := range q.order {
				if _, has := o.objects[m.ID]; m.State == inventory.Configured && m.Cluster == cl.name && !has {
					w.broken("object-missing", "SHARD-33.6", m.ID, cl.name, "%s serves %s, which has no node object of it", m.ID, cl.name)
				}
			}
		}
		for _, id := range sortedKeys(o.objects) {
			m := w.machine(id)
			if o.has("released") && o.objects[id] != inventory.Failed && (m == nil || !bound(m.State) && m.State != inventory.Creating || bound(m.State) && m.Cluster != cl.name) {
				w.broken("object-stays", "SHARD-18.4", id, cl.name, "%s has an object for %s, which is not its machine any more", cl.name, id)
			}
		}
	}
}

// joining is a start that comes of a node that did not join, or of room for a Pod that waits. One that follows from another, or comes of room,
// explains what becomes of its own machine and nothing else.
type joining struct {
	late
	follows bool
}

// noteJoining notes that a node did not join (ENG-17.7), or that its machine is tried again at the same cluster after
// the hold of an hour: acquired, or taken from another cluster for it. Both may fall into the quiet of the tail: a cluster
// gives up one machine per join timeout.
func (c *checker) noteJoining(r core.Record) {
	target := r.Cluster
	if r.Kind == core.KindPreempt {
		target = r.PreemptorCluster
	}
	at, lost := c.unjoined[[2]string{r.Machine, target}]
	acquires := r.Kind == core.KindBootstrap || r.Kind == core.KindProvision || r.Kind == core.KindPreempt
	if early := at + c.w.policy.JoinRetryHold - c.w.now; lost && acquires && early > 0 {
		c.w.broken("rejoined-early", "ENG-17.7", r.Machine, target, "%s is acquired for %s, where its node did not join, %s before it may be tried again", r.Machine, target, clock(early))
	}
	switch {
	case r.Cause == engine.CauseNotJoined || lost && acquires && c.w.now >= at+c.w.policy.JoinRetryHold:
		c.joins = append(c.joins, joining{late{c.w.now, r}, false})
	case r.From == inventory.Configured && c.ofJoining(r, c.w.now):
		c.joins = append(c.joins, joining{late{c.w.now, r}, true})
	}
}

// noteRoom notes a start for a row of which Pods wait although it is covered: room for them grows after waits that double, so late ones fall
// into the quiet of the tail (ENG-11.16). Who loses a machine so may take one of a lower priority at once. A row for which that happens more often
// in the tail than room grows without help is not excused: it gets machines and gives them back for ever.
func (c *checker) noteRoom(r core.Record) {
	row := [2]string{r.Cluster, r.RowID}
	if r.Kind == core.KindPreempt {
		row = [2]string{r.PreemptorCluster, r.PreemptorRowID}
	}
	takes := r.Kind == core.KindPreempt || r.Kind == core.KindProvision || r.Kind == core.KindBootstrap && r.Cause != engine.CauseHandover
	times := c.grown[row]
	switch {
	case !takes:
		return
	case c.w.calm && c.w.clusterNamed(row[0]).waits(row[1]):
		if len(times) == 0 || c.w.now-times[len(times)-1] > minute {
			c.grown[row] = append(times, c.w.now)
		}
		if len(c.grown[row]) > ledger.HeadroomTries {
			return
		}
	case !slices.ContainsFunc(c.joins, func(e joining) bool {
		return e.Kind == core.KindPreempt && e.Cluster == row[0] && c.w.now-e.at < minute
	}):
		return
	}
	c.joins = append(c.joins, joining{late{c.w.now, r}, true})
}

// ofJoining reports whether such an event explains a start: it is one, the same plan or the next ones made it for the same
// cluster, or it does something with the machine that came free.
func (c *checker) ofJoining(r core.Record, at int64) bool {
	hold := int64(0)
	if m := c.w.machine(r.Machine); m != nil {
		hold, _ = c.w.policy.Hold.Of(m.CapacityType, m.Price)
	}
	return slices.ContainsFunc(c.joins, func(e joining) bool {
		after := at - e.at
		return after >= 0 && (e.Cluster == r.Cluster && after < minute && !e.follows || e.Machine == r.Machine && after < hold+5*minute)
	})
}

// comingFor reports whether a row that waits does so for such a start.
func (c *checker) comingFor(cluster string) bool {
	for _, r := range c.ops {
		if r.Cluster == cluster && c.ofJoining(r, c.began[r.Op]) {
			return true
		}
	}
	return false
}

// joinSettles is how long a cluster may act after it gave up a machine that did not join: what its Pods lack then shows as stuck
// Pods, and room for them grows four times, four minutes apart (ENG-11.16).
const joinSettles = 20 * minute

// stillJoining reports whether machines whose nodes did not join are still given up at the end: the next one of a cluster is given up,
// or goes to who wants it, a join timeout after the one before (ENG-17.7).
func (c *checker) stillJoining() bool {
	since := c.w.now - c.w.policy.JoinTimeout - joinSettles
	return slices.ContainsFunc(c.joins, func(j joining) bool { return j.at > since && !j.follows })
}

// atRest: nothing is under way, nothing was started for a while, nothing is held back.
func (c *checker) atRest(p *process) {
	w, s := c.w, &p.publish.Status
	for _, l := range c.late {
		if l.Cause == engine.CauseRelease {
			continue // the end of a hold: what freed the machine, a hold earlier, is what must not happen here
		}
		if w.now-l.at < quiet && !c.ofJoining(l.Record, l.at) && !c.stillJoining() {
			w.broken("no-rest", "SHARD-33.6", l.Machine, l.Cluster, "%s of %s (%s, %s) was started %s before the end of a tail in which nothing changes",
				l.Kind, l.Machine, l.Cause, l.Cluster, clock(w.now-l.at))
		}
	}
	for _, id := range sortedKeys(c.ops) {
		if r := c.ops[id]; !c.ofJoining(r, c.began[id]) {
			w.broken("operation-open", "SHARD-33.6", r.Machine, r.Cluster, "%s, a %s of %s, is still open", id, r.Kind, r.Machine)
		}
	}
	for _, q := range s.Providers {
		if q.Breaker != 0 {
			w.broken("breaker-open", "SHARD-33.6", "", "", "the breaker of %s is not closed", q.Name)
		}
		if q.Held != 0 {
			w.broken("removals-held", "SHARD-33.6", "", "", "%d removals of %s are still held", q.Held, q.Name)
		}
	}
	if s.Paused || s.DryRun {
		w.broken("still-paused", "SHARD-33.6", "", "", "the shard is still paused or dry")
	}
	for _, v := range p.publish.Clusters {
		if cl := w.clusterNamed(v.Name); cl == nil || cl.s != c.s {
			continue
		}
		switch {
		case !v.Connected:
			w.broken("offline", "SHARD-33.6", "", v.Name, "%s has no session", v.Name)
		case !v.GateOpen:
			w.broken("gate-shut", "SHARD-33.6", "", v.Name, "the gate of %s is still shut", v.Name)
		case v.Held > 0:
			w.broken("rollup-held", "SHARD-33.6", "", v.Name, "the roll-up of %s is still held", v.Name)
		}
	}
}

// satisfied: no plain row is short while a machine that it could use is free, and no machine is left over.
func (c *checker) satisfied(p *process) {
	w := c.w
	for _, b := range p.publish.Needs {
		cl := w.clusterNamed(b.Cluster)
		if cl == nil || cl.s != c.s {
			continue
		}
		for i := range b.Rows {
			row := &b.Rows[i]
			if row.Verdict.Status == engine.OnTheWay && !c.comingFor(b.Cluster) {
				w.broken("always-on-the-way", "SHARD-33.6", "", b.Cluster, "row %s of %s still waits for machines on their way", row.RowID, b.Cluster)
			}
			if row.Verdict.Status != engine.Short || row.Group != "" || len(row.Form.Profile.Spread) > 0 {
				continue
			}
			if id := c.freeFor(p, row.Demand(), row.Residual); id != "" {
				w.broken("unmet", "SHARD-33.6", id, b.Cluster, "row %s of %s is short (%s, hold %d) while %s is free and fits", row.RowID, b.Cluster, row.Verdict.Detail, row.Verdict.Hold, id)
			}
		}
	}
	c.sameDemand(p)
}

// freeFor finds a free machine that a short row could use.
func (c *checker) freeFor(p *process, row demand.Row, residual []resource.Quantity) string {
	for _, q := range c.w.providers {
		for _, m := range q.order {
			if m.State != inventory.Idle && m.State != inventory.Speculative || !c.ownsAtEnd(m) || credit(&m.Machine, &row) == 0 {
				continue
			}
			v, known := p.core.Machine(m.ID)
			if !known || v.Intended != "" || slices.Contains(v.Flags, core.FlagWithheld) || v.Op != "" {
				continue
			}
			for _, r := range residual {
				if r.Milli > 0 && amount(m.Allocatable, r.Name) > 0 {
					return m.ID
				}
			}
		}
	}
	return ""
}

// sameDemand: the last plan knows what every cluster wants now.
func (c *checker) sameDemand(p *process) {
	for _, cl := range c.s.clusters {
		s := c.mirror[cl.name]
		if s == nil || hashRows(s.rows) != hashRows(cl.rows()) {
			c.w.broken("demand-old", "SHARD-33.6", "", cl.name, "the demand of %s is not what it wants now", cl.name)
		}
	}
	c.checkNeeds(p.publish)
}
