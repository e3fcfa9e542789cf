package planner

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"pgregory.net/rapid"
)

// ENG-21.9, ENG-10.6: a gang that looks at bounds of domains chooses the one that it would choose if it looked at each, whatever it asks for, while machines
// come and go.
func TestBoundsOfDomainsChooseAsAllDomainsDo(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 21))
		domains, supplies, k := 1+r.IntN(40), 1+r.IntN(4), 1+r.IntN(3)
		top := &topState{}
		top.Plan = 1
		top.byRank = make([]int32, domains)
		top.rank = make([]int32, domains)
		for rank, d := range r.Perm(domains) {
			top.byRank[rank], top.rank[d] = int32(d), int32(rank)
		}
		c := &domainCounts{supplies: supplies, known: make([]bool, domains), epoch: 1}
		for p := range c.n {
			c.n[p] = make([]int32, domains*supplies)
			for i := range c.n[p] {
				c.n[p][i] = int32(max(0, r.IntN(6)-2))
			}
		}
		most := rapid.SampledFrom([]int64{4, 100, 1 << 30, math.MaxInt64 / 4}).Draw(rt, "most") // the last ones saturate
		s := &domainSums{c: c, f: &match.Projection{Dims: make([]resource.Dim, k)}}
		for n := range supplies {
			s.fit = append(s.fit, uint32(n))
			for range k {
				s.sup = append(s.sup, r.Int64N(most))
			}
		}
		for range 20 {
			s.sync(top)
			q := domainQuery{s: s, agg: make([]int64, k), at: -1}
			for j := range q.agg {
				q.agg[j] = r.Int64N(most) * int64(r.IntN(4))
			}
			for range r.IntN(3) {
				q.skip = append(q.skip, int32(r.IntN(domains)))
			}
			q.below(1, q.bound(1))
			at, best := int32(-1), domainPlace{}
			for d := range int32(domains) {
				leaf := s.leaf[d]
				if s.count[leaf] == 0 || slices.Contains(q.skip, d) {
					continue
				}
				if x := placeOf(s.at(leaf, 0, 1), s.at(leaf, 1, 1), s.at(leaf, 1, 1), q.agg, s.count[leaf], top.rank[d]); at < 0 || x.better(&best) {
					at, best = d, x
				}
			}
			if q.at != at || q.best != best {
				rt.Fatalf("domain %d with %+v, but %d is better with %+v", q.at, q.best, at, best)
			}
			for range r.IntN(4) {
				p, d, n := r.IntN(2), int32(r.IntN(domains)), r.IntN(supplies)
				c.n[p][int(d)*supplies+n] = int32(max(0, r.IntN(6)-2))
				c.note(d)
			}
		}
	})
}
