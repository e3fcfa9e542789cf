// Package otlp delivers traces to an OpenTelemetry collector, for the services and for providers alike.
//
// It owns one thing: the way from a finished span to the collector (OTLP over gRPC, on the Connect client that every process
// of BigFleet links anyway), with retries, headers and certificates as OpenTelemetry's environment variables say. It decides
// nothing about what is traced, and it is no metrics exporter: metrics are scraped.
//
// It must never import google.golang.org/grpc, which would come back into every program through it.
//
// Start with Traces.
package otlp

import (
	"context"
	"fmt"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// Endpoint reads the address of a collector: host:port or http://host:port for cleartext gRPC, https://host:port for TLS.
func Endpoint(s string) (*url.URL, error) {
	whole := s
	if !strings.Contains(whole, "://") {
		whole = "http://" + whole
	}
	at, err := url.Parse(whole)
	if err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return nil, fmt.Errorf("%q is not an endpoint: write host:port or http://host:port for gRPC without TLS, https://host:port with TLS", s)
	}
	return at, nil
}

// Traces returns a source of tracers whose spans go to the endpoint, as those of the process that about describes. Without an
// endpoint they go nowhere and cost nothing. Nothing is dialled before there is a span to send, so a collector may come later.
//
// end delivers what is left, for as long as its context lasts, and stops everything; it must be called.
func Traces(ctx context.Context, endpoint string, about *resource.Resource) (_ trace.TracerProvider, end func(context.Context) error, err error) {
	if endpoint == "" {
		return noop.NewTracerProvider(), func(context.Context) error { return nil }, nil
	}
	at, err := Endpoint(endpoint)
	if err != nil {
		return nil, nil, err
	}
	client, err := newClient(at)
	if err != nil {
		return nil, nil, err
	}
	exporter, err := otlptrace.New(ctx, client)
	if err != nil {
		return nil, nil, err
	}
	provider := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(about))
	return provider, func(ctx context.Context) error {
		err := provider.Shutdown(ctx)
		if err != nil {
			// The processor is still delivering to an endpoint that does not answer, for up to 30 s. Without its
			// exporter it gives up at once.
			_ = exporter.Shutdown(ctx)
		}
		return err
	}, nil
}
