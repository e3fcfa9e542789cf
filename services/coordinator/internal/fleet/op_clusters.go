package fleet

import (
	"slices"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
	"google.golang.org/protobuf/proto"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// A cluster that is rebound leaves a trail: every shard that may hold its machines first acks release_cluster, then
// acks a view that lists the cluster as released; only then does the bound shard own them (COORD-10.5, 10.6).

func (a *applier) bindCluster(op *pb.BindCluster) *Refusal {
	id, to := op.GetClusterId(), op.GetShardId()
	if !ValidCluster(id) {
		return invalid("cluster id %q does not have the syntax of cluster ids", id)
	}
	if _, r := a.liveShard(to); r != nil {
		return r
	}
	old := a.s.clusters.get(id)
	from := old.GetShardId()
	switch {
	case from == to:
		if op.GetSource() == v1.ClusterBinding_SOURCE_ADMIN && old.GetSource() != op.GetSource() {
			row := proto.CloneOf(old) // what was learned from reports is now what a person said
			row.Source = op.GetSource()
			a.putCluster(row)
		}
		return nil
	case op.GetExpected() != "" && from != op.GetExpected():
		return refused("binding-changed", "look again", "cluster %q is bound to %q, not to %q", id, from, op.GetExpected())
	case from != "" && !op.GetRebind():
		return otherOwner("cluster", id, from, "rebind it")
	}
	row := &pb.Cluster{ClusterId: id}
	if old != nil {
		row = proto.CloneOf(old)
	}
	a.touch(involved(row)...)
	row.ShardId, row.BoundAtUnixNanos, row.Source, row.UnseenSinceUnixNanos = to, a.at, op.GetSource(), 0
	row.Releases = slices.DeleteFunc(row.Releases, func(r *pb.Release) bool { return r.GetShardId() == to })
	for _, holder := range append([]string{from}, op.GetHolders()...) {
		if holder == to || !Live(a.s.shards.get(holder)) || slices.Contains(row.Released, holder) ||
			slices.ContainsFunc(row.Releases, func(r *pb.Release) bool { return r.GetShardId() == holder }) {
			continue
		}
		row.Releases = append(row.Releases, &pb.Release{ShardId: holder})
	}
	takeBack(row)
	a.putCluster(row)
	a.touch(involved(row)...)
	return nil
}

// takeBack gives the bound shard what it once let go of, as soon as no other shard may act on it.
func takeBack(row *pb.Cluster) {
	if len(row.GetReleases()) == 0 {
		row.Released = slices.DeleteFunc(row.Released, func(s string) bool { return s == row.GetShardId() })
	}
}

// unbindCluster forgets a binding. What shards let go of stays let go: a row without a shard remains for them, because
// two views cannot change in one instant.
func (a *applier) unbindCluster(op *pb.UnbindCluster) *Refusal {
	old := a.s.clusters.get(op.GetClusterId())
	if old.GetShardId() == "" {
		return nil
	}
	a.touch(involved(old)...)
	a.setUnbound(proto.CloneOf(old))
	return nil
}

func (a *applier) setUnbound(row *pb.Cluster) {
	row.ShardId, row.Source, row.BoundAtUnixNanos = "", v1.ClusterBinding_SOURCE_UNSPECIFIED, a.at
	if len(row.GetReleases()) == 0 && len(row.GetReleased()) == 0 {
		a.dropCluster(row.GetClusterId())
		return
	}
	a.putCluster(row)
}

func (a *applier) releaseCluster(op *pb.ReleaseCluster) *Refusal {
	old := a.s.clusters.get(op.GetClusterId())
	at := releaseOf(old, op.GetShardId())
	if at < 0 || old.GetReleases()[at].GetReleasedIn() != nil {
		return nil
	}
	row := proto.CloneOf(old)
	row.Releases[at].ReleasedIn = a.version
	a.putCluster(row)
	a.touch(op.GetShardId())
	return nil
}

func (a *applier) finishRelease(op *pb.FinishRelease) *Refusal {
	old := a.s.clusters.get(op.GetClusterId())
	at := releaseOf(old, op.GetShardId())
	if at < 0 || old.GetReleases()[at].GetReleasedIn() == nil && !op.GetForce() {
		return nil
	}
	row := proto.CloneOf(old)
	row.Releases = slices.Delete(row.Releases, at, at+1)
	row.Released = append(row.Released, op.GetShardId())
	slices.Sort(row.Released)
	takeBack(row)
	a.putCluster(row)
	a.touch(row.GetShardId(), op.GetShardId())
	return nil
}

func releaseOf(c *pb.Cluster, shard string) int {
	return slices.IndexFunc(c.GetReleases(), func(r *pb.Release) bool { return r.GetShardId() == shard })
}

func (a *applier) markCluster(op *pb.MarkCluster) *Refusal {
	old := a.s.clusters.get(op.GetClusterId())
	if old.GetShardId() == "" || old.GetUnseenSinceUnixNanos() == op.GetUnseenSinceUnixNanos() {
		return nil
	}
	row := proto.CloneOf(old)
	row.UnseenSinceUnixNanos = op.GetUnseenSinceUnixNanos()
	a.putCluster(row)
	return nil
}

// abandonClusters takes every cluster from a shard that is removed. It counts as having let go, so that the next shard
// of the cluster inherits the machines that carry its name.
func (a *applier) abandonClusters(id string) {
	for _, c := range slices.Collect(a.s.ClustersOf(id)) {
		a.touch(involved(c)...)
		row := proto.CloneOf(c)
		row.Releases = slices.DeleteFunc(row.Releases, func(r *pb.Release) bool { return r.GetShardId() == id })
		if !slices.Contains(row.Released, id) {
			row.Released = append(row.Released, id)
			slices.Sort(row.Released)
		}
		if row.GetShardId() == id {
			a.setUnbound(row)
			continue
		}
		takeBack(row)
		a.putCluster(row)
	}
}

// Owns reports whether the view of a shard lists a cluster as owned: it is bound there and every other shard let go, or
// it left and the shard has not let go yet.
func Owns(c *pb.Cluster, shard string) bool {
	if at := releaseOf(c, shard); at >= 0 {
		return c.GetReleases()[at].GetReleasedIn() == nil
	}
	return c.GetShardId() == shard && len(c.GetReleases()) == 0
}

// Inherits names the shards whose machines of a cluster went to another shard: those that let go of it before.
func Inherits(c *pb.Cluster, shard string) []string {
	if c.GetShardId() != shard || len(c.GetReleases()) > 0 {
		return nil
	}
	return c.GetReleased()
}

// LetGo reports whether the view of a shard lists a cluster as released.
func LetGo(c *pb.Cluster, shard string) bool {
	at := releaseOf(c, shard)
	return at >= 0 && c.GetReleases()[at].GetReleasedIn() != nil || slices.Contains(c.GetReleased(), shard)
}
