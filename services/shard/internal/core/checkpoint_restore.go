package core

import (
	"container/heap"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// CheckpointAsked makes the core plan again, so that it and one made of a snapshot of this moment stand alike from here
// on. It is not in the table of SHARD-5.1: it changes no decision, and the decision log needs it in its history
// (SHARD-28.3). The log makes the snapshot by replaying what it holds, beside the loop. Only behind a gap in the log it
// asks the core for the state.
type CheckpointAsked struct {
	Full bool `n:"1"` // hand out a Snapshot
}

func (CheckpointAsked) event() EventKind { return KindCheckpointAsked }

// CheckpointTaken tells the decision log that a segment may begin here.
type CheckpointTaken struct {
	State *Capture // nil: not asked for
}

// Capture makes the core hand out a Snapshot at the next checkpoint, whether or not it is asked for one. It is for
// replays, which make the snapshots of a log.
func (c *Core) Capture() { c.captures = true }

func (CheckpointTaken) effect() EffectKind { return EffectCheckpointTaken }

// wantedCheckpoint is a checkpoint that waits until nothing is done in parts: it would have to do the rest at once, and plan with it (SHARD-8.9).
// Meanwhile large roll-ups wait for it, as otherwise one cluster's could follow each other without an end.
type wantedCheckpoint struct {
	asked bool
	full  bool
	plans bool  // no large roll-up is left to take in: the next plan is its own
	until int64 // for so long
}

// checkpointWait is for how long a checkpoint waits at most.
const checkpointWait = 10 * Second

func (c *Core) askCheckpoint(e CheckpointAsked) {
	w := &c.wanted
	if !w.asked {
		w.asked, w.until = true, c.now+checkpointWait
	}
	w.full = w.full || e.Full
	c.checkpointIfSettled()
}

// checkpointIfSettled takes the checkpoint that waits, if it need not wait longer. The event of this step did nothing else, so a core made of the snapshot
// continues as this one does.
func (c *Core) checkpointIfSettled() {
	w := &c.wanted
	if !w.asked {
		return
	}
	if w.plans = len(c.rollups.staging) == 0 && !c.world.Demand.Sweep(0); c.now >= w.until || w.plans && c.isSettled() {
		c.checkpoint()
		return
	}
	if w.plans {
		c.cycle.wanted = true // the credit before its plan
	}
	c.timers.add(c.now+Millisecond, timerCheckpoint, "")
}

// isSettled reports whether nothing else is done in parts, and nothing is left of what goes in parts before a plan.
func (c *Core) isSettled() bool {
	return c.ledger.isListed() && !c.pub.cycled &&
		!slices.ContainsFunc(c.providers, func(p *provider) bool { return p.sweeping }) &&
		(c.frozen() || !c.readable() || c.plans.isCredited())
}

// checkpoint hands out the state if it is wanted, and plans again as a core made of it does. What the planner and the
// publications remember stays: it is what a core without memory comes to as well (ENG-21.1).
func (c *Core) checkpoint() {
	full := c.wanted.full
	c.outages.finishSweeps()
	c.rollups.finishStaging()
	c.wanted = wantedCheckpoint{}
	c.rollups.resume()
	c.ledger.listShort()
	c.pub.notBefore, c.pub.ahead = 0, nil
	c.cycle.next, c.cycle.large, c.cycle.wanted = false, nil, c.cycle.pending != [triggers]bool{}
	c.tick = false  // nothing is left to do in parts, and a core made of the snapshot does not know
	c.rollEffects() // what a core made of the snapshot will not do
	taken := CheckpointTaken{}
	if full || c.captures {
		taken.State, c.captures = c.freeze(), false
	}
	c.emit(taken)
	c.replan()
}

// replan plans in this step, from holds and facts that are computed again. What follows the plan in parts begins again: which rows are listed and shown
// already is not in a snapshot.
func (c *Core) replan() {
	for _, cl := range c.clusters.ordered {
		cl.shown, cl.stated, cl.statusFrom = nil, nil, 0
		cl.holds, cl.facts = true, true
	}
	c.pub.dirty, c.pub.statusAt = true, 0
	c.ledger.listAgain()
	if c.cycle.result == nil && !c.cycle.ranBefore || c.frozen() || !c.readable() {
		return
	}
	c.plans.addLarge()
	c.plans.runCycle()
}

// Restore makes a core of a snapshot. It is in the state that the core had after it gave the snapshot out; the effects
// of that step are returned.
func Restore(policy *engine.Policy, s *Snapshot) (*Core, []Effect) {
	c := New(policy)
	c.started = true
	c.configure(s.Config)
	c.epoch, c.now, c.wall = s.Epoch, s.At.Mono, s.At.Wall
	c.stopping, c.superseded, c.ctl = s.Stopping, s.Superseded, s.Control
	c.commands.opCount, c.reconciler.gets, c.reconciler.lists, c.mutations, c.records = s.Ops, s.Gets, s.Lists, s.Mutations, s.Records
	c.rolling, c.steps, c.armed = hash64(s.Rolling), s.Steps, s.Armed
	c.dispatcher.classes.init(c.cfg.ExecuteConcurrency)
	for i := range s.Providers {
		c.providers = append(c.providers, s.Providers[i].restore(c.cfg.ProviderConcurrency))
	}
	for i := range s.Clusters {
		c.restoreCluster(&s.Clusters[i])
	}
	for i := range s.Machines {
		c.restoreMachine(&s.Machines[i])
	}
	for _, o := range s.Open {
		c.restoreOperation(o)
	}
	for _, g := range s.GetsOpen {
		c.reconciler.getsByID[g.ID] = &get{g.Provider, g.Machine, g.Purpose, g.Asked}
	}
	for _, t := range s.Timers {
		heap.Push(&c.timers.heap, t)
		c.timers.remember(t)
	}
	c.timers.seq = s.TimerSeq
	for _, p := range s.Pools {
		copied := *p
		c.pools.byKey[p.Key] = &copied
		c.pools.order = append(c.pools.order, &copied)
	}
	c.guards.reclaim, c.guards.creates, c.guards.preempts = s.Guards.Reclaim, s.Guards.Creates, s.Guards.Preempts
	c.ledger.restore(&s.Ledger)
	for _, j := range s.Journal {
		c.recovery.journal[j.Machine] = j
	}
	for _, p := range s.Poison {
		c.rollups.poison[p.Hash] = p.Until
	}
	c.restoreOrders(s)
	c.coord.restore(&s.Coord)
	c.restoreCycle(&s.Cycle)
	c.eff, c.rolled = c.eff[:0], 0
	c.replan()
	c.runTimers()
	c.afterEvent()
	c.roll()
	return c, c.eff
}

func (c *Core) restoreOrders(s *Snapshot) {
	for _, e := range s.Waiting {
		if c.admin.gets == nil {
			c.admin.gets = map[string][]AdminAsked{}
		}
		c.admin.gets[e.Machine] = append(c.admin.gets[e.Machine], e)
	}
	c.admin.done = map[int64]int{}
	for _, l := range s.Packed {
		c.admin.done[l.N/1_000] = int(l.N % 1_000)
	}
	for _, l := range s.Listing {
		c.admin.done[l.Ask] = int(l.Lists)
	}
}

func (c *Core) restoreCycle(s *savedCycle) {
	y := &c.cycle
	y.keptCycle, y.ranBefore, y.used, y.usedAt = s.keptCycle.clone(), s.Ran, s.N, s.At
	y.planned, y.held = map[planKey]int64{}, map[planKey]bool{}
	for _, p := range s.Planned {
		key := planKey{p.Machine, p.Kind}
		y.planned[key] = p.At
		if p.Held {
			y.held[key] = true
		}
	}
	y.pending, y.wanted = [triggers]bool{}, false
	for _, t := range s.Pending {
		y.pending[t], y.wanted = true, true
	}
}

func (s *savedProvider) restore(limit int64) *provider {
	p := newProvider(s.Name, limit)
	p.keptProvider = s.keptProvider.clone()
	for _, id := range s.Owed {
		p.owed[id] = true
	}
	for _, w := range s.Asked {
		p.asked = append(p.asked, want{w.Machine})
	}
	for _, w := range s.Wanted {
		p.wanted[w.Machine] = w.Why
	}
	for _, r := range s.Rejects {
		p.rejects[r.Key] = r.Value
	}
	if l := s.List; l != nil {
		p.list = &list{id: l.ID, full: l.Full, asked: l.Asked, started: l.Started}
	}
	return p
}

func (c *Core) restoreCluster(s *savedCluster) {
	cl := c.clusters.ensure(s.Name)
	cl.keptCluster, cl.has = s.keptCluster, featuresOf(s.Features)
	if cl.ReadFrom != 0 {
		c.rollups.reading = append(c.rollups.reading, cl)
	}
	for _, b := range s.Blobs {
		copied := b.Backoff
		cl.blobs[b.Subject] = &copied
	}
	for _, t := range s.Failed {
		cl.failed[t.Key] = t.Value
	}
	for _, t := range s.BlobText {
		cl.blobText[t.Key] = t.Value
	}
	for _, n := range s.Nodes {
		cl.nodes[n.Machine] = &node{n.Name, n.Ready, n.At, n.Contents}
	}
	for _, h := range s.Hints {
		cl.hints[h.Fingerprint] = &hintSent{h.Count, h.Confidence, h.Price, h.At, h.Requirements}
	}
	if len(s.HeldBack) > 0 {
		cl.heldBack = map[demand.RowKey]int64{}
	}
	for _, o := range s.Out {
		if cl.out == nil {
			cl.out = map[string]OutOfService{}
		}
		cl.out[o.Machine] = o
	}
	for _, h := range s.HeldBack {
		cl.heldBack[h.Row] = h.At
	}
	for _, x := range s.Statuses {
		cl.statuses[x.Row] = &statusSent{hash: x.Hash, at: x.At}
	}
	if s.InTable {
		c.world.Demand.Restore(s.Name, s.Demand, s.Overhead)
		c.world.Demand.SetRooms(s.Name, s.Rooms)
		c.world.Demand.SetFacts(s.Name, s.Facts)
	}
}

func (c *Core) restoreMachine(s *savedMachine) {
	inv := c.world.Inventory
	i := c.machines.putNew(s.Machine, s.Since)
	inv.SetAttribution(i, s.Attribution)
	inv.SetPromise(i, s.Promise)
	for _, w := range s.Withheld {
		inv.Withhold(i, w)
	}
	inv.SetReadiness(i, s.Readiness)
	inv.SetOccupancy(i, s.Occupancy)
	inv.SetNodeLabels(i, s.NodeLabels)
	if cl := c.clusters.get(s.Machine.Cluster); cl != nil {
		_, out := cl.out[s.Machine.ID]
		inv.SetOutOfService(i, out)
	}
	c.machines.own(i, !s.Foreign)
	inv.SetStuck(i, s.Stuck)
	inv.SetAnnounced(i, s.Announced)
	c.outages.outageMoved(i)
	c.cols.at(i).mutation = s.Mutation
	c.cols.at(i).absent = absence{int32(s.Absent), s.AbsentAt}
	id := s.Machine.ID
	if s.Subscriber != "" {
		c.machines.subscribe(i, s.Subscriber)
	}
	if s.Acquired != nil {
		copied := *s.Acquired
		c.pub.acquired[id] = &copied
	}
	c.coord.setOwner(id, s.Owner)
	if s.Capped {
		if c.guards.capped == nil {
			c.guards.capped = map[string]bool{}
		}
		c.guards.capped[id] = true
	}
	if s.Drain != nil {
		if c.guards.drains == nil {
			c.guards.drains = map[string]*drainBackoff{}
		}
		copied := *s.Drain
		c.guards.drains[id] = &copied
	}
	if len(s.Backoffs) > 0 {
		var b [rpcs]backoff
		for _, x := range s.Backoffs {
			b[x.RPC] = x.Backoff
		}
		if c.guards.backoffs == nil {
			c.guards.backoffs = map[string]*[rpcs]backoff{}
		}
		c.guards.backoffs[id] = &b
	}
}

func (c *Core) restoreOperation(saved *operation) {
	o := *saved
	o.Index, _ = c.world.Inventory.Find(o.Machine)
	c.ops.add(&o)
	if o.Request != "" && (o.Phase == phasePulling || o.BlobAt != 0) {
		c.ops.byRequest[o.Request] = &o
	}
	if o.Instruction != "" {
		c.ops.byInstr[o.Instruction] = &o
	}
	if o.Slot {
		c.dispatcher.classes.used[o.Kind]++
	}
	if o.Committed {
		c.world.Inventory.SetLeaving(o.Index, true)
	}
}

func (c *needLedger) restore(s *savedLedger) {
	c.parking.Restore(s.Parking)
	c.sharing.Restore(s.Sharing)
	c.join.Restore(s.Join)
	c.oldest, c.again = s.Oldest, true
	for _, u := range s.Unmet {
		rows := c.unmet[u.Cluster]
		if rows == nil {
			rows = &shortRows{}
			c.unmet[u.Cluster] = rows
		}
		rows.list = append(rows.list, shortRow{key: u.Row, since: u.At})
	}
	for _, x := range s.Lost {
		c.lost[x.Name] = x.N
	}
	for _, x := range s.Short {
		c.shortfalls[x.Name] = &shortfall{Fingerprint: x.Name, First: x.N}
	}
}

func (k keptCoordinator) clone() keptCoordinator {
	k.Waiting = slices.Clone(k.Waiting)
	return k
}

func (c *coordinatorState) save() savedCoordinator {
	x := savedCoordinator{keptCoordinator: c.keptCoordinator.clone(), Home: sortedKeys(c.home)}
	for _, key := range sortedKeys(c.relabels) {
		x.Relabels = append(x.Relabels, savedCount{key, c.relabels[key]})
	}
	return x
}

func (c *coordinatorState) restore(x *savedCoordinator) {
	c.keptCoordinator = x.keptCoordinator.clone()
	for _, name := range x.Home {
		c.atHome(name)
	}
	for _, r := range x.Relabels {
		if c.relabels == nil {
			c.relabels = map[string]int64{}
		}
		c.relabels[r.Name] = r.N
	}
}
