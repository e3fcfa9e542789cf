package otlp_test

import (
	"context"
	"encoding/pem"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.uber.org/goleak"

	"github.com/bigfleet-dev/bigfleet/sdk/otlp"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var about = resource.NewSchemaless(attribute.String("service.name", "bigfleet-test"))

// collector takes OTLP over gRPC. The first call is answered with UNAVAILABLE.
func collector(t *testing.T, start func(*httptest.Server)) (at *httptest.Server, received <-chan string) {
	t.Helper()
	got, busy := make(chan string, 1), make(chan struct{}, 1)
	busy <- struct{}{}
	at = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/grpc")
		select {
		case <-busy:
			w.Header().Set("Grpc-Status", "14")
			return
		default:
		}
		got <- r.Proto + r.URL.Path + string(body) + r.Header.Get("X-Team")
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write([]byte{0, 0, 0, 0, 0}) // an empty message
		w.Header().Set("Grpc-Status", "0")
	}))
	at.Config.Protocols = new(http.Protocols)
	at.Config.Protocols.SetUnencryptedHTTP2(true)
	at.Config.Protocols.SetHTTP2(true)
	at.EnableHTTP2 = true
	start(at)
	t.Cleanup(at.Close)
	return at, got
}

// deliver makes one span and returns what the end of delivery said.
func deliver(t *testing.T, endpoint string, limit time.Duration) error {
	t.Helper()
	tracers, end, err := otlp.Traces(t.Context(), endpoint, about)
	if err != nil {
		t.Fatal(err)
	}
	_, span := tracers.Tracer("t").Start(t.Context(), "the-span")
	span.End()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	return end(ctx)
}

// OPS-2.1, PROV-21.3: spans arrive, also where the collector is just restarting, with the headers that it asks for; in
// cleartext and under TLS with an authority of the house.
func TestSpansArrive(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=fleet%20one")
	for name, start := range map[string]func(*httptest.Server){"cleartext": (*httptest.Server).Start, "TLS": (*httptest.Server).StartTLS} {
		t.Run(name, func(t *testing.T) {
			at, received := collector(t, start)
			endpoint := strings.TrimPrefix(at.URL, "http://")
			if certificate := at.Certificate(); certificate != nil {
				file := filepath.Join(t.TempDir(), "ca.pem")
				if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}), 0o600); err != nil {
					t.Fatal(err)
				}
				t.Setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", file)
			}
			if err := deliver(t, endpoint, time.Minute); err != nil {
				t.Fatal(err)
			}
			got := <-received
			for _, want := range []string{"HTTP/2", "/opentelemetry.proto.collector.trace.v1.TraceService/Export", "the-span", "bigfleet-test", "fleet one"} {
				if !strings.Contains(got, want) {
					t.Errorf("the collector received no %q", want)
				}
			}
		})
	}
}

// A collector that is not there, or that takes connections and says nothing, costs the time that end is given and no more;
// goleak sees what it would leave behind.
func TestWithoutACollector(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for _, endpoint := range []string{"127.0.0.1:1", silent.Addr().String()} {
		if err := deliver(t, endpoint, 50*time.Millisecond); err == nil {
			t.Errorf("%s: a span was delivered without a collector", endpoint)
		}
	}
}

func TestWhatCannotBe(t *testing.T) {
	tracers, end, err := otlp.Traces(t.Context(), "", about)
	if err != nil {
		t.Fatal(err)
	}
	if _, span := tracers.Tracer("t").Start(t.Context(), "x"); span.IsRecording() {
		t.Error("spans are recorded without an endpoint")
	}
	if err := end(t.Context()); err != nil {
		t.Error(err)
	}
	for _, wrong := range []string{"ftp://a:1", "http://", "://"} {
		if _, _, err := otlp.Traces(t.Context(), wrong, about); err == nil || !strings.Contains(err.Error(), "host:port") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	for _, content := range []string{"", "no certificate"} {
		file := filepath.Join(t.TempDir(), "ca.pem")
		if content != "" {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		t.Setenv("OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE", file)
		if _, _, err := otlp.Traces(t.Context(), "https://127.0.0.1:1", about); err == nil || !strings.Contains(err.Error(), file) {
			t.Errorf("a certificate file with %q: %v", content, err)
		}
	}
}
