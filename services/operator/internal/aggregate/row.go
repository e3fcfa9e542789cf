package aggregate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// text is one way to write a request, and how many requests are written so. All of them have one row and one vector.
type text struct {
	raw     string // what identifies it
	row     *row   // nil: cannot be counted
	amounts []request.Amount
	problem *Problem
	count   int32 // requests counted with it
	at      int32 // place among its row's texts
	over    bool  // left out: its row has too many resources
}

// row is one row of the roll-up: the sum over the texts with its profile.
type row struct {
	profile *profile
	texts   []*text // those with a count above zero, in no order
	dims    []dim   // sorted by name
	members []int32 // slots of the requests counted in it, in no order
	sent    *pb.CapacityNeed
}

// dim is one resource of a row.
type dim struct {
	name    string
	total   sum
	largest int64 // of one request; stale when the text that had it left
	stale   bool
	texts   int32 // how many texts have it
}

func (r *row) dim(name string) (int, bool) {
	return slices.BinarySearchFunc(r.dims, name, func(d dim, n string) int { return strings.Compare(d.name, n) })
}

// count adds one request with a text of this row.
func (r *row) count(t *text) {
	first := t.count == 0
	t.count++
	if first {
		t.at, t.over = int32(len(r.texts)), false
		r.texts = append(r.texts, t)
	}
	for _, a := range t.amounts {
		i, ok := r.dim(a.Name)
		if !ok {
			r.dims = slices.Insert(r.dims, i, dim{name: a.Name})
		}
		d := &r.dims[i]
		d.total.add(a.Milli)
		if first {
			d.texts++
			d.largest = max(d.largest, a.Milli)
		}
	}
	r.sent = nil
}

// uncount takes one request with a text of this row away.
func (r *row) uncount(t *text) {
	t.count--
	last := t.count == 0
	if last {
		end := len(r.texts) - 1
		r.texts[t.at] = r.texts[end]
		r.texts[t.at].at = t.at
		r.texts = slices.Delete(r.texts, end, end+1)
	}
	for _, a := range t.amounts {
		i, _ := r.dim(a.Name)
		d := &r.dims[i]
		d.total.sub(a.Milli)
		if !last {
			continue
		}
		if d.texts--; d.texts == 0 {
			r.dims = slices.Delete(r.dims, i, i+1)
		} else if a.Milli == d.largest {
			d.stale = true
		}
	}
	r.sent = nil
}

// need is the row as it is sent. It is built once per change and never altered after.
func (r *row) need() *pb.CapacityNeed {
	if r.sent != nil {
		return r.sent
	}
	p := r.profile.need
	r.sent = &pb.CapacityNeed{
		Requirements: p.Requirements, Priority: p.Priority, Spread: p.Spread,
		InterruptionPenaltyBucket: p.InterruptionPenaltyBucket, ReclamationPenaltyBucket: p.ReclamationPenaltyBucket,
		Group: p.Group, RowId: r.profile.id, Tolerations: p.Tolerations, TolerationsStated: p.TolerationsStated,
		AggregateResources: make(map[string]string, len(r.dims)), MinUnit: make(map[string]string, len(r.dims)),
	}
	dims := r.dims
	for i := range dims {
		if d := &dims[i]; d.stale {
			d.largest, d.stale = r.largest(d.name), false
		}
	}
	if len(dims) > resourcesMax {
		dims = r.fitting()
	}
	for i := range dims {
		d := &dims[i]
		r.sent.AggregateResources[d.name] = d.total.text(d.name)
		r.sent.MinUnit[d.name] = quantityText(d.name, d.largest)
	}
	return r.sent
}

func (r *row) largest(name string) (largest int64) {
	for _, t := range r.texts {
		for _, a := range t.amounts {
			if a.Name == name {
				largest = max(largest, a.Milli)
			}
		}
	}
	return largest
}

// fitting sums the row over the texts that use its most used resources only, as many as the wire allows, and marks the
// other texts. Which they are depends on the requests alone, not on their order.
func (r *row) fitting() []dim {
	uses := map[string]int{}
	for _, t := range r.texts {
		for _, a := range t.amounts {
			uses[a.Name] += int(t.count)
		}
	}
	names := slices.SortedFunc(maps.Keys(uses), func(a, b string) int {
		return cmp.Or(cmp.Compare(uses[b], uses[a]), strings.Compare(a, b))
	})[:resourcesMax]
	kept := row{}
	for _, t := range r.texts {
		t.over = slices.ContainsFunc(t.amounts, func(a request.Amount) bool { return !slices.Contains(names, a.Name) })
		if t.over {
			continue
		}
		for range t.count {
			kept.count(&text{amounts: t.amounts})
		}
	}
	return kept.dims
}
