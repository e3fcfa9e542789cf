package rpc_test

import (
	"context"
	"io"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// Each RPC is a series of its method and code, and not of its peer: a shard with 5,000 operators must not export
// 5,000 series for one method.
func TestRPCMetrics(t *testing.T) {
	tel, err := telemetry.New(t.Context(), telemetry.Config{Component: "shard", LogWriter: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tel.Close(context.Background()) }()
	p := start(t, &fleet{}, func(c *rpc.ServerConfig) { c.Meter = tel.Meter })
	for range 3 { // three connections, three remote ports
		if _, err := rpc.Stub(dial(t, p.addr, nil), api.NewCapacityProviderClient).Get(within(t), ref("m1")); err != nil {
			t.Fatal(err)
		}
	}
	families, err := tel.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "rpc_server_") {
			continue
		}
		found = true
		if len(f.GetMetric()) != 1 {
			t.Errorf("%s has %d series for one method", f.GetName(), len(f.GetMetric()))
		}
		for _, label := range f.GetMetric()[0].GetLabel() {
			if strings.Contains(label.GetName(), "peer") || strings.Contains(label.GetName(), "scope") {
				t.Errorf("%s has the label %s", f.GetName(), label.GetName())
			}
		}
	}
	if !found {
		t.Error("no RPC metrics")
	}
}

// OPS-9.3: the trace of the caller continues in the server.
func TestTraceCrossesTheWire(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	p := start(t, &fleet{}, func(c *rpc.ServerConfig) { c.Tracer = provider })
	c := dial(t, p.addr, func(c *rpc.ClientConfig) { c.Tracer = provider })
	ctx, span := provider.Tracer("test").Start(within(t), "operation")
	if _, err := rpc.Stub(c, api.NewShardReadClient).ListMachines(ctx, connect.NewRequest(&pb.ListMachinesRequest{})); err != nil {
		t.Fatal(err)
	}
	span.End()
	if err := p.stop(); err != nil { // the server's span ends after the client has its answer
		t.Fatal(err)
	}
	var kinds []string
	for _, s := range recorder.Ended() {
		if s.SpanContext().TraceID() == span.SpanContext().TraceID() {
			kinds = append(kinds, s.SpanKind().String())
		}
	}
	for _, want := range []string{"client", "server", "internal"} {
		if !slices.Contains(kinds, want) {
			t.Errorf("the trace has %v, want client, server and the operation", kinds)
		}
	}
}
