package meter_test

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/meter"
)

func gather(t *testing.T, reg *prometheus.Registry) map[string]float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return got
}

// SHARD-29.5: an alert on the first increase needs a series that exists before it.
func TestCountersWithoutLabelsExistFromTheStart(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := meter.New(telemetry.NewMetrics(reg, "bigfleet_shard_"))
	if err != nil {
		t.Fatal(err)
	}
	before := gather(t, reg)
	for _, name := range []string{"plan_mismatch_total", "reclaims_capped_total", "reclaims_unresolved_total", "binding_conflicts_total",
		"idle_releases_total", "actions_deferred_total", "fence_reordered_total", "drain_phase_seconds", "delete_phase_seconds"} {
		if v, ok := before["bigfleet_shard_"+name]; !ok || v != 0 {
			t.Errorf("%s is %v at the start (present: %v), want 0", name, v, ok)
		}
	}
	m.Sample(core.Sample{Metric: core.MetricPlanMismatch, Value: 1})
	if v := gather(t, reg)["bigfleet_shard_plan_mismatch_total"]; v != 1 {
		t.Errorf("plan_mismatch_total after one mismatch: %v", v)
	}
}

// SHARD-29.3: list_machines is what is known of a provider.
func TestMachinesPerProvider(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := meter.New(telemetry.NewMetrics(reg, "bigfleet_shard_"))
	if err != nil {
		t.Fatal(err)
	}
	m.Publish(&core.Publish{Status: core.Status{Providers: []core.ProviderStatus{{Name: "a", Machines: 25}}}})
	if v := gather(t, reg)["bigfleet_shard_list_machines"]; v != 25 {
		t.Errorf("list_machines: %v, want 25", v)
	}
}
