package core

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Each different requirement in the demand has an answer for each class of machines (ENG-6.5), so what clusters ask times what machines there are has a limit (SHARD-10.12). An
// answer takes 5 bytes, and 28 while its rows look for machines: one cluster takes 1.1 GB at most, and all together 1 GB while nothing changes.
const (
	answersMax    = 40_000_000 // of one cluster
	allAnswersMax = 200_000_000
	// manyClasses is of how many classes on values that rows name make most of them.
	manyClasses = 2 * inventory.ClassesMany
	// narrow is how many different requirements or values never give way.
	narrow = 256
	// tooWide is the reason of WIRE-3.9.
	tooWide = "too_wide"
	// asideFor is for how long a cluster whose demand was set aside must not state as much again.
	asideFor = 10 * Minute
)

// Width is what rows ask that costs more than a row each.
type Width struct {
	Requirements int64 `n:"1"` // rows that differ in what machines they match
	Values       int64 `n:"2"` // of label keys that they name, each once
}

// Measure is one part of a Width.
type Measure uint8

const (
	byRequirements Measure = iota
	byValues
)

func (m Measure) String() string {
	return [...]string{"different requirements", "values of labels"}[m]
}

// of is the number of one measure.
func (w *Width) of(m Measure) int64 {
	if m == byValues {
		return w.Values
	}
	return w.Requirements
}

func (w *Width) isWide() bool { return max(w.Requirements, w.Values) > narrow }

// DemandTooWide sets the demand of a cluster aside: the next plan could not hold what it asks for. The shell decides it, by what TooWide says: how many classes
// there are depends on what was asked before, and the core decides by its history alone.
type DemandTooWide struct {
	Cluster string  `n:"1"`
	Most    int64   `n:"2"` // that it may state in the time that follows,
	By      Measure `n:"3"` // of this
	Reason  string  `n:"4"`
}

func (DemandTooWide) event() EventKind { return KindDemandTooWide }

// TooWide says which cluster's demand has to be set aside before a plan of now; nil: none. It is called between steps, and changes nothing but how machines are classed, as a
// plan would.
func (c *Core) TooWide(now At) Event {
	if c.open != nil || c.frozen() || !c.readable() || !c.wanted.asked && (!c.cycle.wanted || now.Mono < c.cycle.LastEnd+c.plans.spacing()) {
		return nil
	}
	c.world.Inventory.ClassFor(c.world.Demand)
	return c.tooManyAnswers()
}

func (c *shared) tooManyAnswers() Event {
	classes, all := int64(c.world.Inventory.LiveClasses()), int64(c.world.Demand.Rules())
	if all*classes <= answersMax {
		return nil
	}
	over := all*classes > allAnswersMax
	for _, cl := range c.clusters.ordered {
		over = over || cl.Width.Requirements*classes > answersMax
	}
	if !over {
		return nil
	}
	why := fmt.Sprintf("%d different requirements in this shard, times %d classes of machines, are", all, classes)
	if classes > manyClasses {
		if e := c.widest(byValues, why); e != nil {
			return e
		}
	}
	return c.widest(byRequirements, why)
}

// widest sets aside the cluster that states most, unless that is narrow.
func (c *shared) widest(by Measure, why string) Event {
	var widest *cluster
	most := int64(narrow)
	for _, cl := range c.clusters.ordered {
		if n := cl.Width.of(by); n > most {
			widest, most = cl, n
		}
	}
	if widest == nil {
		return nil
	}
	return aside(widest, by, most, why)
}

func aside(cl *cluster, by Measure, states int64, why string) Event {
	return DemandTooWide{Cluster: cl.Name, Most: max(narrow, states/2), By: by, Reason: fmt.Sprintf("%s more than a plan can hold, and this cluster states %d %s", why, states, by)}
}

// setAside takes the demand of a cluster out of the plans, as if the cluster had not been heard since the start: nothing is bought for it, and no machine is taken from it.
func (c *rollups) setAside(e DemandTooWide) {
	cl := c.clusters.get(e.Cluster)
	if cl == nil {
		return
	}
	newest := cl.Queued
	if newest == nil && cl.staged != nil {
		newest = &cl.staged.event
	}
	c.unstage(cl)
	c.clearHeld(cl)
	cl.SetAside, cl.AsideUntil = e, c.now+asideFor
	cl.Known, cl.Hash, cl.Rows, cl.Totals, cl.Width = false, "", 0, nil, Width{}
	cl.GateOpen, cl.Gate, cl.GateWaits, cl.Heard = false, confirmation{}, false, false
	cl.Disposition, cl.DispAt, cl.DispReason = DispositionRejected, c.now, tooWide
	c.world.Demand.Replace(cl.Name, nil, nil, c.now)
	cl.holds, cl.facts = true, true
	cl.changed()
	c.emit(Sample{Metric: MetricRollupsRejected, Label1: cl.Name, Label2: tooWide, Value: 1})
	c.record(Record{Type: RecordRollupRejected, Cluster: cl.Name, Outcome: tooWide, Detail: "The demand of this cluster is set aside, and its machines stay: " + e.Reason + "."})
	c.commands.keepAll(cl, "the demand of the cluster is set aside")
	c.trigger(triggerRollup)
	if newest != nil { // it has no answer yet, and may state less
		c.beginRollup(cl, *newest)
	}
}

// stillTooWide refuses a roll-up of a cluster whose demand was set aside a short time ago, if it states nearly as much.
func (cl *cluster) stillTooWide(e *RollupArrived, now int64) *Rejection {
	x := &cl.SetAside
	if now >= cl.AsideUntil || e.Width.of(x.By) <= x.Most {
		return nil
	}
	r := &Rejection{Reason: tooWide, NeedIndex: -1, FieldPath: "needs", Message: fmt.Sprintf("%s; state at most %d for the next %d s, or move clusters to another shard",
		x.Reason, x.Most, (cl.AsideUntil-now+Second-1)/Second)}
	if cl.Known { // it has stated less since, and that stays in force
		r.Reason = "too_large"
	} else {
		r.Message += ". Until then the machines of this cluster stay, and none is bought for it"
	}
	return r
}

// keepAll takes back the reclaims of a cluster that have not begun to drain.
func (c *commands) keepAll(cl *cluster, why string) {
	for _, o := range c.ops.ordered() {
		if o.Cluster == cl.Name && o.Kind == KindReclaim && (o.Phase == phaseReady || o.Phase == phaseInstructing) &&
			c.world.Inventory.State(o.Index) == inventory.Configured {
			c.rollBack(o, OutcomeCancelled, why)
		}
	}
}
