package sim

import (
	"maps"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

type reclaimStart struct {
	at      int64
	cluster string
}

// isStart tells the record of a start from the notes that use its type.
func isStart(r core.Record) bool {
	return r.Type == core.RecordStarted && r.Outcome == "" && r.Detail == ""
}

func (c *checker) record(p *process, r core.Record) {
	w := c.w
	switch r.Type {
	case core.RecordStarted:
		if isStart(r) {
			c.started(p, r)
		}
	case core.RecordEnded:
		if r.Outcome != "cancellation_sent" {
			c.ended(r)
		}
	case core.RecordMachineFailed:
		if m := w.machine(r.Machine); m != nil && m.failing == 0 {
			w.broken("failed-by-itself", "SHARD-33.5.7", r.Machine, r.Cluster, "%s is taken for Failed; its provider never said so and refused nothing", r.Machine)
		}
	case core.RecordMachineVanished:
		delete(c.intent, r.Machine)
		delete(c.chosen, r.Machine)
		c.budgets.forget(r.Machine)
		delete(c.budgets.boots, r.Machine)
		c.forgetUnjoined(r.Machine)
		if m := w.machine(r.Machine); m != nil && c.unseen[r.Machine] < 3 {
			c.vanished++
		}
	case core.RecordAdmin:
		if r.Outcome == "ok" && strings.HasPrefix(r.Detail, "forget_machine") {
			c.forgetUnjoined(r.Machine)
		}
	case core.RecordMachineStuck:
		c.stuck[r.Machine] = true
	case core.RecordGateOpened:
		c.gateOpened(p, r)
	}
}

// forgetUnjoined: a machine that left the inventory is new when it comes back.
func (c *checker) forgetUnjoined(machine string) {
	maps.DeleteFunc(c.unjoined, func(k [2]string, _ int64) bool { return k[0] == machine })
}

func (c *checker) started(p *process, r core.Record) {
	w := c.w
	w.tally.Checks++
	if other := c.ofM[r.Machine]; other != "" {
		w.broken("two-operations", "SHARD-15.1", r.Machine, r.Cluster, "%s begins while %s is open", r.Op, other)
	}
	if want := [...]inventory.State{0, inventory.Idle, inventory.Speculative, inventory.Configured, inventory.Configured, inventory.Idle}; r.From != want[kindIndex(r.Kind)] {
		w.broken("stale-decision", "SHARD-33.5.1", r.Machine, r.Cluster, "%s of %s starts from %s", r.Kind, r.Machine, r.From)
	}
	if p.paused || p.dryRun || p.removed {
		w.broken("start-while-paused", "SHARD-33.5.9", r.Machine, r.Cluster, "%s of %s starts while everything is paused or dry", r.Kind, r.Machine)
	}
	c.paused(r)
	c.ops[r.Op], c.ofM[r.Machine], c.began[r.Op] = r, r.Op, w.now
	if r.From != inventory.Configured { // a drain has changed nothing yet: the machine may turn out to be something else
		c.chosen[r.Machine] = w.now
	}
	if c.late = append(c.late, late{w.now, r}); len(c.late) > 1000 {
		c.late = slices.DeleteFunc(c.late, func(l late) bool { return w.now-l.at > quiet })
	}
	c.noteJoining(r)
	c.noteRoom(r)
	c.fresh = append(c.fresh, r)
	delete(c.stuck, r.Machine)
	switch r.Kind {
	case core.KindBootstrap, core.KindProvision:
		c.intent[r.Machine] = r.Cluster
		if r.Kind == core.KindProvision {
			c.withinSlice(p, r)
		}
	case core.KindReclaim:
		c.reclaimStarted(p, r)
	case core.KindPreempt:
		c.preemptStarted(p, r)
	case core.KindDelete:
		c.deleteStarted(p, r)
	}
}

func kindIndex(k core.Kind) int {
	return slices.Index([]core.Kind{0, core.KindBootstrap, core.KindProvision, core.KindPreempt, core.KindReclaim, core.KindDelete}, k)
}

func (c *checker) ended(r core.Record) {
	if _, open := c.ops[r.Op]; !open {
		c.w.broken("ended-twice", "SHARD-15.1", r.Machine, r.Cluster, "%s ends with %q and is not open", r.Op, r.Outcome)
	}
	if r.Cause == engine.CauseNotJoined && r.Outcome == core.OutcomeSuccess.String() {
		c.unjoined[[2]string{r.Machine, r.Cluster}] = c.w.now
	}
	c.failed(r)
	delete(c.ops, r.Op)
	delete(c.began, r.Op)
	delete(c.misled, r.Op)
	delete(c.ofM, r.Machine)
	delete(c.moved, r.Machine)
	delete(c.intent, r.Machine) // bound now, or handed over by a start that follows, or free
}

// reclaimStarted: a voluntary drain needs an open gate, a live session that has itself reported, and a fresh inventory;
// and no more of them may start than the budget lets through.
func (c *checker) reclaimStarted(p *process, r core.Record) {
	w, s := c.w, c.of(r.Cluster)
	session := c.session[r.Cluster]
	switch {
	case c.retired[r.Cluster]:
	case !s.known:
		w.broken("reclaim-unheard", "SHARD-12.1", r.Machine, r.Cluster, "%s is reclaimed from %s, which this process has not heard from", r.Machine, r.Cluster)
	case !s.gate:
		w.broken("reclaim-gate", "SHARD-33.5.2", r.Machine, r.Cluster, "%s is reclaimed from %s, whose gate is closed", r.Machine, r.Cluster)
	case session == 0:
		w.broken("reclaim-offline", "SHARD-33.5.2", r.Machine, r.Cluster, "%s is reclaimed from %s, which has no session", r.Machine, r.Cluster)
	case s.session != session:
		w.broken("reclaim-unreported", "SHARD-12.4", r.Machine, r.Cluster, "%s is reclaimed from %s, whose session %d has not reported; %d had", r.Machine, r.Cluster, session, s.session)
	case w.now-c.listed[r.Provider] > 5*minute:
		w.broken("reclaim-stale", "SHARD-12.4", r.Machine, r.Cluster, "%s is reclaimed on an inventory that is %s old", r.Machine, clock(w.now-c.listed[r.Provider]))
	}
	c.starts = append(c.starts, reclaimStart{w.now, r.Cluster})
	for len(c.starts) > 0 && w.now-c.starts[0].at > minute {
		c.starts = c.starts[1:]
	}
	for _, window := range []int64{c.s.config.ReclaimCapWindow, minute} {
		for _, scope := range []string{"", r.Cluster} {
			n := int64(0)
			for _, x := range c.starts {
				if w.now-x.at < window && (scope == "" || x.cluster == scope) {
					n++
				}
			}
			most := max(1, c.peak[scope]*c.s.config.ReclaimCapPerMille/1000) * (1 + (window+c.s.config.ReclaimCapWindow-1)/c.s.config.ReclaimCapWindow)
			if n > most {
				w.broken("reclaim-budget", "SHARD-33.5.3", r.Machine, r.Cluster, "%d reclaims of scope %q within %s, at most %d", n, scope, clock(window), most)
			}
		}
	}
}

// preemptStarted: a victim ranks strictly below its preemptor and stands in another cluster whose demand is known.
func (c *checker) preemptStarted(p *process, r core.Record) {
	w := c.w
	if r.Cause == engine.CauseInversion && r.PreemptorPriority <= r.Priority {
		w.broken("preempt-priority", "SHARD-33.5.4", r.Machine, r.Cluster, "%s of priority %d is taken for priority %d", r.Machine, r.Priority, r.PreemptorPriority)
	}
	if m := w.machine(r.Machine); w.coord != nil && m != nil && !w.coord.holds(c.s, m) {
		w.broken("preempt-for-nothing", "SHARD-21.6", r.Machine, r.Cluster, "%s is taken from %s for %s, and is another shard's once it is Idle", r.Machine, r.Cluster, r.PreemptorCluster)
	}
	if r.PreemptorCluster == r.Cluster {
		w.broken("preempt-self", "SHARD-33.5.4", r.Machine, r.Cluster, "%s is taken from %s for itself", r.Machine, r.Cluster)
	}
	if s := c.of(r.Cluster); !s.known && !c.retired[r.Cluster] {
		w.broken("preempt-unheard", "ENG-P6", r.Machine, r.Cluster, "%s is taken from %s, which this process has not heard from", r.Machine, r.Cluster)
	}
	demanded := slices.ContainsFunc(c.of(r.PreemptorCluster).rows, func(row demand.Row) bool { return row.Profile.Priority == r.PreemptorPriority })
	if !demanded && p.core.Cycle() == r.Cycle && c.of(r.PreemptorCluster).known {
		w.broken("preempt-without-demand", "SHARD-33.5.4", r.Machine, r.Cluster, "%s is taken for priority %d of %s, which asks for nothing of that priority", r.Machine, r.PreemptorPriority, r.PreemptorCluster)
	}
}

// deleteStarted: a release is of an elastic machine that has been Idle for its hold.
func (c *checker) deleteStarted(p *process, r core.Record) {
	w, m := c.w, c.w.machine(r.Machine)
	if m == nil || c.lied[m.ID] {
		return
	}
	hold, elastic := w.policy.Hold.Of(m.CapacityType, m.Price)
	v, _ := p.core.Machine(r.Machine)
	switch {
	case v.Intended != "":
		w.broken("delete-claimed", "SHARD-33.5.13", r.Machine, v.Intended, "%s is promised to %s and is to be deleted", r.Machine, v.Intended)
	case !elastic:
		w.broken("delete-fixed", "SHARD-33.5.13", r.Machine, "", "%s is %s and is to be deleted", r.Machine, m.CapacityType)
	case m.State == inventory.Idle && w.now-m.since < hold:
		w.broken("delete-early", "SHARD-33.5.13", r.Machine, "", "%s has been Idle for %s and is to be deleted; its hold is %s", r.Machine, clock(w.now-m.since), clock(hold))
	case w.now-c.listed[r.Provider] > 5*minute:
		w.broken("delete-stale", "SHARD-12.4", r.Machine, "", "%s is to be deleted on an inventory that is %s old", r.Machine, clock(w.now-c.listed[r.Provider]))
	}
}
