package serve

import (
	"context"
	"errors"
	"strconv"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/console/internal/sources"
)

// forwardTimeout bounds one forwarded call.
const forwardTimeout = 30 * time.Second

// shardGateway forwards reads to the shard that the request's header names. What it does not implement is not on the allow-list.
type shardGateway struct {
	bigfleetv1alpha1connect.UnimplementedShardReadHandler
	*Console
}

// toShard forwards one unary read.
func toShard[Req, Res any](ctx context.Context, g *shardGateway, req *connect.Request[Req],
	call func(bigfleetv1alpha1connect.ShardReadClient, context.Context, *connect.Request[Req]) (*connect.Response[Res], error)) (*sources.Shard, *connect.Response[Res], error) {
	shard, err := g.Sources.Shard(req.Header().Get(sources.TargetHeader))
	if err != nil {
		return nil, nil, err
	}
	release, err := shard.Slot(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	got, err := call(shard.Read, ctx, connect.NewRequest(req.Msg)) // without the browser's headers
	if err != nil {
		return nil, nil, passed(err)
	}
	return shard, connect.NewResponse(got.Msg), nil
}

// passed is an error of an upstream for the browser: its code, text and details, without its headers.
func passed(err error) error {
	var e *connect.Error
	if !errors.As(err, &e) {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	out := connect.NewError(e.Code(), errors.New(e.Message()))
	for _, d := range e.Details() {
		out.AddDetail(d)
	}
	return out
}

// shared is toShard for questions that many viewers ask alike. The header Age says for how many seconds the shard has not been asked.
func shared[Req, Res any, PReq interface {
	*Req
	proto.Message
}, PRes interface {
	*Res
	proto.Message
}](ctx context.Context, g *shardGateway, keep sources.Kept, req *connect.Request[Req],
	call func(bigfleetv1alpha1connect.ShardReadClient, context.Context, *connect.Request[Req]) (*connect.Response[Res], error)) (*connect.Response[Res], error) {
	shard, err := g.Sources.Shard(req.Header().Get(sources.TargetHeader))
	if err != nil {
		return nil, err
	}
	got, age, err := sources.Shared(ctx, shard, keep, req.Spec().Procedure, PReq(req.Msg), func() (PRes, error) {
		_, out, err := toShard(ctx, g, req, call)
		if err != nil {
			return nil, err
		}
		return out.Msg, nil
	})
	if err != nil {
		return nil, err
	}
	out := connect.NewResponse((*Res)(got))
	out.Header().Set("Age", strconv.Itoa(int(age.Seconds())))
	return out, nil
}

func (g *shardGateway) GetStatus(ctx context.Context, r *connect.Request[pb.GetStatusRequest]) (*connect.Response[pb.GetStatusResponse], error) {
	return shared(ctx, g, sources.Rows, r, bigfleetv1alpha1connect.ShardReadClient.GetStatus)
}

func (g *shardGateway) ListClusters(ctx context.Context, r *connect.Request[pb.ListClustersRequest]) (*connect.Response[pb.ListClustersResponse], error) {
	return shared(ctx, g, sources.Sums, r, bigfleetv1alpha1connect.ShardReadClient.ListClusters)
}

func (g *shardGateway) ListMachines(ctx context.Context, r *connect.Request[pb.ListMachinesRequest]) (*connect.Response[pb.ListMachinesResponse], error) {
	return shared(ctx, g, sources.Rows, r, bigfleetv1alpha1connect.ShardReadClient.ListMachines)
}

func (g *shardGateway) ListHints(ctx context.Context, r *connect.Request[pb.ListHintsRequest]) (*connect.Response[pb.ListHintsResponse], error) {
	return shared(ctx, g, sources.Sums, r, bigfleetv1alpha1connect.ShardReadClient.ListHints)
}

func (g *shardGateway) GetMachine(ctx context.Context, r *connect.Request[pb.GetMachineRequest]) (*connect.Response[pb.GetMachineResponse], error) {
	shard, out, err := toShard(ctx, g, r, bigfleetv1alpha1connect.ShardReadClient.GetMachine)
	if err == nil && out.Msg.GetOperation() != nil {
		out.Msg.Operation = shard.Worded(out.Msg.GetOperation())
	}
	return out, err
}

func (g *shardGateway) GetMachineHistory(ctx context.Context, r *connect.Request[pb.GetMachineHistoryRequest]) (*connect.Response[pb.GetMachineHistoryResponse], error) {
	shard, out, err := toShard(ctx, g, r, bigfleetv1alpha1connect.ShardReadClient.GetMachineHistory)
	if err == nil {
		wordAll(shard, out.Msg.GetRecords())
	}
	return out, err
}

func (g *shardGateway) Explain(ctx context.Context, r *connect.Request[pb.ExplainRequest]) (*connect.Response[pb.ExplainResponse], error) {
	shard, out, err := toShard(ctx, g, r, bigfleetv1alpha1connect.ShardReadClient.Explain)
	if err == nil {
		wordAll(shard, out.Msg.GetRecords())
	}
	return out, err
}

func (g *shardGateway) Plan(ctx context.Context, r *connect.Request[pb.PlanRequest]) (*connect.Response[pb.PlanResponse], error) {
	shard, out, err := toShard(ctx, g, r, bigfleetv1alpha1connect.ShardReadClient.Plan)
	if err == nil {
		wordAll(shard, out.Msg.GetActions())
		wordAll(shard, out.Msg.GetBaselineActions())
	}
	return out, err
}

func (g *shardGateway) CompareCycles(ctx context.Context, r *connect.Request[pb.CompareCyclesRequest]) (*connect.Response[pb.CompareCyclesResponse], error) {
	shard, out, err := toShard(ctx, g, r, bigfleetv1alpha1connect.ShardReadClient.CompareCycles)
	if err == nil {
		wordAll(shard, out.Msg.GetAdded())
		wordAll(shard, out.Msg.GetRemoved())
	}
	return out, err
}

// GetCost asks the shard for the costs of now. Past costs a running shard does not know: the console notes them since its own start.
func (g *shardGateway) GetCost(ctx context.Context, r *connect.Request[pb.GetCostRequest]) (*connect.Response[pb.GetCostResponse], error) {
	if r.Msg.GetSinceUnixNanos() != 0 && len(r.Msg.GetGroupBy()) == 1 {
		shard, err := g.Sources.Shard(r.Header().Get(sources.TargetHeader))
		if err != nil {
			return nil, err
		}
		if points, known := shard.Past(r.Msg.GetGroupBy()[0], r.Msg.GetSinceUnixNanos(), r.Msg.GetUntilUnixNanos(), int(r.Msg.GetPoints())); known {
			return connect.NewResponse(&pb.GetCostResponse{Points: points}), nil
		}
	}
	return shared(ctx, g, sources.Sums, r, bigfleetv1alpha1connect.ShardReadClient.GetCost)
}

// wordAll puts the whole sentence into each record.
func wordAll(shard *sources.Shard, records []*pb.DecisionRecord) {
	for i, r := range records {
		records[i] = shard.Worded(r)
	}
}

// InspectNeeds reads needs once, as they are or were. Live needs are Console.WatchNeeds, which costs the shard nothing for each viewer.
func (g *shardGateway) InspectNeeds(ctx context.Context, r *connect.Request[pb.InspectNeedsRequest], out *connect.ServerStream[pb.InspectNeedsResponse]) error {
	leave, err := g.view()
	if err != nil {
		return err
	}
	defer leave()
	shard, err := g.Sources.Shard(r.Header().Get(sources.TargetHeader))
	if err != nil {
		return err
	}
	release, err := shard.Slot(ctx)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout)
	defer cancel()
	in, err := shard.Read.InspectNeeds(ctx, connect.NewRequest(r.Msg))
	if err != nil {
		return passed(err)
	}
	defer func() { _ = in.Close() }()
	for in.Receive() {
		if err := out.Send(in.Msg()); err != nil {
			return err
		}
	}
	if err := in.Err(); err != nil {
		return passed(err)
	}
	return nil
}

// WatchDecisions would cost the shard a stream for each viewer (OPS-6.3).
func (g *shardGateway) WatchDecisions(context.Context, *connect.Request[pb.WatchDecisionsRequest], *connect.ServerStream[pb.WatchDecisionsResponse]) error {
	return connect.NewError(connect.CodeUnimplemented, errors.New("a console forwards no stream of records: use Console.WatchOverview, or the shard's own port"))
}
