package core

import (
	"maps"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Capture is the state of a core at one moment. What grows with the fleet is in it as the core keeps it, or as a copy that
// took little time, and Snapshot spells it out.
type Capture struct {
	small    *Snapshot      // everything but machines, clusters and needs; nothing mutable is shared
	frozen   *engine.Frozen // of world, until Snapshot
	world    *engine.World
	clusters []*cluster
	machines machineNotes
	unmet    map[string][]shortRow
}

// machineNotes is what the core knows of machines beside the inventory.
type machineNotes struct {
	cols        columns
	subscribers []subscriber
	owners      map[string]string
	capped      map[string]bool
	acquired    map[string]*acquisition
	drains      map[string]*drainBackoff
	backoffs    map[string]*[rpcs]backoff
}

// freeze copies the state in the time that copying columns takes: the core may take the next step at once.
func (c *Core) freeze() *Capture {
	x := c.live()
	x.world, x.frozen = nil, c.world.Freeze(inventory.NewFreezeBuffer(c.world.Inventory.Len()))
	x.clusters = make([]*cluster, len(c.clusters.ordered))
	for i, cl := range c.clusters.ordered {
		x.clusters[i] = cl.clone()
	}
	m := &x.machines
	m.cols, m.subscribers = c.cols.clone(), slices.Clone(m.subscribers)
	m.owners, m.capped = maps.Clone(m.owners), maps.Clone(m.capped)
	m.acquired, m.drains, m.backoffs = cloneValues(m.acquired), cloneValues(m.drains), cloneValues(m.backoffs)
	for name, rows := range x.unmet { // order does not matter
		x.unmet[name] = slices.Clone(rows)
	}
	return x
}

// live is the state as the core keeps it, to be spelled out before the next step.
func (c *Core) live() *Capture {
	x := &Capture{small: c.captureSmall(), world: c.world, clusters: c.clusters.ordered, unmet: map[string][]shortRow{},
		machines: machineNotes{c.cols, c.pub.subscribers, c.coord.owners, c.guards.capped, c.pub.acquired, c.guards.drains, c.guards.backoffs}}
	for name, rows := range c.ledger.unmet { // order does not matter
		x.unmet[name] = rows.list
	}
	return x
}

// clone copies what later steps change in place.
func (cl *cluster) clone() *cluster {
	x := *cl
	x.nodes, x.hints, x.statuses = maps.Clone(cl.nodes), maps.Clone(cl.hints), maps.Clone(cl.statuses)
	x.blobs, x.blobText, x.failed = cloneValues(cl.blobs), maps.Clone(cl.blobText), maps.Clone(cl.failed)
	x.out, x.heldBack = maps.Clone(cl.out), maps.Clone(cl.heldBack)
	return &x
}

func cloneValues[K comparable, V any](m map[K]*V) map[K]*V {
	out := make(map[K]*V, len(m))
	for k, v := range m { // order does not matter
		copied := *v
		out[k] = &copied
	}
	return out
}

// Snapshot spells the state out, in a canonical order. It is called once, on any goroutine.
func (x *Capture) Snapshot() *Snapshot {
	if x.frozen != nil {
		x.world = x.frozen.Thaw()
	}
	s := x.small
	for _, cl := range x.clusters {
		s.Clusters = append(s.Clusters, x.saveCluster(cl))
	}
	for i := range x.world.Inventory.All() {
		s.Machines = append(s.Machines, x.saveMachine(i))
	}
	for _, name := range sortedKeys(x.unmet) {
		for _, row := range x.unmet[name] {
			s.Ledger.Unmet = append(s.Ledger.Unmet, savedUnmet{name, row.key, row.since})
		}
	}
	slices.SortFunc(s.Ledger.Unmet, func(a, b savedUnmet) int {
		return strings.Compare(a.Cluster+"\x00"+a.Row.Fingerprint+"\x00"+a.Row.Group, b.Cluster+"\x00"+b.Row.Fingerprint+"\x00"+b.Row.Group)
	})
	return s
}

// captureSmall copies what does not grow with machines, clusters and needs.
func (c *Core) captureSmall() *Snapshot {
	s := &Snapshot{Config: c.cfg, Epoch: c.epoch, At: At{Mono: c.now, Wall: c.wall}, Stopping: c.stopping, Superseded: c.superseded,
		Control: c.ctl, Ops: c.commands.opCount, Gets: c.reconciler.gets, Lists: c.reconciler.lists, Mutations: c.mutations, Records: c.records, Rolling: uint64(c.rolling), Steps: c.steps,
		TimerSeq: c.timers.seq, Armed: c.armed}
	s.Cycle = c.saveCycle()
	for _, p := range c.providers {
		s.Providers = append(s.Providers, p.save())
	}
	for _, o := range c.ops.ordered() {
		copied := *o
		s.Open = append(s.Open, &copied)
	}
	for _, id := range sortedInts(c.reconciler.getsByID) {
		g := c.reconciler.getsByID[id]
		s.GetsOpen = append(s.GetsOpen, savedGet{id, g.provider, g.machine, g.purpose, g.asked})
	}
	s.Timers = slices.Clone(c.timers.heap)
	slices.SortFunc(s.Timers, func(a, b timer) int { return int(a.Seq - b.Seq) })
	for _, p := range c.pools.order {
		copied := *p
		s.Pools = append(s.Pools, &copied)
	}
	s.Guards = savedGuards{c.guards.reclaim, c.guards.creates, c.guards.preempts}
	s.Ledger = c.ledger.save()
	for _, id := range sortedKeys(c.recovery.journal) {
		s.Journal = append(s.Journal, c.recovery.journal[id])
	}
	for _, h := range sortedKeys(c.rollups.poison) {
		s.Poison = append(s.Poison, Poison{h, c.rollups.poison[h]})
	}
	for _, id := range sortedKeys(c.admin.gets) {
		s.Waiting = append(s.Waiting, c.admin.gets[id]...)
	}
	for _, ask := range sortedInts(c.admin.done) {
		s.Listing = append(s.Listing, savedListing{ask, int64(c.admin.done[ask])})
	}
	s.Coord = c.coord.save()
	return s
}

func (k keptCycle) clone() keptCycle {
	k.HoldEnds, k.Rollups = slices.Clone(k.HoldEnds), slices.Clone(k.Rollups)
	return k
}

func (c *Core) saveCycle() savedCycle {
	y := &c.cycle
	s := savedCycle{keptCycle: y.keptCycle.clone(), Ran: y.result != nil}
	for t, set := range y.pending {
		if set {
			s.Pending = append(s.Pending, uint8(t))
		}
	}
	for key, at := range y.planned { // sorted below
		s.Planned = append(s.Planned, savedPlan{Machine: key.Machine, Kind: key.Kind, At: at, Held: y.held[key], InPlan: true})
	}
	slices.SortFunc(s.Planned, func(a, b savedPlan) int {
		if d := strings.Compare(a.Machine, b.Machine); d != 0 {
			return d
		}
		return int(a.Kind) - int(b.Kind)
	})
	return s
}

func (k keptProvider) clone() keptProvider {
	k.Waiters, k.Breaker.Window, k.Fence.Refused = slices.Clone(k.Waiters), slices.Clone(k.Breaker.Window), slices.Clone(k.Fence.Refused)
	return k
}

func (p *provider) save() savedProvider {
	s := savedProvider{keptProvider: p.keptProvider.clone(), Owed: sortedKeys(p.owed)}
	if l := p.list; l != nil {
		s.List = &savedList{l.id, l.full, l.asked, l.started}
	}
	for _, w := range p.asked {
		s.Asked = append(s.Asked, savedWant{Machine: w.machine})
	}
	for _, id := range sortedKeys(p.wanted) {
		s.Wanted = append(s.Wanted, savedWant{id, p.wanted[id]})
	}
	for _, id := range sortedKeys(p.rejects) {
		s.Rejects = append(s.Rejects, KeyVal{id, p.rejects[id]})
	}
	return s
}

func (x *Capture) saveMachine(i inventory.Index) savedMachine {
	inv, n := x.world.Inventory, &x.machines
	col := n.cols.at(i)
	m := savedMachine{Occupancy: inv.Occupancy(i), NodeLabels: inv.OfNode(i), Machine: inv.Machine(i), Withheld: inv.Withheld(i), Since: inv.Since(i), Readiness: inv.Readiness(i),
		Foreign: inv.Foreign(i), Stuck: inv.Stuck(i), Announced: inv.Announced(i), Mutation: col.mutation,
		Absent: int64(col.absent.lists), AbsentAt: col.absent.since}
	id := m.Machine.ID
	if s, ok := inv.Attribution(i); ok {
		m.Attribution = &s
	}
	if p, ok := inv.Promise(i); ok {
		m.Promise = &p
	}
	m.Subscriber, m.Capped, m.Owner = n.subscribers[col.subscriber].cluster, n.capped[id], n.owners[id]
	if a := n.acquired[id]; a != nil {
		copied := *a
		m.Acquired = &copied
	}
	if b := n.drains[id]; b != nil {
		copied := *b
		m.Drain = &copied
	}
	if b := n.backoffs[id]; b != nil {
		for rpc, v := range b {
			if v != (backoff{}) {
				m.Backoffs = append(m.Backoffs, savedBackoff{RPC: RPC(rpc), Backoff: v})
			}
		}
	}
	return m
}

func (x *Capture) saveCluster(cl *cluster) savedCluster {
	s := savedCluster{keptCluster: cl.keptCluster}
	for _, id := range sortedKeys(cl.out) {
		s.Out = append(s.Out, cl.out[id])
	}
	for key, at := range cl.heldBack { // sorted below
		s.HeldBack = append(s.HeldBack, savedHeldBack{key, at})
	}
	slices.SortFunc(s.HeldBack, func(a, b savedHeldBack) int {
		return strings.Compare(a.Row.Fingerprint+"\x00"+a.Row.Group, b.Row.Fingerprint+"\x00"+b.Row.Group)
	})
	for _, fp := range sortedKeys(cl.blobs) {
		s.Blobs = append(s.Blobs, savedBackoff{Subject: fp, Backoff: *cl.blobs[fp]})
	}
	for _, fp := range sortedKeys(cl.failed) {
		s.Failed = append(s.Failed, KeyVal{fp, cl.failed[fp]})
	}
	for _, fp := range sortedKeys(cl.blobText) {
		s.BlobText = append(s.BlobText, KeyVal{fp, cl.blobText[fp]})
	}
	for _, id := range sortedKeys(cl.nodes) {
		n := cl.nodes[id]
		s.Nodes = append(s.Nodes, savedNode{id, n.name, n.ready, n.at, n.contents})
	}
	for _, fp := range sortedKeys(cl.hints) {
		h := cl.hints[fp]
		s.Hints = append(s.Hints, savedHint{fp, h.count, h.confidence, h.price, h.at, h.reqs})
	}
	for _, row := range sortedKeys(cl.statuses) {
		s.Statuses = append(s.Statuses, savedStatus{row, cl.statuses[row].hash, cl.statuses[row].at})
	}
	if d := x.world.Demand.Cluster(cl.Name); d != nil {
		s.InTable, s.Facts = true, d.Facts
		s.Demand, s.Overhead = x.world.Demand.Save(cl.Name)
		s.Rooms = x.world.Demand.Rooms(cl.Name)
	}
	return s
}

func (c *needLedger) save() savedLedger {
	s := savedLedger{Parking: c.parking.Entries(), Sharing: c.sharing.Entries(), Join: c.join.Entries(), Oldest: c.oldest}
	for _, name := range sortedKeys(c.lost) {
		s.Lost = append(s.Lost, savedCount{name, c.lost[name]})
	}
	for _, fp := range sortedKeys(c.shortfalls) {
		s.Short = append(s.Short, savedCount{fp, c.shortfalls[fp].First})
	}
	return s
}
