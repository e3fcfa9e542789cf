package planner

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"

// What a machine contributes to a need (ENG-4.12): a need whose aggregate is a whole multiple of its min
// unit is Pods that are all alike, so it uses whole units of a machine only.
// All other needs count everything that the machine supplies.

// amount is what a machine of a class with nothing on it contributes to w. The answer holds until the next question about w.
// The last one is remembered, as machines of a Need are mostly of one class: behind the vectors of w lie the amount and the
// serial of the class.
func (cl *clusterState) amount(w *needState, class uint32) []int64 {
	sup := cl.f.Supply(class)
	if w.bits&wMany == 0 {
		return sup // of a single unit, what fits counts for all of it
	}
	k := len(sup)
	own := cl.vec[int(w.vec)+3*k:][: k+1 : k+1]
	if s := int64(cl.f.Serial[class]); own[k] != s {
		own[k] = s
		match.WholeUnits(own[:k], sup, cl.unit(w))
	}
	return own[:k]
}

// worth is what a machine contributes to w, whole, while the shares of others on it stay. The result may be buf.
func (cl *clusterState) worth(w *needState, l *machineState, buf []int64) []int64 {
	if l.out < 0 {
		return cl.amount(w, l.class)
	}
	buf = append(buf[:0], cl.supply(l)...)
	for i := l.shares; i >= 0; i = cl.shares[i].nextOn {
		if cl.shares[i].to != w.at {
			match.Subtract(buf, cl.at_(cl.shares[i].vec, 0))
		}
	}
	return cl.inUnits(w, buf)
}

// inUnits is what room contributes to w; room is written over.
func (cl *clusterState) inUnits(w *needState, room []int64) []int64 {
	if w.bits&wWhole != 0 {
		match.WholeUnits(room, room, cl.unit(w))
	}
	return room
}

// wholeShelves remembers what a machine of each supply group of a candidate index contributes, while a cover looks at them.
type wholeShelves struct {
	asked uint32
	at    []uint32 // by supply group: asked, if known
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
	if n := len(c.mk.groups); n > len(x.at) {
		x.at = append(x.at, make([]uint32, n-len(x.at))...)
	}
	if n := len(c.mk.groups) * len(c.unit); n > len(x.sup) {
		x.sup = append(x.sup, make([]int64, n-len(x.sup))...)
	}
}

// amount is what a machine of a supply group contributes to the Need.
func (c *coverer) amount(s int32) []int64 {
	sup := c.mk.supply(s)
	if !c.whole {
		return sup
	}
	k := len(sup)
	out := c.cuts.sup[int(s)*k : int(s)*k+k]
	if c.cuts.at[s] != c.cuts.asked {
		c.cuts.at[s] = c.cuts.asked
		match.WholeUnits(out, sup, c.unit)
	}
	return out
}

func (c *coverer) amountOf(g int32) []int64 { return c.amount(c.mk.of[g]) }
