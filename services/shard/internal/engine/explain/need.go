package explain

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// NeedExplanation says why a Need is met or short, and what became of every machine on the way (ENG-19.8).
type NeedExplanation struct {
	Need       NeedName
	Verdict    engine.Verdict
	Sentence   string              // the verdict in one sentence, with what it names (ENG-19.4)
	Aggregate  []resource.Quantity // of the Need that was planned: of all members, if it is folded
	Residual   []resource.Quantity // what is missing
	Funnel     []FunnelStep        // what was left after each step: all first, claimed last
	Withheld   []WithheldCount     // marks on machines that fit, by reason
	Nearest    *NearMiss           // of a short Need: the machine that failed by least
	Holders    []Holder            // the Needs that have the machines that fit, highest rank first, at most explainHolders
	Domains    []DomainRank        // of a Same Need, best first, at most DomainsShown
	Candidates []Candidate         // taken ones first, then by effective cost, at most explainCandidates

	AllHolders, AllDomains, AllCandidates int // how many there are, those left out of the lists included
}

// How many of each an explanation lists.
const (
	explainHolders    = 5
	DomainsShown      = 10
	explainCandidates = 10
)

// NeedName names a Need in plain values.
type NeedName struct {
	Cluster  string
	Key      demand.RowKey
	RowID    string
	Priority int32
}

// Step is a step of the funnel.
type Step uint8

const (
	StepAll Step = iota
	StepRequirement
	StepTaints
	StepMatch
	StepFit
	StepFree
	StepOffered
	StepClaimed
)

// FunnelStep is how many machines were left after a step, and what became of the others.
type FunnelStep struct {
	Step     Step
	Name     string // in words; of a requirement, the requirement
	Machines int
	Lost     []Loss // by reason
}

// Loss is machines that a step lost for one reason.
type Loss struct {
	Why      Reject
	Machines int
	Text     string
}

// WithheldCount is how many machines that fit carry a mark.
type WithheldCount struct {
	Reason   inventory.WithheldReason
	Machines int
}

// NearMiss is the machine that failed by least.
type NearMiss struct {
	Machine string
	Why     Reject
	Text    string // the one thing that is missing
}

// Holder is a Need that has machines which another one could use.
type Holder struct {
	NeedName
	Machines int
	Why      Standing // of most of its machines
}

// DomainRank is one domain as the choice of ENG-10.6 sees it.
type DomainRank struct {
	Domain      string
	PerMille    int32 // of the worst dimension that what counts and what is free there would cover
	Satisfiable bool
	Machines    int
	Chosen      bool
}

// Candidate is one machine looked at for a Need.
type Candidate struct {
	Machine     string
	State       inventory.State
	Price       int64 // millionths of a dollar per hour
	Probability int32 // parts per million
	Penalty     demand.Penalty
	Cost        int64 // effective, millionths of a dollar per hour (ENG-7.4)
	Taken       bool
	Why         Reject
}

// ExplainNeed explains a row of the demand from a result of the present world. It reads only; its time grows with the
// number of machines.
func ExplainNeed(w *engine.World, p *engine.Policy, r *engine.Result, ref engine.Ref) *NeedExplanation {
	x := newExplainer(w, r, ref)
	row, _ := r.Need(ref)
	e := &NeedExplanation{Need: x.nameOf(ref), Verdict: r.Blocks[ref.Block].Verdicts[ref.Row], Aggregate: x.n.Aggregate.Quantities(w.Space.Dimensions)}
	if at := e.Verdict.Missing; at >= 0 {
		e.Residual = r.Blocks[ref.Block].Missing[at].Residual.Quantities(w.Space.Dimensions)
	}
	e.Need.RowID = row.RowID
	x.walk(e)
	if x.same != "" {
		e.Domains, e.AllDomains = x.domains()
	}
	e.Sentence = x.sentence(e)
	return e
}

// explainer answers questions about one Need of a result.
type explainer struct {
	w   *engine.World
	inv *inventory.Table
	r   *engine.Result
	ref engine.Ref // of the Need that was planned: the folded one of a member
	cl  *demand.Cluster
	n   *demand.Need
	f   *match.Projection
	m   *match.Matcher

	single   []*match.Matcher // one for each requirement
	classes  []classVerdict
	held     bool
	same     string // key of Same, if the Need that was planned has one
	spread   string
	domain   string
	agg      []int64
	unit     []int64
	rest     []int64
	cut      []int64      // of the last contribution
	whole    bool         // it counts in units, and they are Pods
	room     int64        // units beyond what it asks for (ENG-11.16)
	claims   []engine.Ref // by Index, of the claim that counts; NoNeed where there is none
	kinds    []engine.ClaimKind
	shared   map[inventory.Index]bool // used by a share of the Need
	excluded []inventory.Index
}

// classVerdict is what all machines of a class have in common.
type classVerdict struct {
	known  bool
	first  int16 // first requirement not answered, or -1
	missed int16 // constraints missed: requirements, taints, size
	taint  int16 // first taint not tolerated, or -1
	small  int16 // dimension that a unit lacks most, or -1
	lack   int64 // how much of it, in thousandths of what is asked
}

func newExplainer(w *engine.World, r *engine.Result, ref engine.Ref) *explainer {
	b := r.Blocks[ref.Block]
	held := false
	if ref.Row < engine.FoldedRow {
		held = b.Verdicts[ref.Row].Hold != demand.NotHeld
		if fold := b.Verdicts[ref.Row].Fold; fold >= 0 {
			ref.Row = fold
		}
	}
	x := &explainer{w: w, inv: w.Inventory, r: r, ref: ref, held: held, excluded: b.Excluded, shared: map[inventory.Index]bool{}}
	x.n, _ = r.Need(ref)
	x.cl = &demand.Cluster{Name: b.Cluster, Needs: []demand.Need{*x.n}}
	if c := w.Demand.Cluster(b.Cluster); c != nil {
		x.cl.ID, x.cl.Overhead, x.cl.Facts = c.ID, c.Overhead, c.Facts
		x.cl.CopyRooms(c)
		x.room = c.HeadroomOf(int(ref.Row))
	}
	cat := match.New()
	cat.Begin(w)
	x.m = cat.MatcherOf(x.n.Form)
	x.f = cat.ProjectionOf(x.cl, match.DimsOf(x.cl.Needs), &match.LastProjection{})
	k := len(x.f.Dims)
	x.agg, x.unit, x.rest = make([]int64, k), make([]int64, k), make([]int64, k)
	x.f.Project(&x.n.Aggregate, x.agg)
	x.f.Project(&x.n.MinUnit, x.unit)
	spreads := len(x.n.Form.Spread) > 0 && x.n.Form.Same == nil
	if spreads {
		match.RoundUp(x.agg, x.unit)
	}
	match.AddHeadroom(x.agg, x.unit, x.room)
	x.whole = x.ref.Row < engine.FoldedRow && match.UnitsOf(x.agg, x.unit) > 0
	x.missing(b)
	for _, q := range x.n.Form.Requirements {
		one := &match.Matcher{Form: &demand.Form{Profile: demand.Profile{Requirements: []demand.Requirement{q}}}}
		one.Sync(cat)
		x.single = append(x.single, one)
	}
	x.classes = make([]classVerdict, x.inv.Classes())
	switch {
	case x.n.Form.Same != nil:
		x.same, x.domain = x.n.Form.Same.Key, r.Domain(ref)
	case spreads && match.UnitsOf(x.agg, x.unit) > 0:
		x.spread = x.n.Form.Spread[0].Key
	}
	x.claimed()
	return x
}

// missing finds the residual of the Need that was planned.
func (x *explainer) missing(b *engine.Block) {
	if x.ref.Row < engine.FoldedRow {
		if at := b.Verdicts[x.ref.Row].Missing; at >= 0 {
			x.f.Project(&b.Missing[at].Residual, x.rest)
		}
		return
	}
	for _, m := range b.Folded[x.ref.Row-engine.FoldedRow].Members {
		if at := b.Verdicts[m].Missing; at >= 0 {
			v := make([]int64, len(x.rest))
			x.f.Project(&b.Missing[at].Residual, v)
			match.Add(x.rest, v)
		}
	}
}

// claimed notes the claim on each machine.
func (x *explainer) claimed() {
	x.claims, x.kinds = make([]engine.Ref, x.inv.Bound()), make([]engine.ClaimKind, x.inv.Bound())
	for i := range x.claims {
		x.claims[i] = engine.NoNeed
	}
	for bi, b := range x.r.Blocks {
		for _, c := range b.Claims {
			// Of a machine that changes hands, the new claim counts.
			if int(c.Machine) < len(x.claims) && (x.claims[c.Machine].None() || c.Kind == engine.ClaimPromised) {
				x.claims[c.Machine], x.kinds[c.Machine] = engine.Ref{Block: int32(bi), Row: c.Row}, c.Kind
			}
		}
	}
	for _, s := range x.r.Blocks[x.ref.Block].Shares {
		if s.Row == x.ref.Row {
			x.shared[s.Machine] = true
		}
	}
}

// class judges the class of a machine: match and fit, by the one match function (ENG-6.1).
func (x *explainer) class(id uint32) *classVerdict {
	c := &x.classes[id]
	if c.known {
		return c
	}
	*c = classVerdict{known: true, first: -1, small: -1, taint: -1}
	for k, one := range x.single {
		if !one.Has(id) {
			if c.first < 0 {
				c.first = int16(k)
			}
			c.missed++
		}
	}
	if form := x.n.Form; form.TolerationsStated {
		if c.taint = int16(match.Untolerated(form.Tolerations, x.inv.Shape(x.inv.Class(id).Shape).Taints)); c.taint >= 0 {
			c.missed++
		}
	}
	sup := x.f.Supply(id)
	for j, u := range x.unit {
		if sup[j] < u {
			if lack := resource.MulSat(u-sup[j], 1000) / u; c.small < 0 || lack > c.lack {
				c.small, c.lack = int16(j), lack
			}
		}
	}
	if c.small >= 0 {
		c.missed++
	}
	return c
}

// judge finds the first reason against a machine.
func (x *explainer) judge(i inventory.Index) Reject {
	row := x.inv.Row(i)
	c := x.class(row.Class)
	switch {
	case c.first >= 0:
		return RejectRequirement
	case c.taint >= 0:
		return RejectTaint
	case c.small >= 0:
		return RejectTooSmall
	}
	claim := x.claims[i]
	if claim == x.ref && x.kinds[i] != engine.ClaimKept || x.shared[i] && x.kinds[i] != engine.ClaimPromised {
		return Accepted
	}
	if why := x.taken(i, row, claim); why != Accepted {
		return why
	}
	return x.free(i, row)
}

// taken finds out whether a machine that fits is not available: another need's, or of another shard.
func (x *explainer) taken(i inventory.Index, row *inventory.Row, claim engine.Ref) Reject {
	seen := row.Seen()
	switch {
	case claim == x.ref: // kept, in another domain
		return Accepted
	case !claim.None() && seen.Bound():
		return RejectServes
	case !claim.None():
		return RejectPromised
	case row.Foreign() && seen == inventory.Configured && x.inv.Cluster(i) != x.cl.Name:
		return RejectElsewhere
	case row.Foreign():
		return RejectForeign
	}
	switch seen {
	case inventory.Failed:
		return RejectFailed
	case inventory.Deleting:
		return RejectLeaving
	case inventory.Creating, inventory.Draining:
		if row.Promised() {
			return RejectPromised
		}
		return RejectLeaving
	case inventory.Configured, inventory.Configuring:
		if x.inv.Cluster(i) != x.cl.Name {
			return RejectElsewhere
		}
		if _, ok := slices.BinarySearch(x.excluded, i); ok {
			return RejectNotJoined
		}
	case inventory.Idle, inventory.Speculative:
		if row.Promised() {
			return RejectPromised
		}
	}
	return Accepted
}

// free finds the reason why a machine that could be had was not taken.
func (x *explainer) free(i inventory.Index, row *inventory.Row) Reject {
	switch {
	case !row.Bound() && x.inv.WithheldFrom(i, x.cl.Name):
		return RejectWithheld
	case x.same != "" && x.domain != "" && x.value(i, x.same) != x.domain:
		return RejectDomain
	case !match.Touches(x.f.Supply(row.Class), x.agg):
		return RejectUseless
	case x.held:
		return RejectHeld
	case x.spread != "" && match.Touches(x.f.Supply(row.Class), x.rest):
		return RejectSpread
	}
	return RejectNotNeeded
}

// value is the machine's value of a label key, as profiles see it.
func (x *explainer) value(i inventory.Index, key string) string {
	id, ok := x.w.Space.Strings.Find(key)
	if !ok {
		return ""
	}
	v, has := x.inv.Value(i, id)
	if !has {
		return ""
	}
	return x.w.Space.Strings.Text(v)
}

func (x *explainer) nameOf(ref engine.Ref) NeedName {
	n, cluster := x.r.Need(ref)
	return NeedName{Cluster: cluster, Key: n.RowKey(), RowID: n.RowID, Priority: n.Form.Priority}
}

// text says what exactly is wrong with a machine.
func (x *explainer) text(i inventory.Index, why Reject) string {
	row := x.inv.Row(i)
	c := x.class(row.Class)
	dims := x.w.Space.Dimensions
	switch why {
	case RejectRequirement:
		q := x.n.Form.Requirements[c.first]
		if v := x.value(i, q.Key); v != "" {
			return fmt.Sprintf("%s: it has %s", q.Text(), v)
		}
		return fmt.Sprintf("%s: it has no such label", q.Text())
	case RejectTaint:
		return "taint " + taintText(x.inv.Shape(x.inv.Class(row.Class).Shape).Taints[c.taint])
	case RejectTooSmall:
		return fmt.Sprintf("%s: it offers %s, one Pod requests %s", dims.Text(x.f.Dims[c.small]), quantity.Human(dims.Text(x.f.Dims[c.small]), x.f.Supply(row.Class)[c.small]),
			quantity.Human(dims.Text(x.f.Dims[c.small]), x.unit[c.small]))
	case RejectServes, RejectPromised:
		if ref := x.claims[i]; !ref.None() {
			n := x.nameOf(ref)
			return fmt.Sprintf("it is used by %s of cluster %s, priority %d", rowName(n), n.Cluster, n.Priority)
		}
		if pr, ok := x.inv.Promise(i); ok {
			return "it is in flight to cluster " + pr.Cluster
		}
	case RejectWithheld:
		for _, m := range x.inv.Withheld(i) {
			if m.Cluster == "" || m.Cluster == x.cl.Name {
				return m.Reason.String()
			}
		}
	case RejectDomain:
		return fmt.Sprintf("%s is %s, the need has chosen %s", x.same, x.value(i, x.same), x.domain)
	case RejectElsewhere:
		return "it is in use in cluster " + x.inv.Cluster(i)
	}
	return why.Sentence()
}

// nearer orders near misses: fewer constraints missed, then machines that are free, then the smaller gap, then the id.
func (x *explainer) nearer(a, b miss) bool {
	return cmp.Or(cmp.Compare(a.missed, b.missed), cmp.Compare(a.busy, b.busy), cmp.Compare(a.lack, b.lack), cmp.Compare(a.order, b.order)) < 0
}

// miss is how near a machine came.
type miss struct {
	i      inventory.Index
	why    Reject
	missed int
	busy   int
	lack   int64
	order  uint32
}

func (x *explainer) missOf(i inventory.Index, why Reject) miss {
	row := x.inv.Row(i)
	c := x.class(row.Class)
	m := miss{i: i, why: why, missed: int(c.missed), lack: c.lack, order: row.Order}
	if s := row.Seen(); s != inventory.Idle && s != inventory.Speculative || row.Foreign() || row.Promised() {
		m.busy = 1
	}
	if c.missed == 0 { // it fits: the later the step that lost it, the nearer
		m.busy = rejects - int(why)
	}
	return m
}
