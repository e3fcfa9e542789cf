package fleet

import (
	"slices"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
	"google.golang.org/protobuf/proto"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// After a restore the archive may be older than what shards obey: their persisted views. Each shard says once what it
// holds, and the tables take that over (COORD-15.15, 15.16). A fact that one shard claims is committed again; of two
// claims the newer view wins, and the audit says so. When every shard was heard, FinishMerge drops what no heard shard
// claims any more, ends what has no owner and gives every shard a fresh view.

// Merging reports whether the state came from a restore and holdings are still being collected.
func (s *State) Merging() bool {
	return s.Meta().GetRestored() != nil && !s.Meta().GetRestored().GetMerged()
}

// Merged reports whether the holdings of a shard were taken over, or need not be.
func (s *State) Merged(shard string) bool {
	restored := s.Meta().GetRestored()
	return restored == nil || slices.Contains(restored.GetMergedShards(), shard)
}

func (a *applier) mergeHoldings(op *pb.MergeHoldings) *Refusal {
	id := op.GetShardId()
	sh, r := a.liveShard(id)
	if r != nil {
		return r
	}
	if a.s.Merged(id) {
		return nil
	}
	view := op.GetView()
	for _, d := range op.GetHoldings().GetDomains() {
		a.claimDomain(d, id, view)
	}
	for _, e := range op.GetHoldings().GetExceptionsIn() {
		a.claimException(sh.GetProvider(), e, id, view)
	}
	for _, e := range op.GetHoldings().GetExceptionsOut() {
		// The donor's word stands until the owner speaks for itself.
		if Live(a.s.shards.get(e.GetOwnerShardId())) && a.s.Exception(sh.GetProvider(), e.GetMachineId()) == nil && e.GetMachineId() != "" {
			a.putException(&pb.Exception{Provider: sh.GetProvider(), MachineId: e.GetMachineId(), Owner: e.GetOwnerShardId(),
				MoveId: e.GetMoveId(), SinceUnixNanos: a.at, Claimed: view})
		}
	}
	for _, cluster := range op.GetHoldings().GetReleasedClusters() {
		a.claimRelease(cluster, id)
	}
	for _, res := range op.GetHoldings().GetReservations() {
		a.claimReservation(res, sh)
	}
	meta := proto.CloneOf(a.s.Meta())
	meta.Restored.MergedShards = append(meta.Restored.MergedShards, id)
	slices.Sort(meta.Restored.MergedShards)
	a.putMeta(meta)
	return nil
}

// claimDomain takes over that a shard owns a domain. A late claim, after the merge ended, only fills a gap.
func (a *applier) claimDomain(ref *v1.DomainRef, id string, view *pb.Version) {
	if checkDomain(ref.GetTopologyKey(), ref.GetTopologyValue()) != nil {
		return
	}
	old := a.s.Domain(ref.GetTopologyKey(), ref.GetTopologyValue())
	owns := old != nil && old.GetOwner() == id && !InHandover(old)
	if old != nil && !owns && (!a.s.Merging() || old.GetClaimed() != nil && !NewerView(view, old.GetClaimed())) {
		a.note("merge", "domain", ref.GetTopologyKey()+"="+ref.GetTopologyValue(), "stays with", old.GetOwner()+old.GetNext(), "not", id)
		return
	}
	if old != nil && !owns && old.GetClaimed() != nil {
		a.note("merge", "domain", ref.GetTopologyKey()+"="+ref.GetTopologyValue(), "goes from", old.GetOwner(), "to", id)
	}
	a.partitionBy(a.s.shards.get(id).GetProvider(), ref.GetTopologyKey())
	row := &pb.Domain{Key: ref.GetTopologyKey(), Value: ref.GetTopologyValue(), SinceUnixNanos: a.at, Owner: id, Claimed: view}
	if old != nil && owns {
		row.SinceUnixNanos = old.GetSinceUnixNanos()
	}
	if old != nil {
		a.touchDomain(old)
	}
	a.putDomain(row)
	a.touchDomain(row)
}

func (a *applier) claimException(provider string, e *v1.MachineException, id string, view *pb.Version) {
	if e.GetMachineId() == "" || provider == "" {
		return
	}
	old := a.s.Exception(provider, e.GetMachineId())
	if old != nil && old.GetOwner() != id && (!a.s.Merging() || old.GetClaimed() != nil && !NewerView(view, old.GetClaimed())) {
		a.note("merge", "machine", e.GetMachineId(), "stays with", old.GetOwner(), "not", id)
		return
	}
	row := &pb.Exception{Provider: provider, MachineId: e.GetMachineId(), Owner: id, MoveId: e.GetMoveId(), SinceUnixNanos: a.at, Claimed: view}
	if old.GetOwner() == id {
		row.SinceUnixNanos = old.GetSinceUnixNanos()
	}
	a.putException(row)
	a.touchProvider(provider)
}

// claimRelease takes over that a shard let go of a cluster. If the archive still binds it there, the binding is older
// than the release: the next live session binds it again.
func (a *applier) claimRelease(cluster, id string) {
	if !ValidCluster(cluster) {
		return
	}
	row := &pb.Cluster{ClusterId: cluster}
	if old := a.s.clusters.get(cluster); old != nil {
		row = proto.CloneOf(old)
	}
	if slices.Contains(row.Released, id) {
		return
	}
	row.Releases = slices.DeleteFunc(row.Releases, func(r *pb.Release) bool { return r.GetShardId() == id })
	row.Released = append(row.Released, id)
	slices.Sort(row.Released)
	if row.ShardId == id {
		row.ShardId = ""
	}
	a.putCluster(row)
	a.touch(involved(row)...)
}

// claimReservation explains a reservation that no move of the archive explains: it is undone unless somebody adopted.
func (a *applier) claimReservation(res *v1.Reservation, donor *pb.Shard) {
	if !validID(res.GetMoveId()) || a.s.moves.get(res.GetMoveId()) != nil {
		return
	}
	a.putMove(&pb.Move{
		MoveId: res.GetMoveId(), Tier: v1.MoveTier_MOVE_TIER_IDLE, From: donor.GetShardId(), Provider: donor.GetProvider(),
		State: v1.Move_STATE_WITHDRAWING, Wanted: int32(len(res.GetMachineIds())), Orphan: true,
		MachineIds: distinct(res.GetMachineIds(), len(res.GetMachineIds()), nil),
		Reason:     "a reservation was found after a restore", StartedAtUnixNanos: a.at, UpdatedAtUnixNanos: a.at,
	})
}

// finishMerge ends the merge.
func (a *applier) finishMerge() *Refusal {
	if !a.s.Merging() {
		return nil
	}
	for _, d := range slices.Collect(a.s.Domains()) {
		a.touchDomain(d)
		if d.GetClaimed() == nil && !InHandover(d) && a.s.Merged(d.GetOwner()) {
			a.dropDomain(d)
		} else if d.GetClaimed() != nil {
			row := proto.CloneOf(d)
			row.Claimed = nil
			a.putDomain(row)
		}
	}
	for _, e := range slices.Collect(a.s.Exceptions()) {
		if e.GetClaimed() == nil && a.s.Merged(e.GetOwner()) {
			a.removeException(e)
		} else if e.GetClaimed() != nil {
			row := proto.CloneOf(e)
			row.Claimed = nil
			a.putException(row)
		}
	}
	a.resolveMoves()
	meta := proto.CloneOf(a.s.Meta())
	meta.Restored.Merged = true
	a.putMeta(meta)
	for sh := range a.s.Shards() {
		if Live(sh) {
			a.touch(sh.GetShardId()) // a view that was applied after the archive must look older than the next one
		}
	}
	return nil
}

// resolveMoves settles the open moves of the archive and the orphans: what was adopted is done, the rest is undone.
func (a *applier) resolveMoves() {
	adopted := map[string][]string{}
	owner := map[string]string{}
	for e := range a.s.Exceptions() {
		adopted[e.GetMoveId()] = append(adopted[e.GetMoveId()], e.GetMachineId())
		owner[e.GetMoveId()] = e.GetOwner()
	}
	for _, m := range slices.Collect(a.s.OpenMoves()) {
		m = proto.CloneOf(m)
		ids := adopted[m.GetMoveId()]
		switch {
		case len(ids) > 0 && m.GetState() != v1.Move_STATE_ADOPTED:
			m.To, m.MachineIds = owner[m.GetMoveId()], ids
			a.step(m, v1.Move_STATE_ADOPTED, ids, "the recipient held the machines after a restore")
		case len(ids) > 0:
		case m.GetOrphan() || m.GetState() == v1.Move_STATE_PLANNED:
			a.step(m, v1.Move_STATE_CANCELLING, nil, "")
		case m.GetState() == v1.Move_STATE_RESERVED:
			a.step(m, v1.Move_STATE_WITHDRAWING, nil, "")
		}
	}
}

// RestoreFrom turns a state read from an archive into the first state of a new group (COORD-15.9): a new identity
// with the old one remembered, a fencing term far above any a shard may have seen, and no other replica.
func RestoreFrom(s *State, uuid, node string, peer *pb.Peer, stride, atLeast, at int64) *State {
	next := *s
	meta := proto.CloneOf(s.Meta())
	old := meta.GetClusterUuid()
	if old != "" {
		meta.PreviousUuids = append([]string{old}, meta.GetPreviousUuids()...)
		meta.PreviousUuids = meta.PreviousUuids[:min(len(meta.PreviousUuids), PreviousMax)]
	}
	meta.ClusterUuid = uuid
	meta.FencingTerm = max(meta.GetFencingTerm()+stride, atLeast)
	meta.Restored = &pb.Restored{FromUuid: old, FromIndex: s.index, AtUnixNanos: at}
	next.meta = meta
	next.peers = hashedTable[pb.Peer, *pb.Peer]{}
	next.peers.put(node, peer)
	return &next
}
