package sim

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// disposed takes what became of the roll-up of this step, and judges it by the rules of the guard.
func (c *checker) disposed(p *process, x core.SendAck) {
	w, s := c.w, c.of(x.Cluster)
	if now := c.session[x.Cluster]; now == 0 || now != c.pending.Session {
		w.broken("rollup-of-another", "SHARD-8.4", "", x.Cluster, "a roll-up of session %d is judged, and that is not the session of %s", c.pending.Session, x.Cluster)
		return
	}
	why := c.suspicious(p, x.Cluster, s)
	switch x.Rollup.Disposition {
	case core.DispositionAccepted:
		if why && !c.confirmed(s) && !c.person[x.Cluster] {
			w.broken("guard-passed", "SHARD-11.4", "", x.Cluster, "%s reports %d rows after %d with machines bound, and is believed at once", x.Cluster, len(c.pending.Rows), len(s.rows))
		}
		c.accept(s)
	case core.DispositionUnchanged:
		if !s.known || hashRows(s.rows) != c.pending.Hash {
			w.broken("unchanged-changed", "SHARD-8.6", "", x.Cluster, "a roll-up with other content is called unchanged")
		}
		s.session, s.held = c.pending.Session, nil
	case core.DispositionHeld:
		if !why {
			w.broken("held-for-nothing", "SHARD-11.5", "", x.Cluster, "%s reports %d rows after %d and is held", x.Cluster, len(c.pending.Rows), len(s.rows))
		}
		s.held = append(s.held, w.now)
	}
}

func (c *checker) accept(s *said) {
	if !s.known {
		s.first = c.w.now
	}
	if c.s.proc.making && !s.later {
		s.planned, s.later = s.rows, true
	}
	s.rows, s.known, s.session, s.held = c.pending.Rows, true, c.pending.Session, nil
	s.version++
}

// laterIsNow notes that the demand of each cluster is what was acknowledged last.
func (c *checker) laterIsNow() {
	for _, s := range c.mirror { // order does not matter
		s.planned, s.later = nil, false
	}
}

// forgetDemand notes that nothing of a cluster is known any more, as after a start (SHARD-10.12).
func (c *checker) forgetDemand(name string) {
	s := c.of(name)
	*s = said{version: s.version + 1}
}

// suspicious is SHARD-11.3 in other words than the core's.
func (c *checker) suspicious(p *process, name string, s *said) bool {
	if !s.known {
		return false
	}
	if len(s.rows) >= 10 && len(c.pending.Rows)*10 < len(s.rows) {
		return true
	}
	if c.boundTo(p, name) < 10 {
		return false
	}
	before, now, any := sums(s.rows), sums(c.pending.Rows), false
	for name, v := range before {
		if v > 0 {
			any = true
			if now[name]*10 >= v {
				return false
			}
		}
	}
	return any
}

// confirmed reports whether the held roll-ups and the one of now make three confirmations, five seconds apart, over twenty.
func (c *checker) confirmed(s *said) bool {
	n, first, last := 0, int64(0), int64(0)
	for _, t := range append(slices.Clone(s.held), c.w.now) {
		if n == 0 {
			n, first, last = 1, t, t
		} else if t-last >= 5*second {
			n++
			last = t
		}
	}
	return n >= 3 && last-first >= 20*second
}

func sums(rows []demand.Row) map[string]int64 {
	m := map[string]int64{}
	for i := range rows {
		for _, q := range rows[i].Aggregate {
			m[q.Name] += q.Milli
		}
	}
	return m
}

// boundTo counts the machines that the process believes bound to a cluster.
func (c *checker) boundTo(p *process, name string) int {
	if v := c.viewOf(p, name); v != nil {
		return v.States[inventory.Configuring] + v.States[inventory.Configured] + v.States[inventory.Draining]
	}
	return 0
}

func (c *checker) viewOf(p *process, name string) *core.ClusterView {
	if p.publish == nil {
		return nil
	}
	i, ok := slices.BinarySearchFunc(p.publish.Clusters, name, func(v *core.ClusterView, n string) int { return compare(v.Name, n) })
	if !ok {
		return nil
	}
	return p.publish.Clusters[i]
}

// gateOpened: the gate opens by demand of this process, and not at once when that is next to nothing (SHARD-12.2, 12.3).
func (c *checker) gateOpened(p *process, r core.Record) {
	w, s := c.w, c.of(r.Cluster)
	s.gate = true
	switch {
	case c.retired[r.Cluster] || c.person[r.Cluster]:
	case !s.known && !c.hasRoll:
		w.broken("gate-unheard", "SHARD-12.2", "", r.Cluster, "the gate of %s opens and nothing was heard from it", r.Cluster)
	case w.now-s.first < 20*second && c.littleDemand(p, r.Cluster, s):
		w.broken("gate-at-once", "SHARD-12.3", "", r.Cluster, "the gate of %s opens at once although it asks for a tenth of what is bound to it", r.Cluster)
	}
}

func (c *checker) littleDemand(p *process, name string, s *said) bool {
	rows, n := s.rows, 0
	if c.hasRoll && c.pending.Cluster == name && c.pending.Reject == nil {
		rows = c.pending.Rows
	}
	have := map[string]int64{}
	for _, id := range p.core.Ids("", 1<<20) {
		if v, _ := p.core.Machine(id); v.Machine.Cluster == name && bound(v.Machine.State) {
			n++
			for _, q := range v.Machine.Allocatable {
				have[q.Name] += q.Milli
			}
		}
	}
	want := sums(rows)
	for k, v := range have {
		if v > 0 && want[k]*10 >= v {
			return false
		}
	}
	return n >= 10
}

// after looks at the state that a step has left.
func (c *checker) after(p *process, e core.Event) {
	if p != c.s.proc {
		return
	}
	if _, made := e.(core.PartMade); made && p.core.Takes(core.Tick{}) { // what was acknowledged meanwhile is demand from here on
		defer c.laterIsNow()
	}
	c.notWiped(e)
	c.guardHeld(p)
	c.promisesEnd(p)
	c.checkState(p)
	if len(c.fresh) == 0 && p.publish == nil && c.pub == nil {
		return
	}
	defer func() { c.fresh = c.fresh[:0] }()
	cycled := p.core.Cycle() > 0 && c.cycleOf(p)
	for _, v := range p.views() {
		c.peak[v.Name] = max(c.peak[v.Name], int64(v.States[inventory.Configured]))
	}
	if p.publish != nil {
		c.peak[""] = max(c.peak[""], int64(p.publish.Status.States[inventory.Configured]))
	}
	if cycled && c.pub != nil {
		c.checkNeeds(c.pub)
	}
	if len(c.fresh) == 0 || !cycled || c.w.fail != nil {
		return
	}
	c.judgeStarts(p)
}

// checkState asks the core now and then for the invariants that are too dear for each step (SHARD-4.10), and looks at the
// limits of what it publishes (SHARD-33.5.10).
func (c *checker) checkState(p *process) {
	every := int64(64)
	if c.w.profile.scale {
		every = 1 << 14
	}
	if c.w.steps%every == 0 {
		if why := p.core.Broken(); why != "" {
			c.w.broken("invariant", "SHARD-4.10", "", "", "%s", why)
		}
	}
	if c.pub == nil {
		return
	}
	s := &c.pub.Status
	if len(s.Shortfalls) > shortfallsMax || s.InFlight[core.KindReclaim] > int(classSize(core.KindReclaim, c.s.config.ExecuteConcurrency)) {
		c.w.broken("ledger-limit", "SHARD-33.5.10", "", "", "%d shortfalls are listed, at most %d", len(s.Shortfalls), shortfallsMax)
	}
}

// shortfallsMax is how many shortfalls a shard reports (SHARD-32).
const shortfallsMax = 100

// notWiped: one List that shows too little takes nothing out (SHARD-13.11).
func (c *checker) notWiped(e core.Event) {
	if d, ok := e.(core.ListDone); ok && c.vanished > 10 {
		c.w.broken("mass-removal", "SHARD-13.11", "", "", "List %d takes %d machines out that are there", d.List, c.vanished)
	}
}

func (p *process) views() []*core.ClusterView {
	if p.publish == nil {
		return nil
	}
	return p.publish.Clusters
}

// cycleOf reports whether a cycle ran in this step.
func (c *checker) cycleOf(p *process) bool {
	if n := p.core.Cycle(); n != c.cycleAt {
		c.cycleAt = n
		c.w.tally.Cycles++
		return true
	}
	return false
}

// followOrders keeps what people ordered, once the core has received it.
func (c *checker) followOrders(p *process, e core.Event) {
	a, ok := e.(core.AdminAsked)
	if !ok {
		return
	}
	switch a.Command {
	case core.AdminDryRun:
		p.dryRun = a.DryRun
	case core.AdminPause, core.AdminResume:
		if a.Command == core.AdminPause && coversAll(*a.Pause) && a.Pause.TTL == 0 {
			p.pauses = append(p.pauses, a.Pause.ID)
		}
		p.pauses = slices.DeleteFunc(p.pauses, func(id string) bool { return id == a.PauseID })
		p.paused = len(p.pauses) > 0
	}
}

// checkNeeds compares the demand of the core with what was said (SHARD-33.5.5).
func (c *checker) checkNeeds(pub *core.Publish) {
	for _, b := range pub.Needs {
		s := c.mirror[b.Cluster]
		if s == nil || !s.known || c.retired[b.Cluster] {
			continue
		}
		rows := s.rows
		if s.later {
			rows = s.planned
		}
		got, want := make([]demand.Row, 0, len(b.Rows)), map[demand.RowKey][]resource.Quantity{}
		for i := range b.Rows {
			got = append(got, b.Rows[i].Demand())
		}
		for i := range rows {
			key := demand.RowKey{Fingerprint: rows[i].Fingerprint, Group: rows[i].Group}
			want[key] = addAmounts(want[key], rows[i].Aggregate)
		}
		for i := range got {
			key := demand.RowKey{Fingerprint: got[i].Fingerprint, Group: got[i].Group}
			for _, q := range want[key] {
				if amount(got[i].Aggregate, q.Name) != q.Milli {
					c.w.broken("demand-differs", "SHARD-33.5.5", "", b.Cluster, "%s wants %d of %s for row %s and the plan counts %d", b.Cluster, q.Milli, q.Name,
						got[i].RowID, amount(got[i].Aggregate, q.Name))
				}
			}
			if want[key] == nil {
				c.w.broken("demand-invented", "SHARD-33.5.5", "", b.Cluster, "the plan counts a row %s that %s never asked for", got[i].RowID, b.Cluster)
			}
			delete(want, key)
		}
		if len(want) > 0 && !slices.ContainsFunc(rows, func(r demand.Row) bool { return r.Group != "" }) {
			c.w.broken("demand-dropped", "SHARD-33.5.5", "", b.Cluster, "%d rows of %s are not in the plan", len(want), b.Cluster)
		}
	}
}

func addAmounts(a, b []resource.Quantity) []resource.Quantity {
	out := slices.Clone(a)
	for _, q := range b {
		if i := slices.IndexFunc(out, func(x resource.Quantity) bool { return x.Name == q.Name }); i >= 0 {
			out[i].Milli += q.Milli
		} else {
			out = append(out, q)
		}
	}
	return out
}
