package monitoring_test

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"

	"github.com/bigfleet-dev/bigfleet/e2e/monitoring"
)

const both = `namespace="bigfleet-system",pod="p-0",instance="10.0.0.1:8780"`

// one writes a series of a shard or a replica: name{labels, extra} values.
func one(name, extra, values string) string {
	if extra != "" {
		extra = "," + extra
	}
	return name + "{" + both + extra + "} " + values
}

func shardSeries(name, extra, values string) string {
	return one("bigfleet_shard_"+name, extra, values)
}
func coordSeries(name, extra, values string) string {
	return one("bigfleet_coordinator_"+name, extra, values)
}

// gauge is a situation pair for an alert on a gauge: it fires when the gauge stays at bad for the time, and is quiet when it
// comes back to good in time.
func gauge(name, extra, bad, good string, at time.Duration, labels string) []situation {
	stay, back := bad+"x2000", bad+"x2 "+good+"x2000"
	if at <= time.Minute { // no time to come back
		back = good + "x2000"
	}
	return []situation{{series: []string{one(name, extra, stay)}, at: at, labels: labels}, {series: []string{one(name, extra, back)}, at: at, quiet: true}}
}

// counter is the same for an alert on a counter that must not grow.
func counter(name, extra string, at time.Duration, labels string) []situation {
	return []situation{{series: []string{one(name, extra, "0+2x200")}, at: at, labels: labels}, {series: []string{one(name, extra, "7x200")}, at: at, quiet: true}}
}

// SHARD-29.5, OPS-9.5: every alert of shard and coordinator fires in its situation and is quiet in the neighbouring one.
var fleetSituations = map[string][]situation{
	"ShardDown":     gauge("up", `job="bigfleet-system/bigfleet-shard"`, "0", "1", 3*time.Minute, "severity=page"),
	"ShardNotReady": gauge("bigfleet_shard_inventory_age_seconds", `provider="a"`, "-1", "3", 11*time.Minute, "provider=a"),
	"ShardFenced":   gauge("bigfleet_shard_fenced", "", "1", "0", time.Minute, "severity=page"),
	"EpochDisputed": gauge("bigfleet_shard_epoch_disputed", "", "1", "0", time.Minute, "severity=page"),
	"DemandUnmetOld": {
		{series: []string{shardSeries("unmet_oldest_seconds", "", "0+60x30"), shardSeries("needs_unmet", `reason="no_matching_supply"`, "1x30"), shardSeries("needs_unmet", `reason="priority_starved"`, "4x30")}, at: 8 * time.Minute, labels: "severity=page"},
		{series: []string{shardSeries("unmet_oldest_seconds", "", "0+60x30"), shardSeries("needs_unmet", `reason="no_matching_supply"`, "0x30"), shardSeries("needs_unmet", `reason="priority_starved"`, "4x30")}, at: 20 * time.Minute, quiet: true}, // as the priorities say
		{series: []string{shardSeries("unmet_oldest_seconds", "", "60x30"), shardSeries("needs_unmet", `reason="no_matching_supply"`, "9x30")}, at: 20 * time.Minute, quiet: true},
	},
	"ShortfallsAged": {
		{series: []string{shardSeries("shortfalls_aged", `bucket="300+"`, "1x30"), shardSeries("shortfalls_aged", `bucket="60-299"`, "0x30")}, at: 11 * time.Minute, labels: "severity=ticket"},
		{series: []string{shardSeries("shortfalls_aged", `bucket="10-59"`, "5x30"), shardSeries("shortfalls_aged", `bucket="300+"`, "0x30")}, at: 11 * time.Minute, quiet: true},
	},
	"BuyReleaseLoop": {
		{series: []string{shardSeries("actions_total", `kind="provision"`, "0+1x300 301+20x60"), shardSeries("idle_releases_total", "", "0+1x300 301+20x60")}, at: 335 * time.Minute, labels: "severity=page"},
		{series: []string{shardSeries("actions_total", `kind="provision"`, "0+1x300 301+20x60"), shardSeries("idle_releases_total", "", "0+1x360")}, at: 335 * time.Minute, quiet: true}, // a burst of demand
		{series: []string{shardSeries("actions_total", `kind="provision"`, "0x300 1x60"), shardSeries("idle_releases_total", "", "0x300 1x60")}, at: 320 * time.Minute, quiet: true},     // one machine after a quiet day
	},
	"ReclaimsCapped":      counter("bigfleet_shard_reclaims_capped_total", "", 20*time.Minute, "severity=page"),
	"RollupQuarantined":   gauge("bigfleet_shard_rollup_quarantined", `cluster="red"`, "1", "0", time.Minute, "cluster=red"),
	"RemovalsHeld":        gauge("bigfleet_shard_removals_held", `provider="a"`, "40", "0", 6*time.Minute, "provider=a"),
	"RollupsRejected":     counter("bigfleet_shard_rollups_rejected_total", `cluster="red",reason="priority"`, 20*time.Minute, "reason=priority"),
	"MachinesRejected":    counter("bigfleet_shard_machines_rejected_total", `reason="price"`, 20*time.Minute, "reason=price"),
	"InventoryStale":      gauge("bigfleet_shard_inventory_age_seconds", `provider="a"`, "301", "299", time.Minute, "severity=page"),
	"ShardBreakerOpen":    gauge("bigfleet_shard_provider_breaker", `provider="a"`, "2", "0", 11*time.Minute, "provider=a"),
	"MachinesStuck":       gauge("bigfleet_shard_machines_stuck", `state="Creating"`, "3", "0", 16*time.Minute, "state=Creating"),
	"MachinesUnjoined":    gauge("bigfleet_shard_machines_unjoined", "", "3", "0", 16*time.Minute, "severity=ticket"),
	"OwnershipViolation":  counter("bigfleet_shard_ownership_violations_total", "", 20*time.Minute, "severity=page"),
	"PlanMismatch":        counter("bigfleet_shard_plan_mismatch_total", "", 20*time.Minute, "severity=ticket"),
	"ActuationPausedLong": gauge("bigfleet_shard_actuation_paused", "", "1", "0", 61*time.Minute, "severity=ticket"),
	"DryRunLong":          gauge("bigfleet_shard_dry_run", "", "1", "0", 1441*time.Minute, "severity=ticket"),
	"IdentityRejected":    counter("bigfleet_shard_session_identity_rejected_total", "", 20*time.Minute, "severity=page"),
	"ClusterSilent":       gauge("bigfleet_shard_clusters_silent", "", "1", "0", 31*time.Minute, "severity=ticket"),
	"DecisionLogFails":    counter("bigfleet_shard_decision_log_errors_total", "", 20*time.Minute, "severity=ticket"),
	"ClusterSpendHigh": {
		{series: []string{shardSeries("cluster_spend_dollars_per_hour", `cluster="red"`, "20x90 90x60"), shardSeries("cluster_spend_dollars_per_hour", `cluster="blue"`, "20x150")}, at: 125 * time.Minute, labels: "cluster=red"},
		{series: []string{shardSeries("cluster_spend_dollars_per_hour", `cluster="red"`, "20x90 35x60"), shardSeries("cluster_spend_dollars_per_hour", `cluster="blue"`, "1x90 9x60")}, at: 125 * time.Minute, quiet: true}, // less than twice, and small change
	},
	"IdleSpendHigh": {
		{series: []string{shardSeries("cluster_spend_dollars_per_hour", `cluster=""`, "30x200"), shardSeries("cluster_spend_dollars_per_hour", `cluster="red"`, "70x200")}, at: 121 * time.Minute, labels: "severity=ticket"},
		{series: []string{shardSeries("cluster_spend_dollars_per_hour", `cluster=""`, "30x60 10x140"), shardSeries("cluster_spend_dollars_per_hour", `cluster="red"`, "70x200")}, at: 121 * time.Minute, quiet: true},
		{series: []string{shardSeries("cluster_spend_dollars_per_hour", `cluster=""`, "9x200")}, at: 121 * time.Minute, quiet: true}, // a small fleet
	},
	"MachinesFailedRising": {
		{series: []string{shardSeries("machines_failed", `bound="false"`, "0+1x120")}, at: 70 * time.Minute, labels: "severity=ticket"},
		{series: []string{shardSeries("machines_failed", `bound="false"`, "50x120")}, at: 70 * time.Minute, quiet: true},
	},
	"CycleSlow":     slow(1.5, 0.1, "severity=ticket"),
	"CycleVerySlow": slow(7.5, 1.5, "severity=page"),
	"SessionsMissing": {
		{series: []string{shardSeries("rollup_age_seconds", `cluster="red"`, "3x30"), shardSeries("rollup_age_seconds", `cluster="blue"`, "0+60x30"), shardSeries("active_sessions", "", "1x30")}, at: 11 * time.Minute, labels: "severity=ticket"},
		{series: []string{shardSeries("rollup_age_seconds", `cluster="red"`, "3x30"), shardSeries("rollup_age_seconds", `cluster="blue"`, "3x30"), shardSeries("active_sessions", "", "2x30")}, at: 11 * time.Minute, quiet: true},
	},

	"CoordinatorDown": gauge("up", `job="bigfleet-system/bigfleet-coordinator"`, "0", "1", 11*time.Minute, "severity=ticket"),
	"NoLeader": append(gauge("bigfleet_coordinator_is_leader", "", "0", "1", 2*time.Minute, "severity=ticket")[:1],
		situation{at: 2 * time.Minute, labels: "severity=ticket"}, // not one replica is there
		situation{series: []string{coordSeries("is_leader", "", "1x9"), `bigfleet_coordinator_is_leader{namespace="bigfleet-system",pod="p-1"} 0x9`}, at: 2 * time.Minute, quiet: true}),
	"NoLeaderLong": gauge("bigfleet_coordinator_is_leader", "", "0", "1", 31*time.Minute, "severity=page"),
	"PeersMissing": {
		{series: []string{coordSeries("peers", `suffrage="voter"`, "1x30"), coordSeries("is_leader", "", "1x30"), `bigfleet_coordinator_is_leader{namespace="bigfleet-system",pod="p-1"} 0x30`}, at: 11 * time.Minute, labels: "severity=ticket"},
		{series: []string{coordSeries("peers", `suffrage="voter"`, "2x30"), coordSeries("is_leader", "", "1x30"), coordSeries("peer_last_contact_seconds", `peer="p-1"`, "0+60x30")}, at: 15 * time.Minute, labels: "severity=ticket"},
		{series: []string{coordSeries("peers", `suffrage="voter"`, "1x30"), coordSeries("is_leader", "", "1x30")}, at: 11 * time.Minute, quiet: true},
	},
	"TermChurn": {
		{series: []string{coordSeries("elections_total", "", "0+1x30")}, at: 15 * time.Minute, labels: "severity=ticket"},
		{series: []string{coordSeries("elections_total", "", "0 0 1x30")}, at: 15 * time.Minute, quiet: true},
	},
	"ApplyErrors": append(counter("bigfleet_coordinator_apply_total", `outcome="error"`, 20*time.Minute, "outcome=error"),
		situation{series: []string{coordSeries("apply_total", `outcome="success"`, "0+9x30")}, at: 20 * time.Minute, quiet: true}),
	"ExportStale": {
		{series: []string{coordSeries("snapshot_export_last_success_timestamp_seconds", "", "1000000x30")}, at: 16 * time.Minute, labels: "severity=ticket"},
		{series: []string{coordSeries("snapshot_export_errors_total", "", "0+1x30"), coordSeries("snapshot_export_last_success_timestamp_seconds", "", "0x30")}, at: 16 * time.Minute, labels: "severity=ticket"},
		{series: []string{coordSeries("snapshot_export_last_success_timestamp_seconds", "", "0x30")}, at: 16 * time.Minute, quiet: true}, // none is asked for
		{series: []string{coordSeries("snapshot_export_last_success_timestamp_seconds", "", "1000000+60x30")}, at: 16 * time.Minute, quiet: true},
	},
	"ShardReportStale":    gauge("bigfleet_coordinator_shard_report_age_seconds", `shard="shard-1"`, "40", "4", 6*time.Minute, "shard=shard-1"),
	"ShardEpochRegressed": counter("bigfleet_coordinator_report_epoch_regressed_total", "", 12*time.Minute, "severity=page"),
	"BindingConflict":     gauge("bigfleet_coordinator_cluster_binding_conflicts", "", "1", "0", 6*time.Minute, "severity=ticket"),
	"InstructionsStuck":   gauge("bigfleet_coordinator_instructions_stuck", `kind="adopt"`, "1", "0", 11*time.Minute, "kind=adopt"),
	"FleetCertificateExpiry": append(gauge("bigfleet_certificate_expiry_seconds", `use="leaf",job="bigfleet-system/bigfleet-shard"`, "604000", "700000", time.Minute, "use=leaf"),
		situation{series: []string{one("bigfleet_certificate_expiry_seconds", `use="leaf",job="x/bigfleet-operator"`, "604000x9")}, at: time.Minute, quiet: true}), // its own alert
	"FleetCertificateExpirySoon": append(gauge("bigfleet_certificate_expiry_seconds", `use="leaf",job="bigfleet-system/bigfleet-coordinator"`, "86000", "604000", time.Minute, "severity=page"),
		gauge("bigfleet_console_order_certificate_expiry_seconds", `job="bigfleet-system/bigfleet-console"`, "86000", "604000", time.Minute, "severity=page")...),
	"DiskFilling": {
		{series: disk("10"), at: 6 * time.Minute, labels: "persistentvolumeclaim=data-bigfleet-shard-0"},
		{series: disk("20"), at: 6 * time.Minute, quiet: true},
	},
}

func disk(available string) []string {
	const of = `{namespace="bigfleet-system",persistentvolumeclaim="data-bigfleet-shard-0"} `
	return []string{"kubelet_volume_stats_available_bytes" + of + available + "x30", "kubelet_volume_stats_capacity_bytes" + of + "100x30"}
}

// slow are cycles of a duration in seconds, ten a minute: too long, and within the bound.
func slow(bad, good float64, labels string) (out []situation) {
	for _, took := range []float64{bad, good} {
		var series []string
		for _, le := range []float64{0.2, 1, 2, 5, 10, math.Inf(1)} {
			values := "0x60"
			if took <= le {
				values = "0+10x60"
			}
			series = append(series, shardSeries("cycle_duration_seconds_bucket", fmt.Sprintf(`le="%v"`, le), values))
		}
		out = append(out, situation{series: series, at: 25 * time.Minute, labels: labels, quiet: took == good})
	}
	return out
}

func fleetRules(t *testing.T) []rulefmt.Rule {
	t.Helper()
	var all []rulefmt.Rule
	for _, file := range []string{"shard-alerts.yaml", "coordinator-alerts.yaml"} {
		rules, err := monitoring.Rules(deployed(t, "deploy", "monitoring", file))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, rules...)
	}
	return all
}

func TestFleetAlertsFire(t *testing.T) {
	engine, rules := monitoring.Engine(), fleetRules(t)
	for _, r := range rules {
		t.Run(r.Alert, func(t *testing.T) {
			t.Parallel()
			if len(fleetSituations[r.Alert]) < 2 {
				t.Error("there is no situation in which it fires, or none in which it is quiet")
			}
			for i, s := range fleetSituations[r.Alert] {
				var series monitoring.Series
				if err := series.Write(s.series...); err != nil {
					t.Fatal(err)
				}
				fired, err := monitoring.Fires(t.Context(), engine, r, &series, s.at)
				if err != nil {
					t.Fatal(err)
				}
				switch key, value, _ := strings.Cut(s.labels, "="); {
				case s.quiet && len(fired) > 0:
					t.Errorf("situation %d: fires %v", i, fired)
				case !s.quiet && len(fired) != 1:
					t.Errorf("situation %d: %v, want one alert", i, fired)
				case !s.quiet && fired[0][key] != value:
					t.Errorf("situation %d: labels %v, want %s", i, fired[0], s.labels)
				}
			}
		})
	}
	for name := range fleetSituations {
		if !strings.Contains(names(rules), " "+name+" ") {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// OPS-9.5: the table of the specification, and severity, summary and a chapter of the runbook for each alert. SHARD-29.1,
// COORD-18: what an alert names is in the tables of metrics, which the tests of shard and coordinator hold against the code.
func TestFleetAlertsAreExplained(t *testing.T) {
	read := func(parts ...string) string {
		raw, err := os.ReadFile(deployed(t, parts...))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	runbook, ops := read("docs", "runbook.md"), read("docs", "spec", "operations.md")
	tables := read("docs", "spec", "shard.md") + read("docs", "spec", "coordinator.md") + read("docs", "console.md")
	_, table, _ := strings.Cut(ops, "### 9.3")
	table, _, _ = strings.Cut(table, "\n## ")
	rules := fleetRules(t)
	for _, r := range rules {
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if !strings.HasSuffix(r.Annotations["summary"], ".") {
			t.Errorf("%s: no summary", r.Alert)
		}
		_, chapter, _ := strings.Cut(r.Annotations["runbook_url"], "docs/runbook.md#")
		if chapter == "" || !regexp.MustCompile(`(?mi)^## `+chapter+`$`).MatchString(runbook) {
			t.Errorf("%s: the runbook has no chapter %q", r.Alert, chapter)
		}
		if !regexp.MustCompile(`(?m)^\|[^|]*\b` + r.Alert + `\b[^|]*\|`).MatchString(table) {
			t.Errorf("%s is not in the table of OPS-9.5", r.Alert)
		}
		named, err := monitoring.Selectors(r.Expr)
		if err != nil {
			t.Error(err)
		}
		for metric := range named {
			short := strings.TrimSuffix(strings.TrimPrefix(strings.TrimPrefix(metric, "bigfleet_shard_"), "bigfleet_coordinator_"), "_bucket")
			if metric != "up" && !strings.HasPrefix(metric, "kubelet_") && !strings.Contains(tables, "`"+short+"`") && !strings.Contains(tables, "`"+short+"{") && !strings.Contains(tables, "`"+metric+"`") && !strings.Contains(tables, "`"+metric+"{") {
				t.Errorf("%s names %s, which no table of metrics has", r.Alert, metric)
			}
		}
	}
	// The other way round: what the table promises is shipped, here or by a chart of an edge.
	edge := read("deploy", "charts", "bigfleet-operator", "files", "alerts.yaml")
	for line := range strings.SplitSeq(table, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || strings.HasPrefix(cells[1], " Alert") || strings.HasPrefix(cells[1], "--") {
			continue
		}
		for name := range strings.SplitSeq(cells[1], ",") {
			if name = strings.TrimSpace(name); !strings.Contains(names(rules), " "+name+" ") && !strings.Contains(edge, "alert: "+name+"\n") {
				t.Errorf("the table of OPS-9.5 has %s, and no rule file does", name)
			}
		}
	}
}
