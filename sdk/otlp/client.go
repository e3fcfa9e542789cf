package otlp

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/types/known/emptypb"
)

const (
	exportPath = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
	tryTimeout = 10 * time.Second // of one try; what OTLP exporters do by default
	retryMin   = time.Second
	retryMax   = 30 * time.Second
)

// client sends spans by OTLP over gRPC on the Connect client that every process has anyway. The exporters of the OpenTelemetry
// project, over gRPC and over HTTP, bring grpc-go and grpc-gateway, 70 packages for one unary call (docs/adr/0165).
//
// The request of that call is one repeated field of ResourceSpans with number 1. So is TracesData, which OTLP defines for
// files: its bytes are the request's, and the package of the generated service, which needs grpc-go, is not needed.
type client struct {
	call    *connect.Client[tracepb.TracesData, emptypb.Empty]
	http    *http.Transport
	headers map[string]string
	stopped context.Context
	stop    context.CancelFunc
}

// newClient takes http:// for cleartext and https:// for TLS. Of the environment it takes what OpenTelemetry defines for
// collectors that ask who calls: OTEL_EXPORTER_OTLP_HEADERS and OTEL_EXPORTER_OTLP_CERTIFICATE, or those with TRACES in the name.
func newClient(endpoint *url.URL) (otlptrace.Client, error) {
	transport := &http.Transport{Protocols: new(http.Protocols), ForceAttemptHTTP2: true}
	transport.Protocols.SetUnencryptedHTTP2(endpoint.Scheme == "http")
	transport.Protocols.SetHTTP2(endpoint.Scheme == "https")
	if file := setting("CERTIFICATE"); file != "" && endpoint.Scheme == "https" {
		pem, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("OTEL_EXPORTER_OTLP_CERTIFICATE: %s holds no certificate", file)
		}
		transport.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
	}
	c := &client{http: transport, headers: map[string]string{}}
	for pair := range strings.SplitSeq(setting("HEADERS"), ",") {
		key, value, ok := strings.Cut(pair, "=")
		if plain, err := url.PathUnescape(strings.TrimSpace(value)); ok && err == nil {
			c.headers[strings.TrimSpace(key)] = plain
		}
	}
	base := endpoint.Scheme + "://" + endpoint.Host
	c.call = connect.NewClient[tracepb.TracesData, emptypb.Empty](&http.Client{Transport: transport}, base+exportPath, connect.WithGRPC())
	c.stopped, c.stop = context.WithCancel(context.Background())
	return c, nil
}

func setting(name string) string {
	if v := os.Getenv("OTEL_EXPORTER_OTLP_TRACES_" + name); v != "" {
		return v
	}
	return os.Getenv("OTEL_EXPORTER_OTLP_" + name)
}

// Start implements otlptrace.Client. Nothing is dialled before there is something to send.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client. A delivery under way is given up.
func (c *client) Stop(context.Context) error {
	c.stop()
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. What may pass is tried again until ctx ends.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(c.stopped, cancel)()
	for pause := retryMin; ; pause = min(2*pause, retryMax) {
		err := c.once(ctx, spans)
		if err == nil || !passes(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), err)
		case <-time.After(pause):
		}
	}
}

func (c *client) once(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	request := connect.NewRequest(&tracepb.TracesData{ResourceSpans: spans})
	for k, v := range c.headers {
		request.Header().Set(k, v)
	}
	_, err := c.call.CallUnary(ctx, request)
	return err
}

// passes says whether OTLP lets a client try again after this error.
func passes(err error) bool {
	switch connect.CodeOf(err) {
	case connect.CodeUnavailable, connect.CodeDeadlineExceeded, connect.CodeResourceExhausted, connect.CodeAborted,
		connect.CodeOutOfRange, connect.CodeDataLoss, connect.CodeCanceled:
		return true
	}
	return false
}
