package aggregate

import (
	"maps"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// FeatureLimits is the feature of shards that count Pods and attached volumes against what a Node takes, and compare labels as numbers (OP-5.26).
const FeatureLimits = "node-limits"

const (
	podsResource  = "pods"
	volumesPrefix = "attachable-volumes-"

	onePod = 1000 // thousandths
)

// SetLimits says whether the shard has FeatureLimits, and reports whether the rows changed.
func (a *Aggregate) SetLimits(on bool) (changed bool) {
	if a.limits == on {
		return false
	}
	a.limits = on
	for _, r := range a.byID {
		r.sent = nil
	}
	for _, r := range a.rows {
		r.sent = nil
	}
	return true
}

// Limits is what SetLimits said last.
func (a *Aggregate) Limits() bool { return a.limits }

// forShard makes a row one that the shard can read. Each request is one Pod of its Node. A shard without the feature would find no machine for
// a resource that no provider names: it gets the row without volumes. shared says that both vectors are one map.
func (r *row) forShard(variants []*specVariant, limits, shared bool) {
	n := r.sent
	if !limits {
		n.MinUnit, n.AggregateResources = withoutVolumes(n.MinUnit), withoutVolumes(n.AggregateResources)
		return
	}
	var total sum
	unit, requests := int64(0), int64(0)
	for _, t := range variants {
		if t.excluded || len(t.amounts) == 0 { // one without resources counts as nothing (OP-5.10)
			continue
		}
		each := int64(onePod)
		if i := slices.IndexFunc(t.amounts, isPods); i >= 0 {
			each = t.amounts[i].Milli
		}
		for range t.count {
			total.add(each)
		}
		unit, requests = max(unit, each), requests+int64(t.count)
	}
	if _, stated := n.MinUnit[podsResource]; requests == 0 || !stated && len(n.MinUnit) >= resourcesMax {
		return
	}
	if shared && requests > 1 {
		n.AggregateResources = maps.Clone(n.MinUnit)
	}
	n.MinUnit[podsResource] = quantity.Format(podsResource, unit)
	n.AggregateResources[podsResource] = total.text(podsResource)
}

func isPods(a request.Amount) bool { return a.Name == podsResource }

func withoutVolumes(m map[string]string) map[string]string {
	for name := range m {
		if strings.HasPrefix(name, volumesPrefix) {
			delete(m, name)
		}
	}
	return m
}
