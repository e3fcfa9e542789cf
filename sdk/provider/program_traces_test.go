package provider_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"
)

// PROV-21.3, 19.1: a span for the call of the RPC and one for the transition, linked to it, with operation and machine; calls to
// the substrate are its children. The trace of the caller continues in the RPC's span.
func TestSpansOfATransition(t *testing.T) {
	recorded := tracetest.NewInMemoryExporter()
	spans := sdktrace.NewTracerProvider(sdktrace.WithSyncer(recorded))
	c := newCloud()
	c.hook = func(ctx context.Context, _ provider.Kind, _ provider.Machine) error {
		return provider.Call(ctx, "cloud.Do", func(context.Context) error { return nil })
	}
	r := startCloud(t, c, provider.WithTracerProvider(spans))
	const callerTrace = "0af7651916cd43dd8448eb211c80319c"
	req := connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: id(0), ShardId: "s", ShardEpoch: 1, SequenceNumber: r.token()})
	req.Header().Set("Traceparent", "00-"+callerTrace+"-b7ad6b7169203331-01")
	ack, err := r.Create(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	r.settles(t, id(0), stIdle)
	find := func(name string) (found tracetest.SpanStub) {
		eventually(t, "the span "+name, func() bool {
			for _, s := range recorded.GetSpans() {
				if s.Name == name {
					found = s
					return true
				}
			}
			return false
		})
		return found
	}
	rpc := find("bigfleet.v1alpha1.CapacityProvider/Create")
	transition, call := find("bigfleet.transition/create"), find("bigfleet.substrate/cloud.Do")
	if rpc.SpanContext.TraceID().String() != callerTrace {
		t.Errorf("the RPC's span is in trace %s, the caller's is %s", rpc.SpanContext.TraceID(), callerTrace)
	}
	if len(transition.Links) != 1 || transition.Links[0].SpanContext.SpanID() != rpc.SpanContext.SpanID() {
		t.Errorf("the transition is linked to %v, want the call %s", transition.Links, rpc.SpanContext.SpanID())
	}
	about := attribute.NewSet(transition.Attributes...)
	if v, _ := about.Value("bigfleet.operation_id"); v.AsString() != ack.Msg.GetOperationId() {
		t.Errorf("operation %q, want %q", v.AsString(), ack.Msg.GetOperationId())
	}
	if v, _ := about.Value("bigfleet.machine_id"); v.AsString() != id(0) {
		t.Errorf("machine %q", v.AsString())
	}
	if call.Parent.SpanID() != transition.SpanContext.SpanID() {
		t.Error("the call to the substrate is no child of the transition")
	}
}

// PROV-21.3, OPS-2.1: a program with --otlp-endpoint delivers its spans when it stops, and a collector that does not answer
// delays no stop.
func TestSpansReachACollector(t *testing.T) {
	var mu sync.Mutex
	var received bytes.Buffer
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	collector := &http.Server{Protocols: protocols, ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		received.WriteString(r.URL.Path)
		received.Write(body)
		mu.Unlock()
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write([]byte{0, 0, 0, 0, 0}) // an empty message
		w.Header().Set("Grpc-Status", "0")
	})}
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	l := listen()
	served := make(chan error, 1)
	go func() { served <- collector.Serve(l) }()
	defer func() { _ = collector.Close(); <-served }()

	silent := listen() // takes connections and says nothing
	defer func() { _ = silent.Close() }()
	for _, endpoint := range []string{l.Addr().String(), "http://" + silent.Addr().String()} {
		createOnce(t, "--otlp-endpoint", endpoint)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"/opentelemetry.proto.collector.trace.v1.TraceService/Export", "bigfleet.transition/create", "bigfleet-provider"} {
		if !strings.Contains(received.String(), want) {
			t.Errorf("the collector received no %q", want)
		}
	}
}

// addrOf finds the RPC port in the log of a program.
var addrOf = regexp.MustCompile(`provider starts" .*?addr=(\S+)`)

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// createOnce runs a program on the fake until one machine was created, and stops it.
func createOnce(t *testing.T, args ...string) {
	t.Helper()
	var log lockedBuffer
	cmd := provider.Program[struct{}]{Name: "x", Fake: substrate.Fake[struct{}](substrate.Config{})}.Command()
	cmd.SetErr(&log)
	cmd.SetArgs(append([]string{"--use-fake-backend", "--state", "memory", "--seed-count", "10", "--metrics-addr", "", "--addr", "127.0.0.1:0"}, args...))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	eventually(t, "the program", func() bool { return addrOf.MatchString(log.String()) })
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	c := bigfleetv1alpha1connect.NewCapacityProviderClient(client, "http://"+addrOf.FindStringSubmatch(log.String())[1])
	var slot string
	eventually(t, "the list", func() bool {
		all, err := c.List(ctx, connect.NewRequest(&bigfleetv1alpha1.ListFilter{States: []bigfleetv1alpha1.MachineState{stSpeculative}, MaxResults: 1}))
		if err != nil || len(all.Msg.GetMachines()) == 0 {
			return false
		}
		slot = all.Msg.GetMachines()[0].GetId()
		return true
	})
	if _, err := c.Create(ctx, connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: slot})); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the machine", func() bool {
		m, err := c.Get(ctx, connect.NewRequest(&bigfleetv1alpha1.MachineRef{Id: slot}))
		return err == nil && m.Msg.GetState() == stIdle
	})
}
