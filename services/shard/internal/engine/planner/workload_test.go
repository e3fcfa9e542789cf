package planner_test

import (
	"math/bits"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// benchWorld is a generated world and the engine's own form of it.
type benchWorld struct {
	gen  *workload.World
	w    *engine.World
	rows []demand.Row // by row of the generated demand
	now  int64
	sum  string // of what was generated
}

// newBenchWorld fills a World as the core would: roll-ups accepted, machines listed, attributions on what is bound.
func newBenchWorld(gen *workload.World) *benchWorld {
	b := newBenchDemand(gen)
	b.fillMachines()
	return b
}

// newBenchDemand is newBenchWorld without machines.
func newBenchDemand(gen *workload.World) *benchWorld {
	b := &benchWorld{gen: gen, w: engine.NewWorld(), now: 1000 * engine.Second, sum: gen.Sum()}
	b.makeRows()
	b.sendAll()
	return b
}

func (b *benchWorld) makeRows() {
	b.rows = make([]demand.Row, b.gen.Demand.Rows())
	for r := range b.rows {
		b.rows[r] = b.row(int32(r))
	}
}

// sendAll makes every cluster known and sends its roll-up.
func (b *benchWorld) sendAll() {
	for c := range int32(b.gen.Demand.Clusters()) {
		b.w.Demand.SetFacts(workload.ClusterName(c), demand.Facts{Heard: true, SharingPerMille: 1000})
		b.sendRollup(c)
	}
}

func (b *benchWorld) fillMachines() {
	for i := range b.gen.Fleet.ID {
		b.putMachine(int32(i))
	}
	b.w.Inventory.Advance(b.now)
}

func (b *benchWorld) sendRollup(c int32) {
	d := b.gen.Demand
	b.w.Demand.Replace(workload.ClusterName(c), b.rows[d.First[c]:d.First[c+1]], nil, 1)
}

func (b *benchWorld) row(r int32) demand.Row {
	d := b.gen.Demand
	row := demand.Row{Group: d.Group[r], Aggregate: amounts(d.CPU[r], d.Memory[r], d.GPU[r]),
		MinUnit: amounts(d.UnitCPU[r], d.UnitMemory[r], d.UnitGPU[r])}
	p := &row.Profile
	p.Priority, p.Interruption, p.Reclamation = d.Priority[r], demand.Bucket(d.Interruption[r]), demand.Bucket(d.Reclamation[r])
	if types := d.Types[r]; types != 0 {
		in := demand.Requirement{Key: inventory.TypeKey, Op: demand.In}
		for ; types != 0; types &= types - 1 {
			if k := bits.TrailingZeros64(types); k < len(b.gen.Fleet.Kinds) {
				in.Values = append(in.Values, b.gen.Fleet.Kinds[k].Name)
			} else {
				in.Values = append(in.Values, "none.0")
			}
		}
		p.Requirements = append(p.Requirements, in)
	}
	switch d.Form[r] {
	case workload.Same:
		p.Requirements = append(p.Requirements, demand.Requirement{Key: workload.RackLabel, Op: demand.Same})
	case workload.Spread:
		p.Spread = []demand.Spread{{Key: inventory.ZoneKey, MaxSkew: 1}}
	}
	row.Seal()
	return row
}

func amounts(cpu, memory, gpus int64) []resource.Quantity {
	out := []resource.Quantity{{Name: "cpu", Milli: cpu}, {Name: "memory", Milli: memory * 1000}}
	if gpus > 0 {
		out = append(out, resource.Quantity{Name: "nvidia.com/gpu", Milli: gpus * 1000})
	}
	return out
}

// putMachine stores machine i as its provider says it, and the attribution of the row that it is bound for.
func (b *benchWorld) putMachine(i int32) {
	f := b.gen.Fleet
	k := f.Kinds[f.Kind[i]]
	zone := f.Zones[f.Zone(int(i))]
	m := inventory.Machine{ID: f.ID[i], Provider: "bench", State: inventory.State(f.State[i]), InstanceType: k.Name, Zone: zone,
		CapacityType: inventory.CapacityType(f.Capacity[i]), Price: f.Price[i], Probability: f.Probability[i],
		Resources:   append(amounts(k.VCPU*1000, k.Memory/93*100, k.GPU), resource.Quantity{Name: "pods", Milli: 110_000}),
		Allocatable: append(amounts(k.CPU, k.Memory, k.GPU), resource.Quantity{Name: "pods", Milli: 110_000}),
		Labels: []inventory.Label{{Key: "kubernetes.io/arch", Value: k.Arch}, {Key: "kubernetes.io/os", Value: "linux"},
			{Key: workload.RackLabel, Value: workload.RackName(f.Rack[i])}, {Key: "topology.kubernetes.io/region", Value: zone[:4]}}}
	if f.State[i] >= workload.Idle {
		m.HostProvider, m.HostRef = "bench", f.ID[i]
	}
	if f.Cluster[i] >= 0 {
		m.Cluster = workload.ClusterName(f.Cluster[i])
	}
	at, _ := b.w.Inventory.Put(m)
	b.w.Inventory.SetSince(at, b.now)
	b.w.Inventory.SetReadiness(at, inventory.ReadyOnce)
	if need := f.Need[i]; need >= 0 {
		r := &b.rows[need]
		b.w.Inventory.SetAttribution(at, &inventory.Attribution{Fingerprint: r.Fingerprint, Group: r.Group, Priority: r.Profile.Priority,
			Interruption: r.Profile.Interruption.Penalty(), Reclamation: r.Profile.Reclamation.Penalty()})
	} else {
		b.w.Inventory.SetAttribution(at, nil)
	}
}

// churn changes a fraction of the clusters and a tenth of that of the machines, as W-churn says.
func (b *benchWorld) churn(p float64) {
	c := b.gen.Churn(p)
	for _, r := range c.Rows {
		b.rows[r] = b.row(r)
	}
	for _, cl := range c.Clusters {
		b.sendRollup(cl)
	}
	for _, i := range c.Machines {
		b.putMachine(i)
	}
	b.w.Inventory.Advance(b.now)
}

// settle carries out a plan as if every machine took no time, so that the next round starts from where it leads.
func (b *benchWorld) settle(r *engine.Result) {
	inv := b.w.Inventory
	for _, a := range r.Actions {
		i := a.Machine
		switch a.Kind {
		case engine.Bootstrap, engine.Provision:
			_, cluster := r.Need(a.Need)
			attribution := r.Attribution(a.Need)
			inv.SetPromise(i, nil)
			inv.Move(i, inventory.Configured, cluster)
			inv.SetAttribution(i, &attribution)
			inv.SetReadiness(i, inventory.ReadyOnce)
		case engine.Preempt, engine.Reclaim:
			inv.Move(i, inventory.Idle, "")
			inv.SetAttribution(i, nil)
		case engine.Delete:
			inv.Move(i, inventory.Speculative, "")
		}
		inv.SetSince(i, b.now)
	}
}
