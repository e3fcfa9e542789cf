package engine

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// This file says what a machine contributes to a Need (ENG-4.12). A Need whose aggregate is a whole multiple of its min
// unit is Pods that are all alike, and of a machine it can use whole units only: the rest of the machine is of no use to
// it. All other Needs count what is there.

// wholeUnitsOf returns k if the aggregate is k whole units, k ≥ 1, and 0 if it is not.
func wholeUnitsOf(agg, unit []int64) int64 {
	if slices.Equal(agg, unit) { // mostly, and without a division
		if zero(unit) {
			return 0
		}
		return 1
	}
	k := int64(0)
	for j, u := range unit {
		if u > 0 {
			k = agg[j] / u
			break
		}
	}
	if k == 0 {
		return 0
	}
	for j, u := range unit {
		if u == 0 && agg[j] > 0 || u > 0 && (agg[j]%u != 0 || agg[j]/u != k) {
			return 0
		}
	}
	return k
}

// unitsIn is how many whole units fit into room. The unit is not empty.
func unitsIn(room, unit []int64) int64 {
	n := int64(-1)
	for j, u := range unit {
		if u == 0 {
			continue
		}
		if room[j] < u {
			return 0
		}
		if q := room[j] / u; n < 0 || q < n {
			n = q
		}
	}
	return n
}

// cut writes the whole units that fit into room to into, which may be room.
func cut(into, room, unit []int64) {
	n := unitsIn(room, unit)
	for j, u := range unit {
		into[j] = u * n
	}
}

// addRoom adds the units that a Need shall have beyond what it asks for (ENG-11.16). The gate bounds what is asked for, and the
// ledger gives at most as much again; an amount near the limit of what can be counted gets nothing.
func addRoom(agg, unit []int64, units int64) {
	if units <= 0 {
		return
	}
	for j, u := range unit {
		if agg[j] > roomMax || resource.MulSat(u, units) > roomMax {
			return
		}
	}
	for j, u := range unit {
		agg[j] += u * units
	}
}

const roomMax = 1 << 60

// amount is what a machine of a class with nothing on it contributes to w. The answer holds until the next question about w.
// The last one is remembered, as machines of a Need are mostly of one class: behind the vectors of w lie the amount and the
// serial of the class.
func (cl *clusterState) amount(w *want, class uint32) []int64 {
	sup := cl.f.of(class)
	if w.bits&wMany == 0 {
		return sup // of a single unit, what fits counts for all of it
	}
	k := len(sup)
	own := cl.vec[int(w.vec)+3*k:][: k+1 : k+1]
	if s := int64(cl.f.serial[class]); own[k] != s {
		own[k] = s
		cut(own[:k], sup, cl.unit(w))
	}
	return own[:k]
}

// worth is what a machine contributes to w, whole, while the shares of others on it stay. The result may be buf.
func (cl *clusterState) worth(w *want, l *local, buf []int64) []int64 {
	if l.out < 0 {
		return cl.amount(w, l.class)
	}
	buf = append(buf[:0], cl.supply(l)...)
	for i := l.shares; i >= 0; i = cl.shares[i].nextOn {
		if cl.shares[i].to != w.at {
			less(buf, cl.at_(cl.shares[i].vec, 0))
		}
	}
	return cl.inUnits(w, buf)
}

// inUnits is what room contributes to w; room is written over.
func (cl *clusterState) inUnits(w *want, room []int64) []int64 {
	if w.bits&wWhole != 0 {
		cut(room, room, cl.unit(w))
	}
	return room
}

// wholeShelves remembers what a machine of each shelf of a market contributes, while a cover looks at them.
type wholeShelves struct {
	asked uint32
	at    []uint32 // by shelf: asked, if known
	sup   []int64
}

func (x *wholeShelves) begin(c *coverer) {
	if !c.whole {
		return
	}
	if x.asked++; x.asked == 0 {
		clear(x.at)
		x.asked = 1
	}
	if n := len(c.mk.shelves); n > len(x.at) {
		x.at = append(x.at, make([]uint32, n-len(x.at))...)
	}
	if n := len(c.mk.shelves) * len(c.unit); n > len(x.sup) {
		x.sup = append(x.sup, make([]int64, n-len(x.sup))...)
	}
}

// amount is what a machine of a shelf contributes to the Need.
func (c *coverer) amount(s int32) []int64 {
	sup := c.mk.supply(s)
	if !c.whole {
		return sup
	}
	k := len(sup)
	out := c.cuts.sup[int(s)*k : int(s)*k+k]
	if c.cuts.at[s] != c.cuts.asked {
		c.cuts.at[s] = c.cuts.asked
		cut(out, sup, c.unit)
	}
	return out
}

func (c *coverer) amountOf(g int32) []int64 { return c.amount(c.mk.of[g]) }
