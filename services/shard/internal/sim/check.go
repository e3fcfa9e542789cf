package sim

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// checker holds the safety rules of SHARD-33.5. It keeps what an outsider knows: what was really sent, accepted,
// acknowledged and done. It looks into the core only to ask what the shard believes about a machine.
type checker struct {
	w *world
	s *shard

	// Of the present process.
	mirror   map[string]*said
	ops      map[string]core.Record // open operations, by id
	ofM      map[string]string      // the same, by machine
	began    map[string]int64       // when it started, by operation
	misled   map[string]bool        // operations with a command that was sent on a false fact
	acked    map[string]bool        // instructions whose ack the process received
	reports  map[string]bool        // instructions whose operator reports its drains
	features map[string][]string    // of each session, as the process received them
	emptied  map[string]bool        // instructions that may continue to their Drain: done, or nothing to wait for
	instr    map[string]string      // last instruction, by machine
	listed   map[string]int64       // last good List, by provider (virtual time)
	stuck    map[string]bool
	intent   map[string]string // machine to the cluster it was last acquired for
	moved    map[string]string // machine to the cluster that was last seen to have taken it over on its way
	starts   []reclaimStart
	peak     map[string]int64 // most Configured machines of a scope; "" is the shard
	fresh    []core.Record    // starts of this step
	cycleAt  int64
	person   map[string]bool // clusters whose roll-up a person was asked to accept
	retired  map[string]bool
	term     int64               // highest of the coordinator that the process received
	orders   map[string]expected // of the reply of this step
	accepted map[string]bool     // instructions that it accepted
	view     *core.View
	viewed   bool              // this step brings another view, which is not visible outside yet
	pulls    map[string]string // open pulls: operation's cluster by request

	lied     map[string]bool       // machines about which some fact was false and none since was true; outlives processes
	late     []late                // starts of the last minutes
	vanished int                   // machines that the step took out although they are there
	session  map[string]int64      // of each cluster, as the process received it
	unseen   map[string]int        // Lists in a row that did not show a machine that is there
	pub      *core.Publish         // of this step
	unjoined map[[2]string]int64   // when a machine was last drained of a cluster because its node did not join
	grown    map[[2]string][]int64 // when a cluster and row with Pods that wait was given something in the tail
	joins    []joining             // drains because a node did not join, and later tries of such a machine at the same cluster
	pending  core.RollupArrived
	hasRoll  bool
	lists    map[int64]listing // Lists under way
	gets     map[int64]int64   // when each Get was asked
	chosen   map[string]int64  // when the last operation of a machine began
	guarded  []guarded         // machines that the facts of this step must not move

	budgets   budgets
	undrained []string         // machines whose drains ended in this step
	arrived   map[string]int64 // the last roll-up that was judged, by cluster
}

type listing struct {
	provider string
	asked    int64
}

// guarded is a machine, as the core had it before facts came that it must set aside (SHARD-13.6).
type guarded struct {
	id         string
	had, shown inventory.State
	rule, why  string
}

// late is one start, with its time.
type late struct {
	at int64
	core.Record
}

// said is what one cluster has said to the present process, as the rules of SHARD-8 and 11 say that it must be taken.
type said struct {
	rows    []demand.Row
	known   bool
	session int64 // session of the last accepted or unchanged roll-up
	first   int64 // when demand was first accepted
	held    []int64
	gate    bool
	version int64
	planned []demand.Row // while a plan is made: the rows that it has, if others were acknowledged since it began
	later   bool         // there are such
}

func newChecker(s *shard) *checker {
	c := &checker{w: s.w, s: s, lied: map[string]bool{}}
	c.reset()
	return c
}

// reset forgets what belonged to a process.
func (c *checker) reset() {
	c.emptied, c.reports, c.features = map[string]bool{}, map[string]bool{}, map[string][]string{}
	c.mirror, c.ops, c.ofM, c.acked, c.instr = map[string]*said{}, map[string]core.Record{}, map[string]string{}, map[string]bool{}, map[string]string{}
	c.listed, c.stuck, c.intent, c.peak = map[string]int64{}, map[string]bool{}, map[string]string{}, map[string]int64{}
	c.moved = map[string]string{}
	c.began, c.misled = map[string]int64{}, map[string]bool{}
	c.person, c.retired, c.pulls = map[string]bool{}, map[string]bool{}, map[string]string{}
	c.starts, c.fresh, c.lists, c.gets = nil, nil, map[int64]listing{}, map[int64]int64{}
	c.chosen, c.guarded, c.unjoined = map[string]int64{}, nil, map[[2]string]int64{}
	c.late, c.joins, c.grown = nil, nil, map[[2]string][]int64{}
	c.budgets, c.undrained, c.arrived = newBudgets(), nil, map[string]int64{}
	c.term, c.orders, c.accepted, c.view = 0, nil, map[string]bool{}, nil
	c.cycleAt, c.unseen, c.session = 0, map[string]int{}, map[string]int64{}
}

func (c *checker) of(name string) *said {
	s := c.mirror[name]
	if s == nil {
		s = &said{}
		c.mirror[name] = s
	}
	return s
}

func (c *checker) processStarted(p *process) {
	c.reset()
	for _, name := range c.s.disk.retired {
		c.retired[name] = true
	}
}

// before looks at an event on its way into the core.
func (c *checker) before(p *process, e core.Event) {
	switch e := e.(type) {
	case core.CommandDone:
		c.fenceSpoke(p, e)
	}
	if p != c.s.proc {
		return
	}
	c.hasRoll, c.vanished, c.pub, c.guarded = false, 0, nil, c.guarded[:0]
	c.followOrders(p, e)
	c.follow(p, e)
	of := core.Kind(0)
	if e, is := e.(core.CommandDone); is {
		of = c.ops[e.Op].Kind
	}
	c.budgets.follow(e, of)
	switch e := e.(type) {
	case core.RollupArrived:
		c.pending, c.hasRoll = e, true
	case core.DrainReported:
		if e.State == drainDone || e.State == drainDeadlineExceeded && c.s.config.DrainForce {
			c.emptied[e.Instruction] = true
		}
	case core.ReclaimAcked:
		if c.session[e.Cluster] == e.Session {
			c.acked[e.Instruction] = true
			if e.NodesStarted <= 0 {
				c.emptied[e.Instruction] = true
			}
		}
	case core.CommandDone:
		if m := c.w.machine(e.Machine); m != nil && e.Sent && refuses(e.Code) {
			m.failing++
		}
	case core.ListPage:
		for i := range e.Rows {
			c.guard(p, &e.Rows[i], c.lists[e.List].asked)
		}
	case core.GetDone:
		if asked, known := c.gets[e.Get]; known && e.Row != nil {
			c.guard(p, e.Row, asked)
		}
		delete(c.gets, e.Get)
	case core.ListDone:
		if !e.Failed {
			c.listed[c.lists[e.List].provider] = c.w.now
		}
		delete(c.lists, e.List)
	case core.BootstrapAnswered:
		delete(c.pulls, e.Request)
	case core.SessionOpened:
		c.features[e.Cluster] = e.Features
		c.session[e.Cluster] = max(c.session[e.Cluster], e.Session)
	case core.SessionClosed:
		if c.session[e.Cluster] == e.Session {
			c.session[e.Cluster] = 0
		}
	}
}

// refuses tells the answers that say that a command can never work as asked (SHARD-14.6).
func refuses(c core.Code) bool {
	return c == core.CodeInvalidArgument || c == core.CodeUnimplemented || c == core.CodeOutOfRange
}

// effect looks at one effect, after the step and before it is carried out.
func (c *checker) effect(p *process, e core.Event, x core.Effect) {
	if cmd, ok := x.(core.Command); ok {
		c.checkRights(p, cmd)
		c.checkDoubt(p, cmd)
	}
	if p != c.s.proc {
		return
	}
	switch x := x.(type) {
	case core.Command:
		c.checkCommand(p, x)
	case core.PullBootstrap:
		c.checkPull(p, x)
	case core.DropBlob:
		delete(c.pulls, x.Request)
	case core.SendReclaim:
		if !x.Cancelled {
			c.instr[x.Machine] = x.Instruction
			c.reports[x.Instruction] = slices.Contains(c.features[x.Cluster], "drain-report")
		}
	case core.SendAck:
		if x.Rollup != nil && c.hasRoll && x.Cluster == c.pending.Cluster {
			c.newest(x)
			c.disposed(p, x)
		}
	case *core.Publish:
		c.pub = x
		if c.w.coord != nil {
			c.checkView(x)
		}
	case core.AckInstruction:
		c.acknowledged(x)
		if c.w.coord != nil {
			c.w.coord.notified(x)
		}
	case core.Sample:
		if x.Metric == core.MetricPlanMismatch {
			c.w.broken("plan-differs", "SHARD-33.7", "", "", "the incremental plan and the full one differ")
		}
	case core.ListMachines:
		c.lists[x.List] = listing{x.Provider, c.w.now}
	case core.GetMachine:
		c.gets[x.Get] = c.w.now
	case core.Record:
		c.record(p, x)
	}
}

// checkRights: who may not send commands at all (SHARD-20.7, 33.5.8).
func (c *checker) checkRights(p *process, x core.Command) {
	c.w.tally.Checks++
	switch {
	case p.refused > 0:
		c.w.broken("zombie-acts", "SHARD-33.5.8", x.Machine, x.Cluster, "%s sends %s of %s after a provider showed it a newer epoch", p.name, x.RPC, x.Machine)
	case p.halted:
		c.w.broken("superseded-acts", "SHARD-20.7", x.Machine, x.Cluster, "%s is superseded and sends %s of %s", p.name, x.RPC, x.Machine)
	}
}

func (c *checker) checkCommand(p *process, x core.Command) {
	w := c.w
	c.checkOwner(x)
	if p.paused || p.dryRun || p.removed {
		w.broken("command-while-paused", "SHARD-33.5.9", x.Machine, x.Cluster, "%s sends %s of %s while everything is paused or dry", x.Op, x.RPC, x.Machine)
	}
	op, open := c.ops[x.Op]
	if !open {
		w.broken("command-without-operation", "SHARD-15.1", x.Machine, x.Cluster, "%s is not open and sends %s of %s", x.Op, x.RPC, x.Machine)
		return
	}
	if m := w.machine(x.Machine); m != nil && c.lied[m.ID] {
		c.misled[x.Op] = true
	}
	c.chosen[x.Machine] = w.now
	perProvider, perKind := int64(1), int64(1)
	for _, id := range sortedKeys(p.inflight) {
		other := p.inflight[id]
		if other.Machine == x.Machine {
			w.broken("two-commands", "SHARD-33.5.1", x.Machine, x.Cluster, "%s of %s is sent while %s is in flight", x.RPC, x.Machine, other.RPC)
		}
		if other.Provider == x.Provider {
			perProvider++
		}
		if c.ops[id].Kind == op.Kind {
			perKind++
		}
	}
	if perProvider > c.s.config.ProviderConcurrency {
		w.broken("provider-limit", "SHARD-33.5.10", x.Machine, x.Cluster, "%d commands in flight at %s, at most %d", perProvider, x.Provider, c.s.config.ProviderConcurrency)
	}
	if most := classSize(op.Kind, c.s.config.ExecuteConcurrency); perKind > most {
		w.broken("class-limit", "SHARD-33.5.10", x.Machine, x.Cluster, "%d commands of %s in flight, at most %d", perKind, op.Kind, most)
	}
	if x.RPC == core.RPCDrain && op.Kind == core.KindReclaim && !c.retired[op.Cluster] && !c.acked[c.instr[x.Machine]] {
		w.broken("drain-without-ack", "SHARD-33.5.2", x.Machine, op.Cluster, "%s of %s is drained although its operator did not say that it is cordoned", x.Machine, op.Cluster)
	}
	if id := c.instr[x.Machine]; x.RPC == core.RPCDrain && op.Kind == core.KindReclaim && !c.retired[op.Cluster] && !c.emptied[id] && !c.s.config.DrainForce &&
		op.Cause != engine.CauseNotJoined && c.reports[id] {
		w.broken("drain-before-empty", "SHARD-33.5.2", x.Machine, op.Cluster, "%s of %s is drained although its operator did not say that nothing is left on it", x.Machine, op.Cluster)
	}
	if x.RPC == core.RPCConfigure && x.Cluster != op.Cluster {
		w.broken("configure-elsewhere", "SHARD-33.5.1", x.Machine, x.Cluster, "%s is for %s and configures for %s", x.Op, op.Cluster, x.Cluster)
	}
}

func classSize(k core.Kind, total int64) int64 {
	switch k {
	case core.KindBootstrap:
		return max(1, total/2)
	case core.KindProvision:
		return max(1, total/4)
	case core.KindPreempt:
		return max(1, total/8)
	}
	return max(1, total/16)
}

func (c *checker) checkPull(p *process, x core.PullBootstrap) {
	w := c.w
	if p.paused || p.dryRun || p.removed {
		w.broken("pull-while-paused", "SHARD-33.5.9", x.Machine.ID, x.Cluster, "a bootstrap blob is asked of %s while everything is paused or dry", x.Cluster)
	}
	n := int64(1)
	for _, name := range c.pulls {
		if name == x.Cluster {
			n++
		}
	}
	if n > c.s.config.ExecutePerCluster {
		w.broken("cluster-limit", "SHARD-33.5.10", x.Machine.ID, x.Cluster, "%d pulls wait for %s, at most %d", n, x.Cluster, c.s.config.ExecutePerCluster)
	}
	c.pulls[x.Request] = x.Cluster
	c.budgets.pulled[x.Request] = [2]string{x.Cluster, c.ops[c.ofM[x.Machine.ID]].Fingerprint}
}
