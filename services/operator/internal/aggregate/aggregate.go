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
	slots    index                   // where in members a request is
	members  []member                // slots; free ones have no request
	free     []int32                 // slots to use again
	plain    map[*request.Spec]*text // those in use, of specs without a co-location term
	texts    map[identity]*text      // those in use, of the others
	rows     map[string]*row         // by identity; those with a member
	families map[familyID]*family    // rows of one profile that differ in the size of their requests, by what they have in common
	byID     map[string]*row         // the rows of the roll-up by row id
	order    []*row                  // rows in the order of the wire; nil: sort again
	moves    int                     // rows that came or went since they were sent
	problems map[int32]*Problem      // by slot: of the present text of a request
	invalid  int                     // requests with a fatal problem
	pending  int                     // requests not acknowledged
	waiting  []int32                 // slots that may wait to be taken by TakeWaiting
	scratch  scratch
}

type member struct {
	request *request.Request
	text    *text // what it is counted with; nil: not counted
	at      int32 // place among its row's members
	waiting bool  // counted, not acknowledged, and not taken by TakeWaiting
}

// New returns an empty aggregate with room for n requests.
func New(n int) *Aggregate {
	return &Aggregate{
		slots: newIndex(n), members: make([]member, 0, n), plain: map[*request.Spec]*text{}, texts: map[identity]*text{},
		rows: map[string]*row{}, families: map[familyID]*family{}, byID: map[string]*row{},
		waiting: make([]int32, 0, n), problems: map[int32]*Problem{},
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
	next := a.text(r)
	a.judge(slot, next.problem)
	if next.row == nil {
		m.waiting = false
		if m.text == nil && fallback != nil {
			a.count(slot, a.adopt(fallback))
			return true
		}
		return false
	}
	if wait := r.Pending(); wait != m.waiting {
		if m.waiting = wait; wait {
			a.wait(slot)
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

// wait lists a slot for TakeWaiting. While nobody takes, slots come again and again: those that wait no more are dropped
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
	_, at := a.find(key.Namespace, key.Name)
	slot := a.slots.cells[at].slot - 1
	if slot < 0 {
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
	a.slots.remove(at)
	a.judge(slot, nil)
	return changed
}

// judge notes what is wrong with a request; nil: nothing.
func (a *Aggregate) judge(slot int32, p *Problem) {
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

func (a *Aggregate) count(slot int32, t *text) {
	m := &a.members[slot]
	m.text, m.at = t, int32(len(t.row.members))
	if len(t.row.members) == 0 {
		a.appear(t.row)
	}
	t.row.members = append(t.row.members, slot)
	if t.count == 0 {
		a.keep(t)
	}
	t.row.count(t)
}

func (a *Aggregate) uncount(slot int32) {
	m := &a.members[slot]
	t, row := m.text, m.text.row
	m.text = nil
	row.uncount(t)
	if t.count == 0 {
		a.drop(t)
	}
	end := len(row.members) - 1
	moved := row.members[end]
	row.members[m.at] = moved
	a.members[moved].at = m.at
	row.members = row.members[:end]
	if end == 0 {
		a.vanish(row)
	}
}

// text finds what a request says among the texts in use, or translates it.
func (a *Aggregate) text(r *request.Request) *text {
	if t, ok := a.plain[r.Spec]; ok {
		return t
	}
	is := identity{spec: r.Spec}
	if r.Spec.CoLocation != nil {
		is.namespace = r.Namespace
		if t, ok := a.texts[is]; ok {
			return t
		}
	}
	profile, problem := translate(r.Namespace, r.Spec, &a.scratch)
	t := &text{is: is, amounts: r.Spec.Resources, problem: problem}
	if profile == nil {
		return t
	}
	if t.row = a.rows[profile.id]; t.row == nil {
		t.row = newRow(profile)
	}
	return t
}

// adopt gives a text of another aggregate a place in this one.
func (a *Aggregate) adopt(from *text) *text {
	if t := a.known(from.is); t != nil {
		return t
	}
	t := &text{is: from.is, amounts: from.amounts, problem: from.problem}
	if t.row = a.rows[from.row.profile.id]; t.row == nil {
		t.row = newRow(from.row.profile)
	}
	return t
}

// known, keep and drop are for the texts in use.
func (a *Aggregate) known(is identity) *text {
	if is.spec.CoLocation == nil {
		return a.plain[is.spec]
	}
	return a.texts[is]
}

func (a *Aggregate) keep(t *text) {
	if t.is.spec.CoLocation == nil {
		a.plain[t.is.spec] = t
	} else {
		a.texts[t.is] = t
	}
}

func (a *Aggregate) drop(t *text) {
	if t.is.spec.CoLocation == nil {
		delete(a.plain, t.is.spec)
	} else {
		delete(a.texts, t.is)
	}
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
		if slot, ok := a.lookup(KeyOf(r)); ok && a.fatal(slot) {
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
	if a.moves = 0; a.order == nil {
		a.order = a.sorted()
	}
	needs := make([]*pb.CapacityNeed, len(a.order))
	for i, r := range a.order {
		needs[i] = r.need()
	}
	return needs
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

// movesMax is how many rows may come and go between two roll-ups before sorting them anew costs less.
const movesMax = 64

// place finds where in the order a row is or belongs. When too many came and went the order is dropped, and ok is false.
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
