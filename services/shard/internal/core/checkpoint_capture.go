package core

import (
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Snapshot is everything a core has to know to go on, in a canonical order: the checkpoint at the head of a segment of
// the decision log. What follows from it (the last plan, views, caches) is not in it; a core that gives or takes a
// snapshot plans again in the same step, so both stand alike afterwards.
type Snapshot struct {
	Config     Config  `n:"1"`
	Epoch      int64   `n:"2"`
	At         At      `n:"3"`
	Stopping   bool    `n:"4"`
	Superseded string  `n:"5"`
	Control    Control `n:"6"`

	Ops       int64  `n:"10"` // counters
	Gets      int64  `n:"11"`
	Lists     int64  `n:"12"`
	Mutations int64  `n:"13"`
	Records   int64  `n:"14"`
	Rolling   uint64 `n:"15"`
	Steps     int64  `n:"16"`

	Cycle     savedCycle       `n:"20"`
	Providers []savedProvider  `n:"21"`
	Clusters  []savedCluster   `n:"22"`
	Machines  []savedMachine   `n:"23"`
	Open      []*operation     `n:"24"`
	GetsOpen  []savedGet       `n:"25"`
	Timers    []timer          `n:"26"`
	TimerSeq  int64            `n:"27"`
	Pools     []*pool          `n:"28"`
	Guards    savedGuards      `n:"29"`
	Ledger    savedLedger      `n:"30"`
	Journal   []JournalEntry   `n:"31"`
	Poison    []Poison         `n:"32"`
	Waiting   []AdminAsked     `n:"33"` // orders that wait for a Get
	Packed    []savedCount     `n:"34"` // of older versions: ask*1000 + Lists still to come
	Listing   []savedListing   `n:"37"` // orders that wait for Lists
	Coord     savedCoordinator `n:"35"`
	Armed     int64            `n:"36"`
}

type savedCycle struct {
	N        int64       `n:"1"`
	At       int64       `n:"2"`
	Wall     int64       `n:"3"`
	LastEnd  int64       `n:"4"`
	Pending  []uint8     `n:"5"`
	Planned  []savedPlan `n:"6"`
	HoldEnds []holdEnd   `n:"7"`
	Rollups  []int64     `n:"8"`
	// 9 was when a plan was last compared; the shell keeps that.
	Started  int64 `n:"10"`
	Deferred bool  `n:"11"`
	Ran      bool  `n:"12"` // a plan exists
	Dispatch bool  `n:"13"`
	Took     int64 `n:"14"`
	Open     bool  `n:"15"`
}

type savedPlan struct {
	Machine string `n:"1"`
	Kind    Kind   `n:"2"`
	At      int64  `n:"3"`
	Held    bool   `n:"4"`
	InPlan  bool   `n:"5"`
}

type savedProvider struct {
	Name      string      `n:"1"`
	Listed    bool        `n:"2"`
	ListedAt  int64       `n:"3"`
	FullAt    int64       `n:"4"`
	Cursor    []byte      `n:"5"`
	Paged     bool        `n:"6"`
	Advanced  bool        `n:"7"`
	LastTook  int64       `n:"8"`
	List      *savedList  `n:"9"`
	NextList  int64       `n:"10"`
	NextFull  int64       `n:"11"`
	Fails     int64       `n:"12"`
	LastError string      `n:"13"`
	ErrorAt   int64       `n:"14"`
	Owed      []string    `n:"15"`
	Asked     []savedWant `n:"16"`
	Gets      int64       `n:"17"`
	Held      int64       `n:"18"`
	NeedFull  bool        `n:"19"`
	Waiters   []int64     `n:"20"`
	Inflight  int64       `n:"21"`
	Allowed   int64       `n:"22"`
	Unknowns  int64       `n:"23"`
	Accepted  int64       `n:"24"`
	Breaker   breaker     `n:"25"`
	Fence     fence       `n:"26"`
	SlowUntil int64       `n:"27"`
	Youngest  int64       `n:"28"`
	PollAt    int64       `n:"29"`
	Rejects   []KeyVal    `n:"30"`
	Wanted    []savedWant `n:"31"`
	Read      int64       `n:"32"`
	Outage    outage      `n:"33"`
	OutageAt  int64       `n:"34"`
}

type savedList struct {
	ID      int64 `n:"1"`
	Full    bool  `n:"2"`
	Asked   int64 `n:"3"`
	Started int64 `n:"4"`
}

type savedWant struct {
	Machine string     `n:"1"`
	Why     getPurpose `n:"2"`
}

type savedGet struct {
	ID       int64      `n:"1"`
	Provider string     `n:"2"`
	Machine  string     `n:"3"`
	Purpose  getPurpose `n:"4"`
	Asked    int64      `n:"5"`
}

type savedMachine struct {
	Machine     inventory.Machine    `n:"1"`
	Attribution *inventory.Stamp     `n:"2"`
	Promise     *inventory.Promise   `n:"3"`
	Withheld    []inventory.Withheld `n:"4"`
	Since       int64                `n:"5"`
	Readiness   inventory.Readiness  `n:"6"`
	Foreign     bool                 `n:"7"`
	Stuck       bool                 `n:"8"`
	Mutation    int64                `n:"9"` // stamp column
	Absent      int64                `n:"11"`
	AbsentAt    int64                `n:"12"`
	Subscriber  string               `n:"13"`
	Acquired    *acquisition         `n:"14"`
	Backoffs    []savedBackoff       `n:"15"`
	Capped      bool                 `n:"16"`
	Owner       string               `n:"17"`
	Announced   bool                 `n:"18"`
	Drain       *drainBackoff        `n:"19"`
	Occupancy   inventory.Occupancy  `n:"20"`
	NodeLabels  []inventory.Label    `n:"21"` // of its node alone
}

type savedBackoff struct {
	Subject string  `n:"1"`
	RPC     RPC     `n:"2"`
	Backoff backoff `n:"3"`
	Text    string  `n:"4"`
}

type savedCluster struct {
	Name           string              `n:"1"`
	Session        int64               `n:"2"`
	SessionSince   int64               `n:"3"`
	Features       []string            `n:"4"`
	Version        string              `n:"5"`
	Protocol       string              `n:"6"`
	Heard          bool                `n:"7"`
	Known          bool                `n:"8"`
	Hash           string              `n:"9"`
	Rows           int64               `n:"10"`
	Totals         []resource.Quantity `n:"11"`
	Arrival        int64               `n:"12"`
	Fresh          int64               `n:"13"`
	Disposition    Disposition         `n:"14"`
	DispAt         int64               `n:"15"`
	DispReason     string              `n:"16"`
	Held           confirmation        `n:"17"`
	HeldRollup     *RollupArrived      `n:"18"`
	GateOpen       bool                `n:"19"`
	Gate           confirmation        `n:"20"`
	GateWaits      bool                `n:"21"`
	Retired        bool                `n:"22"`
	Reclaim        tokenBucket         `n:"23"`
	Timeouts       backoff             `n:"24"`
	OneProbe       bool                `n:"25"`
	Blobs          []savedBackoff      `n:"26"`
	BlobText       []KeyVal            `n:"27"`
	Nodes          []savedNode         `n:"28"`
	Reporting      bool                `n:"29"`
	ReportingSince int64               `n:"30"`
	Unplaced       []UnplacedRow       `n:"31"`
	Hints          []savedHint         `n:"32"`
	Statuses       []savedStatus       `n:"33"`
	Demand         []demand.Saved      `n:"34"`
	Overhead       []resource.Quantity `n:"35"`
	Facts          demand.Facts        `n:"36"`
	InTable        bool                `n:"37"` // the demand table knows the cluster
	HintedAt       int64               `n:"38"`
	ReadFrom       int64               `n:"39"`
	ReadUntil      int64               `n:"40"`
	HeldBack       []savedHeldBack     `n:"41"`
	Out            []OutOfService      `n:"42"`
	ForgetAt       int64               `n:"43"`
	Failed         []KeyVal            `n:"44"`
}

type savedHeldBack struct {
	Row demand.RowKey `n:"1"`
	At  int64         `n:"2"`
}

type savedNode struct {
	Machine  string        `n:"1"`
	Name     string        `n:"2"`
	Ready    bool          `n:"3"`
	At       int64         `n:"4"`
	Contents *NodeContents `n:"5"`
}

type savedHint struct {
	Fingerprint string     `n:"1"`
	Count       int64      `n:"2"`
	Confidence  Confidence `n:"3"`
	Price       int64      `n:"4"`
	At          int64      `n:"5"`

	Requirements []demand.Requirement `n:"6"`
}

type savedStatus struct {
	Row  string `n:"1"`
	Hash uint64 `n:"2"`
	At   int64  `n:"3"`
}

type savedGuards struct {
	Reclaim  tokenBucket `n:"1"`
	Creates  tokenBucket `n:"2"`
	Preempts tokenBucket `n:"3"`
}

type savedLedger struct {
	Parking []ledger.ParkingEntry `n:"1"`
	Sharing []ledger.SharingEntry `n:"2"`
	Join    []ledger.JoinEntry    `n:"3"`
	Unmet   []savedUnmet          `n:"4"`
	Lost    []savedCount          `n:"5"`
	Short   []savedCount          `n:"6"` // since when each fingerprint is short
	Oldest  string                `n:"7"`
}

type savedUnmet struct {
	Cluster string        `n:"1"`
	Row     demand.RowKey `n:"2"`
	At      int64         `n:"3"`
}

type savedCount struct {
	Name string `n:"1"`
	N    int64  `n:"2"`
}

// savedListing is an order that waits for so many more full Lists.
type savedListing struct {
	Ask   int64 `n:"1"`
	Lists int64 `n:"2"`
}

type savedCoordinator struct {
	Decommissioned bool                 `n:"1"`
	Disputed       bool                 `n:"2"`
	Plain          bool                 `n:"3"`
	Text           string               `n:"4"`
	Address        string               `n:"5"`
	RepliedAt      int64                `n:"6"`
	Waiting        []pendingInstruction `n:"7"`
	Relabels       []savedCount         `n:"8"`
	Quotas         bool                 `n:"9"`
	Home           []string             `n:"10"`
	Alone          bool                 `n:"11"`
}

// capture copies the state. Everything that is mutable is copied.
func (c *Core) capture() *Snapshot {
	s := &Snapshot{Config: c.cfg, Epoch: c.epoch, At: At{Mono: c.now, Wall: c.wall}, Stopping: c.stopping, Superseded: c.superseded,
		Control: c.ctl, Ops: c.opCount, Gets: c.gets, Lists: c.lists, Mutations: c.mutations, Records: c.records, Rolling: uint64(c.rolling), Steps: c.steps,
		TimerSeq: c.timers.seq, Armed: c.armed}
	s.Cycle = c.saveCycle()
	for _, p := range c.providers {
		s.Providers = append(s.Providers, p.save())
	}
	for _, cl := range c.clusters.ordered {
		s.Clusters = append(s.Clusters, c.saveCluster(cl))
	}
	for i := range c.world.Inventory.All() {
		s.Machines = append(s.Machines, c.saveMachine(i))
	}
	for _, o := range c.ops.ordered() {
		copied := *o
		s.Open = append(s.Open, &copied)
	}
	for _, id := range sortedInts(c.getsByID) {
		g := c.getsByID[id]
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
	for _, id := range sortedKeys(c.journal) {
		s.Journal = append(s.Journal, c.journal[id])
	}
	for _, h := range sortedKeys(c.poison) {
		s.Poison = append(s.Poison, Poison{h, c.poison[h]})
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

func (c *Core) saveCycle() savedCycle {
	y := &c.cycle
	s := savedCycle{N: y.n, At: y.at, Wall: y.wall, LastEnd: y.lastEnd, Took: y.took, Open: y.open, HoldEnds: slices.Clone(y.holdEnds), Rollups: slices.Clone(y.rollups),
		Started: y.started, Deferred: y.deferred, Ran: y.result != nil, Dispatch: y.redispatch}
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

func (p *provider) save() savedProvider {
	s := savedProvider{Name: p.name, Listed: p.listed, ListedAt: p.listedAt, FullAt: p.fullAt, Cursor: p.cursor, Paged: p.paged,
		Advanced: p.advanced, LastTook: p.lastTook, NextList: p.nextList, NextFull: p.nextFull, Fails: int64(p.fails), LastError: p.lastError,
		ErrorAt: p.errorAt, Owed: sortedKeys(p.owed), Gets: int64(p.gets), Held: int64(p.held), NeedFull: p.needFull,
		Waiters: slices.Clone(p.waiters), Inflight: p.inflight, Allowed: p.allowed, Unknowns: int64(p.unknowns), Accepted: int64(p.accepted),
		Breaker: p.breaker, Fence: p.fence, SlowUntil: p.slowUntil, Youngest: p.youngest, PollAt: p.pollAt, Read: p.read,
		Outage: p.outage, OutageAt: p.outageSince}
	s.Breaker.Window = slices.Clone(p.breaker.Window)
	s.Fence.Refused = slices.Clone(p.fence.Refused)
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

func (c *Core) saveMachine(i inventory.Index) savedMachine {
	inv := c.world.Inventory
	m := savedMachine{Occupancy: inv.Occupancy(i), NodeLabels: inv.OfNode(i), Machine: inv.Machine(i), Withheld: inv.Withheld(i), Since: inv.Since(i), Readiness: inv.Readiness(i),
		Foreign: inv.Foreign(i), Stuck: inv.Stuck(i), Announced: inv.Announced(i), Mutation: c.cols.at(i).mutation,
		Absent: int64(c.cols.at(i).absent.lists), AbsentAt: c.cols.at(i).absent.since}
	id := m.Machine.ID
	if s, ok := inv.Stamp(i); ok {
		m.Attribution = &s
	}
	if p, ok := inv.Promise(i); ok {
		m.Promise = &p
	}
	m.Subscriber, m.Capped, m.Owner = c.subscribed(i), c.guards.capped[id], c.coord.owners[id]
	if a := c.pub.acquired[id]; a != nil {
		copied := *a
		m.Acquired = &copied
	}
	if b := c.guards.drains[id]; b != nil {
		copied := *b
		m.Drain = &copied
	}
	if b := c.guards.backoffs[id]; b != nil {
		for rpc, x := range b {
			if x != (backoff{}) {
				m.Backoffs = append(m.Backoffs, savedBackoff{RPC: RPC(rpc), Backoff: x})
			}
		}
	}
	return m
}

func (c *Core) saveCluster(cl *cluster) savedCluster {
	s := savedCluster{Name: cl.name, Session: cl.session, SessionSince: cl.sessionSince, Features: cl.features, Version: cl.version,
		Protocol: cl.protocol, Heard: cl.heard, Known: cl.known, Hash: cl.hash, Rows: int64(cl.rows), Totals: cl.totals, Arrival: cl.arrival,
		Fresh: cl.fresh, Disposition: cl.disposition, DispAt: cl.dispAt, DispReason: cl.dispReason, Held: cl.held, HeldRollup: cl.heldRollup,
		GateOpen: cl.gateOpen, Gate: cl.gate, GateWaits: cl.gateWaits, Retired: cl.retired, Reclaim: cl.reclaim, Timeouts: cl.timeouts,
		OneProbe: cl.oneProbe, Reporting: cl.reporting, ReportingSince: cl.reportingSince, Unplaced: cl.unplaced,
		HintedAt: cl.hintedAt, ReadFrom: cl.readFrom, ReadUntil: cl.readUntil, ForgetAt: cl.forgetAt}
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
	if d := c.world.Demand.Cluster(cl.name); d != nil {
		s.InTable, s.Facts = true, d.Facts
		s.Demand, s.Overhead = c.world.Demand.Save(cl.name)
	}
	return s
}

func (l *needLedger) save() savedLedger {
	s := savedLedger{Parking: l.parking.Entries(), Sharing: l.sharing.Entries(), Join: l.join.Entries(), Oldest: l.oldest}
	for _, name := range sortedKeys(l.unmet) {
		for _, x := range l.unmet[name].list {
			s.Unmet = append(s.Unmet, savedUnmet{name, x.key, x.since})
		}
	}
	slices.SortFunc(s.Unmet, func(a, b savedUnmet) int {
		return strings.Compare(a.Cluster+"\x00"+a.Row.Fingerprint+"\x00"+a.Row.Group, b.Cluster+"\x00"+b.Row.Fingerprint+"\x00"+b.Row.Group)
	})
	for _, name := range sortedKeys(l.lost) {
		s.Lost = append(s.Lost, savedCount{name, l.lost[name]})
	}
	for _, fp := range sortedKeys(l.shortfalls) {
		s.Short = append(s.Short, savedCount{fp, l.shortfalls[fp].First})
	}
	return s
}
