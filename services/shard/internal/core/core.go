package core

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
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
	c := &Core{shared: shared{world: engine.NewWorld(), policy: policy}}
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
	if at.Mono > c.now { // a clock that went back is the shell's defect; history goes on where it was
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
	c.cycle.ended(at.Ended)
	c.cycle.next = false
	c.handle(e)
	c.runTimers()
	c.afterEvent()
	c.roll()
	return c.eff
}

// handle applies the event itself.
func (c *Core) handle(e Event) {
	if _, tick := e.(Tick); !tick {
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
		c.checkpoint(e)
	case PlanDiffered:
		c.cycle.planDiffered(e)
	case Tick, Started:
	default:
		panic(fmt.Sprintf("core: unknown event %T", e))
	}
}

// settle does what may follow from any event: the cycle, dispatch, Lists and Gets that are due, the alarm clock.
func (c *Core) afterEvent() {
	c.outages.watchOutages()
	c.cycle.maybeCycle()
	c.dispatcher.dispatch()
	c.reconciler.driveReconcile()
	c.pub.flushPublish()
	for _, a := range c.admin.answers { // after what readers see: who was told that an order is carried out reads it so (SHARD-24.1)
		c.emit(a)
	}
	c.admin.answers = c.admin.answers[:0]
	c.arm()
}

// NextWake tells when the core wants a Tick, for the loop's timer.
func (c *Core) NextWake() (mono int64, ok bool) { return c.armed, c.armed != 0 }

// columns are what the core itself keeps for each machine, by Index: in blocks, so that a step that meets one machine more
// never moves those of half a million (SHARD-4.7).
type columns [][]column

const columnBlock = 4096

type column struct {
	mutation     int64 // value of the mutation counter at the last local change
	listed       int64 // number of the List that last showed the machine
	absent       absence
	subscriber   uint32 // number of the subscriber that was shown the machine
	subscriberAt uint32 // place in it
}

// absence counts the full Lists a machine was missing from, for the removal guard.
type absence struct {
	lists int32
	since int64
}

func (l *columns) grow(n int) {
	for len(*l)*columnBlock < n {
		*l = append(*l, make([]column, columnBlock))
	}
}

func (l columns) clone() columns {
	out := make(columns, len(l))
	for k, block := range l {
		out[k] = slices.Clone(block)
	}
	return out
}

func (l columns) at(i inventory.Index) *column { return &l[i/columnBlock][i%columnBlock] }

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
	c.record(Record{Type: RecordProcess, Detail: fmt.Sprintf("started, epoch %d, version %s", c.epoch, c.cfg.Version)})
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
	c.record(Record{Type: RecordProcess, Detail: "stopping"})
	for _, o := range c.ops.ordered() {
		if o.Phase == phasePulling || o.Phase == phaseReady {
			c.commands.rollBack(o, OutcomeCancelled, "the shard is stopping")
		}
	}
}
