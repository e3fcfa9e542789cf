package shard_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"github.com/prometheus/client_golang/prometheus"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/meter"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/sim"
)

// specMetrics reads the names of the metric tables of SHARD-29 and ENG-22, without prefix.
func specMetrics(t *testing.T) []string {
	t.Helper()
	var names []string
	word := regexp.MustCompile("`([a-z0-9_]+)(?:\\{[^`]*\\})?`")
	for file, heading := range map[string]string{"shard.md": "## 29.", "engine.md": "## 22."} {
		raw, err := os.ReadFile(filepath.Join("..", "..", "docs", "spec", file))
		if err != nil {
			t.Fatal(err)
		}
		_, section, ok := strings.Cut(string(raw), heading)
		if !ok {
			t.Fatalf("%s has no section %s", file, heading)
		}
		section, _, _ = strings.Cut(section, "\n## ")
		for line := range strings.SplitSeq(section, "\n") {
			cell, ok := strings.CutPrefix(line, "| ")
			if !ok || strings.HasPrefix(cell, "Name") {
				continue
			}
			cell, rest, _ := strings.Cut(cell, " |")
			for _, m := range word.FindAllStringSubmatch(cell, -1) {
				name := m[1]
				if strings.HasSuffix(name, "_") { // "a_, b_ + seconds"
					name += "seconds"
				}
				if name != "seconds" {
					names = append(names, name)
				}
			}
			_ = rest
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// seen is what a registry shows: every family, and whether any series of it is not zero.
func seen(t testing.TB, reg prometheus.Gatherer, into map[string]bool) {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		name, ours := strings.CutPrefix(f.GetName(), "bigfleet_shard_")
		if !ours {
			continue
		}
		moved := into[name]
		for _, m := range f.GetMetric() {
			moved = moved || m.GetCounter().GetValue() != 0 || m.GetGauge().GetValue() != 0 || m.GetHistogram().GetSampleCount() != 0
		}
		into[name] = moved
	}
}

// never are the metrics that must stay at zero in a shard without defects.
var never = []string{"plan_mismatch_total", "phase1_occ_retries_exhausted_total", "engine_reclaim_matches_unmet"}

// SHARD-29.1, 29.3, ENG-22: every metric of the tables is exposed by a running shard, and each one moves in a run that
// should move it: those that the core reports in simulated fleets with faults, the others in a real shard that is treated
// badly.
func TestEveryMetricOfTheTablesExistsAndMoves(t *testing.T) {
	names := specMetrics(t)
	if len(names) < 90 {
		t.Fatalf("only %d names were found in the tables: %v", len(names), names)
	}
	live := liveMetrics(t)
	moved := maps.Clone(live)
	simulatedMetrics(t, moved)
	for _, name := range names {
		_, exposed := live[name]
		switch {
		case !exposed && !moved[name]:
			t.Errorf("%s is not exposed", name)
		case slices.Contains(never, name):
			if moved[name] {
				t.Errorf("%s moved", name)
			}
		case !moved[name]:
			t.Errorf("%s never moved", name)
		}
	}
}

// simulatedMetrics runs simulated fleets and feeds what their cores say to a Meter.
func simulatedMetrics(t *testing.T, moved map[string]bool) {
	reg := prometheus.NewRegistry()
	m, err := meter.New(telemetry.NewMetrics(reg, "bigfleet_shard_"))
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	watch := func(c *core.Core, effects []core.Effect) {
		published := false
		for _, e := range effects {
			switch e := e.(type) {
			case core.Sample:
				if e.Metric != core.MetricShortfallLog {
					m.Sample(e)
				}
			case *core.Publish:
				m.Publish(e)
				m.Planned(&e.Status.Counters)
				published = true
			}
		}
		if steps++; published && steps%50 == 0 {
			var census core.Census
			for next := 0; next >= 0; {
				next = c.Count(&census, next, 16)
			}
			m.Census(&census)
			seen(t, reg, moved)
		}
	}
	for _, profile := range []string{"mixed", "provider", "operator", "process"} {
		for seed := range uint64(4) {
			if _, err := sim.Run(sim.Options{Seed: seed + 1, Profile: profile, Watch: watch}); err != nil {
				t.Fatal(err)
			}
			seen(t, reg, moved)
		}
	}
}

// liveMetrics runs a real shard and returns what it showed.
func liveMetrics(t *testing.T) map[string]bool {
	p := NewProvider(slots(8)...).Serve(t)
	s := start(t, p, func(c *shard.Config) { c.RollupBytesMax = 64 << 10 })
	out := map[string]bool{}
	look := func() bool { seen(t, s.tel.Registry, out); return true }

	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Rollup(Need("10", 5))
	Eventually(t, "three machines are configured", func() bool { return look() && p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 3 })
	o.Rollup(Need("2", 5))
	Eventually(t, "machines are given back", func() bool { return look() && p.Count(pb.MachineState_MACHINE_STATE_IDLE) == 2 })

	wait := func(name string) {
		t.Helper()
		Eventually(t, name+" moves", func() bool { look(); return out[name] })
	}
	for _, name := range []string{"inventory_machines", "spend_dollars_per_hour", "demand_machines", "engine_sharing_level",
		"cycle_phase_duration_seconds", "event_queue_depth", "engine_actions_per_net_change", "outbox_depth"} {
		if name != "outbox_depth" {
			wait(name)
		}
	}
	_, err := s.Read.GetStatus(t.Context(), connect.NewRequest(&pb.GetStatusRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	return out
}
