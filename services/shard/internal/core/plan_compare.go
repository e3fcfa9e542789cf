package core

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
)

// A plan is compared with one made from nothing after so many cycles, but at most every minute and at least every ten.
const (
	compareCycles = 100
	compareMin    = Minute
	compareMax    = 10 * Minute
)

// CompareCadence says when the next comparison is due (SHARD-6.10). The shell keeps it: which plans are compared is no state of the core.
type CompareCadence struct{ cycle, at int64 }

// Due reports whether a comparison is due at a moment, after so many cycles. The next one counts from here.
func (k *CompareCadence) Due(mono, cycle int64) bool {
	since := mono - k.at
	if cycle == k.cycle || since < compareMin || since < compareMax && cycle-k.cycle < compareCycles {
		return false
	}
	*k = CompareCadence{cycle, mono}
	return true
}

// ComparePlan asks for a comparison of a plan with one made from nothing, beside the loop (SHARD-6.10).
type ComparePlan struct {
	Cycle  int64
	world  *engine.Frozen
	policy engine.Policy
	result *engine.Result
}

func (*ComparePlan) effect() EffectKind { return EffectComparePlan }

// PlanDiffered says that the plan of a cycle differed from the one made from nothing, and where.
type PlanDiffered struct {
	Cycle int64  `n:"1"`
	Where string `n:"2"`
}

func (PlanDiffered) event() EventKind { return KindPlanDiffered }

// compareBeside hands out a plan and the world it was made from, if the shell asked for it.
func (c *planning) compareBeside(r *engine.Result) {
	if c.compareRoom == nil {
		return
	}
	c.emit(&ComparePlan{Cycle: c.cycle.N, world: c.world.Freeze(c.compareRoom), policy: *c.policy.OrDefault(), result: r})
	c.compareRoom = nil
}

// Difference plans from nothing and says where the two plans part, or "". It is called once, on any goroutine, and uses one processor.
func (x *ComparePlan) Difference() string {
	x.policy.Workers = 1
	return differ(x.result, planner.Plan(engine.Input{World: x.world.Thaw(), Cycle: x.Cycle, Policy: &x.policy}))
}

// planDiffered records a difference and drops what the planner remembers, so that the next plan is made from nothing.
func (c *planning) planDiffered(e PlanDiffered) {
	c.sample(MetricPlanMismatch, "", 1)
	c.record(Record{Type: RecordProcess, Outcome: "plan_mismatch",
		Detail: clipText(fmt.Sprintf("the incremental plan of cycle %d differs from the full plan: %s; the next plan starts from nothing", e.Cycle, e.Where))})
	c.planner.Forget()
	c.trigger(triggerInterval)
}

// differ says where two results of one input part, or "".
func differ(a, b *engine.Result) string {
	switch {
	case !slices.Equal(a.Actions, b.Actions):
		return "actions"
	case !slices.Equal(a.Drains, b.Drains):
		return "drains"
	case !slices.Equal(a.Short, b.Short):
		return "short needs"
	case len(a.Blocks) != len(b.Blocks):
		return "clusters"
	case !slices.Equal(a.Promised, b.Promised):
		return "promises"
	}
	for i, x := range a.Blocks {
		y := b.Blocks[i]
		if x == y {
			continue
		}
		if x.Cluster != y.Cluster || !slices.Equal(x.Verdicts, y.Verdicts) || !slices.Equal(x.Domains, y.Domains) || !slices.Equal(x.Claims, y.Claims) ||
			!slices.Equal(x.Shares, y.Shares) {
			return "cluster " + y.Cluster
		}
	}
	return ""
}
