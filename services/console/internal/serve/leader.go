package serve

import (
	"context"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/console/internal/sources"
	"github.com/bigfleet-dev/bigfleet/services/kit/coordclient"
)

// coreGateway and leaderGateway forward reads to the coordinator's leader.
type coreGateway struct {
	bigfleetv1alpha1connect.UnimplementedCoordinatorHandler
	set *sources.Set
}

type leaderGateway struct {
	bigfleetv1alpha1connect.UnimplementedCoordinatorAdminHandler
	set *sources.Set
}

func toLeader[Req, Res any](ctx context.Context, set *sources.Set, req *connect.Request[Req],
	call func(coordclient.Target, context.Context, *connect.Request[Req]) (*connect.Response[Res], error)) (*connect.Response[Res], error) {
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	var out *Res
	err := set.Leader(ctx, func(ctx context.Context, t coordclient.Target) error {
		got, err := call(t, ctx, connect.NewRequest(req.Msg))
		if err == nil {
			out = got.Msg
		}
		return err
	})
	if err != nil {
		return nil, passed(err)
	}
	return connect.NewResponse(out), nil
}

func core[Req, Res any](call func(bigfleetv1alpha1connect.CoordinatorClient, context.Context, *connect.Request[Req]) (*connect.Response[Res], error)) func(coordclient.Target, context.Context, *connect.Request[Req]) (*connect.Response[Res], error) {
	return func(t coordclient.Target, ctx context.Context, r *connect.Request[Req]) (*connect.Response[Res], error) {
		return call(t.Coordinator, ctx, r)
	}
}

func admin[Req, Res any](call func(bigfleetv1alpha1connect.CoordinatorAdminClient, context.Context, *connect.Request[Req]) (*connect.Response[Res], error)) func(coordclient.Target, context.Context, *connect.Request[Req]) (*connect.Response[Res], error) {
	return func(t coordclient.Target, ctx context.Context, r *connect.Request[Req]) (*connect.Response[Res], error) {
		return call(t.Admin, ctx, r)
	}
}

func (g *coreGateway) ListShards(ctx context.Context, r *connect.Request[pb.ListShardsRequest]) (*connect.Response[pb.ListShardsResponse], error) {
	return toLeader(ctx, g.set, r, core(bigfleetv1alpha1connect.CoordinatorClient.ListShards))
}

func (g *coreGateway) ListDomainAssignments(ctx context.Context, r *connect.Request[pb.ListDomainAssignmentsRequest]) (*connect.Response[pb.ListDomainAssignmentsResponse], error) {
	return toLeader(ctx, g.set, r, core(bigfleetv1alpha1connect.CoordinatorClient.ListDomainAssignments))
}

func (g *coreGateway) ListShardReports(ctx context.Context, r *connect.Request[pb.ListShardReportsRequest]) (*connect.Response[pb.ListShardReportsResponse], error) {
	return toLeader(ctx, g.set, r, core(bigfleetv1alpha1connect.CoordinatorClient.ListShardReports))
}

func (g *leaderGateway) GetCoordinatorStatus(ctx context.Context, r *connect.Request[pb.GetCoordinatorStatusRequest]) (*connect.Response[pb.GetCoordinatorStatusResponse], error) {
	return toLeader(ctx, g.set, r, admin(bigfleetv1alpha1connect.CoordinatorAdminClient.GetCoordinatorStatus))
}

func (g *leaderGateway) GetFleetStatus(ctx context.Context, r *connect.Request[pb.GetFleetStatusRequest]) (*connect.Response[pb.GetFleetStatusResponse], error) {
	return toLeader(ctx, g.set, r, admin(bigfleetv1alpha1connect.CoordinatorAdminClient.GetFleetStatus))
}

func (g *leaderGateway) ListClusterBindings(ctx context.Context, r *connect.Request[pb.ListClusterBindingsRequest]) (*connect.Response[pb.ListClusterBindingsResponse], error) {
	return toLeader(ctx, g.set, r, admin(bigfleetv1alpha1connect.CoordinatorAdminClient.ListClusterBindings))
}

func (g *leaderGateway) ListDomainMoves(ctx context.Context, r *connect.Request[pb.ListDomainMovesRequest]) (*connect.Response[pb.ListDomainMovesResponse], error) {
	return toLeader(ctx, g.set, r, admin(bigfleetv1alpha1connect.CoordinatorAdminClient.ListDomainMoves))
}

func (g *leaderGateway) ListProviders(ctx context.Context, r *connect.Request[pb.ListProvidersRequest]) (*connect.Response[pb.ListProvidersResponse], error) {
	return toLeader(ctx, g.set, r, admin(bigfleetv1alpha1connect.CoordinatorAdminClient.ListProviders))
}

func (g *leaderGateway) ListQuotas(ctx context.Context, r *connect.Request[pb.ListQuotasRequest]) (*connect.Response[pb.ListQuotasResponse], error) {
	return toLeader(ctx, g.set, r, admin(bigfleetv1alpha1connect.CoordinatorAdminClient.ListQuotas))
}

func (g *leaderGateway) GetRebalance(ctx context.Context, r *connect.Request[pb.GetRebalanceRequest]) (*connect.Response[pb.GetRebalanceResponse], error) {
	return toLeader(ctx, g.set, r, admin(bigfleetv1alpha1connect.CoordinatorAdminClient.GetRebalance))
}

func (g *leaderGateway) ListMoves(ctx context.Context, r *connect.Request[pb.ListMovesRequest]) (*connect.Response[pb.ListMovesResponse], error) {
	return toLeader(ctx, g.set, r, admin(bigfleetv1alpha1connect.CoordinatorAdminClient.ListMoves))
}

func (g *leaderGateway) ListInstructions(ctx context.Context, r *connect.Request[pb.ListInstructionsRequest]) (*connect.Response[pb.ListInstructionsResponse], error) {
	return toLeader(ctx, g.set, r, admin(bigfleetv1alpha1connect.CoordinatorAdminClient.ListInstructions))
}

func (g *leaderGateway) ListAudit(ctx context.Context, r *connect.Request[pb.ListAuditRequest]) (*connect.Response[pb.ListAuditResponse], error) {
	return toLeader(ctx, g.set, r, admin(bigfleetv1alpha1connect.CoordinatorAdminClient.ListAudit))
}
