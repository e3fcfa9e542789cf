package core

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

func (c *publisher) init() {
	c.needs, c.acquired = map[string]*NeedBlock{}, map[string]*acquisition{}
	c.subscribers, c.byCluster = []subscriber{{}}, map[string]uint32{}
}

// publishEvery is how often readers see a change that caused no cycle.
const publishEvery = 100 * Millisecond

// flushPublish emits what readers see: at once after a cycle and with the answer to an order, else soon after the first
// change.
func (c *publisher) flushPublish() {
	waits, ordered := c.statusAt > 0 && c.now >= c.statusAt, len(c.admin.answers) > 0
	if !c.cycled && !c.dirty && !waits && !ordered {
		return
	}
	if ordered {
		c.ledger.listShort()
	} else if !c.ledger.isListed() || c.now < c.notBefore {
		c.timers.add(c.now+1, timerPublish, "")
		return
	}
	if next := c.lastAt + publishEvery; !c.cycled && !ordered && c.now < next && c.lastAt != 0 {
		c.timers.add(next, timerPublish, "")
		return
	}
	if !ordered && c.spellAhead() {
		c.timers.add(c.now+1, timerPublish, "")
		return
	}
	c.dirty = false
	if c.cycled || ordered {
		c.list = c.needBlocks(ordered || c.blocksChanged)
		c.blocksChanged = false
		c.statusDue()
	} else if c.statusAt > 0 && c.now >= c.statusAt {
		c.statusDue()
	}
	c.cycled, c.lastAt = false, c.now
	p := &Publish{At: c.now, Offset: c.wall - c.now, Needs: c.list, Status: c.status()}
	for _, cl := range c.clusters.ordered {
		if c.serves(cl) {
			p.Clusters = append(p.Clusters, c.viewCluster(cl))
			p.Status.count(c, cl)
		}
	}
	c.emit(p)
}

// needBlocks spells out the blocks that changed with the last plan; the others are kept. After an order what holds actions
// back may be another in any of them.
func (c *publisher) needBlocks(ordered bool) []*NeedBlock {
	r := c.cycle.result
	if r == nil {
		return nil
	}
	out := make([]*NeedBlock, 0, len(r.Blocks))
	next := make(map[string]*NeedBlock, len(r.Blocks))
	places, blocked := placesOf(r), c.blockedRows(r)
	for at, b := range r.Blocks {
		n := c.needs[b.Cluster]
		switch {
		case n == nil || n.of != b:
			old := n
			n = c.spellBlock(b, old, blocked)
			if n.Places = places[at]; n.says(old) {
				n.at = old.at
			}
		case ordered || hasShort(b) || n.HeldBack > 0 || len(blocked) > 0:
			n = c.renewBlock(b, n, places[at], blocked)
		}
		next[b.Cluster] = n
		out = append(out, n)
	}
	c.needs, c.ahead = next, nil
	return out
}

func hasShort(b *engine.Block) bool { return len(b.Missing) > 0 }

// placesOf numbers the short rows of each block by their place among all short needs.
func placesOf(r *engine.Result) [][]int32 {
	out := make([][]int32, len(r.Blocks))
	for k, ref := range r.Short {
		b := r.Blocks[ref.Block]
		if out[ref.Block] == nil {
			out[ref.Block] = make([]int32, len(b.Needs))
		}
		if ref.Row < engine.FoldedRow {
			out[ref.Block][ref.Row] = int32(k + 1)
		}
	}
	for at, b := range r.Blocks {
		for i := range out[at] { // members of a need that was folded from several rows
			if b.Verdicts[i].Status == engine.Short && out[at][i] == 0 {
				out[at][i] = int32(r.AllocationPosition(engine.Ref{Block: int32(at), Row: int32(i)}))
			}
		}
	}
	return out
}

// spelling is a new block of a cluster with a large roll-up, whose rows are written in parts, each in a step of its own (SHARD-8.9).
type spelling struct {
	cluster     string
	part, parts int // next, and how many: by the number of rows alone
	of          *engine.Block
	rows        []NeedRow
}

// spellsAhead notes that the rows of clusters are many and new in this plan.
func (c *publisher) spellsAhead(large []largeDemand) {
	for _, x := range large {
		rows := 0
		if d := c.world.Demand.Cluster(x.cluster); d != nil {
			rows = len(d.Needs)
		}
		c.ahead = slices.DeleteFunc(c.ahead, func(y spelling) bool { return y.cluster == x.cluster })
		c.ahead = append(c.ahead, spelling{cluster: x.cluster, parts: (rows + listRowsPart - 1) / listRowsPart})
	}
}

// spellAhead writes the next part of such a block, and reports whether there was one. If another plan came meanwhile, the block may be another,
// and what is missing of it is written with the publication.
func (c *publisher) spellAhead() bool {
	at := slices.IndexFunc(c.ahead, func(x spelling) bool { return x.part < x.parts })
	if at < 0 {
		return false
	}
	if !c.tick || c.open != nil {
		return true
	}
	x := &c.ahead[at]
	x.part++
	if x.of == nil {
		at := slices.IndexFunc(c.cycle.result.Blocks, func(b *engine.Block) bool { return b.Cluster == x.cluster })
		if at < 0 {
			return true
		}
		x.of = c.cycle.result.Blocks[at]
	}
	old := c.needs[x.cluster]
	c.beside(c.partsBeside(), func() {
		if old == nil || old.of != x.of { // otherwise readers have it; a core made of a checkpoint, in which they have nothing, takes as many steps
			x.spell(c.world, x.of, old, min(x.part*listRowsPart, len(x.of.Needs)))
		}
	}, func() {})
	return true
}

// spell writes rows up to one. What the block before spelled out of equal rows is used again.
func (x *spelling) spell(w *engine.World, b *engine.Block, old *NeedBlock, end int) {
	if x.rows == nil {
		x.rows = make([]NeedRow, 0, len(b.Needs))
	}
	same := old != nil && len(old.Rows) == len(b.Needs) && len(b.Needs) > 0 && &old.of.Needs[0] == &b.Needs[0]
	for i := len(x.rows); i < end; i++ {
		if same && b.Verdicts[i].Missing < 0 && old.of.Verdicts[i] == b.Verdicts[i] && old.of.Domain(int32(i)) == b.Domain(int32(i)) {
			x.rows = append(x.rows, old.Rows[i])
			continue
		}
		x.rows = append(x.rows, spellRow(w, b, i))
	}
}

// spellBlock writes the rows of a new block for readers, as far as they are not written.
func (c *publisher) spellBlock(b *engine.Block, old *NeedBlock, blocked blockedRows) *NeedBlock {
	x := spelling{rows: make([]NeedRow, 0, len(b.Needs))}
	if at := slices.IndexFunc(c.ahead, func(x spelling) bool { return x.of == b }); at >= 0 {
		x = c.ahead[at]
	}
	x.spell(c.world, b, old, len(b.Needs))
	n := &NeedBlock{Cluster: b.Cluster, Rows: x.rows, of: b, at: c.now}
	c.mark(n, b, blocked)
	n.Demand = demandOf(b)
	return n
}

// says reports whether readers see the same in both blocks. A plan that came to the same end again is not a change for them (WIRE-9.4). That a
// row grew older is none either.
func (b *NeedBlock) says(old *NeedBlock) bool {
	return old != nil && b.HeldBack == old.HeldBack && b.HeldSince == old.HeldSince && slices.Equal(b.Places, old.Places) &&
		slices.EqualFunc(b.Rows, old.Rows, func(x, y NeedRow) bool { return x.says(&y) })
}

func (r *NeedRow) says(old *NeedRow) bool {
	v, w := r.Verdict, old.Verdict
	v.Missing, w.Missing, v.Domain, w.Domain = 0, 0, 0, 0 // places in lists of this plan: what stands there is compared
	return v == w && r.Form == old.Form && r.Group == old.Group && r.RowID == old.RowID && r.Arrival == old.Arrival && r.Since == old.Since && r.Domain == old.Domain &&
		r.BlobText == old.BlobText && r.ConfigureFailed == old.ConfigureFailed && r.Blocked == old.Blocked && r.BlockedBy == old.BlockedBy &&
		slices.Equal(r.Aggregate, old.Aggregate) && slices.Equal(r.MinUnit, old.MinUnit) && slices.Equal(r.Residual, old.Residual) && slices.Equal(r.Freed, old.Freed)
}

// renewBlock brings the rows of a block that the plan did not touch up to date: what holds their actions back, and whose
// turn it is, may have changed.
func (c *publisher) renewBlock(b *engine.Block, old *NeedBlock, places []int32, blocked blockedRows) *NeedBlock {
	marked := c.marked(old.Rows, b, blocked)
	if marked && slices.Equal(places, old.Places) {
		return old
	}
	n := *old
	n.Places, n.of, n.at = places, b, c.now
	if !marked {
		n.Rows = slices.Clone(n.Rows)
		c.mark(&n, b, blocked)
	}
	return &n
}

// mark writes the marks of a block's rows and sums up what is held back.
func (c *publisher) mark(n *NeedBlock, b *engine.Block, blocked blockedRows) {
	n.HeldBack, n.HeldSince = 0, 0
	c.marks(b, blocked, func(i int, m rowMark) bool {
		r := &n.Rows[i]
		r.Since, r.BlobText, r.ConfigureFailed, r.Blocked, r.BlockedBy = m.since, m.blobText, m.failed, m.blocked, m.by
		if r.HeldBack() {
			if n.HeldBack++; n.HeldSince == 0 || m.since < n.HeldSince {
				n.HeldSince = m.since
			}
		}
		return true
	})
	if cl := c.clusters.get(b.Cluster); cl != nil && len(cl.heldBack) > n.HeldBack { // rows that are gone
		for key := range cl.heldBack { // order does not matter
			if _, found := c.world.Demand.Position(b.Cluster, key); !found {
				delete(cl.heldBack, key)
			}
		}
	}
}

// marked reports whether rows say what mark would write.
func (c *publisher) marked(rows []NeedRow, b *engine.Block, blocked blockedRows) bool {
	return c.marks(b, blocked, func(i int, m rowMark) bool {
		return m == rowMark{rows[i].Since, rows[i].BlobText, rows[i].ConfigureFailed, rows[i].Blocked, rows[i].BlockedBy}
	})
}

// marks visits the rows of a block until f answers false, and reports whether it never did.
func (c *publisher) marks(b *engine.Block, blocked blockedRows, f func(i int, m rowMark) bool) bool {
	var short []shortRow
	if s := c.ledger.unmet[b.Cluster]; s != nil {
		short = s.list
	}
	cl := c.clusters.get(b.Cluster)
	for i := range b.Needs {
		var m rowMark
		if len(short) > 0 && short[0].at == int32(i) {
			m.since, short = short[0].since, short[1:]
		}
		if cl != nil && len(cl.blobText) > 0 {
			m.blobText = cl.blobText[b.Needs[i].Form.Fingerprint]
		}
		if cl != nil && len(cl.failed) > 0 {
			m.failed = cl.failed[b.Needs[i].Form.Fingerprint]
		}
		m.blocked, m.by = c.blockedReasonOf(b, i, blocked)
		if cl != nil {
			m.since = cl.heldSince(b, i, m, c.now)
		}
		if !f(i, m) {
			return false
		}
	}
	return true
}

func (c *publisher) viewCluster(cl *cluster) *ClusterView {
	silent, block := c.silent(cl), c.needs[cl.Name]
	if s := cl.shown; s != nil && s.Silent == silent && s.of == block && len(s.Backoffs) == 0 && s.Tokens == c.tokensOf(cl) {
		return s
	}
	v := &ClusterView{Name: cl.Name, Connected: cl.connected(), Features: cl.Features, Version: cl.Version, Disposition: cl.Disposition,
		DispositionAt: cl.DispAt, Reason: cl.DispReason, Held: cl.Held.Count, GateOpen: cl.GateOpen, States: cl.counts,
		Tokens: c.tokensOf(cl), Silent: silent, Retired: cl.Retired, Fresh: cl.Fresh, Unplaced: cl.Unplaced, of: block}
	if v.Connected {
		v.Since = cl.SessionSince
	}
	if b := block; b != nil {
		for i := range b.Rows {
			v.Cost += b.Rows[i].Verdict.Cost
		}
		v.Needs = len(b.Rows)
		for i := range b.Rows {
			if b.Rows[i].Unmet() {
				v.Short++
			}
		}
	} else if d := c.world.Demand.Cluster(cl.Name); d != nil {
		v.Needs = len(d.Needs)
	}
	if cl.Timeouts.Until > c.now {
		v.Backoffs = append(v.Backoffs, BackoffView{Until: cl.Timeouts.Until, Text: "bootstrap answers time out"})
	}
	for _, fp := range sortedKeys(cl.blobs) {
		if b := cl.blobs[fp]; b.Until > c.now {
			v.Backoffs = append(v.Backoffs, BackoffView{Subject: fp, Until: b.Until, Text: cl.blobText[fp]})
		}
	}
	cl.shown = v
	return v
}

// tokensOf is the level of a cluster's reclaim bucket now, in thousandths, without changing it.
func (c *publisher) tokensOf(cl *cluster) int64 {
	b := cl.Reclaim
	b.refill(c.now, reclaimCapacity(cl.configured(), c.cfg.ReclaimCapPerMille), c.cfg.ReclaimCapWindow)
	return b.Milli
}

// serves reports whether a cluster has anything to do with this shard. Of another shard's clusters the core may know machines
// that it read from a provider which both share.
func (c *publisher) serves(cl *cluster) bool {
	return cl.connected() || cl.Arrival != 0 || cl.Retired || cl.Rows > 0 || cl.counts != [9]int{}
}

// silent reports whether a cluster with machines has not reported for long. The shard must not act on it by itself
// (SHARD-12.5).
func (c *publisher) silent(cl *cluster) bool {
	return cl.bound() > 0 && c.now-cl.Fresh >= c.cfg.SilentAfter
}

func (s *Status) count(c *publisher, cl *cluster) {
	if cl.connected() {
		s.Sessions++
	}
	if c.silent(cl) {
		s.Silent++
	}
	if !cl.GateOpen && cl.bound() > 0 {
		s.GatesShut++
	}
	if cl.Held.Count > 0 {
		s.Held++
	}
}

func (c *publisher) status() Status {
	inv := c.world.Inventory
	s := Status{Config: c.cfg, Epoch: c.epoch, Machines: inv.Len(), Listed: c.allListed(), Stopping: c.stopping, Superseded: c.superseded,
		Paused: c.cfg.Paused || len(c.ctl.Pauses) > 0 || c.coord.frozen(), DryRun: c.cfg.DryRun || c.ctl.DryRun,
		Pauses: c.ctl.Pauses, Cycle: c.cycle.used, CycleAt: c.cycle.usedAt, Foreign: c.coord.foreign,
		Needs: c.world.Demand.Rows(), Parked: c.ledger.parking.Len(), Unmet: map[engine.UnmetReason]int{}, Coord: c.coord.coordStatus()}
	for st := range s.States {
		s.States[st] = inv.Count(inventory.State(st))
	}
	b := c.guards.reclaim
	b.refill(c.now, reclaimCapacity(inv.Count(inventory.Configured), c.cfg.ReclaimCapPerMille), c.cfg.ReclaimCapWindow)
	s.Tokens = b.Milli
	for _, k := range allKinds {
		s.Waiting[k], s.Open[k], s.InFlight[k] = len(c.cycle.waiting[k]), c.ops.open[k], int(c.dispatcher.classes.used[k])
	}
	for _, p := range c.providers {
		s.Providers = append(s.Providers, ProviderStatus{Name: p.Name, Listed: p.Listed, Machines: p.machines, ListedAt: p.ListedAt, Incremental: c.reconciler.incremental(p),
			Breaker: p.Breaker.state(c.now), Limit: p.limit(c.now), InFlight: p.Inflight, Held: p.Held, LastError: p.LastError, ErrorAt: p.ErrorAt})
	}
	for _, p := range c.pools.order {
		s.Pools = append(s.Pools, PoolStatus{Key: p.Key, Provider: p.Provider, Type: p.Type, Zone: p.Zone, Class: p.Class,
			RetryAt: p.Backoff.Until, Fails: p.Backoff.Fails})
	}
	c.statusOfNeeds(&s)
	c.statusOfDrains(&s)
	return s
}

func (c *publisher) statusOfNeeds(s *Status) {
	r := c.cycle.result
	if r == nil {
		return
	}
	s.Cost, s.Counters = r.CostBefore, r.Counters
	for i := range r.Actions {
		s.Planned[r.Actions[i].Kind]++
	}
	s.Demand = sumDemand(c.list)
	s.Unplaced, s.Sharing = c.ledger.unplaced, c.sharingLevels()
	for reason, n := range c.ledger.reasons {
		if n > 0 {
			s.Short += n
			s.Unmet[engine.UnmetReason(reason)] = n
		}
	}
	if since := c.ledger.since; since > 0 { // of the need, and not of the shortfall: that starts over with each attempt that fails
		s.OldestAge = c.now - since
	}
	for _, b := range c.list {
		s.HeldBack += b.HeldBack
		if b.HeldSince > 0 {
			s.OldestAge = max(s.OldestAge, c.now-b.HeldSince)
		}
	}
	s.Short += s.HeldBack
	for _, f := range c.ledger.order {
		age := c.ageCycles(f.First)
		switch {
		case age >= 300:
			s.Aged[3]++
		case age >= 60:
			s.Aged[2]++
		case age >= 10:
			s.Aged[1]++
		default:
			s.Aged[0]++
		}
		if len(s.Shortfalls) < shortfallsMax && s.Listed { // the coordinator moves machines by them, and what is short may be at a provider that was never listed
			s.Shortfalls = append(s.Shortfalls, Shortfall{Fingerprint: f.Fingerprint, Priority: f.Priority, Since: f.First, AgeCycles: age,
				Residual: f.Residual, MinUnit: f.MinUnit, Reqs: f.Reqs, Reason: f.Reason, Bucket: f.Bucket})
		}
	}
}

// statusOfDrains lists the drains under way, oldest first, then the machines that others empty: at most 100.
func (c *publisher) statusOfDrains(s *Status) {
	for _, o := range c.ops.list {
		if o.Deleted || !o.drains() || len(s.Drains) == 100 {
			continue
		}
		s.Drains = append(s.Drains, DrainStatus{Machine: o.Machine, Cluster: o.Cluster, Instruction: o.Instruction,
			Started: o.Started, Ends: o.drainEnds(), Note: o.Drain})
	}
	for _, cl := range c.clusters.ordered {
		if len(s.Drains) == 100 {
			break
		}
		for _, id := range sortedKeys(cl.out) {
			if out := cl.out[id]; out.Reason == cordoned && c.ops.byMachine[id] == nil && len(s.Drains) < 100 {
				s.Drains = append(s.Drains, DrainStatus{Machine: id, Cluster: cl.Name, Note: drainNote{PodsLeft: out.Pods}, Asked: &out})
			}
		}
	}
}

// AgeCycles is for how many nominal cycles a row has been short (SHARD-26.2), or 0.
func (p *Publish) AgeCycles(r *NeedRow) int64 {
	if r.Since == 0 || !r.Unmet() {
		return 0
	}
	return (p.At-r.Since)/p.Status.Config.CycleInterval + 1
}

// Place is 1 plus how many short needs of the shard go before the i-th row of a block, or 0 if that is not short.
func (b *NeedBlock) Place(i int) int32 {
	if b.Places == nil {
		return 0
	}
	return b.Places[i]
}

// Demand is the row as its cluster stated it.
func (r *NeedRow) Demand() demand.Row {
	return demand.Row{Profile: r.Form.Profile, Group: r.Group, Aggregate: r.Aggregate, MinUnit: r.MinUnit, RowID: r.RowID, Fingerprint: r.Form.Fingerprint}
}

func (r *NeedRow) key() demand.RowKey {
	return demand.RowKey{Fingerprint: r.Form.Fingerprint, Group: r.Group}
}
