package console

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shardStub answers as a shard with three needs and one machine would, and counts what it is asked.
type shardStub struct {
	bigfleetv1alpha1connect.UnimplementedShardReadHandler
	cycle                      atomic.Int64
	inspects, streams, watches atomic.Int64 // begun; under way; begun
	name                       string       // of the cluster
	orders                     *orderStub   // nil: no orders are served
	hangs                      bool         // answers no question about its clusters
}

func (s *shardStub) GetStatus(context.Context, *connect.Request[pb.GetStatusRequest]) (*connect.Response[pb.GetStatusResponse], error) {
	return connect.NewResponse(&pb.GetStatusResponse{ShardId: "s0", Ready: true, Cycle: s.cycle.Load(), Needs: 3, UnsatisfiedNeeds: 1, CostPerHour: 2.5, MachinesByState: map[string]int32{"MACHINE_STATE_CONFIGURED": 2}}), nil
}

func (s *shardStub) InspectNeeds(_ context.Context, _ *connect.Request[pb.InspectNeedsRequest], out *connect.ServerStream[pb.InspectNeedsResponse]) error {
	s.inspects.Add(1)
	if err := out.Send(&pb.InspectNeedsResponse{Frame: &pb.InspectNeedsResponse_Header{Header: &pb.InspectNeedsHeader{Cycle: s.cycle.Load()}}}); err != nil {
		return err
	}
	for i, row := range []string{"a", "b", "c"} {
		n := &pb.NeedView{ClusterId: s.name, Satisfied: i > 0, Need: &pb.CapacityNeed{RowId: row}, DetailText: "It waits."}
		if i == 0 {
			n.UnmetReason, n.AgeCyclesUnmet, n.UnmetSinceUnixNanos = pb.UnmetReason_UNMET_REASON_PRIORITY_STARVED, 7, 1
		}
		if err := out.Send(&pb.InspectNeedsResponse{Frame: &pb.InspectNeedsResponse_Need{Need: n}}); err != nil {
			return err
		}
	}
	return nil
}

func (s *shardStub) GetMachineHistory(_ context.Context, r *connect.Request[pb.GetMachineHistoryRequest]) (*connect.Response[pb.GetMachineHistoryResponse], error) {
	if id := r.Msg.GetMachineId(); id != "" && id != "gone" {
		return connect.NewResponse(&pb.GetMachineHistoryResponse{}), nil
	}
	return connect.NewResponse(&pb.GetMachineHistoryResponse{Records: []*pb.DecisionRecord{{Sequence: 7, MachineId: "gone", Cause: "phase3.release", Type: pb.RecordType_RECORD_TYPE_STARTED}}}), nil
}

func (s *shardStub) GetMachine(context.Context, *connect.Request[pb.GetMachineRequest]) (*connect.Response[pb.GetMachineResponse], error) {
	return nil, connect.NewError(connect.CodeNotFound, io.EOF)
}

func (s *shardStub) ListClusters(ctx context.Context, _ *connect.Request[pb.ListClustersRequest]) (*connect.Response[pb.ListClustersResponse], error) {
	if s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return connect.NewResponse(&pb.ListClustersResponse{Clusters: []*pb.ClusterView{{ClusterId: s.name}}}), nil
}

func (s *shardStub) ListMachines(context.Context, *connect.Request[pb.ListMachinesRequest]) (*connect.Response[pb.ListMachinesResponse], error) {
	return connect.NewResponse(&pb.ListMachinesResponse{Machines: []*pb.MachineView{{Machine: &pb.Machine{Id: "m-1"}, NodeName: "ip-10-0-0-1"}}}), nil
}

func (s *shardStub) GetCost(_ context.Context, r *connect.Request[pb.GetCostRequest]) (*connect.Response[pb.GetCostResponse], error) {
	points := 1
	if r.Msg.GetSeparate() {
		points = len(r.Msg.GetGroupBy())
	}
	return connect.NewResponse(&pb.GetCostResponse{Points: slices.Repeat([]*pb.CostPoint{{AtUnixNanos: time.Now().UnixNano(), Rows: []*pb.CostRow{{Group: []string{s.name}, Machines: 1, CostPerHourByState: map[string]float64{"MACHINE_STATE_CONFIGURED": 2.5}}}}}, points)}), nil
}

func (s *shardStub) WatchDecisions(ctx context.Context, _ *connect.Request[pb.WatchDecisionsRequest], out *connect.ServerStream[pb.WatchDecisionsResponse]) error {
	s.watches.Add(1)
	s.streams.Add(1)
	defer s.streams.Add(-1)
	if err := out.Send(&pb.WatchDecisionsResponse{}); err != nil {
		return err
	}
	<-ctx.Done()
	return nil
}

// serveShard runs a stub until stop.
func serveShard(t *testing.T, s *shardStub, addr string) (at string, stop func()) {
	t.Helper()
	services := []rpc.Service{{
		Name: bigfleetv1alpha1connect.ShardReadName, Limits: rpc.ReadLimits(), Access: rpc.AllowAll(bigfleetv1alpha1connect.ShardReadName, rpc.Allow()),
		New: func(o ...connect.HandlerOption) (string, http.Handler) {
			return bigfleetv1alpha1connect.NewShardReadHandler(s, o...)
		},
	}}
	if s.orders != nil {
		services = append(services, rpc.Service{
			Name: bigfleetv1alpha1connect.ShardAdminName, Limits: rpc.ReadLimits(), Access: rpc.AllowAll(bigfleetv1alpha1connect.ShardAdminName, rpc.AllowMutation()), Validate: true,
			New: func(o ...connect.HandlerOption) (string, http.Handler) {
				return bigfleetv1alpha1connect.NewShardAdminHandler(s.orders, o...)
			},
		})
	}
	server, err := rpc.NewServer(rpc.ServerConfig{Log: slog.New(slog.DiscardHandler), StopTimeout: time.Second, Services: services})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Run(ctx, l) }()
	var once sync.Once
	stop = func() { once.Do(func() { cancel(); <-done }) }
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

// serveConsole runs a console in front of one stub, and returns its base URL.
func serveConsole(t *testing.T, s *shardStub, edit ...func(*Config)) (base, shardAddr string, stopShard func()) {
	t.Helper()
	shardAddr, stopShard = serveShard(t, s, "127.0.0.1:0")
	tel, err := telemetry.New(t.Context(), telemetry.Config{Component: "console", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Telemetry: tel, Listener: l, Shards: []string{"s0=" + shardAddr}}
	for _, e := range edit {
		e(&c)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Run(ctx, c) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = tel.Close(context.Background())
		http.DefaultClient.CloseIdleConnections()
	})
	return "http://" + l.Addr().String(), shardAddr, stopShard
}

func consoleClient(base string) bigfleetv1alpha1connect.ConsoleClient {
	return bigfleetv1alpha1connect.NewConsoleClient(http.DefaultClient, base)
}

// eventually waits for what a second brings; the bound is only there to end a test that fails.
func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !is(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

// post makes one request as a browser or a program would, with these headers, and returns the status and the body.
func post(t *testing.T, url, body string, headers ...string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(headers); i += 2 {
		switch headers[i] {
		case "Host":
			r.Host = headers[i+1]
		case "Content-Type":
			r.Header.Set(headers[i], headers[i+1])
		default:
			r.Header.Add(headers[i], headers[i+1])
		}
	}
	got, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = got.Body.Close() }()
	text, _ := io.ReadAll(got.Body)
	return got.StatusCode, string(text)
}
