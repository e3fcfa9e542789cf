package clusterapi

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// Describe reports the machines of the provider's own books, except a Configured one whose Machine the management cluster
// definitely does not have. Machines of another store id are reported as they are, so that the SDK can refuse or adopt them
// (PROV-17.6). Machines of this store that no binding explains are removed.
func (b *backend) Describe(ctx context.Context, found func(provider.Host) error) error {
	all, err := b.seen.all(ctx)
	if err != nil {
		return provider.Transient(fmt.Errorf("the management cluster has not listed its Machines: %w", err))
	}
	there := map[string]*unstructured.Unstructured{}
	for _, m := range all {
		if b.ours(m) {
			there[m.GetLabels()[labelMachine]] = m
		}
	}
	bound := map[string]bool{}
	for m := range b.fleet.Machines() {
		bound[m.ID] = m.Cluster != ""
		if m.HostRef == "" {
			continue
		}
		if m.State == lifecycle.Configured && there[m.ID] == nil {
			gone, err := b.gone(ctx, m)
			if err != nil {
				return err
			}
			if gone {
				continue
			}
		}
		if err := found(provider.Host{Ref: m.HostRef, MachineID: m.ID, StoreID: b.fleet.StoreID()}); err != nil {
			return err
		}
	}
	var unexplained []*unstructured.Unstructured
	for _, m := range all {
		switch explained := bound[m.GetLabels()[labelMachine]]; {
		case b.ours(m) && !explained:
			unexplained = append(unexplained, m)
		case !b.ours(m) && !explained:
			if err := found(b.foreign(m)); err != nil {
				return err
			}
		}
	}
	return b.removeOrphans(ctx, unexplained)
}

// gone asks the API server itself, because the watch may lag.
func (b *backend) gone(ctx context.Context, m provider.Machine) (bool, error) {
	c, err := b.settings.find(m.Cluster)
	if err != nil {
		return false, nil // the cluster is no longer configured, which says nothing about its machines
	}
	_, err = b.client.Resource(machines).Namespace(c.Namespace).Get(ctx, m.ID, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	return false, nodeready.Classify(err)
}

// foreign is the machine behind a Machine of another store: everything a take-over needs.
func (b *backend) foreign(m *unstructured.Unstructured) provider.Host {
	a := m.GetAnnotations()
	id := m.GetLabels()[labelMachine]
	h := provider.Host{
		Ref: b.ref(id), MachineID: id, StoreID: a[annotationStore], OperationID: a[annotationOperation],
		Binding: &provider.Binding{Cluster: a[annotationCluster]},
	}
	if a[annotationDigest] != "" {
		b.log.Warn("the metadata of a Machine was too large to be kept on it; only its digest is stored", "machine", id)
	} else if err := json.Unmarshal([]byte(a[annotationMetadata]), &h.Binding.Metadata); err != nil {
		b.log.Warn("the binding of a Machine can be read only in part", "machine", id, "err", err)
	}
	var attributes provider.Attributes
	if err := json.Unmarshal([]byte(a[annotationMachine]), &attributes); err != nil {
		b.log.Warn("the description of a Machine cannot be read", "machine", id, "err", err)
		return h
	}
	h.Attributes = &attributes
	return h
}

// removeOrphans deletes Machines that no binding has explained for two rounds and long enough. It does not wait for them.
func (b *backend) removeOrphans(ctx context.Context, unexplained []*unstructured.Unstructured) error {
	for _, m := range b.orphans.due(unexplained, b.orphanAge, time.Now()) {
		id := m.GetLabels()[labelMachine]
		if now, ok := b.fleet.Machine(id); ok && now.Cluster != "" || m.GetDeletionTimestamp() != nil {
			continue // bound since the round began, or on its way out
		}
		uid := m.GetUID()
		b.log.Warn("a Machine without a binding is removed", "machine", id, "namespace", m.GetNamespace())
		err := b.client.Resource(machines).Namespace(m.GetNamespace()).Delete(ctx, m.GetName(), metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid},
		})
		if err != nil && !apierrors.IsNotFound(err) {
			b.log.Warn("it could not be removed; the next round retries", "machine", id, "err", err)
		}
	}
	return ctx.Err()
}

// Notify implements provider.Notifier: a Machine that somebody else deletes is replaced, and one that is gone is lost once
// Describe confirms it.
func (b *backend) Notify(ctx context.Context, send func(provider.Notice)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case n := <-b.seen.notices:
			if m, ok := b.fleet.Machine(n.MachineID); ok && m.State == lifecycle.Configured {
				send(n)
			}
		}
	}
}

// orphans remembers unexplained Machines, with the round and time they were first seen.
type orphans struct {
	mu   sync.Mutex
	seen map[types.UID]orphan
}

type orphan struct {
	since  time.Time
	rounds int
}

func (s *orphans) due(unexplained []*unstructured.Unstructured, age time.Duration, now time.Time) (due []*unstructured.Unstructured) {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := map[types.UID]orphan{}
	for _, m := range unexplained {
		one, known := s.seen[m.GetUID()]
		if !known {
			one.since = now
		}
		one.rounds++
		next[m.GetUID()] = one
		if one.rounds >= 2 && now.Sub(one.since) >= age {
			due = append(due, m)
		}
	}
	s.seen = next
	return due
}
