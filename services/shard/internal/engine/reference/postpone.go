package reference

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// postponing holds needs for one plan.
type postponing struct{ *State }

// postpone holds needs of clusters that would look at more domains than a plan may, but for one group of each (ENG-12.11).
func (n postponing) postpone() {
	most := n.Policy.DomainLooks
	for _, c := range n.Clusters {
		var list []*Need
		var groups []int64
		looks := int64(0)
		if most <= 0 {
			return
		}
		for _, d := range n.needs {
			if d.Cluster != c || d.hold != demand.NotHeld || !n.isShort(d) || d.Same == nil && d.Spread == nil || !slices.ContainsFunc(n.Machines, func(m *Machine) bool { return n.Usable(d, m) }) {
				continue
			}
			first := slices.IndexFunc(list, func(x *Need) bool {
				return x.Same != nil && d.Same != nil && x.Same.Key == d.Same.Key && x.Form.Match == d.Form.Match && x.MinUnit.Equal(&d.MinUnit)
			})
			list = append(list, d)
			if first >= 0 { // a gang that differs in size alone
				groups = append(groups, groups[first])
				continue
			}
			groups = append(groups, looks/most)
			looks += n.domains(d)
		}
		if all := (looks + most - 1) / most; all > 1 {
			n.Result.Counters.Groups = max(n.Result.Counters.Groups, int(all))
			for i, d := range list {
				if groups[i] != n.Result.Cycle%all {
					d.hold = demand.HeldPostponed
					n.Result.Counters.Postponed++
				}
			}
		}
	}
}

// domains is how many values of the key of d there are among owned machines that have not failed.
func (n postponing) domains(d *Need) int64 {
	key, values := "", map[string]bool{}
	if d.Same != nil {
		key = d.Same.Key
	} else {
		key = d.Spread.Key
	}
	for _, m := range n.Machines {
		if v, has := attr(&m.Machine, key); has && !m.Foreign && m.Seen != inventory.Failed {
			values[v] = true
		}
	}
	return int64(len(values))
}
