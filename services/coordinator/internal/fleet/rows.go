package fleet

import (
	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// Every change of a row goes through the functions of this file, which keep the indexes and the list of changes.

func (a *applier) putShard(sh *pb.Shard) {
	if old := a.s.shards.get(sh.GetShardId()); Live(old) {
		a.s.shardsByProvider.drop(old.GetProvider() + sep + old.GetShardId())
	}
	a.s.shards.put(sh.GetShardId(), sh)
	a.s.indexShard(sh)
	a.changed(Shards, sh.GetShardId(), "")
}

func (s *State) indexShard(sh *pb.Shard) {
	if Live(sh) {
		s.shardsByProvider.add(sh.GetProvider() + sep + sh.GetShardId())
	}
}

func (a *applier) dropShard(id string) {
	if old := a.s.shards.get(id); Live(old) {
		a.s.shardsByProvider.drop(old.GetProvider() + sep + id)
	}
	a.s.shards.drop(id)
	a.changed(Shards, id, "")
}

func (a *applier) putDomain(d *pb.Domain) {
	a.unindexDomain(domainKey(d))
	a.s.domains.put(domainKey(d), d)
	a.s.indexDomain(d)
	a.changed(Domains, d.GetKey(), d.GetValue())
}

func (s *State) indexDomain(d *pb.Domain) {
	for _, shard := range []string{d.GetOwner(), d.GetNext()} {
		if shard != "" {
			s.domainsByShard.add(shard + sep + domainKey(d))
		}
	}
	for _, r := range d.GetReleasers() {
		s.handoversByShard.add(r.GetShardId() + sep + domainKey(d))
	}
}

func (a *applier) unindexDomain(key string) {
	old := a.s.domains.get(key)
	if old == nil {
		return
	}
	a.s.domainsByShard.drop(old.GetOwner() + sep + key)
	a.s.domainsByShard.drop(old.GetNext() + sep + key)
	for _, r := range old.GetReleasers() {
		a.s.handoversByShard.drop(r.GetShardId() + sep + key)
	}
}

func (a *applier) dropDomain(d *pb.Domain) {
	a.unindexDomain(domainKey(d))
	a.s.domains.drop(domainKey(d))
	a.changed(Domains, d.GetKey(), d.GetValue())
}

// involved walks the shards that a cluster row concerns.
func involved(c *pb.Cluster) []string {
	var out []string
	if c.GetShardId() != "" {
		out = append(out, c.GetShardId())
	}
	for _, r := range c.GetReleases() {
		out = append(out, r.GetShardId())
	}
	return append(out, c.GetReleased()...)
}

func (a *applier) putCluster(c *pb.Cluster) {
	a.unindexCluster(c.GetClusterId())
	a.s.clusters.put(c.GetClusterId(), c)
	a.s.indexCluster(c)
	a.changed(Clusters, c.GetClusterId(), "")
}

func (s *State) indexCluster(c *pb.Cluster) {
	for _, shard := range involved(c) {
		s.clustersByShard.add(shard + sep + c.GetClusterId())
	}
}

func (a *applier) unindexCluster(id string) {
	if old := a.s.clusters.get(id); old != nil {
		for _, shard := range involved(old) {
			a.s.clustersByShard.drop(shard + sep + id)
		}
	}
}

func (a *applier) dropCluster(id string) {
	a.unindexCluster(id)
	a.s.clusters.drop(id)
	a.changed(Clusters, id, "")
}

func (a *applier) putProvider(p *pb.Provider) {
	a.unindexProvider(p.GetName())
	a.s.providers.put(p.GetName(), p)
	a.s.indexProvider(p)
	a.changed(Providers, p.GetName(), "")
}

func (s *State) indexProvider(p *pb.Provider) {
	for _, address := range p.GetAddresses() {
		name := p.GetName()
		s.providerByAddress.put(address, &name)
	}
}

func (a *applier) unindexProvider(name string) {
	for _, address := range a.s.providers.get(name).GetAddresses() {
		if holder := a.s.providerByAddress.get(address); holder != nil && *holder == name {
			a.s.providerByAddress.drop(address)
		}
	}
}

func (a *applier) dropProvider(name string) {
	a.unindexProvider(name)
	a.s.providers.drop(name)
	a.changed(Providers, name, "")
}

func (a *applier) putQuota(q *pb.Quota) {
	a.s.quotas.put(quotaKey(q), q)
	a.changed(Quotas, q.GetProvider(), q.GetRegion())
}

func (a *applier) dropQuota(q *pb.Quota) {
	a.s.quotas.drop(quotaKey(q))
	a.changed(Quotas, q.GetProvider(), q.GetRegion())
}

func (a *applier) putException(e *pb.Exception) {
	key := exceptionKey(e)
	if old := a.s.exceptions.get(key); old != nil {
		a.s.exceptionsByShard.drop(old.GetOwner() + sep + key)
	}
	a.s.exceptions.put(key, e)
	a.s.indexException(e)
	a.changed(Exceptions, e.GetProvider(), e.GetMachineId())
}

func (s *State) indexException(e *pb.Exception) {
	s.exceptionsByShard.add(e.GetOwner() + sep + exceptionKey(e))
}

func (a *applier) removeException(e *pb.Exception) {
	key := exceptionKey(e)
	a.s.exceptionsByShard.drop(e.GetOwner() + sep + key)
	a.s.exceptions.drop(key)
	a.changed(Exceptions, e.GetProvider(), e.GetMachineId())
}

func (a *applier) putMove(m *pb.Move) {
	a.s.moves.put(m.GetMoveId(), m)
	a.s.indexMove(m)
	a.changed(Moves, m.GetMoveId(), "")
}

func (s *State) indexMove(m *pb.Move) {
	if Open(m) {
		s.openMoves.add(m.GetMoveId())
	} else {
		s.openMoves.drop(m.GetMoveId())
	}
}

func (a *applier) dropMove(id string) {
	a.s.openMoves.drop(id)
	a.s.moves.drop(id)
	a.changed(Moves, id, "")
}

func (a *applier) putPeer(p *pb.Peer) {
	a.s.peers.put(p.GetNodeId(), p)
	a.changed(Peers, p.GetNodeId(), "")
}
