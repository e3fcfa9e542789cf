package cover

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"

// groupAmounts remembers what a machine of each supply group of a candidate index contributes, while a cover looks at them.
type groupAmounts struct {
	asked uint32
	at    []uint32 // by supply group: asked, if known
	sup   []int64
}

func (x *groupAmounts) begin(c *Search) {
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
func (c *Search) amount(s int32) []int64 {
	sup := c.mk.supply(s)
	if !c.whole {
		return sup
	}
	k := len(sup)
	out := c.cuts.sup[int(s)*k : int(s)*k+k]
	if c.cuts.at[s] != c.cuts.asked {
		c.cuts.at[s] = c.cuts.asked
		match.WholeUnits(out, sup, c.unit, c.perHost)
	}
	return out
}

func (c *Search) amountOf(g int32) []int64 { return c.amount(c.mk.of[g]) }
