package coordinator

import (
	"slices"
	"testing"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// hosts counts the machines that are no slots, at either shard.
func (f *fleet) hosts() int {
	ids := map[string]bool{}
	for shard := range f.reads {
		for id, m := range f.owned(shard) {
			if m.GetMachine().GetState() != v1.MachineState_MACHINE_STATE_SPECULATIVE {
				ids[id] = true
			}
		}
	}
	return len(ids)
}

// moveCluster lets the operator of a cluster dial another shard, and waits until its machines are that shard's.
func (f *fleet) moveCluster(c *cluster, to string, shard, machines int, needs ...*v1.CapacityNeed) *cluster {
	f.t.Helper()
	c.end()
	next := f.cluster(c.name, shard, needs...)
	retry(f, f.admin.BindCluster, &v1.BindClusterRequest{ClusterId: c.name, ShardId: to, Rebind: true})
	f.eventually(c.name+" and its machines are with "+to, func() bool {
		f.single()
		if n := f.hosts(); n > machines {
			f.t.Fatalf("%d machines were bought for a demand of %d", n, machines)
		}
		return f.bound(shard, c.name) == machines
	})
	return next
}

// COORD-12.23, 12.22: the recipes of docs/coordinator.md. One shard becomes two: a zone and a cluster move to the second. Two
// become one again: the cluster moves back, the second shard is drained, stopped and removed without force. Nothing is bought
// twice, nothing is taken from the cluster, and in the end the first shard owns every machine.
func TestSplitAndMerge(t *testing.T) {
	const machines = 2
	f := newFleet(t, twoZones)
	f.assign(map[string]string{"zone-a": "shard-0", "zone-b": "shard-0"}, 22)
	web := need("web", "8", &v1.NodeSelectorRequirement{Key: zoneKey, Operator: v1.NodeSelectorRequirement_OPERATOR_IN, Values: []string{"zone-b"}})
	red := f.cluster("red", 0, web)
	f.eventually("red has its machines", func() bool { return f.bound(0, "red") == machines })
	f.eventually("the coordinator knows of them", func() bool {
		got := retry(f, f.admin.ListClusterBindings, &v1.ListClusterBindingsRequest{ShardId: "shard-0"}).GetBindings()
		return len(got) == 1 && got[0].GetBoundMachines() == machines
	})

	retry(f, f.admin.MoveDomain, &v1.MoveDomainRequest{TopologyKey: zoneKey, TopologyValue: "zone-b", ToShardId: "shard-1"})
	red = f.moveCluster(red, "shard-1", 1, machines, web)
	f.whole(22)
	if n := len(f.owned(1)); n != 2 {
		t.Fatalf("shard-1 owns %d machines of its zone", n)
	}

	f.eventually("the coordinator knows of red's machines at shard-1", func() bool {
		got := retry(f, f.admin.ListClusterBindings, &v1.ListClusterBindingsRequest{ShardId: "shard-1"}).GetBindings()
		return len(got) == 1 && got[0].GetBoundMachines() == machines
	})
	f.moveCluster(red, "shard-0", 0, machines, web)
	retry(f, f.admin.DrainShard, &v1.DrainShardRequest{ShardId: "shard-1"})
	f.eventually("shard-1 owns nothing", func() bool { // neither domains, nor by default, nor, since machines keep to their cluster, machines
		f.single()
		domains := retry(f, f.core.ListDomainAssignments, &v1.ListDomainAssignmentsRequest{ShardId: "shard-1"}).GetAssignments()
		byDefault := slices.ContainsFunc(retry(f, f.admin.ListProviders, &v1.ListProvidersRequest{}).GetProviders(), func(p *v1.ProviderRegistration) bool {
			return p.GetDefaultOwner() == "shard-1"
		})
		return len(domains) == 0 && !byDefault && len(f.owned(0)) == 22 && len(f.owned(1)) == 0
	})
	f.shards[1].Kill()
	retry(f, f.core.RemoveShard, &v1.RemoveShardRequest{ShardId: "shard-1"}) // once its last report is no longer fresh
	f.eventually("shard-0 goes on alone", func() bool { return len(f.owned(0)) == 22 && f.bound(0, "red") == machines })
	if n := f.hosts(); n != machines {
		t.Errorf("%d machines are bought", n)
	}
}
