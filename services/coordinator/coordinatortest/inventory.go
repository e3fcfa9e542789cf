package coordinatortest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// State of a machine, as far as ownership is concerned.
type State int

// States.
const (
	Idle State = iota
	Speculative
	Configured
)

// Machine is one machine of a provider.
type Machine struct {
	ID, Type, Zone string
	Labels         map[string]string
	State          State
	Cluster, Mark  string // bound to, and metadata key owner-shard
	Priority       int32  // of the workload on it
}

// label answers a label key, the two well-known ones from the machine's own fields.
func (m *Machine) label(key string) string {
	switch key {
	case "topology.kubernetes.io/zone":
		return m.Zone
	case "node.kubernetes.io/instance-type":
		return m.Type
	}
	return m.Labels[key]
}

// Inventory is one provider that several shards dial. Safe for concurrent use.
type Inventory struct {
	mu       sync.Mutex
	machines []*Machine
	shards   []*Shard
}

// Add adds n idle machines of a type in a zone.
func (v *Inventory) Add(n int, prefix, typ, zone string, state State) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for i := range n {
		v.machines = append(v.machines, &Machine{ID: fmt.Sprintf("%s-%d", prefix, i), Type: typ, Zone: zone, State: state})
	}
}

// Owners names the shards that would act on each machine, by machine id.
func (v *Inventory) Owners() map[string][]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := map[string][]string{}
	for _, m := range v.machines {
		out[m.ID] = nil
		for _, s := range v.shards {
			if s.owns(m) {
				out[m.ID] = append(out[m.ID], s.ID)
			}
		}
	}
	return out
}

// Shared names the machines that two shards would act on, with the shards.
func (v *Inventory) Shared() []string {
	var out []string
	for id, owners := range v.Owners() {
		if len(owners) > 1 {
			out = append(out, fmt.Sprintf("%s %v", id, owners))
		}
	}
	slices.Sort(out)
	return out
}

// OwnedBy counts the machines that a shard would act on.
func (v *Inventory) OwnedBy(shard string) int {
	n := 0
	for _, owners := range v.Owners() {
		if slices.Contains(owners, shard) {
			n++
		}
	}
	return n
}

// Reserved counts the machines that shards keep for moves.
func (v *Inventory) Reserved() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	n := 0
	for _, s := range v.shards {
		for _, ids := range s.disk.reserved {
			n += len(ids)
		}
	}
	return n
}

// Occupy binds the machines whose id starts with prefix to a cluster, as a shard would with Configure.
func (v *Inventory) Occupy(prefix, cluster, shard string, priority int32) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, m := range v.machines {
		if strings.HasPrefix(m.ID, prefix) {
			m.State, m.Cluster, m.Mark, m.Priority = Configured, cluster, shard, priority
		}
	}
}
