package core

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Ids lists the ids of all machines, ascending, from the one after the given id on, at most n. For readers that visit
// the core between steps (SHARD-23.3).
func (c *reader) Ids(after string, n int) []string {
	inv := c.world.Inventory
	out := make([]string, 0, min(n, inv.Len()))
	for i := range inv.After(after) {
		if len(out) == n {
			break
		}
		out = append(out, inv.ID(i))
	}
	return out
}

// Machine describes one machine.
func (c *reader) Machine(id string) (MachineView, bool) {
	i, ok := c.world.Inventory.Find(id)
	if !ok {
		return MachineView{}, false
	}
	return c.viewMachine(i), true
}

func (c *reader) viewMachine(i inventory.Index) MachineView {
	inv := c.world.Inventory
	v := MachineView{Machine: inv.Machine(i), Since: inv.Since(i), Readiness: inv.Readiness(i)}
	p := c.provider(v.Machine.Provider)
	v.Met = !p.Listed || v.Since <= p.FirstAt
	id := v.Machine.ID
	v.Attribution, _ = inv.Attribution(i)
	if p, ok := inv.Promise(i); ok {
		v.Intended = p.Cluster
		if v.Machine.State != inventory.Draining {
			v.Attribution = p.For
		}
	}
	if o := c.ops.byMachine[id]; o != nil {
		v.Op, v.OpKind = o.ID, o.Kind
		v.Flags = append(v.Flags, FlagBusy)
	}
	if inv.Stuck(i) {
		v.Flags = append(v.Flags, FlagStuck)
	}
	if inv.Foreign(i) {
		v.Flags = append(v.Flags, FlagForeign)
	}
	for _, w := range inv.Withheld(i) {
		v.Flags = append(v.Flags, FlagWithheld)
		v.Withheld = withheldText(w.Reason)
		if w.Reason == inventory.WithheldReserved {
			v.Flags = append(v.Flags, FlagReserved)
		}
	}
	if cl := c.clusters.get(v.Machine.Cluster); cl != nil {
		if n := cl.nodes[id]; n != nil {
			v.Node, v.Ready = n.name, n.ready
		}
		if v.Machine.State == inventory.Configured && cl.Reporting && !v.Ready && c.now-v.Since >= unjoinedAfter {
			v.Flags = append(v.Flags, FlagUnjoined)
		}
	}
	if b := c.guards.backoffs[id]; b != nil {
		for _, x := range b {
			if x.Until > c.now {
				v.Backoff = max(v.Backoff, x.Until)
			}
		}
	}
	slices.Sort(v.Flags)
	v.Flags = slices.Compact(v.Flags)
	return v
}

// HeldText names what holds an action back, or "".
func (k *Kept) BlockedText() string { return k.Blocked.String() }

// Why explains one machine from the last plan.
func (c *reader) Why(id string) (Kept, bool) {
	i, ok := c.world.Inventory.Find(id)
	if !ok {
		return Kept{}, false
	}
	var k Kept
	if r := c.cycle.result; r != nil {
		k.Keep = r.Keep(c.world, c.policy, i)
		if ref := k.Keep.Need; !ref.None() {
			n, name := r.Need(ref)
			k.Need = NeedName{Cluster: name, Fingerprint: n.Form.Fingerprint, Group: n.Group, RowID: n.RowID, Priority: n.Form.Priority}
		}
		if k.Keep.Action != nil {
			k.Planned = k.Keep.Action.Kind
			for j := range c.cycle.waiting[k.Planned] {
				if d := &c.cycle.waiting[k.Planned][j]; d.machine == id {
					k.Blocked = d.blocked
					c.whyBlocked(&k, d)
				}
			}
		}
	}
	if cl := c.clusters.get(c.world.Inventory.Cluster(i)); cl != nil {
		if o, out := cl.out[id]; out {
			k.Out = &o
		}
	}
	if o := c.ops.byMachine[id]; o != nil {
		r := c.operationRecord(o)
		k.Op = &r
		if o.drains() {
			k.Drain = &DrainStatus{Machine: id, Cluster: o.Cluster, Instruction: o.Instruction, Started: o.Started, Ends: o.drainEnds(), Note: o.Drain}
		}
	}
	return k, true
}

// whyBlocked says until when a release waits and what for.
func (c *reader) whyBlocked(k *Kept, d *decision) {
	switch cl := c.clusters.get(c.world.Inventory.Cluster(d.index)); {
	case d.blocked == blockedRelease && cl != nil:
		k.Until = d.planned + c.guards.releaseDelay(d.machine, cl)
	case d.blocked == blockedDrain:
		if b := c.guards.drains[d.machine]; b != nil {
			k.Until, k.Because = b.Backoff.Until, b.Why
		}
	}
}

func (c *reader) operationRecord(o *operation) Record {
	return Record{Wall: c.toWall(o.Started), Epoch: c.epoch, Cycle: o.Cycle, Type: RecordStarted, Op: o.ID, Kind: o.Kind, Machine: o.Machine,
		Provider: o.Provider, Cluster: o.Cluster, Fingerprint: o.Need.Fingerprint, Group: o.Need.Group, RowID: o.RowID, Priority: o.Priority,
		Cause: o.Cause, Detail: o.describe(), Cost: o.Cost, Score: o.Score, Price: o.Price, Grace: o.Grace,
		PreemptorPriority: o.PreemptorPriority, From: o.Before.State, Token: o.Token, ProviderOp: o.ProviderOp, Domain: o.Domain}
}

// Now is the Mono of the last step, and Cycle the last cycle.
func (c *reader) Now() int64 { return c.now }

func (c *reader) Cycle() int64 { return c.cycle.used }

// Hold returns until when an Idle machine is kept although no need claims it, or 0.
func (c *reader) HoldUntil(id string) int64 {
	i, ok := c.world.Inventory.Find(id)
	if !ok || c.world.Inventory.State(i) != inventory.Idle {
		return 0
	}
	if hold, elastic := c.policy.Hold.Of(c.world.Inventory.CapacityType(i), c.world.Inventory.Price(i)); elastic {
		return c.world.Inventory.Since(i) + hold
	}
	return 0
}

// Hints lists the hints that connected clusters were sent last, by cluster and fingerprint; of one cluster, or of all.
func (c *reader) Hints(only string) (out []HintView) {
	for _, cl := range c.clusters.ordered {
		if only != "" && cl.Name != only {
			continue
		}
		for _, fp := range sortedKeys(cl.hints) {
			h := cl.hints[fp]
			out = append(out, HintView{cl.Name, fp, h.count, h.price, h.confidence, h.reqs})
		}
	}
	return out
}

// Why is the reason of a hint that promises little.
func (c Confidence) Why() string {
	switch c {
	case ConfidenceNone:
		return "no free machine fits"
	case ConfidenceLow:
		return "the machines that fit are reserved, withheld or out of stock"
	}
	return ""
}

func (c Confidence) String() string {
	return [...]string{"NONE", "NONE", "LOW", "MEDIUM", "HIGH"}[min(c, ConfidenceHigh)]
}

// Room is how many units a row shall have beyond what its cluster asks for (ENG-11.16).
func (c *reader) FreezeBuffer(cluster string, row demand.RowKey) int64 {
	return c.ledger.sharing.Headroom(cluster, row)
}

// Clusters describes all clusters, by name.
func (c *reader) Clusters() (out []*ClusterView) {
	for _, cl := range c.clusters.ordered {
		out = append(out, c.pub.viewCluster(cl))
	}
	return out
}
