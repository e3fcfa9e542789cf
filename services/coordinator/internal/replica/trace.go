package replica

import (
	"context"

	"go.opentelemetry.io/otel/trace"
)

const (
	tracerName = "github.com/bigfleet-dev/bigfleet/services/coordinator"
	// RequestID is the attribute that the span of a proposal shares with those of the calls that it was made for, and with
	// its log entry (COORD-18.4).
	RequestID = "request_id"
)

type linksKey struct{}

// WithCallers names the spans of the calls that an entry is made for, where it is made for several and is a child of none.
func WithCallers(ctx context.Context, callers ...trace.SpanContext) context.Context {
	var links []trace.Link
	for _, c := range callers {
		if c.IsValid() {
			links = append(links, trace.Link{SpanContext: c})
		}
	}
	return context.WithValue(ctx, linksKey{}, links)
}

func linksOf(ctx context.Context) []trace.Link {
	links, _ := ctx.Value(linksKey{}).([]trace.Link)
	return links
}
