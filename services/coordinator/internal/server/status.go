package server

import (
	"context"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/hashicorp/raft"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/shards"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// stuckAfter is how old an instruction is that a person should look at.
const stuckAfter = 10 * time.Minute

// GetCoordinatorStatus describes this replica, leader or not. Hash and applied index belong to one state, so that two
// replicas with equal indexes can be compared (COORD-3.7).
func (s *Server) GetCoordinatorStatus(context.Context, *connect.Request[v1.GetCoordinatorStatusRequest]) (*connect.Response[v1.GetCoordinatorStatusResponse], error) {
	n := s.node
	st := n.State()
	meta := st.Meta()
	out := &v1.GetCoordinatorStatusResponse{NodeId: n.NodeID(), Role: n.Role(), HasState: n.HasState(), Leader: n.Leader(), RaftTerm: int64(n.Term()),
		FencingTerm: meta.GetFencingTerm(), CommitIndex: n.CommitIndex(), AppliedIndex: st.Index(), ClusterUuid: n.UUID(), PreviousUuids: meta.GetPreviousUuids(),
		FeatureLevel: meta.GetFeatureLevel(), FeatureLevelMax: s.config.Level, StateHash: st.Hash(), DiskBytes: n.DiskBytes(), Build: s.config.Build,
		LastExportAtUnixNanos: nanos(s.lastExport())}
	for _, server := range n.Servers() {
		id := string(server.ID)
		row := st.Peer(id)
		peer := &v1.RaftPeer{NodeId: id, RaftAddress: string(server.Address), RpcAddress: row.GetRpcAddress(), Suffrage: suffrage(server.Suffrage),
			Leader: id == out.GetLeader().GetLeaderId(), LastContactMs: -1, FeatureLevelMax: row.GetFeatureLevelMax(), Build: row.GetBuild()}
		if id == n.NodeID() {
			peer.LastContactMs = 0
		} else if ago, known := n.LastContact(id); known {
			peer.LastContactMs = ago.Milliseconds()
		}
		out.Peers = append(out.Peers, peer)
	}
	if newest := n.NewestSnapshot(); newest != nil {
		out.SnapshotIndex, out.SnapshotAtUnixNanos = newest.Index, nanos(snapshotTime(newest.ID))
	}
	return connect.NewResponse(out), nil
}

func suffrage(s raft.ServerSuffrage) string {
	if s == raft.Voter {
		return "voter"
	}
	return "nonvoter"
}

// snapshotTime reads when a snapshot was taken from its id, which ends in milliseconds.
func snapshotTime(id string) time.Time {
	ms := int64(0)
	for _, c := range id[strings.LastIndexByte(id, '-')+1:] {
		if c < '0' || c > '9' {
			return time.Time{}
		}
		ms = ms*10 + int64(c-'0')
	}
	return time.UnixMilli(ms)
}

// Exported notes a good export.
func (s *Server) Exported(at time.Time) {
	s.exportedMu.Lock()
	defer s.exportedMu.Unlock()
	s.exported = at
}

func (s *Server) lastExport() time.Time {
	s.exportedMu.Lock()
	defer s.exportedMu.Unlock()
	return s.exported
}

// GetFleetStatus describes the fleet as the leader sees it.
func (s *Server) GetFleetStatus(ctx context.Context, _ *connect.Request[v1.GetFleetStatusRequest]) (*connect.Response[v1.GetFleetStatusResponse], error) {
	st, err := s.confirmed(ctx)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&v1.GetFleetStatusResponse{Status: s.fleetStatus(st, leadOf(ctx).registry)}), nil
}

func (s *Server) fleetStatus(st *fleet.State, d *shards.ShardRegistry) *v1.FleetStatus {
	now := time.Now()
	out := &v1.FleetStatus{Domains: int32(st.DomainCount()), DomainMoves: int32(handovers(st)), Exceptions: int32(st.ExceptionCount()),
		OpenMoves: int32(st.OpenMoveCount()), Rebuilding: d.Rebuilding()}
	for sh := range st.Shards() {
		out.Shards = append(out.Shards, shardEntry(st, d, sh))
	}
	conflicts := d.Conflicts()
	for c := range st.Clusters() {
		if c.GetShardId() == "" {
			continue
		}
		out.Clusters++
		if conflicts[c.GetClusterId()] != "" {
			out.Conflicts = append(out.Conflicts, clusterBinding(d, conflicts, c, now))
		}
	}
	out.StuckInstructions = int32(d.Stuck(stuckAfter))
	for _, server := range s.node.Servers() {
		if server.Suffrage != raft.Voter {
			continue
		}
		out.Voters++
		if ago, known := s.node.LastContact(string(server.ID)); string(server.ID) == s.node.NodeID() || known && ago == 0 {
			out.HealthyVoters++
		}
	}
	return out
}

// handovers is the number of domains that wait for a shard to release them.
func handovers(st *fleet.State) int {
	if st.HandoverCount() == 0 {
		return 0
	}
	n := 0
	for d := range st.Domains() {
		if fleet.InHandover(d) {
			n++
		}
	}
	return n
}

// waitingFor names in a sentence the shards that must release a domain.
func waitingFor(look func(string, bool) shards.SoftState, d *pb.Domain) string {
	var silent, asked []string
	for _, r := range d.GetReleasers() {
		if soft := look(r.GetShardId(), false); soft.Fresh {
			asked = append(asked, r.GetShardId())
		} else {
			silent = append(silent, r.GetShardId())
		}
	}
	switch {
	case len(silent) > 0:
		return "shard " + strings.Join(silent, ", ") + " does not report; if it is down for good, finish the handover with force"
	case len(asked) > 0:
		return "shard " + strings.Join(asked, ", ") + " to end its actions on the machines and release the domain"
	}
	return "the coordinator to commit the end"
}

// isMethod compares a full method name with a filter, which may be the last part alone.
func isMethod(full, filter string) bool {
	return full == filter || full == "/"+filter || strings.HasSuffix(full, "/"+filter)
}
