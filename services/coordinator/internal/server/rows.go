package server

import (
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/shards"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// This file turns rows into messages. A time that never happened is 0 on the wire (COORD-16.5).

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// shardEntry joins a row with what the shard said to this leader; registry may be nil.
func shardEntry(st *fleet.State, d *shards.ShardRegistry, sh *pb.Shard) *v1.ShardRegistryEntry {
	out := &v1.ShardRegistryEntry{ShardId: sh.GetShardId(), Address: sh.GetAddress(), RegisteredAtUnixNs: sh.GetRegisteredAtUnixNanos(), State: sh.GetState(),
		Provider: sh.GetProvider(), Epoch: sh.GetEpoch(), Clusters: int32(st.BoundClusters(sh.GetShardId())), ReportAgeSeconds: -1}
	if soft := d.SoftState(sh.GetShardId(), false); soft.Heard {
		out.LastHeartbeatUnixNs, out.ReportAgeSeconds = nanos(soft.Received), soft.Age.Seconds()
		out.ViewVersion, out.ShardVersion, out.Capabilities = soft.View, soft.Version, soft.Capable
	}
	return out
}

// reportSnapshot is a shard's last report, or nil when this leader has none.
func reportSnapshot(d *shards.ShardRegistry, id string, lists bool) *v1.ShardReportSnapshot {
	soft := d.SoftState(id, lists)
	if !soft.Heard {
		return nil
	}
	return &v1.ShardReportSnapshot{ShardId: id, Cycle: soft.Cycle, ReceivedAtUnixNs: nanos(soft.Received), Summary: soft.Summary, Shortfalls: soft.Shortfalls,
		ShardEpoch: soft.Epoch, AgeSeconds: soft.Age.Seconds(), Clusters: soft.Links, Supply: soft.Supply}
}

// domainAssignment is a domain row. While a default owner releases the domain for the first time, no owner is named.
func domainAssignment(d *pb.Domain) *v1.DomainAssignment {
	return &v1.DomainAssignment{TopologyKey: d.GetKey(), TopologyValue: d.GetValue(), ShardId: d.GetOwner(), NextShardId: d.GetNext(), SinceUnixNanos: d.GetSinceUnixNanos()}
}

func clusterBinding(d *shards.ShardRegistry, conflicts map[string]string, c *pb.Cluster, now time.Time) *v1.ClusterBinding {
	link := d.Link(c.GetShardId(), c.GetClusterId())
	return &v1.ClusterBinding{ClusterId: c.GetClusterId(), ShardId: c.GetShardId(), BoundAtUnixNanos: c.GetBoundAtUnixNanos(), Source: c.GetSource(),
		LiveSession: link.GetLiveSession(), BoundMachines: link.GetBoundMachines(), ConflictingShardId: conflicts[c.GetClusterId()], Stale: shards.Stale(c, now)}
}

func providerRegistration(st *fleet.State, p *pb.Provider) *v1.ProviderRegistration {
	out := &v1.ProviderRegistration{Name: p.GetName(), Addresses: p.GetAddresses(), Region: p.GetRegion(), PartitionKeys: p.GetPartitionKeys(),
		DefaultOwner: p.GetDefaultOwner(), UnownedPolicy: p.GetUnownedPolicy()}
	for id := range st.ShardsOf(p.GetName()) {
		out.ShardIds = append(out.ShardIds, id)
	}
	return out
}

func quota(q *pb.Quota) *v1.Quota {
	out := &v1.Quota{Provider: q.GetProvider(), Region: q.GetRegion(), Declared: q.GetDeclared(), Slices: map[string]int32{}, HeldBack: map[string]int32{}}
	for _, s := range q.GetSlices() {
		out.Slices[s.GetShardId()] = s.GetTarget()
		if s.GetGranted() > s.GetTarget() {
			out.HeldBack[s.GetShardId()] = s.GetGranted() - s.GetTarget()
		}
	}
	return out
}

func wireMove(m *pb.Move) *v1.Move {
	return &v1.Move{MoveId: m.GetMoveId(), Tier: m.GetTier(), FromShardId: m.GetFrom(), ToShardId: m.GetTo(), State: m.GetState(), Wanted: m.GetWanted(),
		MachineIds: m.GetMachineIds(), Fingerprint: m.GetFingerprint(), Reason: m.GetReason(), Donors: m.GetDonors(),
		StartedAtUnixNanos: m.GetStartedAtUnixNanos(), UpdatedAtUnixNanos: m.GetUpdatedAtUnixNanos()}
}
