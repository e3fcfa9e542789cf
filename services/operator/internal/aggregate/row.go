package aggregate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// identity is what tells texts apart: equal identities mean the same, the reverse need not hold.
type identity struct {
	spec      *request.Spec // one for all requests that are written alike
	namespace string        // of requests with a co-location term, whose group depends on it; else empty
}

// text is one way to write a request, and how many requests are written so. All of them have one row and one vector.
type text struct {
	is      identity
	row     *row // nil: cannot be counted
	amounts []request.Amount
	dims    []*dim // of the row, one for each amount; while count is above zero
	problem *Problem
	count   int32 // requests counted with it
	at      int32 // place among its row's texts
	over    bool  // left out: its row has too many resources

	room [fewDims]*dim // of dims
}

// row is one row of the roll-up: the sum over the texts with its profile. The row that the smallest shapes of a family share
// has no texts of its own; it is the sum over the rows of these shapes, which are not in the roll-up.
type row struct {
	profile *profile
	texts   []*text // those with a count above zero, in no order
	dims    []*dim  // sorted by name
	members []int32 // slots of the requests counted in it, in no order
	sent    *pb.CapacityNeed
	family  *family // it is a shape of; nil: none, or it has no member
	of      *family // whose smallest shapes it is the sum of; nil: of none
	shown   bool    // it is in the roll-up
	left    bool    // some of its texts are left out

	// A row of one text with a few resources, as most are where there are many, needs no further memory.
	room struct {
		dims    [fewDims]dim
		used    int // of dims; they are not used twice
		dim     [fewDims]*dim
		text    [1]*text
		members [2]int32
	}
}

const fewDims = 2 // cpu and memory

func newRow(p *profile) *row {
	r := &row{profile: p}
	r.texts, r.dims, r.members = r.room.text[:0], r.room.dim[:0], r.room.members[:0]
	return r
}

// newDim is a dim of the row.
func (r *row) newDim(name string) *dim {
	if r.room.used == len(r.room.dims) {
		return &dim{name: name}
	}
	r.room.used++
	d := &r.room.dims[r.room.used-1]
	d.name = name
	return d
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
	return slices.BinarySearchFunc(r.dims, name, func(d *dim, n string) int { return strings.Compare(d.name, n) })
}

// count adds one request with a text of this row.
func (r *row) count(t *text) {
	if t.count++; t.count == 1 {
		r.add(t)
	}
	for i, d := range t.dims {
		d.total.add(t.amounts[i].Milli)
	}
	r.changed()
}

// changed makes the row be written anew.
func (r *row) changed() {
	r.sent = nil
	if !r.shown && r.family != nil && r.family.rest != nil {
		r.family.rest.sent = nil
	}
}

// add takes a text up when its first request is counted.
func (r *row) add(t *text) {
	t.at, t.over = int32(len(r.texts)), false
	r.texts = append(r.texts, t)
	if t.dims = t.room[:]; len(t.amounts) > len(t.room) {
		t.dims = make([]*dim, len(t.amounts))
	}
	t.dims = t.dims[:len(t.amounts)]
	for n, a := range t.amounts {
		i, ok := r.dim(a.Name)
		if !ok {
			r.dims = slices.Insert(r.dims, i, r.newDim(a.Name))
		}
		d := r.dims[i]
		d.texts++
		d.largest = max(d.largest, a.Milli)
		t.dims[n] = d
	}
}

// uncount takes one request with a text of this row away.
func (r *row) uncount(t *text) {
	for i, d := range t.dims {
		d.total.sub(t.amounts[i].Milli)
	}
	if t.count--; t.count == 0 {
		r.remove(t)
	}
	r.changed()
}

// remove drops a text when its last request is gone.
func (r *row) remove(t *text) {
	end := len(r.texts) - 1
	r.texts[t.at] = r.texts[end]
	r.texts[t.at].at = t.at
	r.texts = slices.Delete(r.texts, end, end+1)
	for n, d := range t.dims {
		if d.texts--; d.texts == 0 {
			i, _ := r.dim(d.name)
			r.dims = slices.Delete(r.dims, i, i+1)
		} else if t.amounts[n].Milli == d.largest {
			d.stale = true
		}
	}
	t.dims = nil
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
	}
	dims, texts := r.sums()
	if len(dims) > resourcesMax {
		dims, r.left = fitting(texts), true
	} else if r.left {
		r.left = false
		for _, t := range texts {
			t.over = false
		}
	}
	r.sent.MinUnit = make(map[string]string, len(dims))
	one := true // request with all that there is: its sum is its unit
	for _, d := range dims {
		r.sent.MinUnit[d.name] = quantityText(d.name, d.largest)
		one = one && d.total == sum{lo: uint64(d.largest)}
	}
	if r.sent.AggregateResources = r.sent.MinUnit; !one {
		r.sent.AggregateResources = make(map[string]string, len(dims))
		for _, d := range dims {
			r.sent.AggregateResources[d.name] = d.total.text(d.name)
		}
	}
	return r.sent
}

// sums are the resources of a row with nothing left out, and its texts.
func (r *row) sums() ([]*dim, []*text) {
	if r.of == nil {
		for _, d := range r.dims {
			if d.stale {
				d.largest, d.stale = r.largest(d.name), false
			}
		}
		return r.dims, r.texts
	}
	all := row{}
	for _, part := range r.parts() {
		dims, texts := part.sums()
		all.texts = append(all.texts, texts...)
		for _, d := range dims {
			i, ok := all.dim(d.name)
			if !ok {
				all.dims = slices.Insert(all.dims, i, &dim{name: d.name})
			}
			all.dims[i].total.plus(d.total)
			all.dims[i].largest = max(all.dims[i].largest, d.largest)
		}
	}
	return all.dims, all.texts
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

// fitting sums a row over those of its texts that use its most used resources only, as many as the wire allows, and marks the
// other texts. Which they are depends on the requests alone, not on their order.
func fitting(texts []*text) []*dim {
	uses := map[string]int{}
	for _, t := range texts {
		for _, a := range t.amounts {
			uses[a.Name] += int(t.count)
		}
	}
	names := slices.SortedFunc(maps.Keys(uses), func(a, b string) int {
		return cmp.Or(cmp.Compare(uses[b], uses[a]), strings.Compare(a, b))
	})[:resourcesMax]
	kept := row{}
	for _, t := range texts {
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
