package reference

import (
	"cmp"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Load reads the machines and clusters of the world.
func (n *State) Load() {
	inv := n.World.Inventory
	for i := range inv.All() {
		m := &Machine{Index: i, Machine: inv.Machine(i), Seen: inv.Seen(i), Marks: inv.Withheld(i), Foreign: inv.Foreign(i), rank: inv.Occupancy(i).Rank(), inUse: inv.Occupancy(i).InUse(),
			since: inv.Since(i), ready: inv.Readiness(i)}
		m.Labels = inv.NodeLabels(i)
		list := m.Allocatable
		if len(list) == 0 {
			list = m.Resources
		}
		m.supply, _ = resource.Find(n.World.Space.Dimensions, list)
		m.typ, _ = n.World.Space.Strings.Find(m.InstanceType)
		if s, ok := inv.Attribution(i); ok {
			m.attribution = &s
		}
		if p, ok := inv.Promise(i); ok {
			m.Promise = &p
		}
		n.Machines = append(n.Machines, m)
	}
	for at, d := range n.World.Demand.Clusters() {
		n.Clusters = append(n.Clusters, &Cluster{Cluster: d, block: int32(at)})
	}
}

// attr looks up a label key of a machine; type and zone are labels too (ENG-6.1).
func attr(m *inventory.Machine, key string) (string, bool) {
	switch {
	case key == "node.kubernetes.io/instance-type" && m.InstanceType != "":
		return m.InstanceType, true
	case key == "topology.kubernetes.io/zone" && m.Zone != "":
		return m.Zone, true
	}
	for _, l := range m.Labels {
		if l.Key == key {
			return l.Value, true
		}
	}
	return "", false
}

// Match reports whether the labels of m answer every requirement of d and d tolerates every taint (ENG-6.2, 6.3a).
func (n *State) Match(d *Need, m *Machine) bool {
	return satisfies(m, d.Form.Requirements) && !repels(d, m, demand.NoSchedule, demand.NoExecute)
}

// satisfies reports whether the labels of m answer every requirement.
func satisfies(m *Machine, list []demand.Requirement) bool {
	for _, r := range list {
		v, has := attr(&m.Machine, r.Key)
		ok := false
		switch r.Op {
		case demand.In:
			ok = has && slices.Contains(r.Values, v)
		case demand.NotIn:
			ok = !has || !slices.Contains(r.Values, v)
		case demand.Exists:
			ok = has
		case demand.DoesNotExist:
			ok = !has
		case demand.Gt, demand.Lt:
			ok = has && r.Compares(v)
		case demand.Same:
			ok = has && (len(r.Values) == 0 || slices.Contains(r.Values, v))
		}
		if !ok {
			return false
		}
	}
	return true
}

// repels reports whether m has a taint of one of the effects that d does not tolerate.
func repels(d *Need, m *Machine, effects ...string) bool {
	return d.Form.TolerationsStated && slices.ContainsFunc(m.Taints, func(t inventory.Taint) bool {
		return slices.Contains(effects, t.Effect) && !slices.ContainsFunc(d.Form.Tolerations, func(o demand.Toleration) bool {
			return (o.Effect == "" || o.Effect == t.Effect) && (o.Key == "" || o.Key == t.Key) &&
				(o.Op == demand.TolerationExists || o.Value == t.Value)
		})
	})
}

// Supply is what m offers in a cluster: what the cluster has learnt of its type, else its allocatable resources less the overhead of the
// cluster (ENG-3.6, 3.8), in the dimensions that the cluster asks for.
func (n *State) Supply(m *Machine, c *Cluster) resource.Vector {
	var asked []*resource.Vector
	for i := range c.Needs {
		asked = append(asked, &c.Needs[i].Aggregate, &c.Needs[i].MinUnit)
	}
	return c.Supply(n.World.Space, m.typ, &m.supply, asked...)
}

// Usable reports whether m matches and one unit of d fits (ENG-6.3).
func (n *State) Usable(d *Need, m *Machine) bool {
	s := n.Supply(m, d.Cluster)
	return n.Match(d, m) && s.Covers(&d.MinUnit)
}

// InFlight reports what counts for a cluster beside what is bound to it (ENG-9.1): a Creating or Draining machine without a promise
// counts for no cluster (ENG-9.7), and a promise only for its own cluster (ENG-9.8).
func InFlight(m *Machine, c *Cluster) bool {
	return m.Promise != nil && m.Promise.Cluster == c.Name && !m.Foreign &&
		(m.Seen == inventory.Creating || m.Seen == inventory.Idle || m.Seen == inventory.Draining)
}

// ValueOf is the machine's value of a key, and whether it has one.
func ValueOf(m *Machine, key string) (string, bool) { return attr(&m.Machine, key) }

// Value is the machine's value of the key of a Same or spread term.
func Value(m *Machine, key string) string { v, _ := attr(&m.Machine, key); return v }

// selectMachines lists the machines that keep accepts, in an order.
func (n *State) selectMachines(keep func(m *Machine) bool, order func(a, b *Machine) int) []*Machine {
	var out []*Machine
	for _, m := range n.Machines {
		if keep(m) {
			out = append(out, m)
		}
	}
	slices.SortStableFunc(out, order)
	return out
}

// bound lists bound, creditable machines of a cluster: Configured, then Configuring, each in keep order.
func (n *State) bound(c *Cluster, keep func(m *Machine) bool) []*Machine {
	return n.selectMachines(func(m *Machine) bool {
		return m.Seen.Bound() && m.Cluster == c.Name && !m.excluded && keep(m)
	}, func(a, b *Machine) int {
		return cmp.Or(cmp.Compare(b.Seen, a.Seen), keepOrder(a, b)) // Configured is the larger number
	})
}

// inFlight lists in-flight machines of a cluster: Idle, Creating, Draining, each by id.
func (n *State) inFlight(c *Cluster, keep func(m *Machine) bool) []*Machine {
	rank := map[inventory.State]int{inventory.Idle: 0, inventory.Creating: 1, inventory.Draining: 2}
	return n.selectMachines(func(m *Machine) bool { return InFlight(m, c) && keep(m) },
		func(a, b *Machine) int { return cmp.Or(cmp.Compare(rank[a.Seen], rank[b.Seen]), byID(a, b)) })
}

// keepOrder is the order in which machines are kept: those whose nodes hold what is dearest to disturb, then pack order (ENG-7.3).
func keepOrder(a, b *Machine) int { return cmp.Or(cmp.Compare(b.rank, a.rank), packOrder(a, b)) }

// packOrder is cheapest first, then those that are dearest to reclaim (ENG-7.3).
func packOrder(a, b *Machine) int {
	return cmp.Or(cmp.Compare(a.Price, b.Price), cmp.Compare(reclamation(b), reclamation(a)), strings.Compare(a.ID, b.ID))
}

func reclamation(m *Machine) demand.Penalty {
	if m.attribution == nil {
		return 0
	}
	return m.attribution.Reclamation
}

func byID(a, b *Machine) int { return strings.Compare(a.ID, b.ID) }

// Cost is the effective cost of m for d: price plus the risk of an interruption times half its penalty (ENG-7.4), and a little for what d
// prefers otherwise (ENG-7.4a).
func (n *State) Cost(d *Need, m *Machine) int64 {
	risk := (int64(m.Probability)*int64(d.Form.Interruption.Penalty()) + 1) / 2
	disliked := int64(0)
	for _, p := range d.Form.Preferences {
		if !satisfies(m, p.Requirements) {
			disliked += int64(p.Weight+9) / 10
		}
	}
	if repels(d, m, demand.PreferNoSchedule) {
		disliked += 10
	}
	return resource.AddSat(resource.AddSat(m.Price, risk), disliked)
}

// pooled reports whether m is in a free pool. Marks for single clusters are not looked at.
func (n *State) pooled(m *Machine) bool {
	return !m.Foreign && (m.Seen == inventory.Idle || m.Seen == inventory.Speculative) && m.Promise == nil && m.claim == nil &&
		m.goesTo == nil && !WithheldFor(m, "")
}

// WithheldFor reports whether a mark keeps m from a cluster.
func WithheldFor(m *Machine, cluster string) bool {
	return slices.ContainsFunc(m.Marks, func(w inventory.Withheld) bool { return w.Cluster == "" || w.Cluster == cluster })
}

// free reports whether d may acquire m (ENG-12.7).
func (n *State) free(d *Need, m *Machine) bool {
	return n.pooled(m) && !WithheldFor(m, d.Cluster.Name) && n.Usable(d, m)
}
