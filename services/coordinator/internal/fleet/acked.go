package fleet

import (
	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// Acked answers whether a shard acked a view that is not older than required. domain is the one it is asked to let go
// of, or nil; an older shard, which knows no views, acks domains one by one.
type Acked func(shard string, required *pb.Version, domain *pb.Domain) bool

// AckedOperations returns the operations that the acks of one shard allow: handovers it was the last to wait for, slices that
// may go to others, clusters it let go of. It is called after each ack, so it looks only at what concerns the shard.
func (s *State) AckedOperations(shard string, acked Acked) []*pb.Operation {
	var ops []*pb.Operation
	for d := range s.HandoversOf(shard) {
		done := true
		for _, r := range d.GetReleasers() {
			done = done && acked(r.GetShardId(), r.GetView(), d)
		}
		if done {
			ops = append(ops, &pb.Operation{Kind: &pb.Operation_FinishDomainMove{FinishDomainMove: &pb.FinishDomainMove{
				Key: d.GetKey(), Value: d.GetValue(), Handover: d.GetHandover()}}})
		}
	}
	provider := s.providers.get(s.shards.get(shard).GetProvider())
	if provider.GetNextDefaultOwner() != "" {
		done := true
		for _, r := range provider.GetReleasers() {
			done = done && acked(r.GetShardId(), r.GetView(), nil)
		}
		if done {
			ops = append(ops, &pb.Operation{Kind: &pb.Operation_FinishDefaultOwner{FinishDefaultOwner: &pb.FinishDefaultOwner{
				Provider: provider.GetName(), Handover: provider.GetHandover()}}})
		}
	}
	for c := range s.ClustersOf(shard) {
		if at := releaseOf(c, shard); at >= 0 && c.GetReleases()[at].GetReleasedIn() != nil && acked(shard, c.GetReleases()[at].GetReleasedIn(), nil) {
			ops = append(ops, &pb.Operation{Kind: &pb.Operation_FinishRelease{FinishRelease: &pb.FinishRelease{ClusterId: c.GetClusterId(), ShardId: shard}}})
		}
	}
	for q := range rows(s.quotas.under(provider.GetName() + sep)) {
		if sl := sliceOf(q, shard); provider != nil && sl.GetLoweredIn() != nil && acked(shard, sl.GetLoweredIn(), nil) {
			ops = append(ops, &pb.Operation{Kind: &pb.Operation_SettleQuota{SettleQuota: &pb.SettleQuota{
				Provider: q.GetProvider(), Region: q.GetRegion(), ShardId: shard, Acked: s.shards.get(shard).GetView()}}})
		}
	}
	return ops
}

// Awaited reports whether anything waits for a shard to ack a view. A leader that has not heard such an ack itself
// sends the view again, although the shard reports that it obeys it.
func (s *State) Awaited(shard string) bool {
	for range s.HandoversOf(shard) {
		return true
	}
	provider := s.providers.get(s.shards.get(shard).GetProvider())
	for _, r := range provider.GetReleasers() {
		if r.GetShardId() == shard {
			return true
		}
	}
	for c := range s.ClustersOf(shard) {
		if at := releaseOf(c, shard); at >= 0 && c.GetReleases()[at].GetReleasedIn() != nil {
			return true
		}
	}
	for q := range rows(s.quotas.under(provider.GetName() + sep)) {
		if sliceOf(q, shard).GetLoweredIn() != nil {
			return true
		}
	}
	return false
}
