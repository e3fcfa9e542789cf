package engine

import (
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Result is what one plan says (ENG-2.6). It is never changed; unchanged blocks are shared with the result before.
type Result struct {
	Now, Cycle int64
	Actions    []Action // in the order of ENG-2.10
	Drains     []Drain
	Blocks     []*Block   // by cluster, ascending
	Promised   []Promised // promises that changed hands
	Short      []Ref      // what is still short, in allocation order: the seed of the shortfall ledger (ENG-15.14)
	CostBefore int64      // price of what is billed now, millionths of a dollar per hour
	CostAfter  int64      // the same when every Provision and Delete has happened
	Counters   Counters
}

// Block is the part of a result that belongs to one cluster.
type Block struct {
	Cluster   string
	Needs     []demand.Need     // the rows of its demand, in allocation order
	Verdicts  []Verdict         // of each row
	Domains   []string          // chosen Same domains; see Verdict.Domain
	Missing   []Missing         // of the short rows
	Folded    []Folded          // Needs made of several rows (ENG-8.3)
	Claims    []Claim           // by Need in allocation order
	Shares    []Share           // by Need in allocation order
	Excluded  []inventory.Index // Configured, but not credited for not having joined (ENG-17.3), by Index
	Protected []inventory.Index // overdue, but credited because the guard says so (ENG-17.4 to 17.6), by Index
}

// Recipients counts the Needs that have shares.
func (b *Block) Recipients() int {
	n, last := 0, int32(-1)
	for i := range b.Shares {
		if row := b.Shares[i].Row; row != last {
			n, last = n+1, row
		}
	}
	return n
}

// Missing is what a SHORT row lacks.
type Missing struct {
	Row      int32
	Residual resource.Vector
	Freed    *resource.Vector // capacity of the victims that preemption found, or nil
}

// Folded is one Need that stands for several rows of one cluster.
type Folded struct {
	Need    demand.Need // stripped profile, group "fold1-…", aggregate of all members
	Members []int32     // rows, by arrival and group
}

// ClaimKind says how a claimed machine counts.
type ClaimKind uint8

const (
	ClaimBound     ClaimKind = 1 // bound and credited
	ClaimInFlight  ClaimKind = 2 // in flight and credited
	ClaimKept      ClaimKind = 3 // kept for a gang elsewhere, credited with nothing (ENG-10.3)
	ClaimIdle      ClaimKind = 4 // taken by this plan
	ClaimPurchased ClaimKind = 5 // bought by this plan
	ClaimPromised  ClaimKind = 6 // promised by this plan through preemption (ENG-15)
)

// Claim says that a machine counts for a Need, whole.
type Claim struct {
	Machine inventory.Index
	Row     int32 // as in Ref
	Kind    ClaimKind
}

// Share says that a Need uses whole units on a machine that another Need claims.
type Share struct {
	Machine inventory.Index
	Row     int32
	Units   int64
}

// Promised says to whom a machine in flight belongs from now on.
type Promised struct {
	Machine inventory.Index
	To      inventory.Promise
}

// Counters is the material of the engine's metrics (ENG-22).
type Counters struct {
	OpenNeeds, DirtyClusters         int
	Postponed, Groups                int // Postponed: of them, for a later plan; Groups: plans that serve all Needs of a cluster (ENG-12.11)
	Allocations, Displaced           int // Displaced: each Need once for each machine that it lost (ENG-14.8)
	CreditHit, CreditMiss            int
	Shares, JoinOverdue, JoinGuarded int
	PromisesCreate, PromisesPreempt  int
	ExchangeTries                    int
	ExchangeSaved                    int64 // millionths of a dollar per hour
	ReclaimMatchesUnmet              int   // must be 0
}

// Block returns the block of a cluster, or nil.
func (r *Result) Block(cluster string) (*Block, int32) {
	i, ok := slices.BinarySearchFunc(r.Blocks, cluster, func(b *Block, c string) int { return strings.Compare(b.Cluster, c) })
	if !ok {
		return nil, -1
	}
	return r.Blocks[i], int32(i)
}

// Need returns the Need behind a Ref and its cluster.
func (r *Result) Need(ref Ref) (*demand.Need, string) {
	b := r.Blocks[ref.Block]
	if ref.Row >= FoldedRow {
		return &b.Folded[ref.Row-FoldedRow].Need, b.Cluster
	}
	return &b.Needs[ref.Row], b.Cluster
}

// Domain returns the Same domain that a Need chose, or "".
func (r *Result) Domain(ref Ref) string {
	if ref.Row >= FoldedRow { // folded Needs ask for no domain
		return ""
	}
	return r.Blocks[ref.Block].Domain(ref.Row)
}

// Domain returns the Same domain that a row chose, or "".
func (b *Block) Domain(row int32) string {
	if at := b.Verdicts[row].Domain; at > 0 {
		return b.Domains[at-1]
	}
	return ""
}

// Verdict returns the verdict on a row of demand.
func (r *Result) Verdict(cluster string, key demand.RowKey) (*Verdict, Ref) {
	b, at := r.Block(cluster)
	if b == nil {
		return nil, NoNeed
	}
	for i := range b.Needs {
		if b.Needs[i].Group == key.Group && b.Needs[i].Form.Fingerprint == key.Fingerprint {
			return &b.Verdicts[i], Ref{at, int32(i)}
		}
	}
	return nil, NoNeed
}

// AllocationPosition is 1 plus the number of short Needs before a short row in allocation order, and 0 for a row that is not short.
func (r *Result) AllocationPosition(ref Ref) int {
	b := r.Blocks[ref.Block]
	if b.Verdicts[ref.Row].Status != Short {
		return 0
	}
	n, c := r.Need(ref)
	i, _ := slices.BinarySearchFunc(r.Short, Ref{}, func(at, _ Ref) int {
		m, d := r.Need(at)
		return CompareAllocation(m, d, n, c)
	})
	return i + 1
}

// CompareAllocation is the allocation order (ENG-7.2).
func CompareAllocation(a *demand.Need, ac string, b *demand.Need, bc string) int {
	if c := demand.CompareRank(&a.Form.Profile, &b.Form.Profile); c != 0 {
		return c
	}
	if c := demand.CompareArrival(a.Arrival, b.Arrival); c != 0 {
		return c
	}
	if c := strings.Compare(ac, bc); c != 0 {
		return c
	}
	if c := demand.CompareSize(a.Size, b.Size); c != 0 {
		return c
	}
	if c := strings.Compare(a.Form.Fingerprint, b.Form.Fingerprint); c != 0 {
		return c
	}
	return strings.Compare(a.Group, b.Group)
}

// Claim returns the claim that a Need of a cluster has on a machine.
func (r *Result) Claim(cluster string, i inventory.Index) (Claim, bool) {
	b, _ := r.Block(cluster)
	if b == nil {
		return Claim{}, false
	}
	at := slices.IndexFunc(b.Claims, func(c Claim) bool { return c.Machine == i })
	if at < 0 {
		return Claim{}, false
	}
	return b.Claims[at], true
}

// HandsOver answers the question of ENG-5.9 for a promised machine that has just become Idle: was it credited, by this
// plan, to the Need of its promise? If so, its Bootstrap starts now, for the returned Need.
func (r *Result) HandsOver(i inventory.Index, p inventory.Promise) (Ref, bool) {
	c, ok := r.Claim(p.Cluster, i)
	if !ok || c.Kind == ClaimKept {
		return NoNeed, false
	}
	_, at := r.Block(p.Cluster)
	ref := Ref{at, c.Row}
	if r.Names(ref, p.For.Fingerprint, p.For.Group) {
		return ref, true
	}
	return NoNeed, false
}

// Names reports whether a row key is that of a Need or, for a folded Need, of one of its members (ENG-5.7).
func (r *Result) Names(ref Ref, fingerprint, group string) bool {
	n, _ := r.Need(ref)
	if n.Form.Fingerprint == fingerprint && n.Group == group {
		return true
	}
	if ref.Row < FoldedRow {
		return false
	}
	b := r.Blocks[ref.Block]
	for _, m := range b.Folded[ref.Row-FoldedRow].Members {
		if b.Needs[m].Group == group && b.Needs[m].Form.Fingerprint == fingerprint {
			return true
		}
	}
	return false
}

// Attribution returns what a machine is attributed to when it is bound for a Need (ENG-5.5).
func (r *Result) Attribution(ref Ref) inventory.Attribution {
	n, _ := r.Need(ref)
	if ref.Row >= FoldedRow {
		b := r.Blocks[ref.Block]
		n = b.Folded[ref.Row-FoldedRow].Attributed(b.Needs)
	}
	return AttributionOf(n)
}

// Attributed returns what the machines of a folded Need are attributed to: its only member, which may grow out of the fold and still owns them, or
// else the fold (ENG-8.3).
func (f *Folded) Attributed(rows []demand.Need) *demand.Need {
	if len(f.Members) == 1 {
		return &rows[f.Members[0]]
	}
	return &f.Need
}

func AttributionOf(n *demand.Need) inventory.Attribution {
	return inventory.Attribution{Fingerprint: n.Form.Fingerprint, Group: n.Group, Priority: n.Form.Priority,
		Interruption: n.Form.Interruption.Penalty(), Reclamation: n.Form.Reclamation.Penalty()}
}

// Promise returns the promise that an action makes when it starts at the given time: an intent for Provision, a
// reservation for a Preempt or Reclaim that has a preemptor (ENG-5.8, ENG-15.12). A reservation expires; the core calls
// again when the drain itself begins.
func (r *Result) Promise(a Action, now int64, p *Policy) (inventory.Promise, bool) {
	p = p.OrDefault()
	switch {
	case a.Kind == Provision:
		_, cluster := r.Need(a.Need)
		return inventory.Promise{Cluster: cluster, For: r.Attribution(a.Need), Cause: inventory.ForCreate}, true
	case a.Drain >= 0 && !r.Drains[a.Drain].Preemptor.None():
		d := r.Drains[a.Drain]
		_, cluster := r.Need(d.Preemptor)
		return inventory.Promise{Cluster: cluster, For: r.Attribution(d.Preemptor), Cause: inventory.ForPreempt,
			Expires: now + (d.Grace+p.DrainMargin)*Second}, true
	}
	return inventory.Promise{}, false
}

// View spells out an action of this result. w is the world of the plan.
func (r *Result) View(w *World, a Action) View {
	v := View{Machine: w.Inventory.ID(a.Machine), Kind: a.Kind, Cause: a.Cause, Cost: a.Cost, Price: w.Inventory.Price(a.Machine),
		Cluster: w.Inventory.Cluster(a.Machine)}
	if s, ok := w.Inventory.Attribution(a.Machine); ok {
		v.Row = demand.RowKey{Fingerprint: s.Fingerprint, Group: s.Group}
		v.Priority, v.Interruption, v.Reclamation = s.Priority, s.Interruption, s.Reclamation
	}
	if !a.Need.None() {
		n, cluster := r.Need(a.Need)
		v.Row, v.RowID, v.Priority = n.RowKey(), n.RowID, n.Form.Priority
		v.Interruption, v.Reclamation = n.Form.Interruption.Penalty(), n.Form.Reclamation.Penalty()
		if a.Kind == Bootstrap || a.Kind == Provision {
			v.Cluster, v.Domain = cluster, r.Domain(a.Need)
		}
	}
	if a.Drain >= 0 {
		d := r.Drains[a.Drain]
		v.Grace, v.Score, v.Terms = d.Grace, d.Score, d.Terms
		if !d.Preemptor.None() {
			n, cluster := r.Need(d.Preemptor)
			v.PreemptorCluster, v.Preemptor, v.PreemptorRowID = cluster, n.RowKey(), n.RowID
			if a.Kind == Preempt {
				v.PreemptorPriority = n.Form.Priority
			}
		}
	}
	return v
}
