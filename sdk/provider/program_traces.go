package provider

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"

	"github.com/bigfleet-dev/bigfleet/sdk/otlp"
)

// traceFlush is how long a stopping program waits for a collector to take the last spans.
const traceFlush = 2 * time.Second

// traces sends spans to an OTLP collector (PROV-21.3); without an endpoint they go nowhere and cost nothing. end delivers
// what is left.
func (c Common) traces(ctx context.Context, version string) (_ trace.TracerProvider, end func(), err error) {
	spans, flush, err := otlp.Traces(ctx, c.OTLPEndpoint, resource.NewSchemaless(
		attribute.String("service.name", "bigfleet-provider"), attribute.String("service.instance.id", c.Provider),
		attribute.String("service.version", version),
	))
	if err != nil {
		return nil, nil, fmt.Errorf("otlp_endpoint: %w", err)
	}
	return spans, func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), traceFlush)
		defer cancel()
		_ = flush(ctx) // a collector that does not answer does not delay the stop further
	}, nil
}
