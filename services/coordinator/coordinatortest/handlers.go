package coordinatortest

import (
	"errors"
	"maps"
	"slices"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// handle does what an instruction says. An error that is no *failedError means that it can never work.
func (s *Shard) handle(i *v1.CoordinatorInstruction) (machines []string, kind string, err error) {
	if s.Legacy {
		switch p := i.GetPayload().(type) {
		case *v1.CoordinatorInstruction_AssignDomain:
			s.disk.domains[p.AssignDomain.GetTopologyKey()+"="+p.AssignDomain.GetTopologyValue()] = true
			return nil, "assign", nil
		case *v1.CoordinatorInstruction_UnassignDomain:
			delete(s.disk.domains, p.UnassignDomain.GetTopologyKey()+"="+p.UnassignDomain.GetTopologyValue())
			return nil, "unassign", nil
		}
		return nil, "", errors.New("unsupported")
	}
	switch p := i.GetPayload().(type) {
	case *v1.CoordinatorInstruction_SetView:
		return nil, "view", s.setView(p.SetView)
	case *v1.CoordinatorInstruction_ReleaseCluster:
		s.Clusters = slices.DeleteFunc(slices.Clone(s.Clusters), func(l *v1.ClusterLink) bool { return l.GetClusterId() == p.ReleaseCluster.GetClusterId() })
		return nil, "release", nil
	case *v1.CoordinatorInstruction_ReserveMachines:
		machines, err = s.reserve(p.ReserveMachines)
		return machines, "reserve", err
	case *v1.CoordinatorInstruction_TransferOwnership:
		t := p.TransferOwnership
		return s.hand(t.GetMoveId(), t.GetFromShardId(), t.GetToShardId(), t.GetMachineIds(), Idle)
	case *v1.CoordinatorInstruction_ReassignSpeculative:
		t := p.ReassignSpeculative
		return s.hand(t.GetMoveId(), t.GetFromShardId(), t.GetToShardId(), t.GetMachineIds(), Speculative)
	case *v1.CoordinatorInstruction_CancelMove:
		delete(s.disk.reserved, p.CancelMove.GetMoveId())
		s.disk.cancelled[p.CancelMove.GetMoveId()] = true
		machines := slices.Clone(s.disk.adopted[p.CancelMove.GetMoveId()])
		for _, e := range s.disk.view.GetExceptionsIn() {
			if e.GetMoveId() == p.CancelMove.GetMoveId() && !slices.Contains(machines, e.GetMachineId()) {
				machines = append(machines, e.GetMachineId())
			}
		}
		return machines, "cancel", nil
	}
	return nil, "", errors.New("unsupported")
}

// setView obeys a newer view, and acks when nothing of its own is in flight on what it loses (COORD-9.9f).
func (s *Shard) setView(v *v1.ShardView) error {
	before := map[string]bool{}
	for _, m := range s.Inventory.machines {
		before[m.ID] = s.owns(m)
	}
	if newer(v.GetVersion(), s.disk.view.GetVersion()) {
		s.disk.view = v
		clear(s.disk.given)
		for _, e := range v.GetExceptionsIn() {
			delete(s.disk.adopted, e.GetMoveId())
		}
	}
	var waits []string
	for _, m := range s.Inventory.machines {
		if s.Busy[m.ID] && !s.owns(m) {
			waits = append(waits, m.ID)
		}
	}
	if len(waits) > 0 {
		return &failedError{waits}
	}
	return nil
}

func newer(a, b *v1.ViewVersion) bool {
	if a.GetTerm() != b.GetTerm() {
		return a.GetTerm() > b.GetTerm()
	}
	return a.GetIndex() > b.GetIndex()
}

// reserve picks machines for another shard. Asked again, it names the same ones.
func (s *Shard) reserve(r *v1.ReserveMachines) ([]string, error) {
	if ids := s.disk.reserved[r.GetMoveId()]; len(ids) > 0 {
		return ids, nil
	}
	if s.disk.cancelled[r.GetMoveId()] {
		return nil, errors.New("the move was cancelled")
	}
	var ids []string
	for _, m := range s.Inventory.machines {
		if int32(len(ids)) >= r.GetCount() {
			break
		}
		if m.Type != r.GetInstanceType() || m.Zone != r.GetZone() || !s.owns(m) || s.Busy[m.ID] {
			continue
		}
		switch {
		case r.GetTier() == v1.MoveTier_MOVE_TIER_IDLE && m.State == Idle, r.GetTier() == v1.MoveTier_MOVE_TIER_QUOTA && m.State == Speculative:
		case r.GetTier() == v1.MoveTier_MOVE_TIER_DRAIN && m.State == Configured && m.Priority < r.GetRequesterPriority():
			m.State, m.Cluster, m.Mark = Idle, "", "" // drained
		default:
			continue
		}
		ids = append(ids, m.ID)
	}
	if len(ids) == 0 {
		return nil, errors.New("no matching machine to give")
	}
	s.disk.reserved[r.GetMoveId()] = ids
	return ids, nil
}

// hand is both ends of a transfer: the recipient adopts, the donor lets go.
func (s *Shard) hand(move, from, to string, ids []string, want State) ([]string, string, error) {
	if to == s.ID {
		if s.disk.cancelled[move] {
			return nil, "adopt", errors.New("the move was cancelled")
		}
		if have := s.disk.adopted[move]; len(have) > 0 {
			return have, "adopt", nil
		}
		var took []string
		for _, m := range s.Inventory.machines {
			if slices.Contains(ids, m.ID) && m.State == want && m.Cluster == "" {
				took = append(took, m.ID)
			}
		}
		if len(took) > 0 {
			s.disk.adopted[move] = took
		}
		return took, "adopt", nil
	}
	if from != s.ID {
		return nil, "", errors.New("neither donor nor recipient")
	}
	for _, id := range ids {
		s.disk.given[id] = true
	}
	delete(s.disk.reserved, move)
	return nil, "let-go", nil
}

// Holds reports whether an older shard was instructed to take a domain.
func (s *Shard) Holds(domain string) bool {
	s.Inventory.mu.Lock()
	defer s.Inventory.mu.Unlock()
	return s.disk.domains[domain]
}

// Domains lists what an older shard was instructed to take.
func (s *Shard) Domains() []string {
	s.Inventory.mu.Lock()
	defer s.Inventory.mu.Unlock()
	return slices.Sorted(maps.Keys(s.disk.domains))
}
