package planner_test

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ENG-6.1, SHARD-25.1: what hints count is what the literal match function counts, machine by machine.
func TestOffersCountWhatMatches(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		var offers explain.Offers
		n := newViews(w).n
		for _, c := range n.Clusters {
			for i := range c.Needs {
				need := c.Needs[i]
				got, want := offers.For(w, c.Cluster, &need), explain.Offer{Cost: -1}
				need.Form = need.Form.Stripped
				d := &reference.Need{Cluster: c, Need: need}
				for _, m := range n.Machines {
					s := n.Supply(m, c)
					pool := m.Seen == inventory.Idle || m.Seen == inventory.Speculative
					if m.Foreign || !pool || !n.Usable(d, m) || !s.Touches(&need.Aggregate) {
						continue
					}
					switch {
					case m.Promise != nil || reference.WithheldFor(m, ""):
						want.Withheld++
						continue
					case m.Seen == inventory.Idle:
						want.Idle++
					default:
						want.Speculative++
					}
					if cost := n.Cost(d, m); want.Cost < 0 || cost < want.Cost {
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
