// Package telemetry is how a process is seen from outside: logs, metrics, traces, health and profiles.
//
// New makes one Telemetry per role: a slog logger on stderr, a Prometheus registry of its own, OpenTelemetry providers
// for RPC metrics and traces, and what every process exports (build info, Go runtime, process, certificate expiry).
// NewMetrics registers a service's own metrics under exactly the names of its specification. Health collects named
// checks, and Ops serves /metrics, /healthz, /readyz and, if asked, profiles on a port of its own.
//
// It must never touch a global: not the default Prometheus registry, not the global OpenTelemetry providers, not
// slog's default. Two roles in one process share nothing. Health checks run on each request and must not block.
//
// Our metrics are plain Prometheus collectors and not OpenTelemetry instruments, because their names are a promise to
// dashboards and because SHARD-29.2 wants each histogram in native and classic form at once (docs/adr/0002).
//
// Start at New and NewMetrics, then Ops.
package telemetry
