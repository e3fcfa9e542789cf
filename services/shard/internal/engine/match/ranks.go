package match

import (
	"math"
	"slices"
	"sort"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Ranks answers how many units run if the room under few values were another, without looking at all of thousands of values each time.
type Ranks struct {
	units []int64 // of Rooms, ascending
	sums  []int64 // of the first ones
}

// ranksMin is how many values are looked at each time.
const ranksMin = 4

// Change is so much more or less room under one value.
type Change struct {
	At    int // position; -1: a value that does not count yet, if New, or none
	Units int64
	New   bool
}

// from is what units become.
func (c Change) from(units int64) int64 {
	if c.Units < 0 {
		return units + c.Units
	}
	return resource.AddSat(units, c.Units)
}

// Of makes the ranks those of rooms. They hold until these change.
func (k *Ranks) Of(r *Rooms) {
	k.units, k.sums = k.units[:0], k.sums[:0]
	if len(r.Units) <= ranksMin {
		return
	}
	k.units, k.sums = append(k.units, r.Units...), append(k.sums, 0)
	slices.Sort(k.units)
	for i, u := range k.units {
		k.sums = append(k.sums, resource.AddSat(k.sums[i], u))
	}
}

// Served is Rooms.Served after changes.
func (k *Ranks) Served(r *Rooms, changes ...Change) int64 {
	if len(k.sums) == 0 || k.sums[len(k.units)] == math.MaxInt64 { // few, or sums say nothing
		return k.slowly(r, changes)
	}
	var at [4]int
	var was, now [4]int64 // under the values that change
	n, added := 0, 0
	for _, c := range changes {
		switch i := slices.Index(at[:n], c.At); {
		case c.At < 0 && !c.New:
		case c.At < 0:
			at[n], was[n], now[n] = -1, -1, c.Units
			n, added = n+1, added+1
		case i >= 0: // the same value again
			now[i] = c.from(now[i])
		default:
			at[n], was[n], now[n] = c.At, r.Units[c.At], c.from(r.Units[c.At])
			n++
		}
	}
	low, left := int64(math.MaxInt64), was
	for _, u := range k.units[:min(n+1, len(k.units))] { // the least of those that stay
		if i := slices.Index(left[:n], u); i >= 0 {
			left[i] = -1
			continue
		}
		low = u
		break
	}
	for _, u := range now[:n] {
		low = min(low, u)
	}
	if len(r.Values)+added < int(r.MinDomains) {
		low = 0
	}
	most := resource.AddSat(low, int64(r.Skew))
	i := sort.Search(len(k.units), func(i int) bool { return k.units[i] > most })
	sum := resource.AddSat(k.sums[i], resource.MulSat(most, int64(len(k.units)-i)))
	for i := range n {
		sum += min(now[i], most) - min(max(0, was[i]), most)
	}
	return sum
}

// slowly looks at all values.
func (k *Ranks) slowly(r *Rooms, changes []Change) int64 {
	n, was := len(r.Values), [4]int64{}
	for i, c := range changes {
		if c.At >= 0 {
			was[i], r.Units[c.At] = r.Units[c.At], c.from(r.Units[c.At])
		} else if c.New {
			r.Values, r.Units = append(r.Values, 0), append(r.Units, c.Units)
		}
	}
	sum := r.Served()
	r.Values, r.Units = r.Values[:n], r.Units[:n]
	for i, c := range slices.Backward(changes) {
		if c.At >= 0 {
			r.Units[c.At] = was[i]
		}
	}
	return sum
}
