package core

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
)

// SHARD-4.9, 8.9: the digest of a step does not look at the values that a row lists with each machine that is configured for it: fifty boot requests of a row of 16 MiB were two
// seconds of the loop. How many there are counts.
func TestTheDigestReadsNoListsOfValues(t *testing.T) {
	few, many := []demand.Requirement{{Key: "host", Op: demand.NotIn, Values: []string{"a"}}}, []demand.Requirement{{Key: "host", Op: demand.NotIn}}
	for i := range 100_000 {
		many[0].Values = append(many[0].Values, fmt.Sprint("node-", i))
	}
	for _, x := range []struct{ few, many Effect }{
		{PullBootstrap{Request: "r", Requirements: few}, PullBootstrap{Request: "r", Requirements: many}},
		{SendHint{Cluster: "red", Requirements: few}, SendHint{Cluster: "red", Requirements: many}},
	} {
		digest := func(e Effect) (allocated float64, sum uint64) {
			c := New(nil)
			allocated = testing.AllocsPerRun(10, func() {
				c.eff, c.rolled = append(c.eff[:0], e), 0
				c.rollEffects()
			})
			c = New(nil)
			c.eff = append(c.eff, e)
			c.rollEffects()
			return allocated, c.rolling.sum()
		}
		a, one := digest(x.few)
		b, other := digest(x.many)
		if b > a || one == other {
			t.Errorf("%T: %v allocations with one value, %v with 100,000; digests %x and %x", x.few, a, b, one, other)
		}
	}
}
