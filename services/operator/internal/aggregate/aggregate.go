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
	slots   map[Key]int32      // where in members a request is
	members []member           // slots; free ones have no request
	free    []int32            // slots to use again
	texts   map[identity]*text // those in use
	rows    map[string]*row    // by identity; those with a member
	byID    map[string]*row    // the same by row id
	order   []*row             // rows in the order of the wire; nil: sort again
	invalid map[int32]bool     // slots whose request has a fatal problem
	pending int                // requests not acknowledged
	waiting []int32            // slots that may wait to be taken by TakeWaiting
}

type member struct {
	request *request.Request
	text    *text    // what it is counted with; nil: not counted
	problem *Problem // of its present text
	at      int32    // place among its row's members
	waiting bool     // counted, not acknowledged, and not taken by TakeWaiting
}

// New returns an empty aggregate with room for n requests.
func New(n int) *Aggregate {
	return &Aggregate{
		slots: make(map[Key]int32, n), members: make([]member, 0, n), texts: map[identity]*text{}, rows: map[string]*row{}, byID: map[string]*row{},
		invalid: map[int32]bool{},
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
func (a *Aggregate) set(r *request.Request, fallback *text) (changed bool) {
	key := KeyOf(r)
	slot, known := a.slots[key]
	if !known {
		slot = a.slot()
		a.slots[key] = slot
	}
	m := &a.members[slot]
	if m.request != nil && m.request.Pending() {
		a.pending--
	}
	if m.request = r; r.Pending() {
		a.pending++
	}
	next := a.text(r)
	m.problem = next.problem
	if next.row == nil {
		a.invalid[slot] = true
		m.waiting = false
		if m.text == nil && fallback != nil {
			a.count(slot, a.adopt(fallback))
			return true
		}
		return false
	}
	if len(a.invalid) > 0 {
		delete(a.invalid, slot)
	}
	if wait := r.Pending(); wait != m.waiting {
		if m.waiting = wait; wait {
			a.waiting = append(a.waiting, slot)
		}
	}
	if m.text == next {
		return false
	}
	changed = true
	if old := m.text; old != nil {
		changed = old.row != next.row || !slices.Equal(old.amounts, next.amounts) // else it only says the same otherwise
		a.uncount(slot)
	}
	a.count(slot, next)
	return changed
}

// Delete forgets a request and says whether the rows changed.
func (a *Aggregate) Delete(key Key) (changed bool) {
	slot, known := a.slots[key]
	if !known {
		return false
	}
	if a.members[slot].text != nil {
		a.uncount(slot)
		changed = true
	}
	if a.members[slot].request.Pending() {
		a.pending--
	}
	a.members[slot] = member{}
	a.free = append(a.free, slot)
	delete(a.slots, key)
	delete(a.invalid, slot)
	return changed
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

func (a *Aggregate) count(slot int32, t *text) {
	m := &a.members[slot]
	m.text, m.at = t, int32(len(t.row.members))
	if len(t.row.members) == 0 {
		a.rows[t.row.profile.key], a.byID[t.row.profile.id], a.order = t.row, t.row, nil
	}
	t.row.members = append(t.row.members, slot)
	if t.count == 0 {
		a.texts[t.is] = t
	}
	t.row.count(t)
}

func (a *Aggregate) uncount(slot int32) {
	m := &a.members[slot]
	t, row := m.text, m.text.row
	m.text = nil
	row.uncount(t)
	if t.count == 0 {
		delete(a.texts, t.is)
	}
	end := len(row.members) - 1
	moved := row.members[end]
	row.members[m.at] = moved
	a.members[moved].at = m.at
	row.members = row.members[:end]
	if end == 0 {
		delete(a.rows, row.profile.key)
		delete(a.byID, row.profile.id)
		a.order = nil
	}
}

// text finds what a request says among the texts in use, or translates it.
func (a *Aggregate) text(r *request.Request) *text {
	is := identity{text: r.Spec.Text()}
	if r.Spec.CoLocation != nil {
		is.namespace = r.Namespace
	}
	if t, ok := a.texts[is]; ok {
		return t
	}
	profile, problem := translate(r.Namespace, &r.Spec)
	t := &text{is: is, amounts: r.Spec.Resources, problem: problem}
	if profile == nil {
		return t
	}
	if t.row = a.rows[profile.key]; t.row == nil {
		t.row = &row{profile: profile}
	}
	return t
}

// adopt gives a text of another aggregate a place in this one.
func (a *Aggregate) adopt(from *text) *text {
	if t, ok := a.texts[from.is]; ok {
		return t
	}
	t := &text{is: from.is, amounts: from.amounts, problem: from.problem}
	if t.row = a.rows[from.row.profile.key]; t.row == nil {
		t.row = &row{profile: from.row.profile}
	}
	return t
}

// Rebuild returns a new aggregate of the given requests, and whether its rows equal those of a. Contributions of
// requests that could be counted once and cannot now are carried over.
func (a *Aggregate) Rebuild(requests []*request.Request) (fresh *Aggregate, equal bool) {
	fresh = New(len(requests))
	for _, r := range requests {
		if r.DeletionTimestamp != nil {
			continue
		}
		var fallback *text
		if slot, ok := a.slots[KeyOf(r)]; ok && a.invalid[slot] {
			fallback = a.members[slot].text
		}
		fresh.set(r, fallback)
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

// Needs are the rows in their fixed order: larger priority first, then by identity. The rows are shared and must not be
// changed.
func (a *Aggregate) Needs() []*pb.CapacityNeed {
	if a.order == nil {
		a.order = make([]*row, 0, len(a.rows))
		for _, r := range a.rows {
			a.order = append(a.order, r)
		}
		slices.SortFunc(a.order, func(x, y *row) int {
			return cmp.Or(cmp.Compare(y.profile.need.Priority, x.profile.need.Priority), strings.Compare(x.profile.id, y.profile.id))
		})
	}
	needs := make([]*pb.CapacityNeed, len(a.order))
	for i, r := range a.order {
		needs[i] = r.need()
	}
	return needs
}
