package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/goleak"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/devca"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, c telemetry.Config) *telemetry.Telemetry {
	t.Helper()
	if c.Component == "" {
		c.Component = "shard"
	}
	if c.LogWriter == nil {
		c.LogWriter = io.Discard
	}
	out, err := telemetry.New(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := out.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return out
}

// ops serves the ops port of tel and returns its base URL.
func ops(t *testing.T, tel *telemetry.Telemetry, pprof bool, wrap func(net.Listener) net.Listener) string {
	t.Helper()
	o, err := telemetry.NewOps(telemetry.OpsConfig{Gatherer: tel.Registry, Health: tel.Health, Log: tel.Log, Pprof: pprof})
	if err != nil {
		t.Fatal(err)
	}
	ln, err := telemetry.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	if wrap != nil {
		ln = wrap(ln)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- o.Run(ctx, ln) }()
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + addr
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}

// SHARD-30.3: /healthz and /readyz say what is wrong, with ?verbose what is right too.
func TestHealthAndReady(t *testing.T) {
	tel := start(t, telemetry.Config{})
	var listed error = errors.New("provider sim has not listed yet")
	tel.Health.AddReady("inventory", func() error { return listed })
	tel.Health.AddReady("fence", func() error { return nil })
	var stuck error
	tel.Health.AddLive("loop", func() error { return stuck })
	url := ops(t, tel, false, nil)
	expect := func(path string, code int, body string) {
		t.Helper()
		if gotCode, got := get(t, url+path); gotCode != code || got != body {
			t.Errorf("%s: %d %q, want %d %q", path, gotCode, got, code, body)
		}
	}
	expect("/healthz", 200, "ok\n")
	expect("/readyz", 503, "failed inventory: provider sim has not listed yet\n")
	expect("/readyz?verbose", 503, "failed inventory: provider sim has not listed yet\nok fence\n")
	listed = nil
	expect("/readyz", 200, "ok\n")
	expect("/readyz?verbose", 200, "ok inventory\nok fence\nok\n")
	stuck = errors.New("no step for 61 s")
	expect("/healthz", 503, "failed loop: no step for 61 s\n")
	tel.Health.Stopping()
	expect("/readyz", 503, "failed stopping: the process is stopping\n")
	if _, err := tel.Health.Ready(); err == nil {
		t.Error("Ready does not say what /readyz says")
	}
	if code, _ := get(t, url+"/nothing"); code != 404 {
		t.Errorf("an unknown path answers %d", code)
	}
}

// farListener makes every peer look as if it came from another host.
type farListener struct{ net.Listener }

type farConn struct{ net.Conn }

func (l farListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return farConn{conn}, err
}

func (farConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(203, 0, 113, 7), Port: 4711} }

// SHARD-30.4, SHARD-22.6: profiles only when asked for, and to loopback peers only; and no RPC, for the port has no TLS.
func TestProfiles(t *testing.T) {
	tel := start(t, telemetry.Config{})
	far := func(ln net.Listener) net.Listener { return farListener{ln} }
	for _, test := range []struct {
		name string
		on   bool
		wrap func(net.Listener) net.Listener
		want int
	}{{"off", false, nil, 404}, {"on", true, nil, 200}, {"on, from elsewhere", true, far, 403}} {
		for _, path := range []string{"/debug/pprof/", "/debug/pprof/goroutine?debug=1", "/debug/pprof/cmdline"} {
			if code, _ := get(t, ops(t, tel, test.on, test.wrap)+path); code != test.want {
				t.Errorf("%s: %s answers %d, want %d", test.name, path, code, test.want)
			}
		}
		if code, _ := get(t, ops(t, tel, test.on, test.wrap)+"/bigfleet.v1alpha1.ShardRead/GetStatus"); code != 404 {
			t.Errorf("%s: an RPC answers %d", test.name, code)
		}
	}
}

// `0` turns the port off: nothing listens, and Run waits for its end like any component.
func TestOpsOff(t *testing.T) {
	ln, err := telemetry.Listen(telemetry.Off)
	if ln != nil || err != nil {
		t.Fatalf("%v, %v", ln, err)
	}
	tel := start(t, telemetry.Config{})
	o, err := telemetry.NewOps(telemetry.OpsConfig{Gatherer: tel.Registry, Health: tel.Health, Log: tel.Log})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := o.Run(ctx, ln); err != nil {
		t.Error(err)
	}
	if _, err := telemetry.NewOps(telemetry.OpsConfig{}); err == nil {
		t.Error("an empty configuration was taken")
	}
	if _, err := telemetry.Listen("nonsense"); err == nil {
		t.Error("a wrong address was bound")
	}
}

// SHARD-30.1: text or json, levels, the component, and the trace of the context.
func TestLogger(t *testing.T) {
	var buf bytes.Buffer
	tel := start(t, telemetry.Config{Component: "operator", LogFormat: "json", LogLevel: "warn", LogWriter: &buf})
	span := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2}})
	ctx := trace.ContextWithSpanContext(t.Context(), span)
	tel.Log.Info("left out")
	tel.Log.With("cluster", "red").WarnContext(ctx, "kept", "err", errors.New("broken"))
	var line map[string]any
	if err := json.Unmarshal(buf.Bytes(), &line); err != nil {
		t.Fatalf("%v in %q", err, buf.String())
	}
	for key, want := range map[string]any{
		"component": "operator", "cluster": "red", "err": "broken", "msg": "kept", "trace_id": span.TraceID().String(),
	} {
		if line[key] != want {
			t.Errorf("%s = %v, want %v", key, line[key], want)
		}
	}
	for _, wrong := range [][2]string{{"xml", "info"}, {"text", "loud"}} {
		if _, err := telemetry.NewLogger(io.Discard, wrong[0], wrong[1]); err == nil {
			t.Errorf("%v was taken", wrong)
		}
	}
	if _, err := telemetry.New(t.Context(), telemetry.Config{}); err == nil {
		t.Error("a telemetry without component was made")
	}
	text, err := telemetry.NewLogger(&buf, "", "")
	if err != nil || !text.Enabled(t.Context(), slog.LevelInfo) || text.Enabled(t.Context(), slog.LevelDebug) {
		t.Errorf("the default is not text at info: %v", err)
	}
}

// OPS-8.5, SHARD-22.3: expiry and reloads of certificates are metrics; plaintext is a warning (OPS-8.6).
func TestIdentityMetrics(t *testing.T) {
	ca, err := devca.New("one")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	files, err := ca.Write(dir, "tls", devca.For(identity.ID{Kind: identity.Shard, Name: "a"}))
	if err != nil {
		t.Fatal(err)
	}
	var buf bytes.Buffer
	tel := start(t, telemetry.Config{LogWriter: &buf})
	source, err := tel.LoadIdentity(files)
	if err != nil {
		t.Fatal(err)
	}
	url := ops(t, tel, false, nil) + "/metrics"
	value := func(series string) string {
		t.Helper()
		_, body := get(t, url)
		for line := range strings.Lines(body) {
			if rest, ok := strings.CutPrefix(line, series+" "); ok {
				return strings.TrimSpace(rest)
			}
		}
		t.Errorf("no %s in the scrape", series)
		return ""
	}
	if got := value(`bigfleet_certificate_expiry_seconds{use="leaf"}`); !strings.HasSuffix(got, "e+06") {
		t.Errorf("the leaf ends in %s s, want 30 days", got)
	}
	value(`bigfleet_certificate_expiry_seconds{use="ca"}`)
	if got := value(`bigfleet_certificate_reload_total{outcome="failed"}`); got != "0" {
		t.Errorf("failed reloads %s", got)
	}
	if err := os.WriteFile(files.Cert, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if source.Check() == nil {
		t.Fatal("nonsense was taken")
	}
	r := devca.For(identity.ID{Kind: identity.Shard, Name: "a"})
	r.Lifetime = time.Hour
	if _, err := ca.Write(dir, "tls", r); err != nil {
		t.Fatal(err)
	}
	if err := source.Check(); err != nil {
		t.Fatal(err)
	}
	if ok, failed := value(`bigfleet_certificate_reload_total{outcome="ok"}`), value(`bigfleet_certificate_reload_total{outcome="failed"}`); ok != "1" || failed != "1" {
		t.Errorf("reloads: ok %s, failed %s", ok, failed)
	}
	if got := value(`bigfleet_certificate_expiry_seconds{use="leaf"}`); !strings.HasPrefix(got, "35") {
		t.Errorf("the new leaf ends in %s s, want about 3599", got)
	}
	if !strings.Contains(buf.String(), "the last valid set stays in use") {
		t.Error("the log does not tell of the failed reload")
	}
	if source, err := tel.LoadIdentity(identity.Files{}); source != nil || err != nil || !strings.Contains(buf.String(), "TLS is off") {
		t.Errorf("plaintext: %v, %v, log %q", source, err, buf.String())
	}
	if _, err := tel.LoadIdentity(identity.Files{Cert: "x"}); err == nil {
		t.Error("partial files were taken")
	}
}

// Traces: off by default; with an endpoint spans arrive there; one that does not answer costs a bounded Close only.
func TestTraces(t *testing.T) {
	off := start(t, telemetry.Config{})
	_, span := off.Tracer.Tracer("t").Start(t.Context(), "x")
	if span.IsRecording() {
		t.Error("spans are recorded without an endpoint")
	}

	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=fleet%20one")
	received, busy := make(chan string, 1), make(chan struct{}, 1)
	busy <- struct{}{}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	collector := &http.Server{Protocols: protocols, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		select {
		case <-busy: // the first try: a collector that restarts loses nothing
			w.Header().Set("Grpc-Status", "14")
			return
		default:
		}
		received <- r.URL.Path + string(body) + r.Header.Get("X-Team")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write([]byte{0, 0, 0, 0, 0}) // an empty message
		w.Header().Set("Grpc-Status", "0")
	})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- collector.Serve(ln) }()
	on, err := telemetry.New(t.Context(), telemetry.Config{Component: "shard", Instance: "shard-7", LogWriter: io.Discard, OTLPEndpoint: ln.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	_, span = on.Tracer.Tracer("t").Start(t.Context(), "the-cycle")
	span.End()
	if err := on.Close(t.Context()); err != nil { // flushes
		t.Error(err)
	}
	got := <-received
	for _, want := range []string{"/opentelemetry.proto.collector.trace.v1.TraceService/Export", "the-cycle", "bigfleet-shard", "shard-7", "fleet one"} {
		if !strings.Contains(got, want) {
			t.Errorf("the collector received no %q", want)
		}
	}
	_ = collector.Close()
	<-done

	dead, err := telemetry.New(t.Context(), telemetry.Config{Component: "shard", LogWriter: io.Discard, OTLPEndpoint: "127.0.0.1:1"})
	if err != nil {
		t.Fatal(err)
	}
	_, span = dead.Tracer.Tracer("t").Start(t.Context(), "x")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := dead.Close(ctx); err == nil { // goleak, at the end, sees what it leaves behind
		t.Error("a span was delivered to no collector")
	}
	for _, wrong := range []string{"ftp://a:1", "http://", "://"} {
		if _, err := telemetry.New(t.Context(), telemetry.Config{Component: "shard", LogWriter: io.Discard, OTLPEndpoint: wrong}); err == nil {
			t.Errorf("%q was taken", wrong)
		}
	}
}
