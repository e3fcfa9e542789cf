package match

import (
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Rooms is how many units of a need have room under each value of its spread key that counts (ENG-13.9). kube-scheduler puts no more under
// one value than the least number under any of them and the skew.
type Rooms struct {
	Values     []symbol.ID
	Units      []int64 // under each of them
	Skew       int32
	MinDomains int32
}

// Reset begins again with empty rooms under some values.
func (r *Rooms) Reset(skew, minDomains int32, values []symbol.ID) {
	r.Values, r.Units, r.Skew, r.MinDomains = append(r.Values[:0], values...), r.Units[:0], skew, minDomains
	for range values {
		r.Units = append(r.Units, 0)
	}
}

// Copy makes the rooms equal to others.
func (r *Rooms) Copy(of *Rooms) {
	r.Values, r.Units, r.Skew, r.MinDomains = append(r.Values[:0], of.Values...), append(r.Units[:0], of.Units...), of.Skew, of.MinDomains
}

// Position returns where a value is counted. It begins to count if it did not.
func (r *Rooms) Position(v symbol.ID) int {
	for i, x := range r.Values {
		if x == v {
			return i
		}
	}
	r.Values, r.Units = append(r.Values, v), append(r.Units, 0)
	return len(r.Values) - 1
}

// Add adds room under a value.
func (r *Rooms) Add(v symbol.ID, units int64) {
	i := r.Position(v)
	r.Units[i] = resource.AddSat(r.Units[i], units)
}

// mayHold is how many units one value may hold if the least number under any is low.
func (r *Rooms) mayHold(low int64) int64 {
	if len(r.Values) < int(r.MinDomains) {
		low = 0
	}
	return resource.AddSat(low, int64(r.Skew))
}

// Served is how many units run in the end, in whatever order they come.
func (r *Rooms) Served() int64 { return r.Raised(nil, 0) }

// Total is the room under all values.
func (r *Rooms) Total() (sum int64) {
	for _, u := range r.Units {
		sum = resource.AddSat(sum, u)
	}
	return sum
}

// Helps reports whether more units run with so much more room under a value. It may be one that does not count yet.
func (r *Rooms) Helps(v symbol.ID, units int64) bool {
	if at := slices.Index(r.Values, v); at >= 0 {
		return units > 0 && r.Units[at] < r.Most()
	}
	n := len(r.Values)
	before, at := r.Served(), r.Position(v)
	after := r.with(at, units)
	r.Values, r.Units = r.Values[:n], r.Units[:n]
	return after > before
}

// Most is how many units any of the values may hold now.
func (r *Rooms) Most() int64 {
	low := int64(math.MaxInt64)
	for _, u := range r.Units {
		low = min(low, u)
	}
	return r.mayHold(low)
}

// Useful is how many of the units that are offered at a position are of use when so many run already: as few as serve what they all serve, or
// what is needed.
func (r *Rooms) Useful(at int, offered, needs, run int64) int64 {
	low := int64(math.MaxInt64) // of the others
	for i, u := range r.Units {
		if i != at {
			low = min(low, u)
		}
	}
	offered = min(offered, r.mayHold(low)-r.Units[at]) // more there is of no use until the others have more
	if offered <= 0 {
		return 0
	}
	want := min(r.with(at, offered)-run, needs)
	if want <= 0 { // a value that begins to count may let the others hold less
		return 0
	}
	return smallest(offered, func(x int64) bool { return r.with(at, x)-run >= want })
}

// with is how many units run with so much more or less room at a position.
func (r *Rooms) with(at int, units int64) int64 {
	u := r.Units[at]
	r.Units[at] = resource.AddSat(u, units)
	sum := r.Served()
	r.Units[at] = u
	return sum
}

// Spares reports whether so many units run with so much less room at a position.
func (r *Rooms) Spares(at int, units, asked int64) bool {
	r.Units[at] -= units
	spared := r.Served() >= asked
	r.Units[at] += units
	return spared
}

// Raised is how many units run if each value that grows has at least so much room.
func (r *Rooms) Raised(grows []bool, level int64) (sum int64) {
	raised := func(i int, u int64) int64 {
		if i < len(grows) && grows[i] {
			return max(u, level)
		}
		return u
	}
	low := int64(math.MaxInt64)
	for i, u := range r.Units {
		low = min(low, raised(i, u))
	}
	most := r.mayHold(low)
	for i, u := range r.Units {
		sum = resource.AddSat(sum, min(raised(i, u), most))
	}
	return sum
}

// Level is the least room for all values that grow with which so many units run, or the most that is of use.
func (r *Rooms) Level(grows []bool, asked int64) int64 {
	low := int64(math.MaxInt64)
	for i, u := range r.Units {
		if !grows[i] {
			low = min(low, u)
		}
	}
	most, least := max(0, min(asked, r.mayHold(low))), int64(0)
	if lacks := asked - r.Served(); lacks > 0 { // with one level more, no more than one unit more runs under each value
		least = min(most, (lacks-1)/int64(max(1, len(r.Units)))+1)
	}
	if r.Raised(grows, least) >= asked {
		return least
	}
	return smallest(most, func(level int64) bool { return level > least && r.Raised(grows, level) >= asked })
}

// Layers replaces the room under each value by what so many units take of it when they lie as evenly as there is room, one more under the
// values that come first.
func (r *Rooms) Layers(units int64) {
	held := func(level int64) (sum int64) {
		for _, u := range r.Units {
			sum = resource.AddSat(sum, min(u, level))
		}
		return sum
	}
	units = min(units, held(math.MaxInt64))
	level := smallest(units, func(level int64) bool { return held(level) >= units })
	more := units - held(level-1)
	for i, u := range r.Units {
		r.Units[i] = min(u, max(0, level-1))
		if u >= level && more > 0 {
			r.Units[i]++
			more--
		}
	}
}

// smallest is the least number up to most of which is is true, or most. is stays true once it is.
func smallest(most int64, is func(x int64) bool) int64 {
	lo := int64(0)
	for lo < most {
		if mid := lo + (most-lo)/2; is(mid) {
			most = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}
