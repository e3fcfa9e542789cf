package engine

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ENG-P23, first half: what Explain counts agrees with the verdict and with the literal rules.
func TestExplainAgreesWithTheVerdict(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		r := Plan(Input{World: w, Policy: f.policy})
		view := newViews(w)
		for bi, b := range r.Blocks {
			for i := range b.Needs {
				if err := explained(w, f.policy, r, view, Ref{int32(bi), int32(i)}); err != nil {
					return fmt.Errorf("%s, row %d: %w", b.Cluster, i, err)
				}
			}
		}
		return nil
	})
}

func explained(w *World, p *Policy, r *Result, view *views, ref Ref) error {
	e := ExplainNeed(w, p, r, ref)
	at := map[Step]int{}
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
	for _, m := range view.n.machines {
		if view.n.match(d, m) {
			match++
			if view.n.usable(d, m) {
				fit++
			}
		}
		mine := false
		for _, c := range b.Claims {
			mine = mine || c.Machine == m.i && c.Row == planned.Row && c.Kind != ClaimKept
		}
		for _, s := range b.Shares {
			mine = mine || s.Machine == m.i && s.Row == planned.Row
		}
		if mine && !handedAway(r, m.i, planned) {
			counts++
		}
	}
	if at[StepAll] != len(view.n.machines) || at[StepMatch] != match || at[StepFit] != fit || at[StepClaimed] != counts {
		return fmt.Errorf("funnel %+v; literally %d match, %d fit, %d count", e.Funnel, match, fit, counts)
	}
	v := &e.Verdict
	switch {
	case v.Detail == DetailNoMatch && match != 0, v.Detail == DetailTooSmall && (match == 0 || fit != 0):
		return fmt.Errorf("%s with %d matching and %d fitting", v.Detail, match, fit)
	case v.Status == Short && len(e.Residual) == 0, v.Status != Short && len(e.Residual) > 0:
		return errors.New("status and residual disagree")
	case v.Status == Short && !strings.Contains(e.Sentence, v.Detail.Sentence()):
		return fmt.Errorf("the sentence %q does not say %s", e.Sentence, v.Detail)
	case v.Status == Short && e.Nearest == nil && at[StepClaimed] < at[StepAll] && at[StepOffered] == at[StepClaimed]:
		return errors.New("short, and no nearest miss")
	}
	for i, c := range e.Candidates {
		m, _ := w.Inventory.Find(c.Machine)
		if c.Cost != view.n.cost(d, view.by[m]) || c.Taken != (c.Why == Accepted) {
			return fmt.Errorf("candidate %+v", c)
		}
		if i > 0 && c.Taken == e.Candidates[i-1].Taken && !c.Taken && c.Why >= firstOfClaimed && e.Candidates[i-1].Why < firstOfClaimed {
			return errors.New("candidates are out of order")
		}
		if why, text := WhyNot(w, r, ref, m); why != c.Why || text == "" {
			return fmt.Errorf("candidate %+v, asked alone %s %q", c, why, text)
		}
	}
	for _, h := range e.Holders {
		if h.Why == StandsHigher && h.Priority <= d.n.Form.Priority || h.Why == StandsEqual && h.Priority != d.n.Form.Priority {
			return fmt.Errorf("holder %+v of a Need of priority %d", h, d.n.Form.Priority)
		}
	}
	return domainsAgree(e, d, at[StepClaimed])
}

// handedAway reports whether another Need was promised the machine by this plan.
func handedAway(r *Result, i inventory.Index, ref Ref) bool {
	for bi, b := range r.Blocks {
		for _, c := range b.Claims {
			if c.Machine == i && c.Kind == ClaimPromised && (Ref{int32(bi), c.Row}) != ref {
				return true
			}
		}
	}
	return false
}

func domainsAgree(e *NeedExplanation, d *nNeed, counts int) error {
	if (d.same == nil) != (len(e.Domains) == 0) && d.same == nil {
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
	if counts > 0 && d.same != nil && chosen == 0 && len(e.Domains) < explainDomains {
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
		in := Input{World: w, Policy: f.policy}
		r := Plan(in)
		for _, ref := range r.Short[:min(len(r.Short), 2)] {
			if ref.Row >= FoldedRow {
				ref.Row = r.Blocks[ref.Block].Folded[ref.Row-FoldedRow].Members[0]
				if r.Blocks[ref.Block].Verdicts[ref.Row].Status != Short {
					continue
				}
			}
			short++
			s := Suggest(in, r, ref)
			if s == nil {
				n, c := r.Need(ref)
				if requirementsClash(n) {
					continue
				}
				e := ExplainNeed(w, f.policy, r, ref)
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
func requirementsClash(n *demand.Need) bool {
	for i, a := range n.Form.Requirements {
		for _, b := range n.Form.Requirements[:i] {
			if a.Key == b.Key {
				return true
			}
		}
	}
	return false
}

// suggestionHelps applies a suggestion to another world and carries the plans out until the Need is satisfied.
func suggestionHelps(f *fleet, s *Suggestion) error {
	if s.Say == "" || len(s.Edits) == 0 {
		return fmt.Errorf("suggestion %+v", s)
	}
	w := f.build(straight)
	for _, e := range s.Edits {
		if warning := e.Apply(w); warning != "" {
			return fmt.Errorf("%s: %T: %s", s.Say, e, warning)
		}
	}
	for range settleRounds {
		r := Plan(Input{World: w, Policy: f.policy})
		if v, _ := r.Verdict(s.Cluster, s.Key); v != nil && v.Status != Short {
			return nil
		}
		carryOut(w, r, f.policy)
	}
	return fmt.Errorf("%s: the need is still short", s.Say)
}

// ENG-19.7, ENG-19.8: a machine's explanation says what the plan does with it, or why it is kept.
func TestEveryMachineIsExplained(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		r := Plan(Input{World: w, Policy: f.policy})
		for i := range w.Inventory.All() {
			e := ExplainMachine(w, f.policy, r, i)
			if e.Sentence == "" || (e.View == nil) != (e.Keep.Action == nil) {
				return fmt.Errorf("%+v", e)
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

// ENG-19.10: every code has a name and a sentence of its own.
func TestCodesHaveSentences(t *testing.T) {
	for name, table := range map[string][]code{"details": detailCodes[1:], "causes": causeCodes[1:], "keep reasons": keepCodes[1:],
		"rejects": rejectCodes[:], "standings": standingCodes[:], "reasons": reasonCodes[1:]} {
		names := map[string]bool{}
		for _, c := range table {
			if c.name == "" || c.say == "" || names[c.name] {
				t.Errorf("%s: %+v", name, c)
			}
			names[c.name] = true
		}
	}
}
