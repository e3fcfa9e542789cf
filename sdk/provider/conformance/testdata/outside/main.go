// Command outside is a whole provider written by a third party: one backend, one main, outside of BigFleet's workspace.
package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// shed is a substrate of hosts in a map. A real one calls an API here.
type shed struct {
	mu    sync.Mutex
	hosts map[string]provider.Host // by reference
}

// Attach takes over the hosts that the provider's books name: a map forgets them with the process, a cloud would not.
func (s *shed) Attach(f provider.Fleet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for m := range f.Machines() {
		if m.HostRef != "" {
			s.hosts[m.HostRef] = provider.Host{Ref: m.HostRef, MachineID: m.ID, StoreID: f.StoreID()}
		}
	}
}

func (s *shed) Describe(_ context.Context, found func(provider.Host) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hosts {
		if err := found(h); err != nil {
			return err
		}
	}
	return nil
}

func (s *shed) Create(_ context.Context, op provider.CreateOp) (provider.Host, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := provider.Host{Ref: "shed://" + op.Machine.ID, MachineID: op.Machine.ID, StoreID: op.StoreID, OperationID: op.ID}
	s.hosts[h.Ref] = h
	return h, nil
}

func (s *shed) Configure(_ context.Context, op provider.ConfigureOp) error {
	return s.there(op.Machine.HostRef)
}

func (s *shed) Drain(_ context.Context, op provider.DrainOp) error {
	return s.there(op.Machine.HostRef)
}

func (s *shed) Delete(_ context.Context, op provider.DeleteOp) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.hosts, "shed://"+op.Machine.ID)
	return nil
}

// Ready says that the node has joined.
func (s *shed) Ready(_ context.Context, m provider.Machine) error { return s.there(m.HostRef) }

func (s *shed) there(ref string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.hosts[ref]; !ok {
		return fmt.Errorf("host %s is gone", ref)
	}
	return nil
}

func main() {
	provider.Main(provider.Program[struct{}]{
		Name: "shed", Short: "A provider in one file",
		Build: func(context.Context, provider.Setup[struct{}]) (provider.Backend, []provider.Option, error) {
			return &shed{hosts: map[string]provider.Host{}}, []provider.Option{provider.WithReadiness(provider.SubstrateReadiness())}, nil
		},
	})
}
