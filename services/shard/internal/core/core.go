package core

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Core is the state of one shard process. It is not safe for concurrent use.
type Core struct {
	cfg   Config
	epoch int64
	now   int64 // Mono of the step
	wall  int64 // wall clock of the step, written out only

	started    bool
	stopping   bool
	superseded string // evidence; empty: not superseded

	world   *engine.World
	planner *planner.Planner
	audit   engine.Audit
	offers  explain.Offers
	policy  *engine.Policy
	cols    columns

	providers []*provider
	clusters  clusterSet
	ops       operations
	getsByID  map[int64]*get
	gets      int64 // numbers Gets
	lists     int64 // numbers Lists
	mutations int64 // mutation counter (SHARD-13.5)
	opCount   int64
	records   int64  // numbers decision records
	rolling   hash64 // of every effect so far (SHARD-4.9)
	rolled    int    // effects of this step that are in it
	steps     int64

	cycle   cycleState
	classes concurrencyClasses
	guards  guards
	ctl     Control
	pools   poolSet
	ledger  needLedger
	admin   adminState
	coord   coordinatorState
	pub     publisher
	risks   risks
	reading []*cluster              // new here, and waiting for the providers to be read
	staging []*cluster              // with a roll-up that is being taken in, in turn
	journal map[string]JournalEntry // of the process before, by machine, until used or disproved
	poison  map[string]int64        // content hash to Mono at which it ends

	timers  timers
	reduced reducer
	armed   int64 // last WakeAt; 0: none
	eff     []Effect
	answers []AdminAnswer // of this step
	probe   func(Phase)   // is told of the phases of a cycle; nil: nobody measures

	captures    bool                    // at the next checkpoint
	compareRoom *inventory.FreezeBuffer // for a comparison of the next plan; nil: none is wanted
}

// New returns a core that waits for Started. The policy is the engine's; nil means its default.
func New(policy *engine.Policy) *Core {
	if policy == nil {
		policy = engine.DefaultPolicy()
	}
	c := &Core{
		world: engine.NewWorld(), planner: planner.NewPlanner(), policy: policy,
		getsByID: map[int64]*get{}, journal: map[string]JournalEntry{}, poison: map[string]int64{},
	}
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
	c.reduced = reducer{}
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
		c.sessionOpened(e)
	case SessionClosed:
		c.sessionClosed(e)
	case RollupArrived:
		c.rollupArrived(e)
	case BootstrapAnswered:
		c.bootstrapAnswered(e)
	case ReclaimAcked:
		c.reclaimAcked(e)
	case NodeReported:
		c.nodeReported(e)
	case DrainReported:
		c.drainReported(e)
	case UnplacedReported:
		c.unplacedReported(e)
	case ListPage:
		c.listPage(e)
	case ListDone:
		c.listDone(e)
	case GetDone:
		c.getDone(e)
	case CommandDone:
		c.commandDone(e)
	case CoordinatorReplied:
		c.coordinatorReplied(e)
	case AdminAsked:
		c.adminAsked(e)
	case Stopping:
		c.stop()
	case CheckpointAsked:
		c.checkpoint(e)
	case PlanDiffered:
		c.planDiffered(e)
	case Tick, Started:
	default:
		panic(fmt.Sprintf("core: unknown event %T", e))
	}
}

// settle does what may follow from any event: the cycle, dispatch, Lists and Gets that are due, the alarm clock.
func (c *Core) afterEvent() {
	c.watchOutages()
	c.maybeCycle()
	c.dispatch()
	c.driveReconcile()
	c.flushPublish()
	for _, a := range c.answers { // after what readers see: who was told that an order is carried out reads it so (SHARD-24.1)
		c.emit(a)
	}
	c.answers = c.answers[:0]
	c.arm()
}

// NextWake tells when the core wants a Tick, for the loop's timer.
func (c *Core) NextWake() (mono int64, ok bool) { return c.armed, c.armed != 0 }

func (c *Core) emit(e Effect) { c.eff = append(c.eff, e) }

// toWall turns a moment of Mono into the wall clock of this step, for display.
func (c *Core) toWall(mono int64) int64 {
	if mono == 0 {
		return 0
	}
	return c.wall - (c.now - mono)
}

// columns are what the core itself keeps for each machine, by Index: in blocks, so that a step that meets one machine more
// never moves those of half a million (SHARD-4.7).
type columns [][]column

const columnBlock = 4096

type column struct {
	mutation     int64 // value of the mutation counter at the last local change
	listed       int64 // number of the List that last showed the machine
	absent       absence
	subscriber   uint32 // number of the audience that was shown the machine
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

// touched gives a machine the next value of the mutation counter, so that facts from before are set aside.
func (c *Core) touched(i inventory.Index) {
	c.mutations++
	c.cols.at(i).mutation = c.mutations
}

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
		c.journal[j.Machine] = j
	}
	for _, p := range s.Poisoned {
		c.poison[p.Hash] = p.Until
	}
	for _, r := range s.Room {
		if r.Cluster == "" {
			continue
		}
		c.ledger.sharing.Inherit(r.Cluster, r.Rows)
		c.left(c.clusters.ensure(r.Cluster))
	}
	c.classes.init(c.cfg.ExecuteConcurrency)
	c.cycle.LastEnd = c.now - c.cfg.CycleMinSpacing
	c.timers.add(c.now+c.cfg.CycleInterval, timerCycle, "")
	c.startPauses()
	c.startOwnership()
	if c.cfg.AloneAfter > 0 && c.ownsNothingYet() {
		c.timers.add(c.now+c.cfg.AloneAfter, timerAlone, "")
	}
	for _, name := range s.Control.Retired {
		c.clusters.ensure(name).Retired = true
		c.openGate(c.clusters.get(name), "retired")
	}
	c.record(Record{Type: RecordProcess, Detail: fmt.Sprintf("started, epoch %d, version %s", c.epoch, c.cfg.Version)})
	for _, p := range c.providers {
		c.requestList(p, true)
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
			c.rollBack(o, OutcomeCancelled, "the shard is stopping")
		}
	}
}

// frozen reports whether this process must not start anything: it is stopping or superseded.
func (c *Core) frozen() bool { return c.stopping || c.superseded != "" }
