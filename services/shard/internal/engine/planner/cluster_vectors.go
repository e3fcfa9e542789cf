package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// vectors is the numbers of one cluster, in the dimensions that its demand names. It knows what a machine contributes to a need (ENG-4.12): a need
// whose aggregate is a whole multiple of its min unit is Pods that are all alike, so it uses whole units of a machine only. All other needs count
// everything that the machine supplies.
type vectors struct {
	f    *match.Projection
	dims []resource.Dim
	vec  []int64 // all vectors of the Needs
	more []int64 // those that credit and acquisition add, of machines and shares: Needs can be too many to copy
}

func (v *vectors) dimensions() int { return len(v.dims) }

func (v *vectors) alloc(n int) int32     { return v.allocIn(&v.vec, n) }
func (v *vectors) allocMore(n int) int32 { return v.allocIn(&v.more, n) }

func (v *vectors) allocIn(list *[]int64, n int) int32 {
	at, size := len(*list), n*v.dimensions()
	*list = slices.Grow(*list, size)[:at+size]
	clear((*list)[at:])
	return int32(at)
}

func (v *vectors) at_(off int32, n int) []int64    { return v.in(v.vec, off, n) }
func (v *vectors) moreAt(off int32, n int) []int64 { return v.in(v.more, off, n) }

func (v *vectors) in(list []int64, off int32, n int) []int64 {
	k := v.dimensions()
	from := int(off) + n*k
	return list[from : from+k : from+k]
}

func (v *vectors) aggregate(w *needState) []int64 { return v.at_(w.vec, 0) }
func (v *vectors) unit(w *needState) []int64      { return v.at_(w.vec, 1) }
func (v *vectors) rest(w *needState) []int64      { return v.at_(w.vec, 2) }
func (v *vectors) short(w *needState) bool        { return !match.IsZero(v.rest(w)) }

func (v *vectors) supply(l *machineState) []int64 { return v.f.Supply(l.class) }

// amount is what a machine of a class with nothing on it contributes to w. The answer holds until the next question about w.
// The last one is remembered, as machines of a Need are mostly of one class: behind the vectors of w lie the amount, the
// serial of the class and the limit per host.
func (v *vectors) amount(w *needState, class uint32) []int64 {
	sup := v.f.Supply(class)
	if w.bits&wMany == 0 {
		return sup // of a single unit, what fits counts for all of it
	}
	k := len(sup)
	own := v.vec[int(w.vec)+3*k:][: k+1 : k+1]
	if s := int64(v.f.Serial[class]); own[k] != s {
		own[k] = s
		match.WholeUnits(own[:k], sup, v.unit(w), v.perHost(w))
	}
	return own[:k]
}

// perHost is how many units of w one machine may hold; 0 is no limit (ENG-4.12a). A single unit needs none.
func (v *vectors) perHost(w *needState) int32 {
	if w.bits&wMany == 0 {
		return 0
	}
	return int32(v.vec[int(w.vec)+4*v.dimensions()+1])
}

// inUnits is what room contributes to w; room is written over.
func (v *vectors) inUnits(w *needState, room []int64) []int64 {
	if w.bits&wWhole != 0 {
		match.WholeUnits(room, room, v.unit(w), v.perHost(w))
	}
	return room
}

// projected is a vector of the demand in the frame of the cluster, until the next one.
func (v *vectors) projected(d *resource.Vector, x *scratch) []int64 {
	x.rest = slices.Grow(x.rest[:0], v.dimensions())[:v.dimensions()]
	v.f.Project(d, x.rest)
	return x.rest
}

// unitsIn is how many whole units of w an amount is. With more than one unit it is nothing else, so that one dimension tells.
func (v *vectors) unitsIn(w *needState, amount []int64) int64 {
	unit := v.unit(w)
	if w.bits&wMany == 0 {
		return match.UnitsIn(amount, unit)
	}
	for j, u := range unit {
		if u > 0 {
			return amount[j] / u
		}
	}
	return 0
}

// lacks takes off all, what a Need with a hard spread asks for, the units that run.
func (v *vectors) lacks(w *needState, all []int64, run int64) []int64 {
	for j, u := range v.unit(w) {
		all[j] = max(0, all[j]-resource.MulSat(u, run))
	}
	return all
}
