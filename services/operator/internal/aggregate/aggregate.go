package aggregate

import (
	"cmp"
	"slices"
	"strings"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// Key names a request.
type Key struct{ Namespace, Name string }

// KeyOf is the key of a request.
func KeyOf(r *request.Request) Key { return Key{r.Namespace, r.Name} }

// Aggregate is the demand of one cluster. The zero value is not usable; start with New.
type Aggregate struct {
	slots     index                          // where in members a request is
	members   []member                       // slots; free ones have no request
	free      []int32                        // slots to use again
	plain     map[*request.Spec]*specVariant // in use, of specs without a co-location term and a gang
	colocated map[variantKey]*specVariant    // in use, of specs with one
	rows      map[string]*row                // by identity; those with a member
	families  map[familyID]*family           // rows that differ in the size of their requests, by their common profile
	byID      map[string]*row                // the rows of the roll-up by row id
	order     []*row                         // rows in the order of the wire; nil: sort again
	moves     int                            // rows added or removed since the last roll-up
	suspended map[Key]*specVariant           // not counted for now, with what they were counted with, if anything
	problems  map[int32]*Problem             // by slot: of the present spec of a request
	invalid   int                            // requests with a fatal problem
	pending   int                            // requests not acknowledged
	waiting   []int32                        // slots that TakeWaiting may return
	narrowed  bool                           // some rows are left out of the roll-up
	turned    []Key                          // see TakeTurned
	scratch   scratch
	limits    bool            // the shard has FeatureLimits
	near      map[string]*row // rows whose Pods must be near others, by identity
	nearMoved bool            // rows came to near or left it; see NearMoved
}

type member struct {
	request *request.Request
	variant *specVariant // that it is counted with; nil: not counted
	at      int32        // index in row.members
	waiting bool         // counted, not acknowledged, and not taken by TakeWaiting
}

// New returns an empty aggregate with room for n requests.
func New(n int) *Aggregate {
	return &Aggregate{
		slots: newIndex(n), members: make([]member, 0, n), plain: map[*request.Spec]*specVariant{}, colocated: map[variantKey]*specVariant{},
		rows: map[string]*row{}, families: map[familyID]*family{}, byID: map[string]*row{},
		waiting: make([]int32, 0, n), problems: map[int32]*Problem{}, suspended: map[Key]*specVariant{},
		near: map[string]*row{},
	}
}

// Set takes the present form of a request and says whether the rows changed. A request that is being deleted counts no
// more. One that cannot be counted keeps the contribution it had when it last could: an edit under a running Pod must
// not withdraw its node (OP-5.12).
func (a *Aggregate) Set(r *request.Request) (changed bool) {
	if r.DeletionTimestamp != nil {
		return a.Delete(KeyOf(r))
	}
	return a.set(r, nil)
}

// set counts r, or fallback when r cannot be counted and nothing is counted for it yet.
func (a *Aggregate) set(r *request.Request, fallback *specVariant) (changed bool) {
	hash, at := a.find(r.Namespace, r.Name)
	slot := a.slots.cells[at].slot - 1
	if slot < 0 {
		slot = a.slot()
		a.slots.put(at, hash, slot)
	}
	m := &a.members[slot]
	if m.request != nil && m.request.Pending() {
		a.pending--
	}
	if m.request = r; r.Pending() {
		a.pending++
	}
	next := a.variant(r)
	a.setProblem(slot, next.problem)
	if _, off := a.suspended[KeyOf(r)]; off {
		m.waiting = false
		return false
	}
	if next.row == nil {
		m.waiting = false
		if m.variant == nil && fallback != nil {
			a.count(slot, a.copyVariant(fallback))
			return true
		}
		return false
	}
	if wait := r.Pending(); wait != m.waiting {
		if m.waiting = wait; wait {
			a.wait(slot)
		}
	}
	if m.variant == next {
		return false
	}
	changed = true
	if old := m.variant; old != nil {
		changed = old.row != next.row || !slices.Equal(old.amounts, next.amounts) // else only the text differs
		a.uncount(slot)
	}
	a.count(slot, next)
	return changed
}

// wait lists a slot for TakeWaiting. Without calls of TakeWaiting, slots repeat: stale ones are dropped
// before the list outgrows the requests.
func (a *Aggregate) wait(slot int32) {
	if len(a.waiting) >= waitingMin && len(a.waiting) >= 2*a.slots.used {
		a.waiting = slices.DeleteFunc(a.waiting, func(s int32) bool { return !a.members[s].waiting })
		slices.Sort(a.waiting)
		a.waiting = slices.Compact(a.waiting)
	}
	a.waiting = append(a.waiting, slot)
}

// Delete forgets a request and says whether the rows changed.
func (a *Aggregate) Delete(key Key) (changed bool) {
	delete(a.suspended, key)
	_, at := a.find(key.Namespace, key.Name)
	slot := a.slots.cells[at].slot - 1
	if slot < 0 {
		return false
	}
	if a.members[slot].variant != nil {
		a.uncount(slot)
		changed = true
	}
	if a.members[slot].request.Pending() {
		a.pending--
	}
	a.members[slot] = member{}
	a.free = append(a.free, slot)
	a.slots.remove(at)
	a.setProblem(slot, nil)
	return changed
}

// Suspend stops counting a request that stays known, and says whether the rows changed. Resume counts it again.
func (a *Aggregate) Suspend(key Key) (changed bool) {
	slot, known := a.lookup(key)
	if _, off := a.suspended[key]; off || !known {
		return false
	}
	m := &a.members[slot]
	a.suspended[key], m.waiting = m.variant, false
	if m.variant == nil {
		return false
	}
	a.uncount(slot)
	return true
}

// Resume counts a suspended request again, and says whether the rows changed.
func (a *Aggregate) Resume(key Key) (changed bool) {
	was, off := a.suspended[key]
	slot, known := a.lookup(key)
	if !off || !known {
		return false
	}
	delete(a.suspended, key)
	return a.set(a.members[slot].request, was)
}

// setProblem records what is wrong with a request; nil clears it.
func (a *Aggregate) setProblem(slot int32, p *Problem) {
	if p == nil && len(a.problems) == 0 {
		return
	}
	if a.fatal(slot) {
		a.invalid--
	}
	if p == nil {
		delete(a.problems, slot)
		return
	}
	if a.problems[slot] = p; p.Fatal {
		a.invalid++
	}
}

func (a *Aggregate) fatal(slot int32) bool {
	p := a.problems[slot]
	return p != nil && p.Fatal
}

// find returns the hash of a key and the place of its cell.
func (a *Aggregate) find(namespace, name string) (hash uint32, at int) {
	hash = a.slots.hash(namespace, name)
	return hash, a.slots.find(hash, func(slot int32) bool {
		r := a.members[slot].request
		return r.Name == name && r.Namespace == namespace
	})
}

// lookup returns the slot of a request that is known.
func (a *Aggregate) lookup(key Key) (slot int32, known bool) {
	_, at := a.find(key.Namespace, key.Name)
	slot = a.slots.cells[at].slot - 1
	return slot, slot >= 0
}

func (a *Aggregate) slot() int32 {
	if n := len(a.free); n > 0 {
		slot := a.free[n-1]
		a.free = a.free[:n-1]
		return slot
	}
	a.members = append(a.members, member{})
	return int32(len(a.members) - 1)
}

func (a *Aggregate) count(slot int32, t *specVariant) {
	m := &a.members[slot]
	m.variant, m.at = t, int32(len(t.row.members))
	if len(t.row.members) == 0 {
		a.addRow(t.row)
	}
	t.row.members = append(t.row.members, slot)
	if t.count == 0 {
		a.addVariant(t)
	}
	t.row.count(t)
}

func (a *Aggregate) uncount(slot int32) {
	m := &a.members[slot]
	t, row := m.variant, m.variant.row
	m.variant = nil
	row.uncount(t)
	if t.count == 0 {
		a.removeVariant(t)
	}
	end := len(row.members) - 1
	moved := row.members[end]
	row.members[m.at] = moved
	a.members[moved].at = m.at
	row.members = row.members[:end]
	if end == 0 {
		a.removeRow(row)
	}
}

// variant finds the variant of a request, or translates its spec into a new one.
func (a *Aggregate) variant(r *request.Request) *specVariant {
	if t, ok := a.plain[r.Spec]; ok {
		return t
	}
	is := variantKey{spec: r.Spec}
	if grouped(r.Spec) {
		is.namespace = r.Namespace
		if t, ok := a.colocated[is]; ok {
			return t
		}
	}
	profile, problem := translate(r.Namespace, r.Spec, &a.scratch)
	t := &specVariant{key: is, amounts: r.Spec.Resources, problem: problem}
	if profile == nil {
		return t
	}
	if t.row = a.rows[profile.id]; t.row == nil {
		t.row = newRow(profile)
	}
	return t
}

// grouped reports whether the namespace of a request is part of its identity.
func grouped(s *request.Spec) bool { return s.CoLocation != nil || s.Gang != nil || len(s.Spread) > 0 }

// copyVariant adds a variant of another aggregate to this one.
func (a *Aggregate) copyVariant(from *specVariant) *specVariant {
	if t := a.lookupVariant(from.key); t != nil {
		return t
	}
	t := &specVariant{key: from.key, amounts: from.amounts, problem: from.problem}
	if t.row = a.rows[from.row.profile.id]; t.row == nil {
		t.row = newRow(from.row.profile)
	}
	return t
}

// lookupVariant, addVariant and removeVariant manage the variants in use.
func (a *Aggregate) lookupVariant(is variantKey) *specVariant {
	if !grouped(is.spec) {
		return a.plain[is.spec]
	}
	return a.colocated[is]
}

func (a *Aggregate) addVariant(t *specVariant) {
	if !grouped(t.key.spec) {
		a.plain[t.key.spec] = t
	} else {
		a.colocated[t.key] = t
	}
}

func (a *Aggregate) removeVariant(t *specVariant) {
	if !grouped(t.key.spec) {
		delete(a.plain, t.key.spec)
	} else {
		delete(a.colocated, t.key)
	}
}

// Rebuild returns a new aggregate of the given requests, and whether its rows equal those of a. Contributions of
// requests that could be counted once and cannot now are carried over.
func (a *Aggregate) Rebuild(requests []*request.Request) (fresh *Aggregate, equal bool) {
	fresh = New(len(requests))
	fresh.suspended, fresh.limits = a.suspended, a.limits
	for _, r := range requests {
		if r.DeletionTimestamp != nil {
			continue
		}
		var fallback *specVariant
		if slot, ok := a.lookup(KeyOf(r)); ok && a.fatal(slot) {
			fallback = a.members[slot].variant
		}
		fresh.set(r, fallback)
	}
	for id, r := range fresh.near {
		if was := a.near[id]; was != nil {
			r.placed, r.where, r.sent = was.placed, was.where, nil
		}
	}
	return fresh, slices.EqualFunc(a.Needs(), fresh.Needs(), sameNeed)
}

func sameNeed(a, b *pb.CapacityNeed) bool {
	same := func(x, y map[string]string) bool {
		if len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if y[k] != v {
				return false
			}
		}
		return true
	}
	return a.RowId == b.RowId && same(a.AggregateResources, b.AggregateResources) && same(a.MinUnit, b.MinUnit)
}

// Needs are the rows in their fixed order: larger priority first, then by identity. Rows that a shard would refuse all of them for are left
// out. The rows are shared and must not be changed.
func (a *Aggregate) Needs() []*pb.CapacityNeed {
	if a.moves = 0; a.order == nil {
		a.order = a.sorted()
	}
	needs := make([]*pb.CapacityNeed, len(a.order))
	for i, r := range a.order {
		fresh, before := r.sent == nil, r.truncated
		if needs[i] = r.need(a.limits); fresh && (before || r.truncated) {
			a.turn(r)
		}
	}
	return a.narrow(needs)
}

// sorted are the rows as they are sent. They are sorted by copies of what they are compared by: a third of the time.
func (a *Aggregate) sorted() []*row {
	type entry struct {
		priority int32
		id       string
		row      *row
	}
	list := make([]entry, 0, len(a.byID))
	for id, r := range a.byID {
		list = append(list, entry{r.profile.need.Priority, id, r})
	}
	slices.SortFunc(list, func(x, y entry) int {
		if x.priority != y.priority {
			return cmp.Compare(y.priority, x.priority)
		}
		return strings.Compare(x.id, y.id)
	})
	out := make([]*row, len(list))
	for i := range list {
		out[i] = list[i].row
	}
	return out
}

// movesMax is how many rows may come and go between two roll-ups before sorting them again costs less.
const movesMax = 64

// place finds the index of a row in the order. After too many changes the order is dropped, and ok is false.
func (a *Aggregate) place(r *row) (at int, ok bool) {
	if a.moves++; a.order == nil || a.moves > movesMax {
		a.order = nil
		return 0, false
	}
	at, _ = slices.BinarySearchFunc(a.order, r, compareRows)
	return at, true
}

// compareRows orders rows as they are sent: larger priority first, then by identity.
func compareRows(x, y *row) int {
	return cmp.Or(cmp.Compare(y.profile.need.Priority, x.profile.need.Priority), strings.Compare(x.profile.id, y.profile.id))
}
