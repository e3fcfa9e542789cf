package meter_test

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
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

// SHARD-29.6: states and capacity types are the words that the dashboards of others look for.
func TestPublicLabelValues(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := meter.New(telemetry.NewMetrics(reg, "bigfleet_shard_"))
	if err != nil {
		t.Fatal(err)
	}
	census := &core.Census{Machines: map[core.CensusKey]int{}, Spend: map[core.CensusKey]int64{}}
	for capacity := inventory.BareMetal; capacity <= inventory.Spot; capacity++ {
		census.Machines[core.CensusKey{State: inventory.Idle, Capacity: capacity}]++
		census.Spend[core.CensusKey{State: inventory.Configured, Capacity: capacity}]++
	}
	m.Census(census)
	m.Sample(core.Sample{Metric: core.MetricInterruptions, Label1: "p", Label2: inventory.OnDemand.String(), Value: 1})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]bool{}
	for _, f := range families {
		switch name := strings.TrimPrefix(f.GetName(), "bigfleet_shard_"); name {
		case "inventory_machines", "spend_dollars_per_hour", "interruptions_total", "machines_stuck":
			for _, x := range f.GetMetric() {
				for _, l := range x.GetLabel() {
					if l.GetName() == "state" || l.GetName() == "capacity_type" {
						got[name+" "+l.GetValue()] = true
					}
				}
			}
		}
	}
	for _, want := range []string{"inventory_machines Idle", "inventory_machines BareMetal", "inventory_machines Reserved", "inventory_machines OnDemand", "inventory_machines Spot",
		"spend_dollars_per_hour Configured", "spend_dollars_per_hour BareMetal", "machines_stuck Creating", "interruptions_total OnDemand"} {
		if !got[want] {
			t.Errorf("no %s; there are %v", want, got)
		}
	}
}

// SHARD-29.3: spend has a series for each cluster that has machines, and none is left of one that has none any more.
func TestSpendByCluster(t *testing.T) {
	reg := prometheus.NewRegistry()
	m, err := meter.New(telemetry.NewMetrics(reg, "bigfleet_shard_"))
	if err != nil {
		t.Fatal(err)
	}
	spend := func() map[string]float64 {
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, f := range families {
			if f.GetName() == "bigfleet_shard_cluster_spend_dollars_per_hour" {
				for _, x := range f.GetMetric() {
					got[x.GetLabel()[0].GetValue()] = x.GetGauge().GetValue()
				}
			}
		}
		return got
	}
	for _, clusters := range []map[string]int64{{"red": 2_500_000, "": 100_000}, {"blue": 1_000_000}, {}} {
		m.Census(&core.Census{Clusters: clusters})
		got := spend()
		if len(got) != len(clusters) {
			t.Errorf("%v has the series %v", clusters, got)
		}
		for cluster, micro := range clusters {
			if got[cluster] != float64(micro)/1e6 {
				t.Errorf("%q spends %v, want %v", cluster, got[cluster], float64(micro)/1e6)
			}
		}
	}
}
