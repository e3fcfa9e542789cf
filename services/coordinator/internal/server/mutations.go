package server

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// AssignDomain gives a domain to a shard (COORD-9.5).
func (s *Server) AssignDomain(ctx context.Context, req *connect.Request[v1.AssignDomainRequest]) (*connect.Response[v1.AssignDomainResponse], error) {
	m := req.Msg
	return empty[v1.AssignDomainResponse](s.handOver(ctx, req, m.GetValidateOnly(), m.GetTopologyKey(), m.GetTopologyValue(),
		&pb.Operation{Kind: &pb.Operation_AssignDomain{AssignDomain: &pb.AssignDomain{Key: m.GetTopologyKey(), Value: m.GetTopologyValue(), ShardId: m.GetShardId()}}}))
}

// UnassignDomain takes a domain from its shard.
func (s *Server) UnassignDomain(ctx context.Context, req *connect.Request[v1.UnassignDomainRequest]) (*connect.Response[v1.UnassignDomainResponse], error) {
	m := req.Msg
	return empty[v1.UnassignDomainResponse](s.handOver(ctx, req, m.GetValidateOnly(), m.GetTopologyKey(), m.GetTopologyValue(),
		&pb.Operation{Kind: &pb.Operation_UnassignDomain{UnassignDomain: &pb.UnassignDomain{Key: m.GetTopologyKey(), Value: m.GetTopologyValue()}}}))
}

// MoveDomain hands a domain over, release before acquire.
func (s *Server) MoveDomain(ctx context.Context, req *connect.Request[v1.MoveDomainRequest]) (*connect.Response[v1.MoveDomainResponse], error) {
	m := req.Msg
	return empty[v1.MoveDomainResponse](s.handOver(ctx, req, m.GetValidateOnly(), m.GetTopologyKey(), m.GetTopologyValue(),
		&pb.Operation{Kind: &pb.Operation_MoveDomain{MoveDomain: &pb.MoveDomain{Key: m.GetTopologyKey(), Value: m.GetTopologyValue(), To: m.GetToShardId()}}}))
}

// handOver commits a change of a domain and what needs no ack.
func (s *Server) handOver(ctx context.Context, req connect.AnyRequest, validateOnly bool, key, value string, op *pb.Operation) error {
	st, err := s.mutate(ctx, req, validateOnly, op)
	if err != nil || validateOnly {
		return err
	}
	var waited []string
	for _, r := range st.Domain(key, value).GetReleasers() {
		waited = append(waited, r.GetShardId())
	}
	if err := leadOf(ctx).registry.CommitAcked(ctx, waited...); err != nil {
		s.config.Log.Warn("a handover without acks could not be finished; the next tick retries", "domain", key+"="+value, "err", err) // the next tick does
	}
	return nil
}

// FinishDomainMove ends a handover although the old owner has not released (COORD-9.6).
func (s *Server) FinishDomainMove(ctx context.Context, req *connect.Request[v1.FinishDomainMoveRequest]) (*connect.Response[v1.FinishDomainMoveResponse], error) {
	m := req.Msg
	_, err := s.mutate(ctx, req, m.GetValidateOnly(), &pb.Operation{Kind: &pb.Operation_FinishDomainMove{FinishDomainMove: &pb.FinishDomainMove{
		Key: m.GetTopologyKey(), Value: m.GetTopologyValue(), Force: true}}})
	return empty[v1.FinishDomainMoveResponse](err)
}

// RemoveShard forgets a shard with everything it owns. Without force it must be silent and own nothing.
func (s *Server) RemoveShard(ctx context.Context, req *connect.Request[v1.RemoveShardRequest]) (*connect.Response[v1.RemoveShardResponse], error) {
	m := req.Msg
	if !m.GetForce() && leadOf(ctx).registry.SoftState(m.GetShardId(), false).Fresh && fleet.Live(s.node.State().Shard(m.GetShardId())) {
		blockers := append([]string{"fresh heartbeat"}, s.node.State().RemovalBlockers(m.GetShardId())...)
		return nil, s.refusing(ctx, &fleet.Refusal{Kind: fleet.Refused, Reason: "shard-alive", Say: "shard " + quoted(m.GetShardId()) + " still reports",
			Hint: "stop it first, or force the removal", Blockers: blockers[:min(len(blockers), fleet.BlockersMax)], Force: true})
	}
	_, err := s.mutate(ctx, req, m.GetValidateOnly(), &pb.Operation{Kind: &pb.Operation_RemoveShard{RemoveShard: &pb.RemoveShard{
		ShardId: m.GetShardId(), Force: m.GetForce()}}})
	return empty[v1.RemoveShardResponse](err)
}

// DrainShard empties a shard, or stops doing so (COORD-12.22).
func (s *Server) DrainShard(ctx context.Context, req *connect.Request[v1.DrainShardRequest]) (*connect.Response[v1.DrainShardResponse], error) {
	m := req.Msg
	state := v1.ShardState_SHARD_STATE_DRAINING
	if m.GetCancel() {
		state = v1.ShardState_SHARD_STATE_ACTIVE
	}
	st, err := s.mutate(ctx, req, m.GetValidateOnly(), &pb.Operation{Kind: &pb.Operation_UpdateShard{UpdateShard: &pb.UpdateShard{ShardId: m.GetShardId(), State: state}}})
	if err != nil {
		return nil, err
	}
	out := &v1.DrainShardResponse{Clusters: int32(st.BoundClusters(m.GetShardId()))}
	for range st.DomainsOf(m.GetShardId()) {
		out.Domains++
	}
	return connect.NewResponse(out), nil
}

// ReadmitShard lets a removed shard register again.
func (s *Server) ReadmitShard(ctx context.Context, req *connect.Request[v1.ReadmitShardRequest]) (*connect.Response[v1.ReadmitShardResponse], error) {
	_, err := s.mutate(ctx, req, req.Msg.GetValidateOnly(), &pb.Operation{Kind: &pb.Operation_ReadmitShard{ReadmitShard: &pb.ReadmitShard{ShardId: req.Msg.GetShardId()}}})
	return empty[v1.ReadmitShardResponse](err)
}

// ResetShardEpoch accepts that a shard's epoch went back (COORD-7.5).
func (s *Server) ResetShardEpoch(ctx context.Context, req *connect.Request[v1.ResetShardEpochRequest]) (*connect.Response[v1.ResetShardEpochResponse], error) {
	m := req.Msg
	_, err := s.mutate(ctx, req, m.GetValidateOnly(), &pb.Operation{Kind: &pb.Operation_UpdateShard{UpdateShard: &pb.UpdateShard{
		ShardId: m.GetShardId(), Epoch: proto.Int64(m.GetEpoch()), ResetEpoch: true}}})
	return empty[v1.ResetShardEpochResponse](err)
}

// BindCluster binds a cluster to a shard (COORD-10).
func (s *Server) BindCluster(ctx context.Context, req *connect.Request[v1.BindClusterRequest]) (*connect.Response[v1.BindClusterResponse], error) {
	m := req.Msg
	_, err := s.mutate(ctx, req, m.GetValidateOnly(), &pb.Operation{Kind: &pb.Operation_BindCluster{BindCluster: &pb.BindCluster{
		ClusterId: m.GetClusterId(), ShardId: m.GetShardId(), Source: v1.ClusterBinding_SOURCE_ADMIN, Rebind: m.GetRebind(),
		Holders: leadOf(ctx).registry.Holders(s.node.State(), m.GetClusterId(), m.GetShardId())}}})
	return empty[v1.BindClusterResponse](err)
}

// UnbindCluster forgets a binding.
func (s *Server) UnbindCluster(ctx context.Context, req *connect.Request[v1.UnbindClusterRequest]) (*connect.Response[v1.UnbindClusterResponse], error) {
	_, err := s.mutate(ctx, req, req.Msg.GetValidateOnly(), &pb.Operation{Kind: &pb.Operation_UnbindCluster{UnbindCluster: &pb.UnbindCluster{ClusterId: req.Msg.GetClusterId()}}})
	return empty[v1.UnbindClusterResponse](err)
}

// UpsertProvider adds or replaces a provider (COORD-9.4, 11.1).
func (s *Server) UpsertProvider(ctx context.Context, req *connect.Request[v1.UpsertProviderRequest]) (*connect.Response[v1.UpsertProviderResponse], error) {
	_, err := s.mutate(ctx, req, req.Msg.GetValidateOnly(), &pb.Operation{Kind: &pb.Operation_UpsertProvider{UpsertProvider: &pb.UpsertProvider{Provider: req.Msg.GetProvider()}}})
	return empty[v1.UpsertProviderResponse](err)
}

// RemoveProvider removes a provider that no shard reports.
func (s *Server) RemoveProvider(ctx context.Context, req *connect.Request[v1.RemoveProviderRequest]) (*connect.Response[v1.RemoveProviderResponse], error) {
	_, err := s.mutate(ctx, req, req.Msg.GetValidateOnly(), &pb.Operation{Kind: &pb.Operation_RemoveProvider{RemoveProvider: &pb.RemoveProvider{Name: req.Msg.GetName()}}})
	return empty[v1.RemoveProviderResponse](err)
}

// SetQuota sets one quota row (COORD-11.4).
func (s *Server) SetQuota(ctx context.Context, req *connect.Request[v1.SetQuotaRequest]) (*connect.Response[v1.SetQuotaResponse], error) {
	_, err := s.mutate(ctx, req, req.Msg.GetValidateOnly(), &pb.Operation{Kind: &pb.Operation_SetQuota{SetQuota: &pb.SetQuota{Quota: req.Msg.GetQuota()}}})
	return empty[v1.SetQuotaResponse](err)
}

// DeleteQuota deletes one quota row.
func (s *Server) DeleteQuota(ctx context.Context, req *connect.Request[v1.DeleteQuotaRequest]) (*connect.Response[v1.DeleteQuotaResponse], error) {
	_, err := s.mutate(ctx, req, req.Msg.GetValidateOnly(), &pb.Operation{Kind: &pb.Operation_DeleteQuota{DeleteQuota: &pb.DeleteQuota{
		Provider: req.Msg.GetProvider(), Region: req.Msg.GetRegion()}}})
	return empty[v1.DeleteQuotaResponse](err)
}

// SetRebalance sets the policy. Off takes back, in the same entry, what has not left the plan (COORD-12.2).
func (s *Server) SetRebalance(ctx context.Context, req *connect.Request[v1.SetRebalanceRequest]) (*connect.Response[v1.SetRebalanceResponse], error) {
	ops := []*pb.Operation{{Kind: &pb.Operation_SetPolicy{SetPolicy: &pb.SetPolicy{Policy: req.Msg.GetPolicy()}}}}
	if req.Msg.GetPolicy().GetMode() == v1.RebalanceMode_REBALANCE_MODE_OFF {
		for m := range s.node.State().OpenMoves() {
			if m.GetState() == v1.Move_STATE_PLANNED && len(ops) < fleet.OperationsMax-1 {
				ops = append(ops, advance(m, v1.Move_STATE_CANCELLING, "the rebalancer was switched off"))
			}
		}
	}
	st, err := s.mutate(ctx, req, req.Msg.GetValidateOnly(), ops...)
	if err != nil {
		return nil, err
	}
	policy := st.Policy()
	if req.Msg.GetValidateOnly() {
		policy = req.Msg.GetPolicy()
	}
	return connect.NewResponse(&v1.SetRebalanceResponse{Policy: policy}), nil
}

func advance(m *pb.Move, next v1.Move_State, why string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_AdvanceMove{AdvanceMove: &pb.AdvanceMove{MoveId: m.GetMoveId(), Expected: m.GetState(), Next: next, Reason: why}}}
}

// CancelMove cancels or withdraws a move, as COORD-12.18 does. What the recipient has adopted is not taken back.
func (s *Server) CancelMove(ctx context.Context, req *connect.Request[v1.CancelMoveRequest]) (*connect.Response[v1.CancelMoveResponse], error) {
	st := s.node.State()
	m := st.Move(req.Msg.GetMoveId())
	var ops []*pb.Operation
	switch {
	case m == nil:
		return nil, s.refusing(ctx, &fleet.Refusal{Kind: fleet.NotFound, Reason: "unknown-move", Say: "there is no move " + quoted(req.Msg.GetMoveId()),
			Hint: "list the moves and use one of their ids"})
	case m.GetState() == v1.Move_STATE_PLANNED:
		ops = append(ops, advance(m, v1.Move_STATE_CANCELLING, "an admin cancelled it"))
	case m.GetState() == v1.Move_STATE_RESERVED:
		ops = append(ops, advance(m, v1.Move_STATE_WITHDRAWING, "an admin cancelled it"))
	case m.GetState() == v1.Move_STATE_ADOPTED, m.GetState() == v1.Move_STATE_DONE:
		return nil, s.refusing(ctx, &fleet.Refusal{Kind: fleet.Refused, Reason: "move-adopted", Say: "the recipient of move " + quoted(m.GetMoveId()) + " has adopted the machines",
			Hint: "let it finish"})
	}
	st, err := s.mutate(ctx, req, req.Msg.GetValidateOnly(), ops...)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&v1.CancelMoveResponse{Move: wireMove(st.Move(req.Msg.GetMoveId()))}), nil
}

// RetryInstruction sends a stuck instruction again. It changes soft state alone; the audit record is what is committed.
func (s *Server) RetryInstruction(ctx context.Context, req *connect.Request[v1.RetryInstructionRequest]) (*connect.Response[v1.RetryInstructionResponse], error) {
	m := req.Msg
	if !leadOf(ctx).registry.Retry(m.GetShardId(), m.GetInstructionId(), true) {
		return nil, s.refusing(ctx, &fleet.Refusal{Kind: fleet.NotFound, Reason: "unknown-instruction",
			Say: "shard " + quoted(m.GetShardId()) + " has no pending instruction " + quoted(m.GetInstructionId()), Hint: "list the instructions and use one of their ids"})
	}
	if _, err := s.mutate(ctx, req, m.GetValidateOnly()); err != nil {
		return nil, err
	}
	if !m.GetValidateOnly() {
		leadOf(ctx).registry.Retry(m.GetShardId(), m.GetInstructionId(), false)
	}
	return connect.NewResponse(&v1.RetryInstructionResponse{}), nil
}

// RemoveRaftPeer takes a replica out of the group (COORD-13.12). To remove the leader, leadership is handed over, and
// this answer makes the caller ask the next leader.
func (s *Server) RemoveRaftPeer(ctx context.Context, req *connect.Request[v1.RemoveRaftPeerRequest]) (*connect.Response[v1.RemoveRaftPeerResponse], error) {
	m := req.Msg
	if m.GetValidateOnly() {
		if _, err := s.confirmed(ctx); err != nil {
			return nil, err
		}
		return empty[v1.RemoveRaftPeerResponse](s.fail(s.node.CheckRemoval(ctx, m.GetNodeId(), m.GetForce())))
	}
	err := s.node.Remove(replica.WithActor(ctx, callerOf(ctx)), m.GetNodeId(), m.GetForce(), s.audit(req))
	return empty[v1.RemoveRaftPeerResponse](s.fail(err))
}

// ReadmitRaftPeer lets a removed replica join again.
func (s *Server) ReadmitRaftPeer(ctx context.Context, req *connect.Request[v1.ReadmitRaftPeerRequest]) (*connect.Response[v1.ReadmitRaftPeerResponse], error) {
	_, err := s.mutate(ctx, req, req.Msg.GetValidateOnly(), &pb.Operation{Kind: &pb.Operation_ReadmitPeer{ReadmitPeer: &pb.ReadmitPeer{NodeId: req.Msg.GetNodeId()}}})
	return empty[v1.ReadmitRaftPeerResponse](err)
}

// TransferLeadership hands leadership over and answers when the new leader is known (COORD-13.13). The end of this
// leadership is what was asked for, so it is not "not the leader".
func (s *Server) TransferLeadership(ctx context.Context, req *connect.Request[v1.TransferLeadershipRequest]) (*connect.Response[v1.TransferLeadershipResponse], error) {
	if req.Msg.GetValidateOnly() {
		if _, err := s.confirmed(ctx); err != nil {
			return nil, err
		}
	}
	if err := s.node.MayTransfer(req.Msg.GetNodeId()); err != nil { // before the record: what is refused was not done
		return nil, s.fail(err)
	}
	if req.Msg.GetValidateOnly() {
		return connect.NewResponse(&v1.TransferLeadershipResponse{Leader: s.node.Leader()}), nil
	}
	if _, err := s.mutate(ctx, req, false); err != nil { // the record, while this replica can still commit it
		return nil, err
	}
	outlived, cancel := context.WithTimeout(context.WithoutCancel(ctx), replica.ApplyTimeout)
	defer cancel()
	err := s.node.Transfer(outlived, req.Msg.GetNodeId())
	if errors.Is(err, context.DeadlineExceeded) {
		err = replica.ErrOutcomeUnknown
	}
	if err != nil {
		return nil, s.fail(err)
	}
	return connect.NewResponse(&v1.TransferLeadershipResponse{Leader: s.node.Leader()}), nil
}
