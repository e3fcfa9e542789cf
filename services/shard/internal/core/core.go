package core

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Core is the state of one shard process. It is not safe for concurrent use. Each part owns what it decides by, and core_parts.go
// says which others it calls.
type Core struct {
	shared
	reader

	sessions   sessions
	rollups    rollups
	ledger     needLedger
	machines   machines
	merger     merger
	pools      poolSet
	risks      risks
	reconciler reconciler
	outages    outages
	plans      planning
	guards     guards
	dispatcher dispatcher
	commands   commands
	bootstraps bootstraps
	draining   draining
	ownership  ownership
	coord      coordinatorState
	admin      orders
	pub        publisher
	recovery   recovery

	rolling  hash64 // of every effect so far (SHARD-4.9)
	rolled   int    // effects of this step that are in it
	steps    int64
	armed    int64 // last WakeAt; 0: none
	captures bool  // at the next checkpoint
}

// New returns a core that waits for Started. The policy is the engine's; nil means its default.
func New(policy *engine.Policy) *Core {
	if policy == nil {
		policy = engine.DefaultPolicy()
	}
	c := &Core{shared: shared{step: step{world: engine.NewWorld(), policy: policy}}}
	c.wire()
	c.clusters.init()
	c.ops.init()
	c.pools.init()
	c.ledger.init()
	c.pub.init()
	return c
}

// Step applies one event and returns effects in the order they must start. It never blocks and never fails: what is
// wrong with an event becomes a record or a count. The slice is valid until the next Step.
func (c *Core) Step(at At, e Event) []Effect {
	c.eff, c.rolled = c.eff[:0], 0
	c.reconciler.reduced = reducer{}
	if at.Mono > c.now { // a clock that went back is the shell's defect; history continues where it was
		c.now = at.Mono
	}
	c.wall = at.Wall
	if !c.started {
		if s, ok := e.(Started); ok {
			c.start(s)
			c.afterEvent()
			c.roll()
		}
		return c.eff
	}
	c.plans.ended(at.Ended)
	c.cycle.next = false
	_, c.tick = e.(Tick)
	c.handle(e)
	c.runTimers()
	c.afterEvent()
	c.roll()
	return c.eff
}

// handle applies the event itself.
func (c *Core) handle(e Event) {
	if c.open != nil {
		meanwhile(c, e)
		return
	}
	if !c.tick {
		c.pub.dirty = true
	}
	switch e := e.(type) {
	case SessionOpened:
		c.sessions.sessionOpened(e)
	case SessionClosed:
		c.sessions.sessionClosed(e)
	case RollupArrived:
		c.rollups.rollupArrived(e)
	case BootstrapAnswered:
		c.bootstraps.bootstrapAnswered(e)
	case ReclaimAcked:
		c.draining.reclaimAcked(e)
	case NodeReported:
		c.sessions.nodeReported(e)
	case DrainReported:
		c.draining.drainReported(e)
	case UnplacedReported:
		c.sessions.unplacedReported(e)
	case ListPage:
		c.reconciler.listPage(e)
	case ListDone:
		c.reconciler.listDone(e)
	case GetDone:
		c.reconciler.getDone(e)
	case CommandDone:
		c.commands.commandDone(e)
	case CoordinatorReplied:
		c.coord.coordinatorReplied(e)
	case AdminAsked:
		c.admin.adminAsked(e)
	case Stopping:
		c.stop()
	case CheckpointAsked:
		c.askCheckpoint(e)
	case PlanDiffered:
		c.plans.planDiffered(e)
	case DemandTooWide:
		c.cycle.next = true // the event that it comes before is taken first
		c.rollups.setAside(e)
	case Tick:
		c.checkpointIfSettled()
	case Started:
	default:
		panic(fmt.Sprintf("core: unknown event %T", e))
	}
}

// afterEvent does what may follow from any event: the cycle, dispatch, Lists and Gets that are due, the alarm clock.
func (c *Core) afterEvent() {
	during := c.open != nil // what it is made of stays as it is
	if !during {
		c.outages.watchOutages()
		c.plans.maybeCycle()
	}
	if c.open == nil {
		c.dispatcher.dispatch()
		c.reconciler.driveReconcile()
	}
	if !during {
		c.pub.flushPublish()
	}
	for _, a := range c.admin.answers { // after what readers see: a caller whose order was confirmed reads its effect (SHARD-24.1)
		c.emit(a)
	}
	c.admin.answers = c.admin.answers[:0]
	c.arm()
}

// NextWake tells when the core wants a Tick, for the loop's timer.
func (c *Core) NextWake() (mono int64, ok bool) { return c.armed, c.armed != 0 }

func (c *Core) start(s Started) {
	c.started = true
	c.configure(s.Config.WithDefaults())
	c.epoch, c.ctl = s.Epoch, s.Control
	c.coord.Decommissioned, c.coord.Text = s.Control.Removed != "", s.Control.Removed
	if c.cfg.ForgetCoordinator {
		c.ctl.Coordinator = Lineage{}
	}
	for _, name := range c.cfg.Providers {
		c.providers = append(c.providers, newProvider(name, c.cfg.ProviderConcurrency))
	}
	for _, j := range s.Journal {
		c.recovery.journal[j.Machine] = j
	}
	for _, p := range s.Poisoned {
		c.rollups.poison[p.Hash] = p.Until
	}
	for _, r := range s.Room {
		if r.Cluster == "" {
			continue
		}
		c.ledger.sharing.Inherit(r.Cluster, r.Rows)
		c.sessions.left(c.clusters.ensure(r.Cluster))
	}
	c.dispatcher.classes.init(c.cfg.ExecuteConcurrency)
	c.cycle.LastEnd = c.now - c.cfg.CycleMinSpacing
	c.timers.add(c.now+c.cfg.CycleInterval, timerCycle, "")
	c.guards.startPauses()
	c.ownership.startOwnership()
	if c.cfg.AloneAfter > 0 && c.ownership.ownsNothingYet() {
		c.timers.add(c.now+c.cfg.AloneAfter, timerAlone, "")
	}
	for _, name := range s.Control.Retired {
		c.clusters.ensure(name).Retired = true
		c.rollups.openGate(c.clusters.get(name), "retired")
	}
	c.record(Record{Type: RecordProcess, Detail: fmt.Sprintf("The shard has started: epoch %d, version %s.", c.epoch, c.cfg.Version)})
	for _, p := range c.providers {
		c.reconciler.requestList(p, true)
	}
	c.pub.dirty = true
}

// stop is the first step of the end: nothing new is started, waiting pulls are rolled back (SHARD-3.9).
func (c *Core) stop() {
	if c.stopping {
		return
	}
	c.stopping = true
	c.record(Record{Type: RecordProcess, Detail: "The shard is stopping."})
	for _, o := range c.ops.ordered() {
		if o.Phase == phasePulling || o.Phase == phaseReady {
			c.commands.rollBack(o, OutcomeCancelled, "the shard is stopping")
		}
	}
}

// configure takes the configuration, and what the engine's policy has of it.
func (c *Core) configure(cfg Config) {
	c.cfg = cfg
	if cfg.EmptyAfter != 0 { // of an older record
		policy := *c.policy
		policy.EmptyAfter = cfg.EmptyAfter
		c.policy = &policy
	}
}

// wire connects the parts. Each holds those that it calls, and nothing of the core beside them and what all share.
func (c *Core) wire() {
	s, st := &c.shared, &c.step
	c.pub = publisher{
		shared: s, admin: &c.admin, coord: &c.coord, dispatcher: &c.dispatcher, guards: &c.guards, ledger: &c.ledger, outages: &c.outages,
		ownership: &c.ownership, pools: &c.pools, reconciler: &c.reconciler,
	}
	c.admin = orders{
		shared: s, commands: &c.commands, coord: &c.coord, guards: &c.guards, machines: &c.machines, ownership: &c.ownership, pools: &c.pools,
		pub: &c.pub, reconciler: &c.reconciler, rollups: &c.rollups,
	}
	c.ownership = ownership{shared: s, coord: &c.coord, machines: &c.machines}
	c.coord = coordinatorState{shared: s, ownership: &c.ownership, reconciler: &c.reconciler, rollups: &c.rollups}
	c.guards = guards{shared: s, coord: &c.coord, machines: &c.machines, ownership: &c.ownership, pools: &c.pools}
	c.dispatcher = dispatcher{
		shared: s, bootstraps: &c.bootstraps, commands: &c.commands, draining: &c.draining, guards: &c.guards, machines: &c.machines,
		ownership: &c.ownership, recovery: &c.recovery,
	}
	c.commands = commands{
		shared: s, bootstraps: &c.bootstraps, coord: &c.coord, dispatcher: &c.dispatcher, draining: &c.draining, guards: &c.guards,
		ledger: &c.ledger, machines: &c.machines, merger: &c.merger, ownership: &c.ownership, pools: &c.pools, reconciler: &c.reconciler,
		recovery: &c.recovery,
	}
	c.bootstraps = bootstraps{shared: s, commands: &c.commands, dispatcher: &c.dispatcher}
	c.draining = draining{
		shared: s, commands: &c.commands, coord: &c.coord, guards: &c.guards, ledger: &c.ledger, machines: &c.machines, recovery: &c.recovery,
	}
	c.machines = machines{
		shared: s, coord: &c.coord, guards: &c.guards, outages: &c.outages, pools: &c.pools, pub: &c.pub, reconciler: &c.reconciler,
		risks: &c.risks,
	}
	c.pools = poolSet{step: st}
	c.risks = risks{step: st}
	c.merger = merger{
		shared: s, admin: &c.admin, commands: &c.commands, coord: &c.coord, guards: &c.guards, ledger: &c.ledger, machines: &c.machines,
		ownership: &c.ownership, recovery: &c.recovery,
	}
	c.reconciler = reconciler{
		shared: s, getsByID: map[int64]*get{}, admin: &c.admin, commands: &c.commands, coord: &c.coord, machines: &c.machines, merger: &c.merger,
		ownership: &c.ownership, recovery: &c.recovery, rollups: &c.rollups, sessions: &c.sessions,
	}
	c.outages = outages{shared: s, pub: &c.pub}
	c.rollups = rollups{
		shared: s, poison: map[string]int64{}, bootstraps: &c.bootstraps, commands: &c.commands, coord: &c.coord, draining: &c.draining, ledger: &c.ledger,
		machines: &c.machines, pub: &c.pub, reconciler: &c.reconciler,
	}
	c.sessions = sessions{
		shared: s, admin: &c.admin, bootstraps: &c.bootstraps, commands: &c.commands, coord: &c.coord, draining: &c.draining, ledger: &c.ledger,
		machines: &c.machines, outages: &c.outages, pub: &c.pub, reconciler: &c.reconciler, rollups: &c.rollups,
	}
	c.ledger = needLedger{step: st, pools: &c.pools}
	c.plans = planning{
		shared: s, planner: planner.NewPlanner(), coord: &c.coord, dispatcher: &c.dispatcher, draining: &c.draining, guards: &c.guards, ledger: &c.ledger,
		machines: &c.machines, ownership: &c.ownership, pub: &c.pub, sessions: &c.sessions,
	}
	c.recovery = recovery{step: st, journal: map[string]JournalEntry{}}
	c.reader = reader{
		shared: s, risks: &c.risks, rollups: &c.rollups, coord: &c.coord, guards: &c.guards, ledger: &c.ledger, pub: &c.pub, sessions: &c.sessions,
	}
}

// runTimers handles every deadline that has passed. Time is honoured at any event, so a late Tick changes nothing.
func (c *Core) runTimers() {
	for c.open == nil {
		t, ok := c.timers.due(c.now)
		if !ok {
			return
		}
		if !c.tick && (t.Kind == timerStage || t.Kind == timerListShort) { // parts are for Ticks (SHARD-8.9)
			c.timers.add(c.now+1, t.Kind, "")
			continue
		}
		switch t.Kind {
		case timerCycle: // each cycle arms one, so all but the last are of cycles that others have followed
			if c.now-c.cycle.At >= c.cfg.CycleInterval {
				c.trigger(triggerInterval)
			}
		case timerPull:
			c.bootstraps.pullTimedOut(t.Subject)
		case timerAckWait:
			c.draining.ackWaitOver(t.Subject)
		case timerDrainEnd:
			c.draining.drainDeadline(t.Subject)
		case timerHandover:
			c.draining.handoverOver(t.Subject)
		case timerRepeat:
			c.draining.repeatInstruction(t.Subject)
		case timerAsk:
			c.commands.askAgain(t.Subject)
		case timerStuck:
			c.machines.watch(t.Subject)
		case timerAnnounced:
			c.risks.announcedStill(t.Subject)
		case timerPause:
			c.guards.pauseExpired(t)
		case timerConfirm:
			c.rollups.confirmGate(t.Subject)
		case timerFence:
			c.commands.fenceTimer(t.Subject)
		case timerStage:
			c.rollups.stagePart(c.partsBeside())
		case timerListShort:
			c.ledger.listMore()
			c.pub.notBefore = c.now + 1
		case timerForget:
			c.sessions.forgetCluster(t)
		case timerAlone:
			c.ownership.aloneNow()
		case timerPoison:
			c.rollups.dropPoison()
		case timerInstruction:
			c.coord.retryInstructions()
		case timerDispatch:
			c.trigger(triggerExpiry)
		case timerHints:
			if t.Subject == restOfHints && !c.frozen() {
				c.pub.hintsDue()
			}
		case timerSpacing, timerList, timerPublish, timerCheckpoint:
			// Step looks at these whenever anything happens
		}
	}
}

// arm asks for a Tick at the earliest deadline, if that is not what was asked for last.
func (c *Core) arm() {
	next := int64(0)
	if len(c.timers.heap) > 0 {
		next = max(c.timers.heap[0].At, c.now+1)
	}
	if c.open != nil { // time is honoured when it is made
		c.armed = 0
		return
	}
	if next != c.armed && next != 0 {
		c.emit(WakeAt{Mono: next})
	}
	c.armed = next
}

// WatchPhases makes the core tell f which phase of a cycle begins, and PhaseNone when it is over. f must not touch the
// core; what it does changes no decision.
func (c *Core) WatchPhases(f func(Phase)) {
	c.probe = f
	c.plans.planner.Observe = func(p planner.Phase) { c.phase(Phase(p)) }
}

// CompareNext makes the next cycle emit ComparePlan. The columns of the world are copied into room, which the shell made ready before.
func (c *Core) CompareNext(room *inventory.FreezeBuffer) { c.plans.compareRoom = room }
