package telemetry_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// SHARD-29.1, SHARD-29.3: what is scraped is exactly the name, type and labels that were written.
func TestExactNames(t *testing.T) {
	tel := start(t, telemetry.Config{})
	m := tel.Metrics("bigfleet_shard_")
	m.Gauge("active_sessions", "Open sessions.").Set(3)
	m.Counter("idle_releases_total", "Finished Deletes.").Add(2)
	m.CounterVec("session_lifecycle_total", "Sessions by event.", "event").WithLabelValues("installed").Inc()
	m.GaugeVec("needs_unmet", "Unmet needs.", "reason").WithLabelValues("priority").Set(1)
	m.GaugeFunc("epoch", "The epoch.", func() float64 { return 7 })
	m.CounterFunc("plan_mismatch_total", "Plans that differ.", func() float64 { return 0 })
	m.Histogram("cycle_duration_seconds", "A cycle.").Observe(0.0012)
	m.HistogramVec("cycle_phase_duration_seconds", "A phase.", "phase").WithLabelValues("phase1").Observe(0.5)
	m.HistogramOf("rollup_bytes", "A roll-up.", telemetry.BytesBuckets()).WithLabelValues().Observe(2048)
	if err := m.Err(); err != nil {
		t.Fatal(err)
	}
	code, body := get(t, ops(t, tel, false, nil)+"/metrics")
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	for _, line := range []string{
		"# TYPE bigfleet_shard_active_sessions gauge", "bigfleet_shard_active_sessions 3",
		"# TYPE bigfleet_shard_idle_releases_total counter", "bigfleet_shard_idle_releases_total 2",
		`bigfleet_shard_session_lifecycle_total{event="installed"} 1`,
		`bigfleet_shard_needs_unmet{reason="priority"} 1`, "bigfleet_shard_epoch 7", "bigfleet_shard_plan_mismatch_total 0",
		"# TYPE bigfleet_shard_cycle_duration_seconds histogram", "bigfleet_shard_cycle_duration_seconds_count 1",
		// SHARD-29.2: from 1 ms, factor 1.5.
		`bigfleet_shard_cycle_duration_seconds_bucket{le="0.001"} 0`, `bigfleet_shard_cycle_duration_seconds_bucket{le="0.0015"} 1`,
		`bigfleet_shard_cycle_phase_duration_seconds_count{phase="phase1"} 1`, "bigfleet_shard_rollup_bytes_count 1",
	} {
		if !strings.Contains("\n"+body, "\n"+line+"\n") {
			t.Errorf("the scrape lacks %q", line)
		}
	}
	for _, noise := range []string{"otel_scope", "target_info", "_total_total", "seconds_seconds", "_ratio"} {
		if strings.Contains(body, noise) {
			t.Errorf("the scrape holds %q", noise)
		}
	}
	// SHARD-29.4, OPS-1.4: what every process exports.
	for _, want := range []string{`bigfleet_build_info{commit="`, `component="shard"`, "go_goroutines", "process_start_time_seconds"} {
		if !strings.Contains(body, want) {
			t.Errorf("the scrape lacks %q", want)
		}
	}
	if got := len(m.Table()); got != 9 {
		t.Errorf("the table lists %d metrics, want 9", got)
	}
}

// SHARD-29.2: 36 classic buckets and a native histogram of factor 1.1 at once.
func TestHistogramsAreNativeAndClassic(t *testing.T) {
	reg := prometheus.NewRegistry()
	m := telemetry.NewMetrics(reg, "x_")
	m.Histogram("seconds", "A time.").Observe(0.2)
	families, err := reg.Gather()
	if err != nil || len(families) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	h := families[0].GetMetric()[0].GetHistogram()
	if len(h.GetBucket()) != 36 || h.GetBucket()[0].GetUpperBound() != 0.001 {
		t.Errorf("%d classic buckets from %v", len(h.GetBucket()), h.GetBucket()[0].GetUpperBound())
	}
	// Schema 3 grows by 2^(1/8) = 1.09, the widest that is not above 1.1.
	if h.GetSchema() != 3 || len(h.GetPositiveDelta()) == 0 {
		t.Errorf("native schema %d with %d buckets", h.GetSchema(), len(h.GetPositiveDelta()))
	}
}

// Wrong names are reported together, at start, and never change what is exposed.
func TestWrongNamesAreErrors(t *testing.T) {
	m := telemetry.NewMetrics(prometheus.NewRegistry(), "bigfleet_shard_")
	m.Counter("requests", "No _total.")
	m.Gauge("things_total", "A gauge with _total.")
	m.Gauge("CamelCase", "Upper case.")
	m.Gauge("double__underscore", "Two underscores.")
	m.Gauge("thing_count", "A histogram's suffix.")
	m.Gauge("no_help", "")
	m.Gauge("twice", "First.")
	m.Gauge("twice", "Second.")
	m.Collector(prometheus.NewGauge(prometheus.GaugeOpts{Name: "other_prefix", Help: "x"}), telemetry.MetricRow{Name: "other_prefix", Type: "gauge"})
	err := m.Err()
	for _, want := range []string{"requests is a counter", "things_total is a gauge", "CamelCase", "double__underscore", "thing_count", "no_help", "twice", "other_prefix does not start"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v lacks %q", err, want)
		}
	}
}

// OPS-1.3: two roles in one process, and the same role twice on one registry, share nothing and collide with nothing.
func TestNoSharedState(t *testing.T) {
	one, two := start(t, telemetry.Config{}), start(t, telemetry.Config{})
	for _, tel := range []*telemetry.Telemetry{one, two} {
		m := tel.Metrics("bigfleet_shard_")
		m.Gauge("active_sessions", "Open sessions.")
		if err := m.Err(); err != nil {
			t.Error(err)
		}
	}
	again := start(t, telemetry.Config{Registry: one.Registry})
	m := again.Metrics("bigfleet_shard_")
	m.Gauge("active_sessions", "Open sessions.")
	if m.Err() == nil {
		t.Error("a second metric of one name was registered")
	}
	if families, err := prometheus.DefaultGatherer.Gather(); err == nil {
		for _, f := range families {
			if strings.HasPrefix(f.GetName(), "bigfleet") {
				t.Errorf("%s is in the global registry", f.GetName())
			}
		}
	}
	first := telemetry.NewMetrics(one.Registry, "y_")
	first.Gauge("a", "A.")
	first.Close()
	second := telemetry.NewMetrics(one.Registry, "y_")
	second.Gauge("a", "A.")
	if err := second.Err(); err != nil {
		t.Errorf("after Close: %v", err)
	}
}
