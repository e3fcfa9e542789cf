package aggregate

import (
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// Len is the number of requests, counted or not.
func (a *Aggregate) Len() int { return a.slots.used }

// Requests are all requests, in no order.
func (a *Aggregate) Requests() []*request.Request {
	out := make([]*request.Request, 0, a.slots.used)
	for i := range a.members {
		if r := a.members[i].request; r != nil {
			out = append(out, r)
		}
	}
	return out
}

// Members calls f with the requests that are counted in a row, in no order, until it returns false. Held demand is not a request.
func (a *Aggregate) Members(rowID string, f func(*request.Request) bool) {
	r := a.byID[rowID]
	if r == nil {
		return
	}
	for _, part := range r.parts() {
		for _, slot := range part.members {
			if r := a.members[slot].request; !r.Held && !f(r) {
				return
			}
		}
	}
}

// HasRow says whether any request is counted in a row.
func (a *Aggregate) HasRow(rowID string) bool { return a.byID[rowID] != nil }

// Rows calls f with the id of each row, in no order.
func (a *Aggregate) Rows(f func(rowID string)) {
	for id := range a.byID {
		f(id)
	}
}

// Request returns a request, or nil.
func (a *Aggregate) Request(key Key) *request.Request {
	if slot, ok := a.lookup(key); ok {
		return a.members[slot].request
	}
	return nil
}

// Row is the id of the row that a request is counted in; empty if it is not counted.
func (a *Aggregate) Row(key Key) string {
	if slot, ok := a.lookup(key); ok && a.members[slot].variant != nil {
		return a.members[slot].variant.row.wireRow().profile.id
	}
	return ""
}

// Candidates are the ids of the rows that a request may be counted in, whatever other requests there are: its own, and the one
// that the smallest sizes share, if it has a size.
func (a *Aggregate) Candidates(key Key) []string {
	slot, ok := a.lookup(key)
	if !ok || a.members[slot].variant == nil {
		return nil
	}
	p := a.members[slot].variant.row.profile
	if p.family == (familyID{}) {
		return []string{p.id}
	}
	return []string{p.id, overflowID(p)}
}

// Problem is what is wrong with a request, or nil.
func (a *Aggregate) Problem(key Key) *Problem {
	slot, ok := a.lookup(key)
	if !ok {
		return nil
	}
	if t := a.members[slot].variant; t != nil && t.excluded {
		return fatal(ReasonTooManyResources, "spec.resources",
			"requests resources that are not among the %d most used ones of requests with the same constraints", resourcesMax)
	}
	if t := a.members[slot].variant; t != nil && t.row.wireRow().left != leftForNothing {
		return t.row.wireRow().left.problem()
	}
	return a.problems[slot]
}

// Invalid is the number of requests with a fatal problem.
func (a *Aggregate) Invalid() int { return a.invalid }

// TakeWaiting returns the requests that are counted, not acknowledged and not returned before, in no order. A request
// that is set again while it is still Pending is returned again only after Retry or a change of its object.
func (a *Aggregate) TakeWaiting() []Key {
	if len(a.waiting) == 0 {
		return nil
	}
	out := make([]Key, 0, len(a.waiting))
	for _, slot := range a.waiting {
		m := &a.members[slot]
		if !m.waiting { // taken, acknowledged or gone meanwhile; a slot may be listed twice
			continue
		}
		if m.waiting = false; !m.variant.excluded && m.variant.row.wireRow().left == leftForNothing {
			out = append(out, KeyOf(m.request))
		}
	}
	a.waiting = a.waiting[:0]
	return out
}

// Waits says whether a request is counted and not acknowledged.
func (a *Aggregate) Waits(key Key) bool {
	slot, ok := a.lookup(key)
	return ok && a.members[slot].variant != nil && a.members[slot].request.Pending()
}

// Phases counts the requests by phase.
func (a *Aggregate) Phases() (acknowledged, pending int) {
	return a.slots.used - a.pending, a.pending
}
