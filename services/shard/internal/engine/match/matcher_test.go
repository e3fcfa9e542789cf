package match

import (
	"fmt"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// ENG-6.2: a requirement means the same however many values it lists, also for a class that comes later. Lists of few values are looked up, longer ones searched.
func TestListsOfAnyLength(t *testing.T) {
	for _, n := range []int{1, 2, resolvedMax, resolvedMax + 1, 1000} {
		tab := inventory.New(symbol.NewSpace())
		values := make([]string, n)
		for i := range values {
			values[i] = fmt.Sprintf("rack-%d", 2*i)
		}
		one := demand.Row{Profile: demand.Profile{Requirements: []demand.Requirement{{Key: "rack", Values: values}}}}
		for _, op := range []demand.Operator{demand.In, demand.NotIn, demand.Same} {
			one.Profile.Requirements[0].Op = op
			m := NewMatcher(&demand.Form{Profile: one.Profile.Canonical()}, tab)
			tab.SetMatchKeys(inventory.MatchKeys{Values: []string{"rack"}})
			for _, rack := range []string{"rack-0", fmt.Sprintf("rack-%d", 2*(n-1)), "rack-1", "", "a", "z"} {
				machine := inventory.Machine{ID: fmt.Sprint("m", op, rack), State: inventory.Idle, Provider: "p"}
				if rack != "" {
					machine.Labels = []inventory.Label{{Key: "rack", Value: rack}}
				}
				tab.Put(machine)
				m.resolve(tab)
				for id := range tab.Classes() {
					value, has := tab.ClassAttr(tab.Class(uint32(id)), "rack")
					listed := has && slices.Contains(values, value)
					if got := m.Matches(tab, uint32(id)); got != (listed != (op == demand.NotIn)) {
						t.Errorf("%d values, operator %d, rack %q: %v", n, op, value, got)
					}
				}
			}
		}
	}
}
