package fleet

import (
	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// View derives everything one shard must know about what it owns (COORD-9.1). It is a function of the state alone, so
// a new leader sends the same view under the same version. It returns nil for a shard that is removed or has reported
// no provider yet: nothing can be said about its machines.
func (s *State) View(id string) *v1.ShardView {
	sh := s.shards.get(id)
	if !Live(sh) || sh.GetProvider() == "" {
		return nil
	}
	provider := s.providers.get(sh.GetProvider())
	only := s.onlyShard(id, sh.GetProvider())
	view := &v1.ShardView{
		Version:  WireVersion(sh.GetView()),
		Provider: sh.GetProvider(), PartitionKeys: provider.GetPartitionKeys(), OnlyShard: only, Region: provider.GetRegion(),
		DefaultOwner: provider.GetDefaultOwner() == id && provider.GetNextDefaultOwner() == "",
	}
	for d := range s.DomainsOf(id) {
		if d.GetOwner() == id && !InHandover(d) {
			view.OwnedDomains = append(view.OwnedDomains, wireDomain(d))
		}
	}
	view.ForeignDomains = s.foreignDomains(id, provider, view.DefaultOwner)
	s.viewExceptions(view, id, sh.GetProvider())
	for c := range s.ClustersOf(id) {
		if Owns(c, id) {
			view.OwnedClusters = append(view.OwnedClusters, c.GetClusterId())
		}
		if from := Inherits(c, id); len(from) > 0 {
			view.Inherited = append(view.Inherited, &v1.InheritedCluster{ClusterId: c.GetClusterId(), FromShardIds: from})
		}
		if LetGo(c, id) {
			view.ReleasedClusters = append(view.ReleasedClusters, c.GetClusterId())
		}
	}
	for q := range rows(s.quotas.under(sh.GetProvider() + sep)) {
		view.QuotaSlices = append(view.QuotaSlices, &v1.QuotaSlice{Provider: q.GetProvider(), Region: q.GetRegion(), Machines: Usable(sliceOf(q, id))})
	}
	return view
}

// foreignDomains are the domains that other shards of a provider own, or that have no owner while they change hands. The
// default owner needs all of them. Another shard needs those of the keys before its own ones, because the first key
// decides: a machine in its rack may stand in the zone of another.
func (s *State) foreignDomains(id string, provider *pb.Provider, byDefault bool) []*v1.DomainRef {
	keys := provider.GetPartitionKeys()
	if !byDefault {
		last := len(keys) - 1
		for last >= 0 && !s.hasDomains(id, keys[last]) {
			last--
		}
		keys = keys[:max(last, 0)]
	}
	var out []*v1.DomainRef
	for other := range s.ShardsOf(provider.GetName()) {
		for _, key := range keys {
			for k := range s.domainsByShard.under(other + sep + key + sep) {
				d := s.domains.get(k[len(other)+1:])
				own := d.GetOwner() == id && !InHandover(d)
				// A domain on its way from one shard of the provider to another is reached through both: take it once.
				again := d.GetNext() == other && d.GetOwner() != other && s.shards.get(d.GetOwner()).GetProvider() == provider.GetName()
				if !own && !again {
					out = append(out, wireDomain(d))
				}
			}
		}
	}
	return out
}

func (s *State) viewExceptions(view *v1.ShardView, id, provider string) {
	for e := range rows(s.exceptions.under(provider + sep)) {
		ref := &v1.MachineException{MachineId: e.GetMachineId(), OwnerShardId: e.GetOwner(), MoveId: e.GetMoveId()}
		if e.GetOwner() == id {
			view.ExceptionsIn = append(view.ExceptionsIn, ref)
		} else {
			view.ExceptionsOut = append(view.ExceptionsOut, ref)
		}
	}
	// Reserved machines are spoken for: the recipient may adopt them at any moment, and keeps what it has adopted until the
	// leader has decided. The donor knows, unless it lost its disk; another shard may be given their domain meanwhile.
	for m := range s.OpenMoves() {
		if m.GetProvider() != provider || m.GetState() == v1.Move_STATE_ADOPTED {
			continue
		}
		if m.GetTo() == id {
			if m.GetState() == v1.Move_STATE_RESERVED || m.GetState() == v1.Move_STATE_WITHDRAWING {
				view.ArrivingMoveIds = append(view.ArrivingMoveIds, m.GetMoveId())
			}
			continue
		}
		for _, machine := range m.GetMachineIds() {
			view.ExceptionsOut = append(view.ExceptionsOut, &v1.MachineException{MachineId: machine, OwnerShardId: m.GetTo(), MoveId: m.GetMoveId()})
		}
	}
}

// WireVersion converts a version of a view for the wire.
func WireVersion(v *pb.Version) *v1.ViewVersion {
	return &v1.ViewVersion{Term: v.GetTerm(), Index: v.GetIndex()}
}

// StoredVersion converts a version of a view from the wire; nil stays nil.
func StoredVersion(v *v1.ViewVersion) *pb.Version {
	if v == nil {
		return nil
	}
	return &pb.Version{Term: v.GetTerm(), Index: v.GetIndex()}
}

func wireDomain(d *pb.Domain) *v1.DomainRef {
	return &v1.DomainRef{TopologyKey: d.GetKey(), TopologyValue: d.GetValue()}
}
