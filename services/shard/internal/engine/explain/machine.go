package explain

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// MachineExplanation says what becomes of a machine and what would have to change (ENG-19.8).
type MachineExplanation struct {
	Machine  string
	Keep     engine.Keep
	View     *engine.View // of its action, if the plan has one
	Need     *NeedName    // the Need that claims it, is promised it, or gets it
	Next     *Candidate   // of an acquisition: the best machine that was not taken instead
	Sentence string
	Change   string // what would have to change, or ""
}

// ExplainMachine explains a machine from a result of the present world. It reads only. reader is the one cluster that may be named in
// sentences, "" for all: a tenant hears nothing of others (SHARD-23.6).
func ExplainMachine(w *engine.World, p *engine.Policy, r *engine.Result, i inventory.Index, reader string) *MachineExplanation {
	e := &MachineExplanation{Machine: w.Inventory.ID(i), Keep: r.Keep(w, p, i)}
	k := &e.Keep
	if !k.Need.None() {
		n, cluster := r.Need(k.Need)
		e.Need = &NeedName{Cluster: cluster, Key: n.RowKey(), RowID: n.RowID, Priority: n.Form.Priority}
	}
	if k.Action == nil {
		e.Sentence, e.Change = k.Reason.Sentence(), k.Reason.Change()
		switch {
		case k.Reason == engine.KeepWithheld:
			say, do := engine.MarkSentence(k.Mark)
			e.Sentence, e.Change = "It is withheld: "+say+".", do
		case k.Reason == engine.KeepFailed && w.Inventory.Machine(i).Failure == inventory.FailureHostLost:
			e.Sentence, e.Change = "Its host is lost, and it costs nothing now.", "Its provider removes it and offers a new machine in its place. No action is needed."
		case e.Need != nil && (k.Reason == engine.KeepClaimed || k.Reason == engine.KeepClaimedWithShares || k.Reason == engine.KeepPromised):
			name := fmt.Sprintf("%s of cluster %s, priority %d", rowName(*e.Need), e.Need.Cluster, e.Need.Priority)
			if reader != "" && e.Need.Cluster != reader {
				name = "a need of another cluster"
			}
			e.Sentence = strings.Replace(strings.Replace(e.Sentence, "several needs", name+", and others", 1), "a need", name, 1)
		}
		if e.Need != nil && movedAway(w.Inventory, i) {
			say, do := engine.MarkSentence(inventory.WithheldElsewhere)
			e.Sentence, e.Change = e.Sentence+" I"+say[1:]+".", do
		}
		if k.Recipients > 0 {
			e.Sentence += fmt.Sprintf(" Needs that use its remaining capacity: %d.", k.Recipients)
		}
		return e
	}
	v := r.View(w, *k.Action)
	e.View = &v
	e.Sentence = k.Action.Cause.Sentence()
	switch k.Action.Kind {
	case engine.Bootstrap, engine.Provision:
		if next, ok := NextBest(w, r, *k.Action); ok {
			e.Next = &next
			best := "the next best, " + next.Machine + ","
			if reader != "" {
				best = "the next best"
			}
			e.Sentence += fmt.Sprintf(" Its effective cost for this need is %s per hour; %s costs %s.", money(v.Cost), best, money(next.Cost))
		}
		e.Change = "Not used if that need requires less, or if something cheaper is free."
	case engine.Preempt:
		e.Sentence += forWhom(&v, reader)
		e.Change = "Kept if the need of higher priority is met otherwise, or if the Pods here have at least its priority."
	case engine.Reclaim, engine.Delete:
		e.Sentence += forWhom(&v, reader)
		e.Change = "Kept if a need of its cluster requires more."
		if k.Action.Kind == engine.Delete {
			e.Change = "Kept if a need requires it."
		}
	}
	return e
}

// movedAway reports whether a machine in use is another shard's once it is Idle (SHARD-21.6).
func movedAway(inv *inventory.Table, i inventory.Index) bool {
	return slices.ContainsFunc(inv.Withheld(i), func(m inventory.Withheld) bool { return m.Reason == inventory.WithheldElsewhere })
}

// forWhom names the need that a drained machine is reserved for.
func forWhom(v *engine.View, reader string) string {
	switch {
	case v.PreemptorCluster == "":
		return ""
	case reader != "" && v.PreemptorCluster != reader:
		return " It is reserved for a need of another cluster."
	}
	return fmt.Sprintf(" It is reserved for %s of cluster %s.", rowName(NeedName{Key: v.Preemptor, RowID: v.PreemptorRowID}), v.PreemptorCluster)
}

// money writes dollars per hour, rounded to hundredths of a cent.
func money(micro int64) string { return fmt.Sprintf("$%.4f", float64(micro)/1e6) }

// NextBest is the machine that the Need of an acquisition would have taken instead of this one: the cheapest free one of
// the same pool that was left. It is derived when an action is recorded, not in the pass (ENG-2.11).
func NextBest(w *engine.World, r *engine.Result, a engine.Action) (Candidate, bool) {
	if a.Kind != engine.Bootstrap && a.Kind != engine.Provision {
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
