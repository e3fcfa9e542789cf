package rpc_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fleet is the handler of all test services. Each test replaces what it needs.
type fleet struct {
	api.UnimplementedCapacityProviderHandler
	api.UnimplementedShardReadHandler
	api.UnimplementedShardAdminHandler

	get     func(context.Context, *pb.MachineRef) (*pb.Machine, error)
	list    func(context.Context, *pb.ListFilter) (*pb.MachineList, error)
	session func(context.Context, *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error
	watch   func(context.Context, *connect.ServerStream[pb.WatchDecisionsResponse]) error
}

func (f *fleet) Get(ctx context.Context, req *connect.Request[pb.MachineRef]) (*connect.Response[pb.Machine], error) {
	if f.get == nil {
		return connect.NewResponse(&pb.Machine{Id: req.Msg.GetId()}), nil
	}
	out, err := f.get(ctx, req.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

func (f *fleet) List(ctx context.Context, req *connect.Request[pb.ListFilter]) (*connect.Response[pb.MachineList], error) {
	out, err := f.list(ctx, req.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(out), nil
}

func (f *fleet) ListMachines(ctx context.Context, _ *connect.Request[pb.ListMachinesRequest]) (*connect.Response[pb.ListMachinesResponse], error) {
	return connect.NewResponse(&pb.ListMachinesResponse{NextPageToken: rpc.PeerFrom(ctx).String()}), nil
}

func (f *fleet) WatchDecisions(ctx context.Context, _ *connect.Request[pb.WatchDecisionsRequest], out *connect.ServerStream[pb.WatchDecisionsResponse]) error {
	return f.watch(ctx, out)
}

func (f *fleet) PauseActuation(context.Context, *connect.Request[pb.PauseActuationRequest]) (*connect.Response[pb.PauseActuationResponse], error) {
	return connect.NewResponse(&pb.PauseActuationResponse{}), nil
}

func (f *fleet) Session(ctx context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
	return f.session(ctx, s)
}

const frameMax = 64 << 10 // of every test service, small so that tests reach it

// services are four of the real ones with the rules of WIRE-2.5 and WIRE-3.12.
func services(f *fleet) []rpc.Service {
	limits := rpc.Limits{ReadMaxBytes: frameMax, SendMaxBytes: frameMax}
	readers := []identity.Kind{identity.ReadOnly, identity.Admin, identity.Cluster}
	return []rpc.Service{{
		Name: api.ShardName, Limits: limits, Access: rpc.AllowAll(api.ShardName, rpc.HandlerDecides()),
		New: func(o ...connect.HandlerOption) (string, http.Handler) { return api.NewShardHandler(f, o...) },
	}, {
		Name: api.CapacityProviderName, Limits: limits, Access: rpc.AllowAll(api.CapacityProviderName, rpc.Allow(identity.Shard, identity.Cluster)),
		New: func(o ...connect.HandlerOption) (string, http.Handler) {
			return api.NewCapacityProviderHandler(f, o...)
		},
	}, {
		Name: api.ShardReadName, Limits: limits, Validate: true, Access: rpc.AllowAll(api.ShardReadName, rpc.Allow(readers...)),
		New: func(o ...connect.HandlerOption) (string, http.Handler) { return api.NewShardReadHandler(f, o...) },
	}, {
		Name: api.ShardAdminName, Limits: limits, Validate: true,
		Access: rpc.AllowByEffect(api.ShardAdminName, []identity.Kind{identity.ReadOnly, identity.Admin}, []identity.Kind{identity.Admin}),
		New:    func(o ...connect.HandlerOption) (string, http.Handler) { return api.NewShardAdminHandler(f, o...) },
	}}
}

// logs collects what a server logs.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// port is one running server.
type port struct {
	*rpc.Server
	addr string
	logs *logs
	stop func() error // ends Run and returns its error; called by the test's cleanup at the latest
}

// start runs a server of all test services on loopback.
func start(t *testing.T, f *fleet, change func(*rpc.ServerConfig)) *port {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return startOn(t, ln, f, change)
}

func startOn(t *testing.T, ln net.Listener, f *fleet, change func(*rpc.ServerConfig)) *port {
	t.Helper()
	p := &port{addr: ln.Addr().String(), logs: &logs{}}
	config := rpc.ServerConfig{Log: slog.New(slog.NewTextHandler(p.logs, &slog.HandlerOptions{Level: slog.LevelDebug})), Services: services(f)}
	if change != nil {
		change(&config)
	}
	server, err := rpc.NewServer(config)
	if err != nil {
		t.Fatal(err)
	}
	p.Server = server
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx, ln) }()
	p.stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	t.Cleanup(func() {
		if err := p.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return p
}

// dial makes a client that is closed with the test.
func dial(t *testing.T, addr string, change func(*rpc.ClientConfig)) *rpc.Client {
	t.Helper()
	config := rpc.ClientConfig{Addr: addr, Limits: rpc.Limits{ReadMaxBytes: 1 << 20, SendMaxBytes: 1 << 20}}
	if change != nil {
		change(&config)
	}
	client, err := rpc.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdle)
	return client
}

// within is a context for calls that must end: the bound is for broken code, no test measures it.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func ref(id string) *connect.Request[pb.MachineRef] {
	return connect.NewRequest(&pb.MachineRef{Id: id})
}

func wantCode(t *testing.T, err error, want connect.Code) *connect.Error {
	t.Helper()
	var fault *connect.Error
	if !errors.As(err, &fault) || fault.Code() != want {
		t.Fatalf("got %v, want code %s", err, want)
	}
	return fault
}

// source makes an identity signed by ca.
func source(t *testing.T, ca *devca.CA, r devca.Request) *identity.Source {
	t.Helper()
	files, err := ca.Write(t.TempDir(), "tls", r)
	if err != nil {
		t.Fatal(err)
	}
	out, err := identity.Load(files, identity.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func newCA(t *testing.T) *devca.CA {
	t.Helper()
	ca, err := devca.New(t.Name())
	if err != nil {
		t.Fatal(err)
	}
	return ca
}

// echo answers every frame with the acknowledgement of its kind until the peer ends the stream.
func echo(_ context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
	for {
		if _, err := s.Receive(); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := s.Send(&pb.ShardMessage{Payload: &pb.ShardMessage_Ack{Ack: &pb.Acknowledgement{Echo: "hello"}}}); err != nil {
			return err
		}
	}
}

func hello(cluster string) *pb.OperatorMessage {
	return &pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: cluster}}}
}
