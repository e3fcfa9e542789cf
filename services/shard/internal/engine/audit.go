package engine

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Audit looks at what a plan would do before anything of it is done: the invariants ENG-P5 to P10 as far as one look at
// each action tells them (ENG-2.12). It knows nothing of how plans are made. Its memory is used again.
type Audit struct{ seen []uint64 }

// starts is the state that each kind of action begins in (ENG-2.8).
var starts = [...]inventory.State{Bootstrap: inventory.Idle, Provision: inventory.Speculative, Preempt: inventory.Configured,
	Reclaim: inventory.Configured, Delete: inventory.Idle}

// Broken says what is wrong with the first action that breaks an invariant, or "".
func (x *Audit) Broken(w *World, p *Policy, r *Result) string {
	p = p.OrDefault()
	if n := (w.Inventory.Bound() + 63) / 64; len(x.seen) < n {
		x.seen = slices.Grow(x.seen, n-len(x.seen))[:n]
	}
	why, looked := "", 0
	for ; looked < len(r.Actions) && why == ""; looked++ {
		a := &r.Actions[looked]
		bit := uint64(1) << (a.Machine % 64)
		if why = x.action(w, p, r, a); x.seen[a.Machine/64]&bit != 0 {
			why = "a second action (P8)"
		}
		x.seen[a.Machine/64] |= bit
		if why != "" {
			why = fmt.Sprintf("%s of %s: %s", a.Kind, w.Inventory.ID(a.Machine), why)
		}
	}
	for i := range r.Actions[:looked] {
		x.seen[r.Actions[i].Machine/64] = 0
	}
	return why
}

func (x *Audit) action(w *World, p *Policy, r *Result, a *Action) string {
	inv, row := w.Inventory, w.Inventory.Row(a.Machine)
	if int(a.Kind) >= len(starts) || a.Kind == 0 || row.Seen() != starts[a.Kind] || row.Foreign() {
		return fmt.Sprintf("it is %s (P8)", row.Seen())
	}
	switch a.Kind {
	case Bootstrap, Provision:
		if a.Need.None() {
			return "it is for no need (P9)"
		}
		if to, promised := inv.Promise(a.Machine); promised && to.Cluster != r.Blocks[a.Need.Block].Cluster {
			return "it is promised to cluster " + to.Cluster + " (P1)"
		}
	case Delete:
		hold, elastic := p.Hold.Of(inv.CapacityType(a.Machine), inv.Price(a.Machine))
		if _, promised := inv.Promise(a.Machine); !elastic || promised || inv.Now()-row.Since < hold {
			return "it must not be released yet (P7)"
		}
	case Preempt, Reclaim:
		return x.drain(w, r, a)
	}
	return ""
}

func (x *Audit) drain(w *World, r *Result, a *Action) string {
	inv := w.Inventory
	cluster := inv.Cluster(a.Machine)
	if c := w.Demand.Cluster(cluster); c == nil || !c.Facts.Heard {
		return "cluster " + cluster + " was not heard (P5)"
	}
	if a.Cause != CauseInversion {
		return ""
	}
	to := r.Drains[a.Drain].Preemptor
	if to.None() {
		return "it is the victim of no need (P6)"
	}
	need, home := r.Need(to)
	if home == cluster {
		return "it is a victim inside its own cluster (P6)"
	}
	if s := inv.AttributionRow(inv.Row(a.Machine).Attribution); inv.Row(a.Machine).Attribution != 0 && s.Priority >= need.Form.Priority {
		return fmt.Sprintf("it is attributed priority %d and taken for %d (P10)", s.Priority, need.Form.Priority)
	}
	return ""
}
