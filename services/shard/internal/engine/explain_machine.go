package engine

import (
	"fmt"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// MachineExplanation says what becomes of a machine and what would have to change (ENG-19.8).
type MachineExplanation struct {
	Machine  string
	Keep     Keep
	View     *View      // of its action, if the plan has one
	Need     *NeedName  // who claims it, is promised it, or gets it
	Next     *Candidate // of an acquisition: the best machine that was not taken instead
	Sentence string
	Change   string // what would have to change, or ""
}

// ExplainMachine explains a machine from a result of the present world. It reads only.
func ExplainMachine(w *World, p *Policy, r *Result, i inventory.Index) *MachineExplanation {
	e := &MachineExplanation{Machine: w.Inventory.ID(i), Keep: r.Keep(w, p, i)}
	k := &e.Keep
	if !k.Need.None() {
		n, cluster := r.Need(k.Need)
		e.Need = &NeedName{Cluster: cluster, Key: n.RowKey(), RowID: n.RowID, Priority: n.Form.Priority}
	}
	if k.Action == nil {
		e.Sentence, e.Change = k.Reason.Sentence(), k.Reason.Change()
		switch {
		case k.Reason == KeepWithheld:
			mark := withheldCodes[k.Mark]
			e.Sentence, e.Change = "It is withheld: "+mark.say+".", mark.do
		case e.Need != nil && (k.Reason == KeepClaimed || k.Reason == KeepClaimedWithShares || k.Reason == KeepPromised):
			e.Sentence += fmt.Sprintf(" It is %s of cluster %s, priority %d.", rowName(*e.Need), e.Need.Cluster, e.Need.Priority)
		}
		if k.Receivers > 0 {
			e.Sentence += fmt.Sprintf(" Needs that use what it leaves: %d.", k.Receivers)
		}
		return e
	}
	v := r.View(w, *k.Action)
	e.View = &v
	e.Sentence = k.Action.Cause.Sentence()
	switch k.Action.Kind {
	case Bootstrap, Provision:
		if next, ok := NextBest(w, r, *k.Action); ok {
			e.Next = &next
			e.Sentence += fmt.Sprintf(" It costs %s an hour for this need; the next best, %s, costs %s.", money(v.Cost), next.Machine, money(next.Cost))
		}
		e.Change = "It stays as it is when that need shrinks, or when something cheaper is free."
	case Preempt:
		e.Sentence += forWhom(&v)
		e.Change = "It stays when the need of higher priority is served otherwise, or when what runs here has at least its priority."
	case Reclaim, Delete:
		e.Sentence += forWhom(&v)
		e.Change = "It stays when some need of its cluster grows."
		if k.Action.Kind == Delete {
			e.Change = "It stays when some need is short of it."
		}
	}
	return e
}

// forWhom names the need that a drained machine is promised to.
func forWhom(v *View) string {
	if v.PreemptorCluster == "" {
		return ""
	}
	return fmt.Sprintf(" It goes to %s of cluster %s.", rowName(NeedName{Key: v.Preemptor, RowID: v.PreemptorRowID}), v.PreemptorCluster)
}

// Change says what would have to change for a machine that is kept to go, or "".
func (k KeepReason) Change() string { return keepCodes[min(int(k), int(KeepReasonShellReserve)-1)].do }

// money writes dollars per hour, rounded to hundredths of a cent.
func money(micro int64) string { return fmt.Sprintf("$%.4f", float64(micro)/1e6) }

// NextBest is the machine that the Need of an acquisition would have taken instead of this one: the cheapest free one of
// the same pool that was left. It is derived when an action is recorded, not in the pass (ENG-2.11).
func NextBest(w *World, r *Result, a Action) (Candidate, bool) {
	if a.Kind != Bootstrap && a.Kind != Provision {
		return Candidate{}, false
	}
	x := newExplainer(w, r, a.Need)
	pool := w.Inventory.Seen(a.Machine)
	var best []Candidate
	for i := range w.Inventory.All() {
		if i == a.Machine || w.Inventory.Seen(i) != pool {
			continue
		}
		if why := x.judge(i); why == RejectNotNeeded || why == RejectSpread {
			best = x.candidate(best, i, why)
		}
	}
	if len(best) == 0 {
		return Candidate{}, false
	}
	return best[0], true
}
