package core

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
)

// demandOf is the demand of a cluster in machines, from the plan: the machines that its needs claim, those that the plan
// takes and buys included, and for what a short need lacks as many more as its own claims are worth, or one for each of
// its units when it has none (SHARD-29.3).
func demandOf(b *engine.Block) (out []PenaltyDemand) {
	add := func(bucket demand.Bucket, n int) {
		if n == 0 {
			return
		}
		at, ok := slices.BinarySearchFunc(out, bucket, func(d PenaltyDemand, b demand.Bucket) int { return int(d.Bucket) - int(b) })
		if !ok {
			out = slices.Insert(out, at, PenaltyDemand{Bucket: bucket})
		}
		out[at].Machines += n
	}
	claims := make([]int, len(b.Needs))
	for _, c := range b.Claims {
		if c.Row >= engine.FoldedRow {
			add(b.Folded[c.Row-engine.FoldedRow].Need.Form.Interruption.Canonical(), 1)
			continue
		}
		claims[c.Row]++
	}
	for i, n := range claims {
		v := &b.Verdicts[i]
		if v.Status == engine.Short {
			n += lacking(b, v, n)
		}
		add(b.Needs[i].Form.Interruption.Canonical(), n)
	}
	return out
}

// lacking estimates how many machines a short row is away from being met.
func lacking(b *engine.Block, v *engine.Verdict, claims int) int {
	if covered := int(v.CoveragePerMille); claims > 0 && covered > 0 {
		return (claims*(1000-covered) + covered - 1) / covered
	}
	if v.Missing < 0 {
		return 1
	}
	residual, unit := &b.Missing[v.Missing].Residual, &b.Needs[b.Missing[v.Missing].Row].MinUnit
	most := int64(1)
	for i := range unit.Len() {
		most = max(most, (residual.Get(unit.Dim(i))+unit.Val(i)-1)/unit.Val(i))
	}
	return int(min(most, 1<<20))
}

func sumDemand(list []*NeedBlock) (out []PenaltyDemand) {
	var sums [demand.Pinned + 1]int
	for _, b := range list {
		for _, d := range b.Demand {
			sums[d.Bucket] += d.Machines
		}
	}
	for b, n := range sums {
		if n > 0 {
			out = append(out, PenaltyDemand{demand.Bucket(b), n})
		}
	}
	return out
}

// sharingLevels counts the clusters with demand by sharing level, in the order of engine.SharingLevels.
func (c *publisher) sharingLevels() (out [3]int) {
	levels := ledger.SharingLevels()
	for _, cl := range c.world.Demand.Clusters() {
		if len(cl.Needs) > 0 {
			out[max(0, slices.Index(levels, cl.Facts.SharingPerMille))]++
		}
	}
	return out
}
