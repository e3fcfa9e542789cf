package server

import (
	"context"
	"errors"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// ReportShard takes a report and answers with what the shard has to do (COORD-7.1).
func (s *Server) ReportShard(ctx context.Context, req *connect.Request[v1.ShardReport]) (*connect.Response[v1.ReportAck], error) {
	if err := rpc.PeerFrom(ctx).RequireID(identity.ID{Kind: identity.Shard, Name: req.Msg.GetShardId()}); err != nil {
		s.config.Metrics.Reports.WithLabelValues("identity").Inc()
		return nil, err
	}
	if err := reportBounds(req.Msg); err != nil {
		s.config.Metrics.Reports.WithLabelValues("too-large").Inc()
		return nil, invalidArgument("too-large", err.Error())
	}
	answer, err := leadOf(ctx).registry.Report(ctx, req.Msg)
	if err != nil {
		if errors.Is(err, replica.ErrBusy) {
			err = replica.ErrOutcomeUnknown // no work slot came free in time
		}
		err = s.fail(err)
		s.config.Metrics.Reports.WithLabelValues(connect.CodeOf(err).String()).Inc()
		return nil, err
	}
	answer.LeaderHint = s.node.Leader()
	return connect.NewResponse(answer), nil
}

// reportWhole is the size above which every part of a report is checked. A smaller one cannot hold a field that harms.
const reportWhole = 1 << 20

// reportBounds checks what the protos leave to the handler. What is committed is always checked.
func reportBounds(r *v1.ShardReport) error {
	parts := []proto.Message{r.GetSummary(), r.GetHoldings()}
	for _, a := range r.GetInstructionAcks() {
		parts = append(parts, a)
	}
	for _, c := range r.GetClusters() {
		parts = append(parts, c)
	}
	if proto.Size(r) > reportWhole {
		for _, s := range r.GetShortfalls() {
			parts = append(parts, s)
		}
		for _, s := range r.GetSupply() {
			parts = append(parts, s)
		}
	}
	for _, p := range parts {
		if err := rpc.CheckBounds(p); err != nil {
			return err
		}
	}
	return nil
}

// JoinRaftCluster adds a replica to the group, or changes its address (COORD-13.6 to 13.9).
func (s *Server) JoinRaftCluster(ctx context.Context, req *connect.Request[v1.JoinRaftClusterRequest]) (*connect.Response[v1.JoinRaftClusterResponse], error) {
	peer := rpc.PeerFrom(ctx)
	err := peer.RequireID(identity.ID{Kind: identity.Coordinator, Name: req.Msg.GetNodeId()})
	if err != nil && s.config.AcceptAdmin {
		err = peer.Require(identity.Admin)
	}
	if err != nil {
		return nil, err
	}
	suffrage, err := s.node.Join(replica.WithActor(ctx, callerOf(ctx)), req.Msg)
	if err != nil {
		s.config.Log.Warn("a replica was not admitted to the group", "node", req.Msg.GetNodeId(), "address", req.Msg.GetRaftAddress(), "err", err)
		return nil, s.fail(err)
	}
	return connect.NewResponse(&v1.JoinRaftClusterResponse{ClusterUuid: s.node.UUID(), Suffrage: suffrage}), nil
}
