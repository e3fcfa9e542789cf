package planner

import (
	"math/rand/v2"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
	"pgregory.net/rapid"
)

// ENG-P16: the order of domains is antisymmetric, transitive and total, so the choice does not depend on who is looked at
// first.
func TestDomainOrder(t *testing.T) {
	w := engine.NewWorld()
	var values []symbol.ID
	for _, v := range []string{"a", "b", "c", "d", "e"} {
		values = append(values, w.Space.Strings.Intern(v))
	}
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 16))
		var list []RankedDomain
		for _, v := range values {
			want := []int64{int64(1 + r.IntN(4)), int64(r.IntN(4))}
			part := func() []int64 { return []int64{int64(r.IntN(3)), int64(r.IntN(3))} }
			sum := part()
			own := []int64{min(sum[0], int64(r.IntN(3))), min(sum[1], int64(r.IntN(3)))}
			list = append(list, RankDomain(want, v, sum, own, part(), part(), int32(1+r.IntN(3))))
		}
		for i := range list {
			for j := range list {
				ij, ji := CompareDomains(w.Space.Strings, &list[i], &list[j]), CompareDomains(w.Space.Strings, &list[j], &list[i])
				if ij != -ji || (ij == 0) != (i == j) {
					rt.Fatalf("%+v and %+v: %d and %d", list[i], list[j], ij, ji)
				}
				for k := range list {
					if ij < 0 && CompareDomains(w.Space.Strings, &list[j], &list[k]) < 0 && CompareDomains(w.Space.Strings, &list[i], &list[k]) >= 0 {
						rt.Fatalf("not transitive: %+v, %+v, %+v", list[i], list[j], list[k])
					}
				}
			}
		}
	})
}
