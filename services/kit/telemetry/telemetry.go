package telemetry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/trace"

	"github.com/bigfleet-dev/bigfleet/sdk/otlp"
)

// Config of one role.
type Config struct {
	Component string // required: shard, coordinator, operator, ...
	Instance  string // the role's own id, for traces; may be empty

	LogFormat, LogLevel string    // see NewLogger
	LogWriter           io.Writer // nil means stderr
	// Log replaces the logger that the three fields above describe.
	Log *slog.Logger

	// OTLPEndpoint is where traces go: host:port or http://host:port for cleartext gRPC, https://host:port for TLS.
	// Empty turns tracing off.
	OTLPEndpoint string

	// Registry takes all metrics. nil means a fresh one.
	Registry *prometheus.Registry
}

// Telemetry of one role. Close it when the role has ended.
type Telemetry struct {
	Log      *slog.Logger
	Registry *prometheus.Registry
	Meter    metric.MeterProvider // for libraries that speak OpenTelemetry; our own metrics use NewMetrics(Registry, ...)
	Tracer   trace.TracerProvider // never nil; records nothing without an endpoint
	Health   *Health

	component string
	close     []func(context.Context) error
}

// New makes the telemetry of one role and registers what every process exports. Nothing is dialled: traces are sent in
// the background, and an endpoint that does not answer costs the traces only.
func New(ctx context.Context, c Config) (*Telemetry, error) {
	if c.Component == "" {
		return nil, errors.New("telemetry.Config.Component is required")
	}
	t := &Telemetry{Log: c.Log, Registry: c.Registry, Health: NewHealth(), component: c.Component}
	if t.Log == nil {
		if c.LogWriter == nil {
			c.LogWriter = os.Stderr
		}
		log, err := NewLogger(c.LogWriter, c.LogFormat, c.LogLevel)
		if err != nil {
			return nil, err
		}
		t.Log = log
	}
	t.Log = t.Log.With("component", c.Component)
	if t.Registry == nil {
		t.Registry = prometheus.NewRegistry()
	}
	if err := t.registerProcess(); err != nil {
		return nil, err
	}
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(t.Registry), otelprometheus.WithoutScopeInfo(), otelprometheus.WithoutTargetInfo())
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry metrics: %w", err)
	}
	about := resource.NewSchemaless(attribute.String("service.name", "bigfleet-"+c.Component),
		attribute.String("service.instance.id", c.Instance), attribute.String("service.version", ReadBuild().Version))
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(exporter), sdkmetric.WithResource(about))
	t.Meter, t.close = meter, append(t.close, meter.Shutdown)
	tracer, end, err := otlp.Traces(ctx, c.OTLPEndpoint, about)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("--otlp-endpoint: %w", err), t.Close(ctx))
	}
	t.Tracer, t.close = tracer, append(t.close, end)
	return t, nil
}

// registerProcess adds what every process exports. A registry that is handed from one role to the next in one
// process has the Go and process collectors already, which is fine.
func (t *Telemetry) registerProcess() error {
	for _, c := range []prometheus.Collector{collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{})} {
		var already prometheus.AlreadyRegisteredError
		if err := t.Registry.Register(c); err != nil && !errors.As(err, &already) {
			return err
		}
	}
	var already prometheus.AlreadyRegisteredError
	if err := registerBuild(t.Registry, t.component); err != nil && !errors.As(err, &already) {
		return err
	}
	return nil
}

// Metrics returns a Metrics on the role's registry, for example t.Metrics("bigfleet_shard_").
func (t *Telemetry) Metrics(prefix string) *Metrics { return NewMetrics(t.Registry, prefix) }

// Close flushes traces within ctx and stops everything that New started.
func (t *Telemetry) Close(ctx context.Context) error {
	var errs []error
	for _, f := range t.close {
		errs = append(errs, f(ctx))
	}
	t.close = nil
	return errors.Join(errs...)
}
