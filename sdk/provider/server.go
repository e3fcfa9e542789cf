package provider

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"
	"connectrpc.com/otelconnect"
	"connectrpc.com/validate"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace/noop"
)

// streamsMax is how many calls one connection may have open: a shard sends up to a few thousand mutations at once, and
// each waits for a commit. 4,096 of them hold about 40 MB.
const streamsMax = 4096

// server is the RPC port.
type server struct {
	http *http.Server
	tls  bool
}

func (s *server) Serve(l net.Listener) error {
	var err error
	if s.tls {
		err = s.http.ServeTLS(l, "", "")
	} else {
		err = s.http.Serve(l)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// newServer mounts everything that the RPC port serves (PROV-2.1 to 2.3).
func (p *Provider) newServer() *server {
	mux := http.NewServeMux()
	common := connect.WithHandlerOptions(
		connect.WithReadMaxBytes(RequestBytesMax), connect.WithSendMaxBytes(ResponseBytesMax),
		// A list of a fleet compresses slower than it travels inside a site; requests may still come compressed.
		connect.WithCompressMinBytes(math.MaxInt),
		connect.WithRecover(p.recovered), codecs(),
	)
	inner := []connect.Interceptor{p.observer(), p.gate()}
	if _, off := p.set.tracer.(noop.TracerProvider); !off { // spans that go nowhere cost as much as the rest of a Get
		tracing, err := otelconnect.NewInterceptor(otelconnect.WithTracerProvider(p.set.tracer), otelconnect.WithoutMetrics(),
			otelconnect.WithTrustRemote(), otelconnect.WithPropagator(propagation.TraceContext{}))
		if err != nil {
			p.log.Error("no traces of calls", "err", err)
		} else {
			inner = append([]connect.Interceptor{tracing}, inner...)
		}
	}
	// WIRE-3.12: no validation in front of the fence; the generated rules of CapacityProvider are steps of Decide.
	mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(capacity{p}, common, connect.WithInterceptors(inner...)))
	mux.Handle(bigfleetv1alpha1connect.NewProviderAdminHandler(admin{p}, common,
		connect.WithInterceptors(slices.Concat(inner, []connect.Interceptor{validate.NewInterceptor()})...)))
	mux.Handle(grpchealth.NewHandler(p.health.checker))
	if p.set.reflection {
		names := grpcreflect.NewStaticReflector(bigfleetv1alpha1connect.CapacityProviderName,
			bigfleetv1alpha1connect.ProviderAdminName, grpchealth.HealthV1ServiceName)
		mux.Handle(p.known(grpcreflect.NewHandlerV1(names)))
		mux.Handle(p.known(grpcreflect.NewHandlerV1Alpha(names)))
	}
	h := &http.Server{
		Handler: withPeer(p.leases.handler(mux)), ReadHeaderTimeout: headerReadTimeout, IdleTimeout: idleTimeout,
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: streamsMax, SendPingTimeout: 30 * time.Second, PingTimeout: 10 * time.Second},
		Protocols: new(http.Protocols),
	}
	h.Protocols.SetHTTP1(true)
	if p.tls != nil {
		h.Protocols.SetHTTP2(true)
		h.TLSConfig = p.tls.ServerConfig()
	} else {
		h.Protocols.SetUnencryptedHTTP2(true)
	}
	return &server{http: h, tls: p.tls != nil}
}

// stop ends in the order of PROV-19.5: no new work, time for running work, then its context is cancelled, then the port.
func (p *Provider) stop(s *server, loops *sync.WaitGroup) {
	p.phase.Store(stopping)
	p.health.set(false)
	p.log.Info("provider stops", "grace", p.set.shutdownGrace)
	loops.Wait()
	done := make(chan struct{})
	go func() { p.workers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(p.set.shutdownGrace):
		p.log.Warn("running work is cut off; the next start judges it", "transitions", p.queue.busy())
	}
	p.endWork(errStopping)
	<-done // a Backend's calls end with their context
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := s.http.Shutdown(ctx); err != nil {
		_ = s.http.Close() // callers that hold a call open lose it
	}
}

func (q *queue) busy() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.running + q.waitings
}

// recovered turns a panic of a handler into INTERNAL (PROV-5.7).
func (p *Provider) recovered(_ context.Context, spec connect.Spec, _ http.Header, v any) error {
	p.panicked(v, "procedure", spec.Procedure)
	return newError(connect.CodeInternal, "a defect of the provider; its log has the details")
}

func (p *Provider) panicked(v any, args ...any) {
	p.metrics.panics.Inc()
	p.log.Error("panic", append(args, "err", fmt.Sprint(v), "stack", string(debug.Stack()))...)
}

// observer counts and times calls.
func (p *Provider) observer() connect.Interceptor {
	return connect.UnaryInterceptorFunc(func(next connect.UnaryFunc) connect.UnaryFunc {
		return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
			method := req.Spec().Procedure[strings.LastIndexByte(req.Spec().Procedure, '/')+1:]
			begin := time.Now()
			res, err := next(ctx, req)
			code := "ok"
			if err != nil {
				code = connect.CodeOf(err).String()
			}
			p.metrics.rpcs.WithLabelValues(method, code).Inc()
			p.metrics.rpcDuration.WithLabelValues(method).Observe(time.Since(begin).Seconds())
			return res, err
		}
	})
}

// capacity is the contract service.
type capacity struct{ p *Provider }

func (c capacity) Create(ctx context.Context, r *connect.Request[bigfleetv1alpha1.CreateRequest]) (*connect.Response[bigfleetv1alpha1.TransitionAck], error) {
	m := r.Msg
	return ack(c.p.mutate(ctx, lifecycle.Request{
		Kind: Create, MachineID: m.GetMachineId(), ShardID: m.GetShardId(),
		Token: lifecycle.Token{Epoch: m.GetShardEpoch(), Sequence: m.GetSequenceNumber()},
	}, nil))
}

func (c capacity) Configure(ctx context.Context, r *connect.Request[bigfleetv1alpha1.ConfigureRequest]) (*connect.Response[bigfleetv1alpha1.TransitionAck], error) {
	m := r.Msg
	return ack(c.p.mutate(ctx, lifecycle.Request{
		Kind: Configure, MachineID: m.GetMachineId(), ShardID: m.GetShardId(),
		Token:   lifecycle.Token{Epoch: m.GetShardEpoch(), Sequence: m.GetSequenceNumber()},
		Cluster: m.GetClusterId(), Metadata: m.GetShardMetadata(), BlobBytes: len(m.GetBootstrapBlob()),
	}, m.GetBootstrapBlob()))
}

func (c capacity) Drain(ctx context.Context, r *connect.Request[bigfleetv1alpha1.DrainRequest]) (*connect.Response[bigfleetv1alpha1.TransitionAck], error) {
	m := r.Msg
	return ack(c.p.mutate(ctx, lifecycle.Request{
		Kind: Drain, MachineID: m.GetMachineId(), ShardID: m.GetShardId(),
		Token:        lifecycle.Token{Epoch: m.GetShardEpoch(), Sequence: m.GetSequenceNumber()},
		GraceSeconds: m.GetGracePeriodSeconds(),
	}, nil))
}

func (c capacity) Delete(ctx context.Context, r *connect.Request[bigfleetv1alpha1.DeleteRequest]) (*connect.Response[bigfleetv1alpha1.TransitionAck], error) {
	m := r.Msg
	return ack(c.p.mutate(ctx, lifecycle.Request{
		Kind: Delete, MachineID: m.GetMachineId(), ShardID: m.GetShardId(),
		Token: lifecycle.Token{Epoch: m.GetShardEpoch(), Sequence: m.GetSequenceNumber()},
	}, nil))
}

func (c capacity) Get(_ context.Context, r *connect.Request[bigfleetv1alpha1.MachineRef]) (*connect.Response[bigfleetv1alpha1.Machine], error) {
	m, err := c.p.get(r.Msg.GetId())
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}

func (c capacity) List(ctx context.Context, r *connect.Request[bigfleetv1alpha1.ListFilter]) (*connect.Response[bigfleetv1alpha1.MachineList], error) {
	m, err := c.p.list(ctx, r.Msg)
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

// health is what grpc.health.v1 answers.
type health struct{ checker *grpchealth.StaticChecker }

func newHealth() *health {
	h := &health{grpchealth.NewStaticChecker(bigfleetv1alpha1connect.CapacityProviderName)}
	h.set(false)
	return h
}

func (h *health) set(serving bool) {
	status := grpchealth.StatusNotServing
	if serving {
		status = grpchealth.StatusServing
	}
	h.checker.SetStatus("", status)
	h.checker.SetStatus(bigfleetv1alpha1connect.CapacityProviderName, status)
}
