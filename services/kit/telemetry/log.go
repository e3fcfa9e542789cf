package telemetry

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"go.opentelemetry.io/otel/trace"
)

// NewLogger returns a logger that writes to w. format is text or json, level debug, info, warn or error; both may be
// empty, for text and info. Lines inside a trace carry its id.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	options := &slog.HandlerOptions{}
	if level != "" {
		var l slog.Level
		if err := l.UnmarshalText([]byte(level)); err != nil {
			return nil, fmt.Errorf("--log-level %q: want debug, info, warn or error", level)
		}
		options.Level = l
	}
	switch format {
	case "", "text":
		return slog.New(traced{slog.NewTextHandler(w, options)}), nil
	case "json":
		return slog.New(traced{slog.NewJSONHandler(w, options)}), nil
	default:
		return nil, fmt.Errorf("--log-format %q: want text or json", format)
	}
}

// traced adds the ids of the span in the context.
type traced struct{ slog.Handler }

func (h traced) Handle(ctx context.Context, record slog.Record) error {
	if span := trace.SpanContextFromContext(ctx); span.IsValid() {
		record = record.Clone()
		record.AddAttrs(slog.String("trace_id", span.TraceID().String()), slog.String("span_id", span.SpanID().String()))
	}
	return h.Handler.Handle(ctx, record)
}

func (h traced) WithAttrs(attrs []slog.Attr) slog.Handler { return traced{h.Handler.WithAttrs(attrs)} }
func (h traced) WithGroup(name string) slog.Handler       { return traced{h.Handler.WithGroup(name)} }
