package engine

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ENG-6.1, SHARD-25.1: what hints count is what the literal match function counts, machine by machine.
func TestOffersCountWhatMatches(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		var offers Offers
		n := newViews(w).n
		for _, c := range n.clusters {
			for i := range c.d.Needs {
				need := c.d.Needs[i]
				got, want := offers.For(w, c.d, &need), Offer{Cost: -1}
				need.Form = need.Form.Stripped
				d := &nNeed{c: c, n: need}
				for _, m := range n.machines {
					s := n.supply(m, c)
					pool := m.state == inventory.Idle || m.state == inventory.Speculative
					if m.foreign || !pool || !n.usable(d, m) || !s.Touches(&need.Aggregate) {
						continue
					}
					switch {
					case m.promise != nil || withheldFor(m, ""):
						want.Withheld++
						continue
					case m.state == inventory.Idle:
						want.Idle++
					default:
						want.Speculative++
					}
					if cost := n.cost(d, m); want.Cost < 0 || cost < want.Cost {
						want.Cost = cost
					}
				}
				if got.Idle != want.Idle || got.Speculative != want.Speculative || got.Withheld != want.Withheld || got.Cost != want.Cost {
					return fmt.Errorf("row %s: %+v, want %+v", need.RowID, got, want)
				}
			}
		}
		return nil
	})
}
