package planner_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ENG-P23, first half: what Explain counts agrees with the verdict and with the literal rules.
func TestExplainAgreesWithTheVerdict(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		r := planner.Plan(engine.Input{World: w, Policy: f.policy})
		view := newViews(w)
		for bi, b := range r.Blocks {
			for i := range b.Needs {
				if err := explained(w, f.policy, r, view, engine.Ref{Block: int32(bi), Row: int32(i)}); err != nil {
					return fmt.Errorf("%s, row %d: %w", b.Cluster, i, err)
				}
			}
		}
		return nil
	})
}

func explained(w *engine.World, p *engine.Policy, r *engine.Result, view *views, ref engine.Ref) error {
	e := explain.ExplainNeed(w, p, r, ref)
	for _, list := range [][3]int{{len(e.Holders), e.AllHolders, 5}, {len(e.Domains), e.AllDomains, 10}, {len(e.Candidates), e.AllCandidates, 10}} {
		if list[0] != min(list[1], list[2]) {
			return fmt.Errorf("of %d holders, domains or candidates %d are listed, not at most %d", list[1], list[0], list[2])
		}
	}
	at := map[explain.Step]int{}
	left := -1
	for _, s := range e.Funnel {
		lost := 0
		for _, l := range s.Lost {
			lost += l.Machines
			if l.Text == "" || l.Machines <= 0 {
				return fmt.Errorf("step %s loses %+v", s.Name, l)
			}
		}
		if left >= 0 && left-lost != s.Machines {
			return fmt.Errorf("step %s: %d - %d is not %d", s.Name, left, lost, s.Machines)
		}
		left, at[s.Step] = s.Machines, s.Machines
	}
	planned := ref
	if fold := e.Verdict.Fold; fold >= 0 {
		planned.Row = fold
	}
	d := view.need(r, planned)
	match, fit, counts := 0, 0, 0
	b := r.Blocks[ref.Block]
	for _, m := range view.n.Machines {
		if view.n.Match(d, m) {
			match++
			if view.n.Usable(d, m) {
				fit++
			}
		}
		mine := false
		for _, c := range b.Claims {
			mine = mine || c.Machine == m.Index && c.Row == planned.Row && c.Kind != engine.ClaimKept
		}
		for _, s := range b.Shares {
			mine = mine || s.Machine == m.Index && s.Row == planned.Row
		}
		if mine && !handedAway(r, m.Index, planned) {
			counts++
		}
	}
	if at[explain.StepAll] != len(view.n.Machines) || at[explain.StepMatch] != match || at[explain.StepFit] != fit || at[explain.StepClaimed] != counts {
		return fmt.Errorf("funnel %+v; literally %d match, %d fit, %d count", e.Funnel, match, fit, counts)
	}
	v := &e.Verdict
	switch {
	case v.Detail == engine.DetailNoMatch && match != 0, v.Detail == engine.DetailTooSmall && (match == 0 || fit != 0):
		return fmt.Errorf("%s with %d matching and %d fitting", v.Detail, match, fit)
	case v.Status == engine.Short && len(e.Residual) == 0, v.Status != engine.Short && len(e.Residual) > 0:
		return errors.New("status and residual disagree")
	case v.Status == engine.Short && !strings.Contains(e.Sentence, v.Detail.Sentence()):
		return fmt.Errorf("the sentence %q does not say %s", e.Sentence, v.Detail)
	case v.Status == engine.Short && e.Nearest == nil && at[explain.StepClaimed] < at[explain.StepAll] && at[explain.StepOffered] == at[explain.StepClaimed]:
		return errors.New("short, and no nearest miss")
	}
	for i, c := range e.Candidates {
		m, _ := w.Inventory.Find(c.Machine)
		if c.Cost != view.n.Cost(d, view.by[m]) || c.Taken != (c.Why == explain.Accepted) {
			return fmt.Errorf("candidate %+v", c)
		}
		if i > 0 && c.Taken == e.Candidates[i-1].Taken && !c.Taken && c.Why >= explain.FirstOfClaimed && e.Candidates[i-1].Why < explain.FirstOfClaimed {
			return errors.New("candidates are out of order")
		}
	}
	for _, h := range e.Holders {
		if h.Why == explain.StandsHigher && h.Priority <= d.Need.Form.Priority || h.Why == explain.StandsEqual && h.Priority != d.Need.Form.Priority {
			return fmt.Errorf("holder %+v of a Need of priority %d", h, d.Need.Form.Priority)
		}
	}
	return domainsAgree(e, d, at[explain.StepClaimed])
}

// handedAway reports whether another Need was promised the machine by this plan.
func handedAway(r *engine.Result, i inventory.Index, ref engine.Ref) bool {
	for bi, b := range r.Blocks {
		for _, c := range b.Claims {
			if c.Machine == i && c.Kind == engine.ClaimPromised && (engine.Ref{Block: int32(bi), Row: c.Row}) != ref {
				return true
			}
		}
	}
	return false
}

func domainsAgree(e *explain.NeedExplanation, d *reference.Need, counts int) error {
	if (d.Same == nil) != (len(e.Domains) == 0) && d.Same == nil {
		return errors.New("domains of a Need without Same")
	}
	chosen := 0
	for _, x := range e.Domains {
		if x.Chosen {
			chosen++
		}
		if x.Satisfiable != (x.PerMille == 1000) {
			return fmt.Errorf("domain %+v", x)
		}
	}
	if counts > 0 && d.Same != nil && chosen == 0 && len(e.Domains) < explain.DomainsShown {
		return fmt.Errorf("met in %q, which is not listed: %+v", e.Verdict.Domain, e.Domains)
	}
	return nil
}

// ENG-P23, second half, and ENG-19.11: the suggestion, applied, makes the Need satisfied in the next settled plan; and for a
// short Need there is one, unless its own requirements exclude each other.
func TestSuggestionsHelp(t *testing.T) {
	short, helped := 0, 0
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		in := engine.Input{World: w, Policy: f.policy}
		r := planner.Plan(in)
		for _, ref := range r.Short[:min(len(r.Short), 2)] {
			if ref.Row >= engine.FoldedRow {
				ref.Row = r.Blocks[ref.Block].Folded[ref.Row-engine.FoldedRow].Members[0]
				if r.Blocks[ref.Block].Verdicts[ref.Row].Status != engine.Short {
					continue
				}
			}
			short++
			s := explain.Suggest(in, r, ref)
			if s == nil {
				n, c := r.Need(ref)
				if requirementsClash(w, n) {
					continue
				}
				e := explain.ExplainNeed(w, f.policy, r, ref)
				return fmt.Errorf("no suggestion for %s/%s: %s %+v", c, n.RowID, e.Sentence, n.Form.Requirements)
			}
			helped++
			if err := suggestionHelps(f, s); err != nil {
				return err
			}
		}
		return nil
	})
	t.Logf("%d of %d short rows have a suggestion", helped, short)
}

// requirementsClash reports whether no machine whatsoever can match.
func requirementsClash(w *engine.World, n *demand.Need) bool {
	for i, a := range n.Form.Requirements {
		if a.Key == keyOf("type") && slices.ContainsFunc(a.Values, func(v string) bool { typ, _ := w.Space.Strings.Find(v); return w.Demand.Learnt(typ) }) {
			return true // what the cluster has learnt of the types that it lists
		}
		for _, b := range n.Form.Requirements[:i] {
			if a.Key == b.Key {
				return true
			}
		}
	}
	return false
}

// suggestionHelps applies a suggestion to another world and carries the plans out until the Need is satisfied.
func suggestionHelps(f *fleet, s *explain.Suggestion) error {
	if s.Say == "" || len(s.Edits) == 0 {
		return fmt.Errorf("suggestion %+v", s)
	}
	w := f.build(straight)
	for _, e := range s.Edits {
		if warning := e.Apply(w); warning != "" {
			return fmt.Errorf("%s: %T: %s", s.Say, e, warning)
		}
	}
	for range explain.SettleRounds {
		r := planner.Plan(engine.Input{World: w, Policy: f.policy})
		if v, _ := r.Verdict(s.Cluster, s.Key); v != nil && v.Status != engine.Short {
			return nil
		}
		explain.CarryOut(w, r, f.policy)
	}
	return fmt.Errorf("%s: the need is still short", s.Say)
}

// ENG-19.7, ENG-19.8: a machine's explanation says what the plan does with it, or why it is kept.
func TestEveryMachineIsExplained(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		r := planner.Plan(engine.Input{World: w, Policy: f.policy})
		for i := range w.Inventory.All() {
			e := explain.ExplainMachine(w, f.policy, r, i, "")
			if e.Sentence == "" || (e.View == nil) != (e.Keep.Action == nil) {
				return fmt.Errorf("%+v", e)
			}
			// SHARD-23.6: to a tenant no sentence names another one, nor another one's machine.
			own := explain.ExplainMachine(w, f.policy, r, i, "somebody")
			if strings.Contains(own.Sentence, "of cluster ") || e.Next != nil && strings.Contains(own.Sentence, "the next best, ") {
				return fmt.Errorf("a stranger reads %q", own.Sentence)
			}
			if e.View == nil {
				continue
			}
			if e.View.Machine != e.Machine || e.Change == "" {
				return fmt.Errorf("%+v of %+v", e, e.View)
			}
			if e.Next != nil && (e.Next.Taken || e.Next.Machine == e.Machine) {
				return fmt.Errorf("next best of %s is %+v", e.Machine, e.Next)
			}
		}
		return nil
	})
}
