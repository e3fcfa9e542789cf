package core

import (
	"fmt"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Keys that a machine answers from its own fields (ENG-6.1).
const (
	labelType   = "node.kubernetes.io/instance-type"
	labelZone   = "topology.kubernetes.io/zone"
	labelRegion = "topology.kubernetes.io/region"
)

// labelOf looks a key up as profiles see it.
func labelOf(m *inventory.Machine, key string) (string, bool) {
	switch {
	case key == labelType && m.InstanceType != "":
		return m.InstanceType, true
	case key == labelZone && m.Zone != "":
		return m.Zone, true
	}
	for _, l := range m.Labels {
		if l.Key == key {
			return l.Value, true
		}
	}
	return "", false
}

// mine reports whether this shard may act on a machine (COORD-9.3, 9.10).
func (c *ownership) mine(m *inventory.Machine, owner string) bool {
	if !c.cfg.Coordinated {
		return true
	}
	v := c.ctl.View
	if v == nil {
		return c.mineWithoutView(m, owner)
	}
	if boundState(m.State) {
		switch {
		case slices.Contains(v.Released, m.Cluster):
			return false
		case v.OnlyShard || owner == c.cfg.ShardID: // without another shard there is nothing to distinguish (COORD-9.4)
			return true
		case owner != "": // another shard configured it: the cluster's new home is not enough, its release has to be named
			return slices.ContainsFunc(v.Inherited, func(x Inherited) bool { return x.Cluster == m.Cluster && slices.Contains(x.From, owner) })
		}
		return slices.Contains(v.Clusters, m.Cluster)
	}
	if slices.ContainsFunc(v.In, func(x Exception) bool { return x.Machine == m.ID }) {
		return true
	}
	if slices.ContainsFunc(v.Out, func(x Exception) bool { return x.Machine == m.ID }) {
		return false
	}
	return v.covers(m)
}

// covers reports whether a machine that no exception names is this shard's: the third and fourth rule of COORD-9.3.
func (v *View) covers(m *inventory.Machine) bool {
	if v.OnlyShard {
		return true
	}
	for _, key := range v.PartitionKeys {
		value, has := labelOf(m, key)
		switch {
		case !has:
		case slices.Contains(v.Owned, DomainRef{key, value}):
			return true
		case slices.Contains(v.ForeignOwned, DomainRef{key, value}):
			return false
		}
	}
	return v.DefaultOwner
}

// ownsNothingYet reports whether it is still unknown what this shard owns (COORD-9.10).
func (c *ownership) ownsNothingYet() bool {
	return c.cfg.Coordinated && c.ctl.View == nil && !c.coord.Plain && !c.coord.Alone
}

// aloneNow makes this shard the only one of its provider, if no coordinator has said otherwise by now. A view ends it.
func (c *ownership) aloneNow() {
	if !c.ownsNothingYet() || c.coord.RepliedAt != 0 {
		return
	}
	c.coord.Alone = true
	c.record(Record{Type: RecordOwnership, Detail: fmt.Sprintf("the coordinator has not answered for %d s: this shard owns all machines of its provider until it receives a view (--alone-after)",
		c.cfg.AloneAfter/Second)})
	c.reownAll()
	c.trigger(triggerAdmin)
}

// mineWithoutView is ownership before any view: nothing but what names this shard, until a coordinator that does not
// partition has answered; then everything, or the assigned domains.
func (c *ownership) mineWithoutView(m *inventory.Machine, owner string) bool {
	if !c.coord.Plain && c.coord.Alone {
		return !boundState(m.State) || owner == "" || owner == c.cfg.ShardID
	}
	if !c.coord.Plain {
		return boundState(m.State) && owner == c.cfg.ShardID
	}
	if len(c.ctl.Domains) == 0 {
		return true
	}
	for _, d := range c.ctl.Domains {
		if value, has := labelOf(m, d.Key); has && value == d.Value {
			return true
		}
	}
	return boundState(m.State) && owner == c.cfg.ShardID
}

// startOwnership looks at the view of the process before. One of other providers says nothing about these: it is put
// aside, and until the first answer the shard stands as one without a view (COORD-9.9g). The remembered instructions go
// with it, or the view would be taken for one that is in force.
func (c *ownership) startOwnership() {
	v := c.ctl.View
	if v == nil || v.Under == "" || v.Under == c.cfg.ProviderAddress {
		if v != nil { // the process before served them
			for _, name := range v.Clusters {
				c.coord.atHome(name)
			}
		}
		c.noticeReturned()
		return
	}
	c.record(Record{Type: RecordOwnership, Detail: clipText(fmt.Sprintf("the stored view %d/%d is not used: it is of provider %s, and the provider is now %s",
		v.Term, v.Index, v.Under, c.cfg.ProviderAddress))})
	c.ctl.View, c.ctl.Done = nil, nil
}

// ownMachine notes what a fact says of ownership and marks the machine.
func (c *ownership) ownMachine(i inventory.Index, f Fact) {
	if !c.cfg.Coordinated {
		return
	}
	m := c.world.Inventory.Machine(i)
	if boundState(m.State) {
		c.coord.setOwner(m.ID, f.Owner)
	} else {
		c.coord.setOwner(m.ID, "")
	}
	c.reown(i)
}

// reown marks one machine as ours or another shard's. One with an open operation keeps its mark until that ends: two
// shards on one provider must never both act on one machine (SHARD-21.6).
func (c *ownership) reown(i inventory.Index) {
	inv := c.world.Inventory
	m := inv.Machine(i)
	mine := c.mine(&m, c.coord.owners[m.ID])
	if !mine && c.ops.byMachine[m.ID] != nil {
		return
	}
	c.markElsewhere(i, &m, mine)
	if c.machines.own(i, mine) {
		c.trigger(triggerAdmin)
	}
}

// markElsewhere marks a machine that is ours while it is bound and another shard's once it is Idle: its domain is. No need
// here gains by draining it, so it is never a victim (SHARD-21.6).
func (c *ownership) markElsewhere(i inventory.Index, m *inventory.Machine, mine bool) {
	elsewhere := false
	if mine && boundState(m.State) {
		idle := *m
		idle.State, idle.Cluster = inventory.Idle, ""
		elsewhere = !c.mine(&idle, "")
	}
	if elsewhere {
		c.world.Inventory.Withhold(i, inventory.Withheld{Reason: inventory.WithheldElsewhere})
	} else if len(c.world.Inventory.Withheld(i)) > 0 {
		c.world.Inventory.Lift(i, inventory.WithheldElsewhere, "")
	}
}

// reownAll applies a new view to every machine.
func (c *ownership) reownAll() {
	for i := range c.world.Inventory.All() {
		c.reown(i)
	}
}

// losing lists the machines that the view takes away while an operation of ours is open on them. Until the provider has accepted Configure, a host
// is Idle there, whatever is decided about it here, and the owner of its domain may configure it, too.
func (c *ownership) losing() (out []string) {
	inv := c.world.Inventory
	for _, o := range c.ops.ordered() {
		i, ok := inv.Find(o.Machine)
		if !ok || inv.Foreign(i) {
			continue
		}
		m := inv.Machine(i)
		if o.Kind == KindBootstrap && o.Accepted == 0 {
			m.State, m.Cluster = inventory.Idle, ""
		}
		if !c.mine(&m, c.coord.owners[m.ID]) {
			out = append(out, m.ID)
		}
	}
	slices.Sort(out)
	return out
}

// boughtAsMine tells, before a fact replaces it, whether the slot that a Create was sent for is this shard's.
func (c *ownership) boughtAsMine(o *operation, i inventory.Index) bool {
	if !c.cfg.Coordinated || o == nil || o.Kind != KindProvision {
		return false
	}
	slot := c.world.Inventory.Machine(i)
	return c.mine(&slot, "")
}

// relabelled notices a machine that changed its owner between slot and host: it is given up, and Creates of its type and
// zone pause (COORD-9.9d). One that a view took meanwhile (held is false) is given up too, and says nothing of its kind.
func (c *ownership) relabelled(o *operation, i inventory.Index, held bool) {
	inv := c.world.Inventory
	m := inv.Machine(i)
	if !c.cfg.Coordinated || o.Kind != KindProvision || c.mine(&m, "") {
		return
	}
	inv.SetPromise(i, nil)
	if !held {
		return
	}
	c.sample(MetricOwnershipRelabels, "", 1)
	key := m.InstanceType + "/" + m.Zone
	if c.coord.relabels == nil {
		c.coord.relabels = map[string]int64{}
	}
	c.coord.relabels[key] = c.now + relabelPause
	c.record(Record{Type: RecordOwnership, Machine: m.ID, Provider: m.Provider,
		Detail: fmt.Sprintf("the labels of the new host belong to another shard; Creates of %s are paused for 10 min", key)})
}

// applyQuotas withholds the slots of regions whose slice is used up (COORD-11.4). Fixed capacity is never counted.
func (c *ownership) applyQuotas() {
	v := c.ctl.View
	c.coord.used = nil
	if v == nil || len(v.Quotas) == 0 {
		if c.coord.Quotas {
			c.coord.Quotas = false
			c.liftQuotas()
		}
		return
	}
	c.coord.Quotas, c.coord.used = true, map[string]int64{}
	inv := c.world.Inventory
	for i := range inv.All() {
		if m := inv.Machine(i); m.State != inventory.Speculative && m.CapacityType.Elastic() && !inv.Foreign(i) {
			c.coord.used[v.regionOf(&m)]++
		}
	}
	for i := range inv.All() {
		m := inv.Machine(i)
		if m.State == inventory.Speculative && c.quotaUsedUp(i) {
			inv.Withhold(i, inventory.Withheld{Reason: inventory.WithheldQuota})
		} else {
			inv.Lift(i, inventory.WithheldQuota, "")
		}
	}
}

func (c *ownership) liftQuotas() {
	for i := range c.world.Inventory.All() {
		c.world.Inventory.Lift(i, inventory.WithheldQuota, "")
	}
}

// regionOf is the region that a machine counts in: its label's, else its provider's, else none (COORD-11.3).
func (v *View) regionOf(m *inventory.Machine) string {
	if region, has := labelOf(m, labelRegion); has {
		return region
	}
	return v.Region
}

// quotaUsedUp reports whether a Create would exceed the slice of the machine's region. No row means unlimited.
func (c *ownership) quotaUsedUp(i inventory.Index) bool {
	v := c.ctl.View
	if v == nil || c.coord.used == nil {
		return false
	}
	m := c.world.Inventory.Machine(i)
	if !m.CapacityType.Elastic() {
		return false
	}
	for _, q := range v.Quotas {
		if q.Region == v.regionOf(&m) {
			return c.coord.used[q.Region] >= q.Machines
		}
	}
	return false
}

// noteBought counts a started Create against its slice, so that one cycle cannot overrun it.
func (c *ownership) noteBought(i inventory.Index) {
	if v := c.ctl.View; v != nil && c.coord.used != nil {
		if m := c.world.Inventory.Machine(i); m.CapacityType.Elastic() {
			c.coord.used[v.regionOf(&m)]++
		}
	}
}

// satisfies is the match of requirements with one machine, for reservations: the same rules as the engine's, on plain
// values (ENG-6.2). Same never crosses a shard.
func satisfies(m *inventory.Machine, reqs []demand.Requirement) bool {
	for _, r := range reqs {
		value, has := labelOf(m, r.Key)
		ok := false
		switch r.Op {
		case demand.In:
			ok = has && slices.Contains(r.Values, value)
		case demand.NotIn:
			ok = !has || !slices.Contains(r.Values, value)
		case demand.Exists:
			ok = has
		case demand.DoesNotExist:
			ok = !has
		case demand.Gt, demand.Lt:
			ok = has && r.Compares(value)
		}
		if !ok {
			return false
		}
	}
	return true
}

// setOwner remembers which shard a bound machine's metadata names.
func (c *coordinatorState) setOwner(machine, owner string) {
	if owner == "" {
		delete(c.owners, machine)
		return
	}
	if c.owners == nil {
		c.owners = map[string]string{}
	}
	c.owners[machine] = owner
}
