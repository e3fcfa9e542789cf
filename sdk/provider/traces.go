package provider

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// traceFlush is how long a stopping program waits for a collector to take the last spans.
const traceFlush = 2 * time.Second

// checkEndpoint returns the URL of an OTLP gRPC endpoint, which may be written without a scheme.
func checkEndpoint(endpoint string) (string, error) {
	if !strings.Contains(endpoint, "://") {
		endpoint = "http://" + endpoint
	}
	if at, err := url.Parse(endpoint); err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https" {
		return "", fmt.Errorf("otlp_endpoint: %q is no endpoint; write host:port or http://host:port for cleartext gRPC, https://host:port for TLS", endpoint)
	}
	return endpoint, nil
}

// traces sends spans to an OTLP collector (PROV-21.3); without an endpoint they go nowhere and cost nothing. end delivers
// what is left.
func (c Common) traces(ctx context.Context, version string) (_ trace.TracerProvider, end func(), err error) {
	if c.OTLPEndpoint == "" {
		return noop.NewTracerProvider(), func() {}, nil
	}
	endpoint, err := checkEndpoint(c.OTLPEndpoint)
	if err != nil {
		return nil, nil, err
	}
	exporter, err := otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(endpoint))
	if err != nil {
		return nil, nil, fmt.Errorf("otlp_endpoint: %w", err)
	}
	spans := sdktrace.NewTracerProvider(sdktrace.WithBatcher(exporter), sdktrace.WithResource(resource.NewSchemaless(
		attribute.String("service.name", "bigfleet-provider"), attribute.String("service.instance.id", c.Provider),
		attribute.String("service.version", version),
	)))
	return spans, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceFlush)
		defer cancel()
		if spans.Shutdown(ctx) != nil {
			_ = exporter.Shutdown(ctx) // it still tries to deliver to a collector that does not answer
		}
	}, nil
}
