package console

import (
	"context"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// evil is a name that attacks the page that shows it: HTML, an escape sequence of terminals, right-to-left overrides, and 4 KB.
var evil = `"><img src=x onerror="window.hacked=1"><script>window.hacked=1</script><style>*{display:none}</style>` + "javascript:window.hacked=1 \x1b[31m\u202egnp.exe\u2067 " + strings.Repeat("x", 4096)

// evilShard answers like a shard in whose every text somebody else has written.
type evilShard struct {
	api.UnimplementedShardReadHandler
}

// fill writes evil text into every string of a message, and something into everything else, three levels deep.
func fill(m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if f.ContainingOneof() != nil && m.WhichOneof(f.ContainingOneof()) != nil {
			continue // one of them is enough
		}
		switch {
		case f.IsMap():
			if v := f.MapValue(); v.Message() == nil {
				key := protoreflect.ValueOfString(evil)
				if f.MapKey().Kind() == protoreflect.StringKind {
					m.Mutable(f).Map().Set(key.MapKey(), scalar(v))
				}
			}
		case f.Message() != nil && depth == 0:
		case f.IsList() && f.Message() != nil:
			fill(m.Mutable(f).List().AppendMutable().Message(), depth-1)
		case f.IsList():
			m.Mutable(f).List().Append(scalar(f))
		case f.Message() != nil:
			fill(m.Mutable(f).Message(), depth-1)
		default:
			m.Set(f, scalar(f))
		}
	}
}

func scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(evil)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(1)
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(2)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(time.Now().Add(-time.Minute).UnixNano())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(3)
	}
	return f.Default()
}

func filled[T proto.Message](m T) T {
	fill(m.ProtoReflect(), 3)
	return m
}

func evilNeed() *v1.NeedView {
	n := filled(&v1.NeedView{})
	n.Satisfied, n.UnmetReason = false, v1.UnmetReason_UNMET_REASON_PRIORITY_STARVED
	return n
}

func (evilShard) GetStatus(context.Context, *connect.Request[v1.GetStatusRequest]) (*connect.Response[v1.GetStatusResponse], error) {
	out := filled(&v1.GetStatusResponse{})
	out.ShardId, out.Cycle, out.Needs, out.UnsatisfiedNeeds = "s0", 1, 1, 1
	out.MachinesByState = map[string]int32{"MACHINE_STATE_CONFIGURED": 1}
	return connect.NewResponse(out), nil
}

func (evilShard) InspectNeeds(_ context.Context, _ *connect.Request[v1.InspectNeedsRequest], out *connect.ServerStream[v1.InspectNeedsResponse]) error {
	if err := out.Send(&v1.InspectNeedsResponse{Frame: &v1.InspectNeedsResponse_Header{Header: &v1.InspectNeedsHeader{Cycle: 1}}}); err != nil {
		return err
	}
	return out.Send(&v1.InspectNeedsResponse{Frame: &v1.InspectNeedsResponse_Need{Need: evilNeed()}})
}

func (evilShard) Explain(context.Context, *connect.Request[v1.ExplainRequest]) (*connect.Response[v1.ExplainResponse], error) {
	out := filled(&v1.ExplainResponse{})
	out.Need = evilNeed()
	return connect.NewResponse(out), nil
}

func (evilShard) GetMachine(context.Context, *connect.Request[v1.GetMachineRequest]) (*connect.Response[v1.GetMachineResponse], error) {
	return connect.NewResponse(filled(&v1.GetMachineResponse{})), nil
}

func (evilShard) GetMachineHistory(context.Context, *connect.Request[v1.GetMachineHistoryRequest]) (*connect.Response[v1.GetMachineHistoryResponse], error) {
	out := filled(&v1.GetMachineHistoryResponse{})
	out.NextPageToken = ""
	return connect.NewResponse(out), nil
}

func (evilShard) ListMachines(context.Context, *connect.Request[v1.ListMachinesRequest]) (*connect.Response[v1.ListMachinesResponse], error) {
	out := filled(&v1.ListMachinesResponse{})
	out.NextPageToken = ""
	return connect.NewResponse(out), nil
}

func (evilShard) ListClusters(context.Context, *connect.Request[v1.ListClustersRequest]) (*connect.Response[v1.ListClustersResponse], error) {
	out := filled(&v1.ListClustersResponse{})
	out.NextPageToken = ""
	return connect.NewResponse(out), nil
}

func (evilShard) GetCost(context.Context, *connect.Request[v1.GetCostRequest]) (*connect.Response[v1.GetCostResponse], error) {
	return connect.NewResponse(filled(&v1.GetCostResponse{})), nil
}

func (evilShard) Plan(context.Context, *connect.Request[v1.PlanRequest]) (*connect.Response[v1.PlanResponse], error) {
	return connect.NewResponse(filled(&v1.PlanResponse{})), nil
}

func (evilShard) CompareCycles(context.Context, *connect.Request[v1.CompareCyclesRequest]) (*connect.Response[v1.CompareCyclesResponse], error) {
	return connect.NewResponse(filled(&v1.CompareCyclesResponse{})), nil
}

func (evilShard) ListHints(context.Context, *connect.Request[v1.ListHintsRequest]) (*connect.Response[v1.ListHintsResponse], error) {
	out := filled(&v1.ListHintsResponse{})
	return connect.NewResponse(out), nil
}

func (evilShard) WatchDecisions(ctx context.Context, _ *connect.Request[v1.WatchDecisionsRequest], out *connect.ServerStream[v1.WatchDecisionsResponse]) error {
	if err := out.Send(filled(&v1.WatchDecisionsResponse{})); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// OPS-6.7: a shard that repeats what hostile people wrote, in every text it has, is shown as text on every page and in every drawer: nothing
// of it runs, no element of it is made, and it moves nothing out of its place.
func TestHostileNames(t *testing.T) {
	web(t)
	base := consoleOver(t, "console", evilShard{})
	browse(t, "hostile.mjs", []string{"EVIL=" + evil}, base)
}
