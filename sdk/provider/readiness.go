package provider

import (
	"context"
	"errors"
)

// Readiness is the gate in front of Configured: a machine is not Configured before its node is Ready in the target
// cluster (PROV-14). There is no default; New wants one.
type Readiness struct {
	mode  string
	nodes NodeSource
}

// NodeSource watches the Node objects of clusters; module sdk/nodeready has one.
type NodeSource interface {
	// Known says whether the source can see that cluster. It does no I/O. An error refuses Configure at admission
	// (PROV-14.5) and names the cluster.
	Known(cluster string) error
	// Ready returns nil once the node is Ready, and waits until then. A cluster API that cannot be reached is "not yet"
	// (PROV-14.6).
	Ready(ctx context.Context, n Node) error
	// Exists asks the cluster whether it has the node. An error means that the answer is unknown.
	Exists(ctx context.Context, n Node) (bool, error)
}

// Node says which Node object belongs to a machine: spec.providerID equal to ProviderID, else the name Name.
type Node struct{ Cluster, ProviderID, Name string }

// NodesReadiness watches Node objects (mode "nodes").
func NodesReadiness(source NodeSource) Readiness { return Readiness{mode: "nodes", nodes: source} }

// SubstrateReadiness asks the backend, which must be a Readier (mode "substrate").
func SubstrateReadiness() Readiness { return Readiness{mode: "substrate"} }

// NoReadiness shows Configured as soon as the backend says so (mode "none"). It is logged at each start: the fleet then
// counts capacity that no Pod may be able to use.
func NoReadiness() Readiness { return Readiness{mode: "none"} }

func (r Readiness) check(b Backend) error {
	switch r.mode {
	case "":
		return errors.New("readiness is not chosen: use WithReadiness with NodesReadiness, SubstrateReadiness or NoReadiness")
	case "nodes":
		if r.nodes == nil {
			return errors.New("NodesReadiness needs a NodeSource; module sdk/nodeready has one")
		}
	case "substrate":
		if _, ok := b.(Readier); !ok {
			return errors.New("SubstrateReadiness needs a backend with Ready(ctx, Machine) error")
		}
	}
	return nil
}

func nodeOf(m Machine, cluster string) Node {
	return Node{Cluster: cluster, ProviderID: m.HostRef, Name: m.ID}
}

// await holds a Configure back until the gate opens.
func (p *Provider) await(ctx context.Context, m Machine) error {
	switch p.set.readiness.mode {
	case "nodes":
		return p.set.readiness.nodes.Ready(ctx, nodeOf(m, m.Cluster))
	case "substrate":
		return p.backend.(Readier).Ready(ctx, m)
	}
	return nil
}
