package kwok

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

// Describe reports the virtual hosts of the provider's own books, except those of a Configured machine whose Node the
// cluster definitely does not have (PROV-27.9). Nodes of another store id are reported as they are, so that the SDK can
// refuse or adopt them. Nodes of this provider without a machine are removed (PROV-27.8).
func (b *backend) Describe(ctx context.Context, found func(provider.Host) error) error {
	clusters := map[string]bool{}
	for _, name := range b.clusters.Names() {
		clusters[name] = true
	}
	bound := map[place]bool{}
	var missing []provider.Machine
	shown := map[string]map[string]bool{} // cluster -> node names that its watch shows; nil while it does not answer
	for m := range b.fleet.Machines() {
		if m.Cluster != "" {
			clusters[m.Cluster] = true
			bound[place{m.Cluster, m.ID}] = true
		}
		if m.HostRef == "" {
			continue
		}
		if m.State == lifecycle.Configured {
			names, asked := shown[m.Cluster]
			if !asked {
				names = b.shown(ctx, m.Cluster)
				shown[m.Cluster] = names
			}
			if names != nil && !names[m.ID] {
				missing = append(missing, m)
				continue
			}
		}
		if err := found(b.host(m)); err != nil {
			return err
		}
	}
	for _, m := range missing {
		// The watch may lag: only the apiserver's own NotFound counts.
		exists, err := b.nodes.Exists(ctx, provider.Node{Cluster: m.Cluster, ProviderID: m.HostRef, Name: m.ID})
		if err == nil && !exists {
			continue
		}
		if err := found(b.host(m)); err != nil {
			return err
		}
	}
	reached := map[string]bool{} // several ids may lead to one apiserver
	for _, cluster := range slices.Sorted(maps.Keys(clusters)) {
		version, err := b.clusters.Find(cluster)
		if err != nil || reached[version] {
			continue
		}
		reached[version] = true
		if err := b.survey(ctx, cluster, bound, found); err != nil {
			return err
		}
	}
	return ctx.Err()
}

type place struct{ cluster, machine string }

func (b *backend) host(m provider.Machine) provider.Host {
	return provider.Host{Ref: m.HostRef, MachineID: m.ID, StoreID: b.fleet.StoreID()}
}

// answerTime is how long a cluster may take to answer before it counts as away for this round.
const answerTime = 5 * time.Second

func (b *backend) list(ctx context.Context, cluster string) ([]nodeready.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	return b.nodes.Nodes(ctx, cluster)
}

func (b *backend) shown(ctx context.Context, cluster string) map[string]bool {
	nodes, err := b.list(ctx, cluster)
	if err != nil {
		return nil
	}
	names := map[string]bool{}
	for _, n := range nodes {
		names[n.Name] = true
	}
	return names
}

// survey looks at the Nodes of one cluster. A cluster that does not answer is left out: its Nodes are not lost.
func (b *backend) survey(ctx context.Context, cluster string, bound map[place]bool, found func(provider.Host) error) error {
	nodes, err := b.list(ctx, cluster)
	if err != nil {
		b.log.Debug("the cluster does not answer; its nodes are not changed", "cluster", cluster, "err", err)
		return nil
	}
	var strange []place
	for _, n := range nodes {
		id := n.Labels[labelMachine]
		if full := n.Annotations[labelMachine]; full != "" {
			id = full
		}
		explained := bound[place{n.Annotations[annotationCluster], id}]
		if store := n.Annotations[annotationStore]; store != b.fleet.StoreID() {
			if explained {
				continue // taken over already
			}
			if err := found(b.foreign(n, id, store)); err != nil {
				return err
			}
			continue
		}
		if !explained {
			strange = append(strange, place{cluster, n.Name})
		}
	}
	for _, p := range b.strays.due(cluster, strange, b.orphanAge, time.Now()) {
		if m, ok := b.fleet.Machine(p.machine); ok && m.Cluster != "" {
			continue // bound since the look
		}
		b.log.Warn("a node of this provider without a machine is removed", "cluster", p.cluster, "machine", p.machine)
		if err := b.removeNode(ctx, p.cluster, p.machine); err != nil {
			b.log.Warn("it could not be removed; the next round retries", "cluster", p.cluster, "machine", p.machine, "err", err)
		}
	}
	return nil
}

// foreign is the host behind a Node of another store: everything a take-over needs.
func (b *backend) foreign(n nodeready.Node, id, store string) provider.Host {
	h := provider.Host{Ref: n.ProviderID, MachineID: id, StoreID: store, OperationID: n.Annotations[annotationOperation]}
	binding, err := bindingOf(n.Annotations)
	if err != nil {
		b.log.Warn("the binding of a node can be read only in part", "machine", id, "err", err)
	}
	h.Binding = binding
	var attributes provider.Attributes
	if err := json.Unmarshal([]byte(n.Annotations[annotationMachine]), &attributes); err == nil {
		h.Attributes = &attributes
	} else {
		b.log.Warn("the description of a node cannot be read", "machine", id, "err", fmt.Sprint(err))
	}
	return h
}

// deleted hears of each Node of ours that is gone. It runs on the watch and must not block.
func (b *backend) deleted(cluster string, n nodeready.Node) {
	if b.fleet == nil {
		return
	}
	m, ok := b.fleet.Machine(n.Name)
	if !ok || m.State != lifecycle.Configured || m.Cluster != cluster {
		return
	}
	select {
	case b.notices <- provider.Notice{MachineID: m.ID, Gone: true}:
	default: // the next round finds it without the notice
	}
}

// Notify implements provider.Notifier: a Node that somebody deleted is a lost host, once Describe confirms it.
func (b *backend) Notify(ctx context.Context, send func(provider.Notice)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-b.notices:
			send(n)
		}
	}
}

// strays remembers Nodes without a machine, with the round and time they were first seen.
type strays struct {
	mu   sync.Mutex
	seen map[place]*stray
}

type stray struct {
	since  time.Time
	rounds int
}

// due notes what a round saw in a cluster and returns what has been strange for two rounds and long enough.
func (s *strays) due(cluster string, strange []place, age time.Duration, now time.Time) (due []place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[place]*stray{}
	for p, one := range s.seen {
		if p.cluster != cluster {
			next[p] = one
		}
	}
	for _, p := range strange {
		one := s.seen[p]
		if one == nil {
			one = &stray{since: now}
		}
		one.rounds++
		next[p] = one
		if one.rounds >= 2 && now.Sub(one.since) >= age {
			due = append(due, p)
		}
	}
	s.seen = next
	return due
}
