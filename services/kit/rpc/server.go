package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"connectrpc.com/otelconnect"
	"connectrpc.com/validate"
	"go.opentelemetry.io/otel/metric"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/loopback"
)

// ServerConfig is what a Server needs.
type ServerConfig struct {
	Log      *slog.Logger         // required
	Services []Service            // required; one row per service of the port
	Identity *identity.Source     // nil means plaintext
	Tracer   trace.TracerProvider // nil means no traces
	Meter    metric.MeterProvider // nil means no RPC metrics

	Keepalive      Keepalive
	StreamsMax     int // calls at a time on one connection; 0 means 1000
	ConnectionsMax int // per listener; 0 means 20,000. Connections above are closed at once and counted
	// PeerConnectionsMax and PeerCallsMax bound what one certificate holds open at a time. 0 means 256 and 2,000.
	PeerConnectionsMax, PeerCallsMax int
	StopTimeout                      time.Duration // for Run; 0 means 5 s
	NoReflection                     bool
	// InsecureAdmin serves AllowMutation RPCs to any plaintext peer (SHARD-22.5).
	InsecureAdmin bool
	// OnRefused hears of calls refused for the caller's identity. It must not block.
	OnRefused func(Refusal)
	// HTTP are further handlers on the port, by ServeMux pattern: a web UI beside its RPCs.
	HTTP map[string]http.Handler
	// Front, if set, sees every request before anything else of the port does: a web UI judges the page that sent it.
	Front func(next http.Handler) http.Handler
}

// Service is one row of a Server.
type Service struct {
	Name   string // full name, for example bigfleetv1alpha1connect.ShardName
	Limits Limits // required
	// ReadMaxBytes has lower limits of one request for some RPCs, by procedure name.
	ReadMaxBytes map[string]int
	// Access has one rule for each RPC of the service, by procedure name.
	Access map[string]Access
	// Validate runs the generated request rules behind the identity check (WIRE-3.12), and bounds fields that have none. Answers
	// are never validated.
	Validate bool
	// Gate, if set, may refuse a call behind the identity check and before its body is read.
	Gate func(ctx context.Context, procedure string) error
	// Before runs outside of validation, After inside, both behind the identity check and in the given order.
	Before, After []connect.Interceptor
	// New mounts the handler:
	//
	//	func(opts ...connect.HandlerOption) (string, http.Handler) {
	//		return bigfleetv1alpha1connect.NewShardHandler(impl, opts...)
	//	}
	New func(opts ...connect.HandlerOption) (string, http.Handler)
}

// Server is one RPC port. Make it with NewServer, run it with Run or Serve and Stop.
type Server struct {
	config    ServerConfig
	http      *http.Server
	health    *health
	streaming map[string]bool // by procedure
	uploads   map[string]bool // by procedure: the client streams
	peers     *peers
	errors    *connect.ErrorWriter

	streams, calls       context.Context // end when streams, then unary calls, must end
	endStreams, endCalls context.CancelFunc
	active               atomic.Int64 // calls in flight
	stop                 sync.Once
	stopped              chan struct{}
	stopErr              error
}

// NewServer checks the whole configuration and mounts the services. It starts nothing.
func NewServer(c ServerConfig) (*Server, error) {
	if c.Log == nil {
		return nil, errors.New("rpc.ServerConfig.Log is required")
	}
	if c.StreamsMax == 0 {
		c.StreamsMax = streamsMax
	}
	if c.ConnectionsMax == 0 {
		c.ConnectionsMax = connectionsMax
	}
	if c.PeerConnectionsMax == 0 {
		c.PeerConnectionsMax = peerConnectionsMax
	}
	if c.PeerCallsMax == 0 {
		c.PeerCallsMax = peerCallsMax
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = stopTimeout
	}
	s := &Server{config: c, health: newHealth(), streaming: map[string]bool{}, uploads: map[string]bool{}, stopped: make(chan struct{}),
		errors: connect.NewErrorWriter(), peers: newPeers(c.PeerConnectionsMax, c.PeerCallsMax)}
	s.streams, s.endStreams = context.WithCancel(context.Background())
	s.calls, s.endCalls = context.WithCancel(context.Background())
	mux, err := s.mount()
	if err != nil {
		return nil, err
	}
	handler := s.scope(mux)
	if c.Front != nil {
		handler = c.Front(handler)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(c.Identity == nil)
	s.http = &http.Server{
		Handler: handler, Protocols: protocols, HTTP2: c.Keepalive.http2(c.StreamsMax), ConnContext: connContext, ConnState: s.peers.state,
		ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: headerBytesMax,
		ErrorLog: slog.NewLogLogger(&quietHandler{Handler: c.Log.Handler(), sampler: &sampler{}}, slog.LevelWarn),
	}
	if c.Identity != nil {
		s.http.TLSConfig = c.Identity.ServerConfig()
	}
	return s, nil
}

func (s *Server) mount() (*http.ServeMux, error) {
	telemetry, err := newTelemetry(s.config.Tracer, s.config.Meter)
	if err != nil {
		return nil, err
	}
	edge := &edge{log: s.config.Log, sampler: &sampler{}}
	largest := decodeBytesMin
	for _, service := range s.config.Services {
		largest = max(largest, service.Limits.ReadMaxBytes)
	}
	decoding := newBudget(2 * largest) // room for the largest message beside others
	mux := http.NewServeMux()
	var names []string
	var wrong []error
	for _, service := range s.config.Services {
		path, handler, err := s.mountService(service, telemetry, edge, decoding)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("rpc.Service %s: %w", service.Name, err))
			continue
		}
		mux.Handle(path, handler)
		names = append(names, service.Name)
		s.health.add(service.Name)
	}
	if len(wrong) > 0 {
		return nil, errors.Join(wrong...)
	}
	meta := []connect.HandlerOption{
		connect.WithReadMaxBytes(metaBytesMax), connect.WithSendMaxBytes(metaAnswerMax), connect.WithInterceptors(edge), decoding.option(),
	}
	mux.Handle(grpchealth.NewHandler(s.health, meta...))
	s.streaming["/grpc.health.v1.Health/Watch"] = true
	if !s.config.NoReflection {
		reflector := grpcreflect.NewStaticReflector(append(names, grpchealth.HealthV1ServiceName)...)
		mux.Handle(grpcreflect.NewHandlerV1(reflector, meta...))
		mux.Handle(grpcreflect.NewHandlerV1Alpha(reflector, meta...))
		s.streaming["/"+grpcreflect.ReflectV1ServiceName+"/ServerReflectionInfo"] = true
		s.streaming["/"+grpcreflect.ReflectV1AlphaServiceName+"/ServerReflectionInfo"] = true
		s.uploads["/"+grpcreflect.ReflectV1ServiceName+"/ServerReflectionInfo"] = true
		s.uploads["/"+grpcreflect.ReflectV1AlphaServiceName+"/ServerReflectionInfo"] = true
	}
	for pattern, handler := range s.config.HTTP {
		mux.Handle(pattern, handler)
	}
	return mux, nil
}

func (s *Server) mountService(service Service, telemetry connect.Interceptor, edge *edge, decoding *budget) (string, http.Handler, error) {
	if service.New == nil {
		return "", nil, errors.New("New is required")
	}
	if err := service.Limits.check(); err != nil {
		return "", nil, err
	}
	methods, err := methodsOf(service.Name)
	if err != nil {
		return "", nil, err
	}
	if err := checkAccess(methods, service.Access); err != nil {
		return "", nil, err
	}
	for _, m := range methods {
		s.streaming[m.procedure], s.uploads[m.procedure] = m.streaming, m.uploads
	}
	for procedure, most := range service.ReadMaxBytes {
		if _, known := service.Access[procedure]; !known || most <= 0 || most > service.Limits.ReadMaxBytes {
			return "", nil, fmt.Errorf("ReadMaxBytes of %s must be from 1 to Limits.ReadMaxBytes", procedure)
		}
	}
	gate := &gate{edge, service.Access, s.config.InsecureAdmin, s.config.OnRefused, service.Gate}
	chain := []connect.Interceptor{telemetry, edge}
	chain = append(chain, service.Before...)
	if service.Validate {
		chain = append(chain, bounded{}, validate.NewInterceptor())
	}
	chain = append(chain, service.After...)
	path, handler := service.New(
		connect.WithReadMaxBytes(service.Limits.ReadMaxBytes), connect.WithSendMaxBytes(service.Limits.SendMaxBytes),
		connect.WithInterceptors(chain...), connect.WithRequestGate(gate.admit), decoding.option(),
		connect.WithCompressMinBytes(compressMinBytes),
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			if most := service.ReadMaxBytes[spec.Procedure]; most > 0 {
				return []connect.HandlerOption{connect.WithReadMaxBytes(most)}
			}
			return nil
		}),
	)
	if path != "/"+service.Name+"/" {
		return "", nil, fmt.Errorf("New mounts %s", path)
	}
	return path, handler, nil
}

// newTelemetry never falls back to the global providers or propagator: two servers in one process must not share
// state. The caller's trace continues here, so that one trace can span roll-up, cycle and provider call (OPS-9.3).
func newTelemetry(tracer trace.TracerProvider, meter metric.MeterProvider) (connect.Interceptor, error) {
	if tracer == nil {
		tracer = tracenoop.NewTracerProvider()
	}
	if meter == nil {
		meter = metricnoop.NewMeterProvider()
	}
	return otelconnect.NewInterceptor(otelconnect.WithTracerProvider(tracer), otelconnect.WithMeterProvider(meter),
		otelconnect.WithPropagator(propagation.TraceContext{}), otelconnect.WithTrustRemote())
}

// SetServing sets what the health service says about a service, "" for the process. Each mounted service and "" are
// SERVING until a caller of SetServing says otherwise, and nothing is once a stop has begun.
func (s *Server) SetServing(service string, serving bool) { s.health.set(service, serving) }

// scope gives each request its peer and a context that ends with the server.
func (s *Server) scope(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := identify(r)
		if err != nil {
			http.Error(w, "internal error", http.StatusInternalServerError)
			return
		}
		if loopback.WrongHost(r) {
			loopback.Refuse(w)
			return
		}
		if err := s.peers.begin(conn); err != nil {
			_ = s.errors.Write(w, r, err)
			return
		}
		defer s.peers.end(conn)
		s.active.Add(1)
		defer s.active.Add(-1)
		end, streaming := s.calls, s.streaming[r.URL.Path]
		if streaming {
			end = s.streams
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		done := make(chan struct{})
		release := context.AfterFunc(end, func() {
			defer close(done)
			cancel(ErrStopping)
			// A handler blocked in Receive reads the body and does not look at its context; a deadline in the past
			// ends that read. It fails only where deadlines are not supported, and then the hard stop ends the read.
			_ = http.NewResponseController(w).SetReadDeadline(time.Unix(1, 0))
		})
		if !s.uploads[r.URL.Path] && r.Body != nil && r.Body != http.NoBody {
			r.Body = bodyWithin(w, r.Body)
		}
		next.ServeHTTP(w, r.WithContext(ctx))
		if !release() {
			<-done // w must not be touched after this handler returned
		}
	})
}

// Serve accepts connections from ln until Stop. It may be called for several listeners. It returns nil after a Stop.
func (s *Server) Serve(ln net.Listener) error {
	ln = &limitListener{Listener: ln, free: make(chan struct{}, s.config.ConnectionsMax), log: s.config.Log, sampler: &sampler{}}
	var err error
	if s.config.Identity != nil {
		err = s.http.ServeTLS(newHandshakeListener(ln, s.config.Log), "", "")
	} else {
		err = s.http.Serve(ln)
	}
	if errors.Is(err, http.ErrServerClosed) {
		<-s.stopped
		return nil
	}
	return fmt.Errorf("serving %s: %w", ln.Addr(), err)
}

// Run serves the listeners until ctx ends, then stops within StopTimeout. A listener that fails ends Run with its
// error. Run owns the listeners.
func (s *Server) Run(ctx context.Context, listeners ...net.Listener) error {
	failed := make(chan error, len(listeners))
	for _, ln := range listeners {
		go func() { failed <- s.Serve(ln) }()
	}
	var err error
	waiting := len(listeners)
	select {
	case <-ctx.Done():
	case err = <-failed:
		waiting--
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.config.StopTimeout)
	defer cancel()
	stopErr := s.Stop(limit)
	for range waiting {
		err = errors.Join(err, <-failed)
	}
	if stopErr != nil {
		s.config.Log.Warn("calls were still running at the end of the shutdown and were cut off", "err", stopErr)
	}
	return err
}

// Stop ends the server in order: health says NOT_SERVING, listeners close and peers are asked to go away, streams end
// with cause ErrStopping, unary calls may finish until ctx ends. Then their contexts end with the same cause, they have
// half a second to answer, and what is left is cut. The error is ctx's when it came to that. Further calls wait for the
// first.
func (s *Server) Stop(ctx context.Context) error {
	s.stop.Do(func() {
		defer close(s.stopped)
		s.health.stop()
		s.endStreams()
		s.stopErr = s.shutdown(ctx)
		s.endCalls()
		if s.stopErr != nil {
			s.awaitCalls(cutGrace)
			_ = s.http.Close()
		}
	})
	<-s.stopped
	return s.stopErr
}

// shutdown is http.Server.Shutdown, repeated. net/http tells each HTTP/2 connection once to go away, when Shutdown
// begins; one that was accepted before and speaks its first byte after never learns of it, counts as busy forever, and
// would hold the stop until its deadline. Each repetition tells those that have come since.
func (s *Server) shutdown(ctx context.Context) error {
	for {
		slice, cancel := context.WithTimeout(ctx, shutdownSlice)
		err := s.http.Shutdown(slice)
		cancel()
		if err == nil || ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
	}
}

// awaitCalls waits until no call is in flight, at most for limit. Without it a cut connection would race with the end
// of the contexts, and handlers would see a peer that left where there was a stop.
func (s *Server) awaitCalls(limit time.Duration) {
	for end := time.Now().Add(limit); s.active.Load() > 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond)
	}
}
