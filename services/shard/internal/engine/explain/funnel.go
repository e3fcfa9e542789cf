package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// walk judges every machine once and fills in everything that is counted.
func (x *explainer) walk(e *NeedExplanation) {
	t := &tally{holders: map[engine.Ref]*holding{}, lost: map[lossKey]int{}, left: make([]int, len(x.single)+1)}
	found := false
	var nearest miss
	for i := range x.inv.All() {
		why := x.judge(i)
		x.count(t, i, why)
		if why != Accepted && why != RejectNotNeeded {
			if m := x.missOf(i, why); !found || x.nearer(m, nearest) {
				nearest, found = m, true
			}
		}
		if why == Accepted || why >= firstOfFree {
			e.Candidates = x.candidate(e.Candidates, i, why)
			e.AllCandidates++
		}
	}
	if found && e.Verdict.Status == engine.Short {
		e.Nearest = &NearMiss{Machine: x.inv.ID(nearest.i), Why: nearest.why, Text: x.text(nearest.i, nearest.why)}
	}
	e.Funnel = x.funnel(t)
	for reason, n := range t.withheld {
		if n > 0 {
			e.Withheld = append(e.Withheld, WithheldCount{inventory.WithheldReason(reason), n})
		}
	}
	e.Holders, e.AllHolders = x.holders(t), len(t.holders)
}

// tally is what the walk counts.
type tally struct {
	all      int
	left     []int // after each requirement, and after the taints
	steps    [rejects]int
	lost     map[lossKey]int
	withheld [inventory.WithheldReasons]int
	holders  map[engine.Ref]*holding
}

type lossKey struct {
	why  Reject
	text string
}

type holding struct {
	machines int
	why      [standings]int
}

func (x *explainer) count(t *tally, i inventory.Index, why Reject) {
	t.all++
	row := x.inv.Row(i)
	c := x.class(row.Class)
	passed := len(x.single)
	if c.first >= 0 {
		passed = int(c.first)
	}
	for k := range passed {
		t.left[k]++
	}
	if c.first < 0 && c.taint < 0 {
		t.left[len(x.single)]++
	}
	t.steps[why]++
	text := ""
	switch why {
	case RejectRequirement:
		text = x.n.Form.Requirements[c.first].Text()
	case RejectTaint:
		text = taintText(x.inv.Shape(x.inv.Class(row.Class).Shape).Taints[c.taint])
	case RejectTooSmall:
		text = x.w.Space.Dimensions.Text(x.f.Dims[c.small])
	case RejectWithheld:
		for _, m := range x.inv.Withheld(i) {
			if m.Cluster == "" || m.Cluster == x.cl.Name {
				text = m.Reason.String()
				t.withheld[m.Reason]++
				break
			}
		}
	case RejectServes, RejectPromised:
		if ref := x.claims[i]; !ref.None() {
			h := t.holders[ref]
			if h == nil {
				h = &holding{}
				t.holders[ref] = h
			}
			h.machines++
			h.why[x.standing(i, ref)]++
		}
	}
	t.lost[lossKey{why, text}]++
}

// standing says why the holder of a machine that fits was not displaced.
func (x *explainer) standing(i inventory.Index, ref engine.Ref) Standing {
	n, cluster := x.r.Need(ref)
	mine, theirs := x.n.Form.Priority, n.Form.Priority
	switch {
	case theirs > mine:
		return StandsHigher
	case theirs == mine:
		return StandsEqual
	case x.inv.Foreign(i):
		return StandsForeign
	case cluster == x.cl.Name:
		return StandsInCluster
	case x.inv.Seen(i) == inventory.Configuring:
		return StandsComing
	case x.inv.Seen(i) == inventory.Configured && !x.heard(cluster):
		return StandsUnheard
	case x.used(i, ref.Block):
		return StandsUsed
	case x.inv.WithheldFrom(i, x.cl.Name):
		if movedAway(x.inv, i) {
			return StandsElsewhere
		}
		return StandsRefused
	case x.held:
		return StandsUnasked
	case !match.IsZero(x.rest) && x.same != "" && !match.Covers(x.unit, x.agg):
		return StandsWhole
	}
	return StandsUnneeded
}

func (x *explainer) heard(cluster string) bool {
	c := x.w.Demand.Cluster(cluster)
	return c != nil && c.Facts.Heard
}

// used reports whether the attribution of a machine, or a share on it, stands as high as the Need (ENG-15.7).
func (x *explainer) used(i inventory.Index, block int32) bool {
	if s, ok := x.inv.Attribution(i); ok && x.inv.Seen(i).Bound() && s.Priority >= x.n.Form.Priority {
		return true
	}
	return slices.ContainsFunc(x.r.Blocks[block].Shares, func(s engine.Share) bool {
		n, _ := x.r.Need(engine.Ref{Block: block, Row: s.Row})
		return s.Machine == i && n.Form.Priority >= x.n.Form.Priority
	})
}

// funnel lays the counts out in order.
func (x *explainer) funnel(t *tally) []FunnelStep {
	out := []FunnelStep{{Step: StepAll, Name: "all", Machines: t.all}}
	for k, q := range x.n.Form.Requirements {
		out = append(out, FunnelStep{Step: StepRequirement, Name: q.Text(), Machines: t.left[k],
			Lost: x.losses(t, RejectRequirement, RejectTaint, q.Text())})
	}
	if x.n.Form.TolerationsStated {
		out = append(out, FunnelStep{Step: StepTaints, Name: "taints", Machines: t.left[len(x.single)],
			Lost: x.losses(t, RejectTaint, RejectTooSmall, "")})
	}
	n := t.left[len(x.single)]
	out = append(out, FunnelStep{Step: StepMatch, Name: "match", Machines: n})
	for _, s := range [...]struct {
		step     Step
		name     string
		from, to Reject
	}{{StepFit, "fit", RejectTooSmall, firstOfFree}, {StepFree, "free", firstOfFree, firstOfOffered},
		{StepOffered, "offered", firstOfOffered, FirstOfClaimed}, {StepClaimed, "claimed", FirstOfClaimed, rejects}} {
		for why := s.from; why < s.to; why++ {
			n -= t.steps[why]
		}
		out = append(out, FunnelStep{Step: s.step, Name: s.name, Machines: n, Lost: x.losses(t, s.from, s.to, "")})
	}
	return out
}

// losses lists what was lost for reasons from up to but not to, most machines first. only restricts it to one text.
func (x *explainer) losses(t *tally, from, to Reject, only string) []Loss {
	keys := slices.SortedFunc(maps.Keys(t.lost), func(a, b lossKey) int {
		return cmp.Or(cmp.Compare(t.lost[b], t.lost[a]), cmp.Compare(a.why, b.why), strings.Compare(a.text, b.text))
	})
	var out []Loss
	for _, key := range keys {
		if key.why >= from && key.why < to && (only == "" || key.text == only) {
			out = append(out, Loss{key.why, t.lost[key], cmp.Or(key.text, key.why.Sentence())})
		}
	}
	return out
}

// holders lists the Needs that have machines, by rank.
func (x *explainer) holders(t *tally) []Holder {
	refs := slices.SortedFunc(maps.Keys(t.holders), func(a, b engine.Ref) int {
		n, c := x.r.Need(a)
		m, d := x.r.Need(b)
		return cmp.Or(engine.CompareAllocation(n, c, m, d), cmp.Compare(a.Row, b.Row))
	})
	var out []Holder
	for _, ref := range refs[:min(len(refs), explainHolders)] {
		h := t.holders[ref]
		why := Standing(0)
		for s, n := range h.why {
			if n > h.why[why] {
				why = Standing(s)
			}
		}
		out = append(out, Holder{x.nameOf(ref), h.machines, why})
	}
	return out
}

// candidate puts a machine into the list of the best ones.
func (x *explainer) candidate(list []Candidate, i inventory.Index, why Reject) []Candidate {
	row := x.inv.Row(i)
	class := x.inv.Class(row.Class)
	b := x.n.Form.Interruption
	c := Candidate{State: row.Seen(), Price: class.Price, Probability: class.Probability, Penalty: b.Penalty(),
		Cost: x.m.Cost(row.Class, class, b), Taken: why == Accepted, Why: why}
	group := func(c *Candidate) int {
		switch {
		case c.Taken:
			return 0
		case c.Why >= FirstOfClaimed:
			return 1
		}
		return 2
	}
	if len(list) == explainCandidates {
		last := &list[len(list)-1]
		if cmp.Or(cmp.Compare(group(last), group(&c)), cmp.Compare(last.Cost, c.Cost)) < 0 {
			return list
		}
	}
	c.Machine = x.inv.ID(i)
	at, _ := slices.BinarySearchFunc(list, c, func(a, b Candidate) int {
		return cmp.Or(cmp.Compare(group(&a), group(&b)), cmp.Compare(a.Cost, b.Cost), strings.Compare(a.Machine, b.Machine))
	})
	list = slices.Insert(list, at, c)
	return list[:min(len(list), explainCandidates)]
}

// contribution is what a machine of a class counts for: whole units, or all of it (ENG-4.12). It holds until the next call.
func (x *explainer) contribution(class uint32) []int64 {
	sup := x.f.Supply(class)
	if !x.whole {
		return sup
	}
	x.cut = append(x.cut[:0], sup...)
	most := x.n.Form.MaxPerHost
	if slices.Equal(x.agg, x.unit) {
		most = 0 // a single unit
	}
	match.WholeUnits(x.cut, sup, x.unit, most)
	return x.cut
}

// domains ranks the values of the gang's key as its turn would, were it to begin with what this plan has left (ENG-10.6): the best ones, and how
// many there are.
func (x *explainer) domains() (shown []DomainRank, all int) {
	type sums struct {
		value                string
		sum, own, idle, spec []int64
		n                    int32
	}
	by := map[string]*sums{}
	var list []*sums
	k := len(x.agg)
	for i := range x.inv.All() {
		why := x.judge(i)
		row := x.inv.Row(i)
		counts := x.claims[i] == x.ref
		if !counts && why != RejectDomain && why != RejectNotNeeded && why != RejectHeld || !match.Touches(x.f.Supply(row.Class), x.agg) {
			continue
		}
		v := x.value(i, x.same)
		s := by[v]
		if s == nil {
			s = &sums{v, make([]int64, k), make([]int64, k), make([]int64, k), make([]int64, k), 0}
			by[v] = s
			list = append(list, s)
		}
		sup := x.contribution(row.Class)
		s.n++
		switch kind := x.kinds[i]; {
		case row.Bound() || counts && (kind == engine.ClaimInFlight || kind == engine.ClaimKept || kind == engine.ClaimPromised):
			match.Add(s.sum, sup)
			if st, ok := x.inv.Attribution(i); ok && st.Fingerprint == x.n.Form.Fingerprint && st.Group == x.n.Group {
				match.Add(s.own, sup)
			}
		case row.Seen() == inventory.Idle:
			match.Add(s.idle, sup)
		default:
			match.Add(s.spec, sup)
		}
	}
	views := make([]planner.RankedDomain, len(list))
	order := make([]int, len(list))
	for i, s := range list {
		id, _ := x.w.Space.Strings.Find(s.value)
		views[i], order[i] = planner.RankDomain(x.agg, id, s.sum, s.own, s.idle, s.spec, s.n), i
	}
	slices.SortFunc(order, func(a, b int) int { return planner.CompareDomains(x.w.Space.Strings, &views[a], &views[b]) })
	for _, i := range order[:min(len(order), DomainsShown)] {
		s := list[i] // viewOf has added everything up in spec
		d := DomainRank{Domain: s.value, PerMille: 1000, Satisfiable: views[i].Satisfiable, Machines: int(s.n), Chosen: s.value == x.domain}
		for j, want := range x.agg {
			if want > 0 {
				one := planner.CappedScore(s.spec[j:j+1], x.agg[j:j+1])
				d.PerMille = min(d.PerMille, int32(one/1000))
			}
		}
		shown = append(shown, d)
	}
	return shown, len(order)
}

func machines(whole, shared int) string {
	if shared > 0 {
		return fmt.Sprintf("%s of its own and shares on %d", machineCount(whole), shared)
	}
	if whole == 1 {
		return "1 machine counts for it"
	}
	return machineCount(whole) + " count for it"
}

func (x *explainer) largest(list []Holder) *Holder {
	var best *Holder
	for i := range list {
		if best == nil || list[i].Machines > best.Machines {
			best = &list[i]
		}
	}
	return best
}

// bestRemoval is the requirement whose removal would let most machines match, or -1.
func (x *explainer) bestRemoval() int {
	gain := make([]int, len(x.single))
	for i := range x.inv.All() {
		class := x.inv.Row(i).Class
		if c := x.class(class); c.first >= 0 && c.taint < 0 {
			only := true
			for k, one := range x.single {
				only = only && (k == int(c.first) || one.Has(class))
			}
			if only {
				gain[c.first]++
			}
		}
	}
	best := -1
	for k, n := range gain {
		if n > 0 && (best < 0 || n > gain[best]) {
			best = k
		}
	}
	return best
}

// absent names a resource that no matching machine offers.
func (x *explainer) absent() string {
	for j, want := range x.agg {
		if want > 0 && !slices.ContainsFunc(x.m.Classes, func(c uint32) bool { return x.f.Supply(c)[j] > 0 }) {
			return x.w.Space.Dimensions.Text(x.f.Dims[j])
		}
	}
	return ""
}

func taintText(t inventory.Taint) string {
	if t.Value != "" {
		return t.Key + "=" + t.Value + ":" + t.Effect
	}
	return t.Key + ":" + t.Effect
}

// rowName is how a row is called for people.
func rowName(n NeedName) string {
	switch {
	case n.RowID != "":
		return n.RowID
	case n.Key.Group != "":
		return n.Key.Fingerprint + "/" + n.Key.Group
	}
	return n.Key.Fingerprint
}
