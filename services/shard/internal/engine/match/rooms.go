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

// Reset empties the rooms.
func (r *Rooms) Reset(skew, minDomains int32) {
	r.Values, r.Units, r.Skew, r.MinDomains = r.Values[:0], r.Units[:0], skew, minDomains
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
func (r *Rooms) Served() int64 { return r.served(func(i int) int64 { return r.Units[i] }) }

func (r *Rooms) served(units func(i int) int64) (sum int64) {
	low := int64(math.MaxInt64)
	for i := range r.Units {
		low = min(low, units(i))
	}
	most := r.mayHold(low)
	for i := range r.Units {
		sum = resource.AddSat(sum, min(units(i), most))
	}
	return sum
}

// Gain is how many units more run with so much more room under a value. It may be one that does not count yet.
func (r *Rooms) Gain(v symbol.ID, units int64) int64 {
	n := len(r.Values)
	before, at := r.Served(), r.Position(v)
	gain := r.with(at, units) - before
	r.Values, r.Units = r.Values[:n], r.Units[:n]
	return gain
}

// Useful is how many of the units that are offered under a value are of use: as few as serve what they all serve, or what is needed.
func (r *Rooms) Useful(v symbol.ID, offered, needs int64) int64 {
	if at := slices.Index(r.Values, v); at >= 0 && r.Units[at] >= r.mayHold(slices.Min(r.Units)) {
		return 0 // it has as much as it may: more there is of no use until the others have more
	}
	n := len(r.Values)
	before, at := r.Served(), r.Position(v)
	want := min(r.with(at, offered)-before, needs)
	units := smallest(offered, func(x int64) bool { return r.with(at, x)-before >= want })
	r.Values, r.Units = r.Values[:n], r.Units[:n]
	return units
}

// with is how many units run with so much more or less room at a position.
func (r *Rooms) with(at int, units int64) int64 {
	return r.served(func(i int) int64 {
		if i == at {
			return resource.AddSat(r.Units[i], units)
		}
		return r.Units[i]
	})
}

// Spares reports whether so many units run with so much less room at a position.
func (r *Rooms) Spares(at int, units, asked int64) bool {
	return r.served(func(i int) int64 {
		if i == at {
			return r.Units[i] - units
		}
		return r.Units[i]
	}) >= asked
}

// Raised is how many units run if each value that grows has at least so much room.
func (r *Rooms) Raised(grows []bool, level int64) int64 {
	return r.served(func(i int) int64 {
		if grows[i] {
			return max(r.Units[i], level)
		}
		return r.Units[i]
	})
}

// Level is the least room for all values that grow with which so many units run, or the most that is of use.
func (r *Rooms) Level(grows []bool, asked int64) int64 {
	low := int64(math.MaxInt64)
	for i, u := range r.Units {
		if !grows[i] {
			low = min(low, u)
		}
	}
	return smallest(min(asked, r.mayHold(low)), func(level int64) bool { return r.Raised(grows, level) >= asked })
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
