package inventory

import (
	"maps"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Live reports whether i names a machine now.
func (t *Table) Live(i Index) bool { return int(i) < t.rows.n && t.rows.at(i).flags&isLive != 0 }

// Machine returns what the provider says about a machine, in plain form and sorted. It is for records and reads; plans
// use Row and Class.
func (t *Table) Machine(i Index) Machine {
	r := t.rows.at(i)
	s := &t.shapes.all[t.classes[r.Class].Shape]
	str := t.space.Strings
	m := Machine{ID: t.ID(i), Provider: str.Text(s.Provider), State: r.State(), InstanceType: str.Text(s.Type), Zone: str.Text(s.Zone),
		CapacityType: s.Capacity, Price: s.Price, Probability: s.Probability, DrainSeconds: s.DrainSeconds, Cluster: t.space.Clusters.Text(r.Cluster),
		Taints: slices.Clone(s.Taints), LastError: t.errors[i].text, Failure: t.errors[i].class}
	if !s.Resources.IsZero() {
		m.Resources = s.Resources.Quantities(t.space.Dimensions)
	}
	if !s.Allocatable.IsZero() {
		m.Allocatable = s.Allocatable.Quantities(t.space.Dimensions)
	}
	m.Labels = t.listLabels(t.providerLabels(i))
	m.HostProvider, m.HostRef = t.host(i)
	return m
}

// ID returns the id of a machine. The string stays valid after the machine is gone.
func (t *Table) ID(i Index) string { return t.ids.text(t.idRef[i]) }

// Row returns the part of a machine that plans touch. It is the table's own and valid until the next write.
func (t *Table) Row(i Index) *Row { return t.rows.at(i) }

// State returns the state as the provider says it or as the shard moved it.
func (t *Table) State(i Index) State { return t.rows.at(i).State() }

// Seen returns the state as the engine sees it: Failed if the machine is stuck.
func (t *Table) Seen(i Index) State { return t.rows.at(i).Seen() }

// Cluster returns the cluster a machine is bound to, or "".
func (t *Table) Cluster(i Index) string { return t.space.Clusters.Text(t.rows.at(i).Cluster) }

// Attribution says for which Need a machine was bound.
func (t *Table) Attribution(i Index) (Attribution, bool) {
	id := t.rows.at(i).Attribution
	if id == 0 {
		return Attribution{}, false
	}
	s := &t.attributions.all[id]
	fp, group := t.space.Keys.Text(s.Key)
	return Attribution{Fingerprint: fp, Group: group, Priority: s.Priority, Interruption: s.Interruption, Reclamation: s.Reclamation}, true
}

// AttributionRow returns an attribution by its number in Row; that of 0 is empty.
func (t *Table) AttributionRow(id uint32) *AttributionRow { return &t.attributions.all[id] }

// Promise returns the promise of a machine.
func (t *Table) Promise(i Index) (Promise, bool) {
	p, ok := t.promises[i]
	return p, ok
}

// Withheld returns the marks of a machine, by reason and cluster. The slice is the table's own.
func (t *Table) Withheld(i Index) []Withheld { return t.marks[i] }

// WithheldFor reports whether a machine is withheld for a reason, from whichever cluster.
func (t *Table) WithheldFor(i Index, r WithheldReason) bool {
	return slices.ContainsFunc(t.marks[i], func(w Withheld) bool { return w.Reason == r })
}

// Marked is how many machines are withheld for a reason.
func (t *Table) Marked(r WithheldReason) (n int) {
	for i := range t.marks { // order does not matter
		if t.WithheldFor(i, r) {
			n++
		}
	}
	return n
}

// WithheldFrom reports whether a machine must not be acquired for a cluster.
func (t *Table) WithheldFrom(i Index, cluster string) bool {
	f := t.rows.at(i).flags
	if f&markedAll != 0 {
		return true
	}
	return f&markedSome != 0 && slices.ContainsFunc(t.marks[i], func(w Withheld) bool { return w.Cluster == cluster })
}

// Since returns when the machine entered its present state, as SetSince stored it.
func (t *Table) Since(i Index) int64 { return t.rows.at(i).Since }

// Readiness returns what node reports say.
func (t *Table) Readiness(i Index) Readiness { return t.rows.at(i).Readiness() }

// Foreign reports whether another shard owns the machine.
func (t *Table) Foreign(i Index) bool { return t.rows.at(i).Foreign() }

// Stuck reports whether the machine is marked stuck.
func (t *Table) Stuck(i Index) bool { return t.rows.at(i).flags&isStuck != 0 }

// Price returns the price of a machine, in millionths of a dollar per hour.
func (t *Table) Price(i Index) int64 { return t.classes[t.rows.at(i).Class].Price }

// Probability returns the interruption probability of a machine, in parts per million.
func (t *Table) Probability(i Index) int32 { return t.classes[t.rows.at(i).Class].Probability }

// DrainSeconds is how long a Drain of a machine usually takes, 0 when the provider does not say.
func (t *Table) DrainSeconds(i Index) int32 {
	return t.shapes.all[t.classes[t.rows.at(i).Class].Shape].DrainSeconds
}

// CapacityType returns the holding-cost class of a machine.
func (t *Table) CapacityType(i Index) CapacityType {
	return t.shapes.all[t.classes[t.rows.at(i).Class].Shape].Capacity
}

// Provider returns which of the shard's providers lists a machine.
func (t *Table) Provider(i Index) string {
	return t.space.Strings.Text(t.shapes.all[t.classes[t.rows.at(i).Class].Shape].Provider)
}

// Len is the number of machines; Bound is one more than the largest Index in use.
func (t *Table) Len() int   { return t.live }
func (t *Table) Bound() int { return t.rows.n }

// Count is the number of our machines in a state, as the provider says it.
func (t *Table) Count(s State) int { return t.counts[s] }

// Version grows with every change.
func (t *Table) Version() uint64 { return t.version }

// OrderVersion grows when Row.Order of machines that were there is rewritten; it still compares as the ids do.
func (t *Table) OrderVersion() uint64 { return t.order.version }

// Now is the time of the last Advance.
func (t *Table) Now() int64 { return t.now }

// Space returns the numbering the table uses.
func (t *Table) Space() *symbol.Space { return t.space }

// Clone returns an independent copy in a clone of the space.
func (t *Table) Clone(space *symbol.Space) *Table {
	c := *t
	c.space = space
	c.rows, c.labels = t.rows.clone(nil), slices.Clone(t.labels)
	c.idRef, c.hostRef = slices.Clone(t.idRef), slices.Clone(t.hostRef)
	c.ids, c.hosts = t.ids.clone(), t.hosts.clone()
	c.byID = t.byID.clone()
	c.order.all, c.order.version = t.order.all.clone(), t.order.version
	c.free, c.removed = slices.Clone(t.free), slices.Clone(t.removed)
	c.promises, c.marks, c.errors, c.nodeLabels = maps.Clone(t.promises), maps.Clone(t.marks), maps.Clone(t.errors), maps.Clone(t.nodeLabels)
	c.expiry = slices.Clone(t.expiry)
	c.shapes, c.labelSets, c.projected, c.attributions = t.shapes.clone(), t.labelSets.clone(), t.projected.clone(), t.attributions.clone()
	c.classes = slices.Clone(t.classes)
	for i := range c.classes {
		for k := range c.classes[i].Pools {
			c.classes[i].Pools[k] = t.classes[i].Pools[k].clone()
		}
	}
	c.classIDs, c.freeClass = maps.Clone(t.classIDs), slices.Clone(t.freeClass)
	c.keys = t.keys.clone()
	c.scratch, c.words = nil, nil
	c.clusters = slices.Clone(t.clusters)
	for i := range c.clusters {
		c.clusters[i].list, c.clusters[i].avoided = slices.Clone(t.clusters[i].list), slices.Clone(t.clusters[i].avoided)
	}
	c.topology = slices.Clone(t.topology)
	for i, top := range t.topology {
		c.topology[i] = top.clone()
	}
	c.findTopologies()
	for i := range c.release {
		c.release[i] = t.release[i].clone()
	}
	c.inFlight, c.held = t.inFlight.clone(), t.held.clone()
	c.clusterLog.list = slices.Clone(t.clusterLog.list)
	return &c
}

func (top *Topology) clone() *Topology {
	c := &Topology{Key: top.Key, Domains: slices.Clone(top.Domains), byValue: maps.Clone(top.byValue), byClass: top.byClass, walked: top.walked, owned: top.owned, many: top.many, margin: top.margin,
		log: slices.Clone(top.log), logBase: top.logBase}
	for i := range c.Domains {
		c.Domains[i].Owned = slices.Clone(top.Domains[i].Owned)
		for k := range c.Domains[i].Pools {
			c.Domains[i].Pools[k] = top.Domains[i].Pools[k].clone()
			c.Domains[i].Cells[k] = slices.Clone(top.Domains[i].Cells[k])
		}
	}
	return c
}
