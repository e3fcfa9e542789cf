package aggregate

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// variantKey identifies a variant. Equal keys mean equal demand; different keys may mean the same.
type variantKey struct {
	spec      *request.Spec // shared by all requests with equal text
	namespace string        // set for co-location terms, whose group depends on it
}

// specVariant is one spec text and the number of requests with it. All of them share one row and one vector of amounts.
type specVariant struct {
	key      variantKey
	row      *row // nil: cannot be counted
	amounts  []request.Amount
	totals   []*resourceTotals // of the row, one for each amount; set while count is above zero
	problem  *Problem
	count    int32 // requests counted with it
	at       int32 // index in row.variants
	excluded bool  // not counted: its row has too many resources

	inline [inlineTotals]*resourceTotals // backing array of totals
}

// row is one row of the roll-up: the sum over the variants with its profile. The overflow row of a family has no variants. It
// is the sum over the rows of the smallest sizes, which are not in the roll-up themselves.
type row struct {
	profile    *profile
	variants   []*specVariant    // with a count above zero, in no order
	totals     []*resourceTotals // sorted by name
	members    []int32           // slots of the requests counted in it, in no order
	sent       *pb.CapacityNeed
	family     *family  // that it is a size of; nil: none, or no members
	overflowOf *family  // set for the overflow row of a family
	onWire     bool     // in the roll-up
	truncated  bool     // some of its variants are excluded
	left       leftOut  // why it is not in the roll-up
	placed     bool     // Place said where
	where      []string // domains of profile.near that it is confined to; none: any

	// Backing arrays. Where rows are many, most have one variant with few resources and need no further memory.
	inline struct {
		totals     [inlineTotals]resourceTotals
		used       int // of totals; entries are not reused
		totalsList [inlineTotals]*resourceTotals
		variant    [1]*specVariant
		members    [2]int32
	}
}

const inlineTotals = 2 // cpu and memory

func newRow(p *profile) *row {
	r := &row{profile: p}
	r.variants, r.totals, r.members = r.inline.variant[:0], r.inline.totalsList[:0], r.inline.members[:0]
	return r
}

// newTotals returns new totals for a resource of the row.
func (r *row) newTotals(name string) *resourceTotals {
	if r.inline.used == len(r.inline.totals) {
		return &resourceTotals{name: name}
	}
	r.inline.used++
	d := &r.inline.totals[r.inline.used-1]
	d.name = name
	return d
}

// resourceTotals sums one resource of a row.
type resourceTotals struct {
	name     string
	total    sum
	largest  int64 // of one request; outdated while stale is set
	stale    bool
	variants int32 // number of variants with the resource
}

func (r *row) findTotals(name string) (int, bool) {
	return slices.BinarySearchFunc(r.totals, name, func(d *resourceTotals, n string) int { return strings.Compare(d.name, n) })
}

// count adds one request with a variant of this row.
func (r *row) count(t *specVariant) {
	if t.count++; t.count == 1 {
		r.add(t)
	}
	for i, d := range t.totals {
		d.total.add(t.amounts[i].Milli)
	}
	r.invalidate()
}

// invalidate drops the encoded row and that of its overflow row.
func (r *row) invalidate() {
	r.sent = nil
	if !r.onWire && r.family != nil && r.family.overflow != nil {
		r.family.overflow.sent = nil
	}
}

// add stores a variant when its first request is counted.
func (r *row) add(t *specVariant) {
	t.at, t.excluded = int32(len(r.variants)), false
	r.variants = append(r.variants, t)
	if t.totals = t.inline[:]; len(t.amounts) > len(t.inline) {
		t.totals = make([]*resourceTotals, len(t.amounts))
	}
	t.totals = t.totals[:len(t.amounts)]
	for n, a := range t.amounts {
		i, ok := r.findTotals(a.Name)
		if !ok {
			r.totals = slices.Insert(r.totals, i, r.newTotals(a.Name))
		}
		d := r.totals[i]
		d.variants++
		d.largest = max(d.largest, a.Milli)
		t.totals[n] = d
	}
}

// uncount removes one request with a variant of this row.
func (r *row) uncount(t *specVariant) {
	for i, d := range t.totals {
		d.total.sub(t.amounts[i].Milli)
	}
	if t.count--; t.count == 0 {
		r.remove(t)
	}
	r.invalidate()
}

// remove drops a variant when its last request is gone.
func (r *row) remove(t *specVariant) {
	end := len(r.variants) - 1
	r.variants[t.at] = r.variants[end]
	r.variants[t.at].at = t.at
	r.variants = slices.Delete(r.variants, end, end+1)
	for n, d := range t.totals {
		if d.variants--; d.variants == 0 {
			i, _ := r.findTotals(d.name)
			r.totals = slices.Delete(r.totals, i, i+1)
		} else if t.amounts[n].Milli == d.largest {
			d.stale = true
		}
	}
	t.totals = nil
}

// need is the row as it is sent. It is built once per change and never modified afterwards.
func (r *row) need(limits bool) *pb.CapacityNeed {
	if r.sent != nil {
		return r.sent
	}
	p := r.profile.need
	r.sent = &pb.CapacityNeed{
		Requirements: r.requirements(), Priority: p.Priority, Spread: p.Spread,
		InterruptionPenaltyBucket: p.InterruptionPenaltyBucket, ReclamationPenaltyBucket: p.ReclamationPenaltyBucket,
		Group: p.Group, RowId: r.profile.id, Tolerations: p.Tolerations, TolerationsStated: p.TolerationsStated,
		MaxPerHost: p.MaxPerHost, NeverPreempts: p.NeverPreempts, MinMembers: p.MinMembers, Preferences: p.Preferences,
	}
	totals, variants := r.sums()
	if len(totals) > resourcesMax {
		totals, r.truncated = mostUsedTotals(variants), true
	} else if r.truncated {
		r.truncated = false
		for _, t := range variants {
			t.excluded = false
		}
	}
	r.sent.MinUnit = make(map[string]string, len(totals))
	one := true // one request makes up the whole row: sum and unit are equal
	for _, d := range totals {
		r.sent.MinUnit[d.name] = quantity.Format(d.name, d.largest)
		one = one && d.total == sum{lo: uint64(d.largest)}
	}
	if r.sent.AggregateResources = r.sent.MinUnit; !one {
		r.sent.AggregateResources = make(map[string]string, len(totals))
		for _, d := range totals {
			r.sent.AggregateResources[d.name] = d.total.text(d.name)
		}
	}
	r.forShard(variants, limits, one)
	return r.sent
}

// sums returns all totals of a row, and its variants.
func (r *row) sums() ([]*resourceTotals, []*specVariant) {
	if r.overflowOf == nil {
		for _, d := range r.totals {
			if d.stale {
				d.largest, d.stale = r.largest(d.name), false
			}
		}
		return r.totals, r.variants
	}
	all := row{}
	for _, part := range r.parts() {
		totals, variants := part.sums()
		all.variants = append(all.variants, variants...)
		for _, d := range totals {
			i, ok := all.findTotals(d.name)
			if !ok {
				all.totals = slices.Insert(all.totals, i, &resourceTotals{name: d.name})
			}
			all.totals[i].total.plus(d.total)
			all.totals[i].largest = max(all.totals[i].largest, d.largest)
		}
	}
	return all.totals, all.variants
}

func (r *row) largest(name string) (largest int64) {
	for _, t := range r.variants {
		for _, a := range t.amounts {
			if a.Name == name {
				largest = max(largest, a.Milli)
			}
		}
	}
	return largest
}

// mostUsedTotals sums a row over the variants that use only its most used resources, as many as the wire allows, and marks the
// other variants as excluded. The choice depends on the requests alone, not on their order.
func mostUsedTotals(variants []*specVariant) []*resourceTotals {
	uses := map[string]int{}
	for _, t := range variants {
		for _, a := range t.amounts {
			uses[a.Name] += int(t.count)
		}
	}
	names := slices.SortedFunc(maps.Keys(uses), func(a, b string) int {
		return cmp.Or(cmp.Compare(uses[b], uses[a]), strings.Compare(a, b))
	})[:resourcesMax]
	kept := row{}
	for _, t := range variants {
		t.excluded = slices.ContainsFunc(t.amounts, func(a request.Amount) bool { return !slices.Contains(names, a.Name) })
		if t.excluded {
			continue
		}
		for range t.count {
			kept.count(&specVariant{amounts: t.amounts})
		}
	}
	return kept.totals
}
