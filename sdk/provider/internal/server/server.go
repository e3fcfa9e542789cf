package server

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"connectrpc.com/otelconnect"
	"connectrpc.com/validate"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// streamsMax is how many calls one connection may have open: a shard sends up to a few thousand mutations at once, and
// each waits for a commit. 4,096 of them hold about 40 MB.
const streamsMax = 4096

// Limits of an HTTP connection.
const (
	HeaderReadTimeout = 10 * time.Second
	idleTimeout       = 10 * time.Minute
)

// Config is what a Server needs.
type Config struct {
	Machines Machines                                      // required
	Admin    bigfleetv1alpha1connect.ProviderAdminHandler  // required
	Log      *slog.Logger                                  // required
	Tracer   trace.TracerProvider                          // required; noop for no spans
	Calls    func(method, code string, took time.Duration) // required; hears of every call
	Denied   func(reason string)                           // required; hears of every caller that was refused
	Panicked func(v any, args ...any)                      // required; counts and logs a panic
	Ready    func(ctx context.Context)                     // required; holds a call that comes before the provider can answer
	TLS      *identity.Source                              // nil: plaintext

	AnyShard   bool // shard SANs are not checked (PROV-2.10)
	Reflection bool
	// RequestBytesMax and ResponseBytesMax bound one message, SmallRequestBytesMax the requests of all RPCs but Configure.
	RequestBytesMax, SmallRequestBytesMax, ResponseBytesMax int
}

// Machines carries out the calls of CapacityProvider.
type Machines interface {
	Mutate(ctx context.Context, q lifecycle.Request, blob []byte) (*bigfleetv1alpha1.TransitionAck, error)
	Get(ctx context.Context, ref *bigfleetv1alpha1.MachineRef) (*bigfleetv1alpha1.Machine, error)
	List(ctx context.Context, f *bigfleetv1alpha1.ListFilter) (*bigfleetv1alpha1.MachineList, error)
}

// Server is the RPC port. Make it with New.
type Server struct {
	Config
	http    *http.Server
	health  *grpchealth.StaticChecker
	buffers buffers
	refused refusedLog
}

// readMax is the limit of one request: only Configure carries boot data. What arrives compressed is held whole for any caller.
func (c Config) readMax(spec connect.Spec) []connect.HandlerOption {
	most := c.SmallRequestBytesMax
	if spec.Procedure == bigfleetv1alpha1connect.CapacityProviderConfigureProcedure {
		most = c.RequestBytesMax
	}
	return []connect.HandlerOption{connect.WithReadMaxBytes(most)}
}

// New mounts everything that the RPC port serves (PROV-2.1 to 2.3).
func New(c Config) *Server {
	s := &Server{Config: c, health: grpchealth.NewStaticChecker(bigfleetv1alpha1connect.CapacityProviderName)}
	s.SetServing(false)
	mux := http.NewServeMux()
	common := connect.WithHandlerOptions(
		connect.WithConditionalHandlerOptions(c.readMax), connect.WithSendMaxBytes(c.ResponseBytesMax),
		// A list of a fleet compresses slower than it travels inside a site; requests may still come compressed.
		connect.WithCompressMinBytes(math.MaxInt),
		connect.WithRecover(s.recovered), codecs(), connect.WithRequestGate(s.early),
	)
	inner := []connect.Interceptor{s.observer(), s.gate(), s.hold()}
	if _, off := c.Tracer.(noop.TracerProvider); !off { // spans that go nowhere cost as much as the rest of a Get
		tracing, err := otelconnect.NewInterceptor(otelconnect.WithTracerProvider(c.Tracer), otelconnect.WithoutMetrics(),
			otelconnect.WithTrustRemote(), otelconnect.WithPropagator(propagation.TraceContext{}))
		if err != nil {
			c.Log.Error("calls cannot be traced", "err", err)
		} else {
			inner = append([]connect.Interceptor{tracing}, inner...)
		}
	}
	// WIRE-3.12: no validation in front of the fence; the generated rules of CapacityProvider are steps of lifecycle.Decide.
	mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(capacity{c.Machines}, common, connect.WithInterceptors(inner...)))
	mux.Handle(bigfleetv1alpha1connect.NewProviderAdminHandler(c.Admin, common,
		connect.WithInterceptors(slices.Concat(inner, []connect.Interceptor{validate.NewInterceptor()})...)))
	mux.Handle(grpchealth.NewHandler(s.health))
	if c.Reflection {
		names := grpcreflect.NewStaticReflector(bigfleetv1alpha1connect.CapacityProviderName,
			bigfleetv1alpha1connect.ProviderAdminName, grpchealth.HealthV1ServiceName)
		mux.Handle(s.identified(grpcreflect.NewHandlerV1(names)))
		mux.Handle(s.identified(grpcreflect.NewHandlerV1Alpha(names)))
	}
	h := &http.Server{
		Handler: withPeer(s.authorized(s.buffers.handler(mux))), ReadHeaderTimeout: HeaderReadTimeout, IdleTimeout: idleTimeout,
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: streamsMax, SendPingTimeout: 30 * time.Second, PingTimeout: 10 * time.Second},
		Protocols: new(http.Protocols),
	}
	h.Protocols.SetHTTP1(true)
	if c.TLS != nil {
		h.Protocols.SetHTTP2(true)
		h.TLSConfig = c.TLS.ServerConfig()
	} else {
		h.Protocols.SetUnencryptedHTTP2(true)
	}
	s.http = h
	return s
}

// Serve answers calls on l until Stop.
func (s *Server) Serve(l net.Listener) error {
	var err error
	if s.TLS != nil {
		err = s.http.ServeTLS(l, "", "")
	} else {
		err = s.http.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Stop ends the port. Calls that are open get a second to end.
func (s *Server) Stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // callers that hold a call open lose it
	}
}

// SetServing sets what grpc.health.v1 answers.
func (s *Server) SetServing(serving bool) {
	status := grpchealth.StatusNotServing
	if serving {
		status = grpchealth.StatusServing
	}
	s.health.SetStatus("", status)
	s.health.SetStatus(bigfleetv1alpha1connect.CapacityProviderName, status)
}

// recovered turns a panic of a handler into INTERNAL (PROV-5.7).
func (s *Server) recovered(_ context.Context, spec connect.Spec, _ http.Header, v any) error {
	s.Panicked(v, "procedure", spec.Procedure)
	return Error(connect.CodeInternal, "a defect of the provider; its log has the details")
}

// hold waits with a call until the provider can answer, for a bounded time (PROV-10.5).
func (s *Server) hold() connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			s.Ready(ctx)
			return next(ctx, req)
		}
	})
}

// observer counts and times calls.
func (s *Server) observer() connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			method := req.Spec().Procedure[strings.LastIndexByte(req.Spec().Procedure, '/')+1:]
			begin := time.Now()
			res, err := next(ctx, req)
			code := "ok"
			if err != nil {
				code = connect.CodeOf(err).String()
			}
			s.Calls(method, code, time.Since(begin))
			return res, err
		}
	})
}

// capacity is the contract service.
type capacity struct{ m Machines }

func (c capacity) Create(ctx context.Context, r *connect.Request[bigfleetv1alpha1.CreateRequest]) (*connect.Response[bigfleetv1alpha1.TransitionAck], error) {
	m := r.Msg
	return ack(c.m.Mutate(ctx, lifecycle.Request{
		Kind: lifecycle.Create, MachineID: m.GetMachineId(), ShardID: m.GetShardId(),
		Token: lifecycle.Token{Epoch: m.GetShardEpoch(), Sequence: m.GetSequenceNumber()},
	}, nil))
}

func (c capacity) Configure(ctx context.Context, r *connect.Request[bigfleetv1alpha1.ConfigureRequest]) (*connect.Response[bigfleetv1alpha1.TransitionAck], error) {
	m := r.Msg
	return ack(c.m.Mutate(ctx, lifecycle.Request{
		Kind: lifecycle.Configure, MachineID: m.GetMachineId(), ShardID: m.GetShardId(),
		Token:   lifecycle.Token{Epoch: m.GetShardEpoch(), Sequence: m.GetSequenceNumber()},
		Cluster: m.GetClusterId(), Metadata: m.GetShardMetadata(), BlobBytes: len(m.GetBootstrapBlob()),
	}, m.GetBootstrapBlob()))
}

func (c capacity) Drain(ctx context.Context, r *connect.Request[bigfleetv1alpha1.DrainRequest]) (*connect.Response[bigfleetv1alpha1.TransitionAck], error) {
	m := r.Msg
	return ack(c.m.Mutate(ctx, lifecycle.Request{
		Kind: lifecycle.Drain, MachineID: m.GetMachineId(), ShardID: m.GetShardId(),
		Token:        lifecycle.Token{Epoch: m.GetShardEpoch(), Sequence: m.GetSequenceNumber()},
		GraceSeconds: m.GetGracePeriodSeconds(),
	}, nil))
}

func (c capacity) Delete(ctx context.Context, r *connect.Request[bigfleetv1alpha1.DeleteRequest]) (*connect.Response[bigfleetv1alpha1.TransitionAck], error) {
	m := r.Msg
	return ack(c.m.Mutate(ctx, lifecycle.Request{
		Kind: lifecycle.Delete, MachineID: m.GetMachineId(), ShardID: m.GetShardId(),
		Token: lifecycle.Token{Epoch: m.GetShardEpoch(), Sequence: m.GetSequenceNumber()},
	}, nil))
}

func (c capacity) Get(ctx context.Context, r *connect.Request[bigfleetv1alpha1.MachineRef]) (*connect.Response[bigfleetv1alpha1.Machine], error) {
	m, err := c.m.Get(ctx, r.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}

func (c capacity) List(ctx context.Context, r *connect.Request[bigfleetv1alpha1.ListFilter]) (*connect.Response[bigfleetv1alpha1.MachineList], error) {
	m, err := c.m.List(ctx, r.Msg)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}

func ack(m *bigfleetv1alpha1.TransitionAck, err error) (*connect.Response[bigfleetv1alpha1.TransitionAck], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}
