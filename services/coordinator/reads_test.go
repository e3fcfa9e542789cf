package coordinator_test

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// COORD-16.4: every unary read answers a plain GET, an order does not, and both answer JSON to a plain POST.
func TestPlainHTTP(t *testing.T) {
	r, c := single(t, nil)
	register(t, c, "shard-0")
	transport := &http.Transport{DialContext: r.net.Dialer("curl")}
	t.Cleanup(transport.CloseIdleConnections)
	client := &http.Client{Transport: transport}
	call := func(req *http.Request, err error) (int, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "localhost" // a plaintext port on loopback answers under no other host's name
		answer, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(text)
	}
	for _, service := range []string{api.CoordinatorName, api.CoordinatorAdminName} {
		for procedure, method := range rpcs(t, service) {
			if method.IsStreamingServer() {
				continue
			}
			options, _ := method.Options().(*descriptorpb.MethodOptions)
			reads := options.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
			query := url.Values{"connect": {"v1"}, "encoding": {"json"}, "message": {"{}"}}.Encode()
			status, text := call(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+rpc(0)+procedure+"?"+query, nil))
			switch {
			case reads && (status != http.StatusOK || !json.Valid([]byte(text))):
				t.Errorf("GET %s: %d %s", procedure, status, text)
			case !reads && status != http.StatusMethodNotAllowed:
				t.Errorf("GET of the order %s: %d %s", procedure, status, text)
			}
		}
	}
	post, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+rpc(0)+api.CoordinatorListShardsProcedure, strings.NewReader("{}"))
	post.Header.Set("Content-Type", "application/json")
	if status, text := call(post, err); status != http.StatusOK || !strings.Contains(text, `"shardId":"shard-0"`) {
		t.Errorf("POST: %d %s", status, text)
	}
}

// COORD-16.5, 16.6: to a new leader a shard that has not reported is not a shard without demand: the answers say that they are
// not complete, times that never were are 0, and the first report counts from the moment it arrives.
func TestReadsAfterAFailover(t *testing.T) {
	r, c := single(t, func(c *coordinator.Config) { c.RebalanceInterval = -1 })
	register(t, c, "shard-0", "shard-1")
	r.stop(0)
	r.start(0)
	c = r.client(nil)
	register(t, c, "shard-1")
	got := must(t, c, core.ListShards, &v1.ListShardsRequest{})
	if silent := got.GetShards()[0]; !got.GetRebuilding() || silent.GetLastHeartbeatUnixNs() != 0 || silent.GetReportAgeSeconds() != -1 || silent.GetRegisteredAtUnixNs() == 0 {
		t.Errorf("%v", got)
	}
	if heard := got.GetShards()[1]; heard.GetLastHeartbeatUnixNs() <= 0 || heard.GetReportAgeSeconds() < 0 {
		t.Errorf("%v", heard)
	}
	reports := must(t, c, core.ListShardReports, &v1.ListShardReportsRequest{})
	if len(reports.GetReports()) != 1 || !reports.GetRebuilding() {
		t.Errorf("%v", reports)
	}
	if status := must(t, c, admin.GetFleetStatus, &v1.GetFleetStatusRequest{}).GetStatus(); !status.GetRebuilding() {
		t.Errorf("%v", status)
	}
	if at := must(t, c, admin.GetRebalance, &v1.GetRebalanceRequest{}).GetLastSweepAtUnixNanos(); at != 0 {
		t.Errorf("the last sweep was at %d", at)
	}
	if status := r.status(0); status.GetLastExportAtUnixNanos() != 0 {
		t.Errorf("%v", status)
	}
}

// COORD-18.4: the entry of an order is a child of its call; an entry made for several reports is linked to each of them; and
// both sides carry the id of the entry.
func TestTracesOfProposals(t *testing.T) {
	recorder := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(recorder))
	t.Cleanup(func() { _ = provider.Shutdown(context.Background()) })
	r, c := single(t, func(c *coordinator.Config) { c.Telemetry.Tracer = provider })
	register(t, c, "shard-0")
	must(t, c, admin.BindCluster, &v1.BindClusterRequest{ClusterId: "red", ShardId: "shard-0"})
	r.stop(0)
	id := func(s sdktrace.ReadOnlySpan) string {
		for _, a := range s.Attributes() {
			if a.Key == replica.RequestID {
				return a.Value.AsString()
			}
		}
		return ""
	}
	calls := map[string]sdktrace.ReadOnlySpan{} // by span
	for _, s := range recorder.Ended() {
		calls[s.SpanContext().SpanID().String()] = s
	}
	child, linked := false, false
	for _, s := range recorder.Ended() {
		if s.Name() != "proposal" || id(s) == "" {
			continue
		}
		if parent := calls[s.Parent().SpanID().String()]; parent != nil {
			child = child || strings.HasSuffix(parent.Name(), "BindCluster") && id(parent) == id(s)
		}
		for _, l := range s.Links() {
			caller := calls[l.SpanContext.SpanID().String()]
			linked = linked || caller != nil && strings.HasSuffix(caller.Name(), "ReportShard") && id(caller) == id(s)
		}
	}
	if !child || !linked {
		for _, s := range recorder.Ended() {
			t.Logf("%s, parent %s, request %q, %d links", s.Name(), s.Parent().SpanID(), id(s), len(s.Links()))
		}
		t.Errorf("the entry of the order hangs on its call: %v; that of the report on its report: %v", child, linked)
	}
}

// COORD-17.4: a replica that lost its RPC port ends with an error; one that lost its metrics port continues.
func TestLostPorts(t *testing.T) {
	for lost, fatal := range map[string]bool{"rpc": true, "metrics": false} {
		t.Run(lost, func(t *testing.T) {
			r := newReplicas(t, 1)
			var port net.Listener
			r.tune = func(_ int, c *coordinator.Config) {
				if port = c.Listener; fatal {
					return
				}
				c.Ops = append(c.Ops, opsPort(t, c.Telemetry))
				port = c.Ops[0].Listener
			}
			r.startAll()
			c := r.client(nil)
			r.group(c, 1)
			if err := port.Close(); err != nil {
				t.Fatal(err)
			}
			if fatal {
				if err := <-r.errs[0]; err == nil {
					t.Error("it ended without an error")
				}
				r.stops[0]()
				r.stops[0] = nil
				return
			}
			eventually(t, "the metrics port is started again and again", func() bool { return r.value(0, "bigfleet_coordinator_component_restarts_total") > 0 })
			register(t, c, "shard-0")
		})
	}
}
