package monitoring_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/rulefmt"
	"go.uber.org/goleak"

	"github.com/bigfleet-dev/bigfleet/e2e/monitoring"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func deployed(t testing.TB, parts ...string) string {
	t.Helper()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(append([]string{root}, parts...)...)
}

// situation is what Prometheus has seen, a sample a minute, and when an alert must fire, or must not.
type situation struct {
	series []string
	at     time.Duration
	quiet  bool
	labels string // of the alert, in the form k=v
}

// PROV-21.5, OPS-9.5: every alert fires in its situation and is quiet in the neighbouring one.
var situations = map[string][]situation{
	"ProviderStoreSick": {
		{series: []string{`bigfleet_provider_store_commits_total{provider="a",outcome="error"} 0x4 1x60`}, at: time.Hour, labels: "severity=page"},
		{series: []string{`bigfleet_provider_store_commits_total{provider="a",outcome="error"} 0x60`}, at: time.Hour, quiet: true},
	},
	"ProviderHostsMissing": {
		{series: []string{`bigfleet_provider_loss_guard_held{provider="a"} 0x4 40x10`}, at: 12 * time.Minute, labels: "severity=page"},
		{series: []string{`bigfleet_provider_loss_guard_held{provider="a"} 0x4 40x2 0x10`}, at: 12 * time.Minute, quiet: true}, // they came back
	},
	"ProviderFailedBound": {
		{series: []string{`bigfleet_provider_failed_machines{provider="a",bound="true",failure="timeout"} 1x30`}, at: 16 * time.Minute},
		{series: []string{`bigfleet_provider_failed_machines{provider="a",bound="false",failure="timeout"} 1x30`}, at: 16 * time.Minute, quiet: true},
	},
	"ProviderFailedUnbound": {
		{series: []string{
			`bigfleet_provider_failed_machines{provider="a",bound="false",failure="capacity"} 3x30`, `bigfleet_provider_machines{provider="a",state="idle",capacity_type="spot"} 10x30`,
			`bigfleet_provider_machines{provider="a",state="speculative",capacity_type="spot"} 5000x30`,
		}, at: 16 * time.Minute},
		{series: []string{ // two of three is a small fleet, not a trend
			`bigfleet_provider_failed_machines{provider="a",bound="false",failure="capacity"} 2x30`, `bigfleet_provider_machines{provider="a",state="idle",capacity_type="spot"} 3x30`,
		}, at: 16 * time.Minute, quiet: true},
		{series: []string{
			`bigfleet_provider_failed_machines{provider="a",bound="false",failure="capacity"} 3x30`, `bigfleet_provider_machines{provider="a",state="configured",capacity_type="spot"} 100x30`,
		}, at: 16 * time.Minute, quiet: true},
	},
	"ProviderOperationsFail": {
		{series: []string{
			`bigfleet_provider_transitions_total{provider="a",kind="create",outcome="failed"} 0+2x30`, `bigfleet_provider_transitions_total{provider="a",kind="create",outcome="ok"} 0+1x30`,
		}, at: 25 * time.Minute, labels: "kind=create"},
		{series: []string{
			`bigfleet_provider_transitions_total{provider="a",kind="create",outcome="failed"} 0+2x30`, `bigfleet_provider_transitions_total{provider="a",kind="create",outcome="ok"} 0+20x30`,
		}, at: 25 * time.Minute, quiet: true},
	},
	"ProviderQueueLong": {
		{series: []string{`bigfleet_provider_transition_queue{provider="a",kind="create"} 5000x30`}, at: 16 * time.Minute, labels: "kind=create"},
		{series: []string{`bigfleet_provider_transition_queue{provider="a",kind="create"} 5000x3 0x30`}, at: 16 * time.Minute, quiet: true},
	},
	"ProviderBreakerOpen": {
		{series: []string{`bigfleet_provider_breaker_open{provider="a",op="Create"} 1x20`}, at: 11 * time.Minute, labels: "op=Create"},
		{series: []string{`bigfleet_provider_breaker_open{provider="a",op="Create"} 1 0 1 0 1 0 1 0 1 0 1 0 1`}, at: 11 * time.Minute, quiet: true},
	},
	"ProviderReconcileStale": {
		{series: []string{`bigfleet_provider_reconcile_last_success_timestamp_seconds{provider="a"} 1000000x40`}, at: 25 * time.Minute},
		{series: []string{`bigfleet_provider_reconcile_last_success_timestamp_seconds{provider="a"} 0x40`}, at: 25 * time.Minute}, // never
		{series: []string{`bigfleet_provider_reconcile_last_success_timestamp_seconds{provider="a"} 1000000+60x40`}, at: 25 * time.Minute, quiet: true},
	},
	"ProviderPricesStale": {
		{series: []string{`bigfleet_provider_price_age_seconds{provider="a",source="list"} 43300+60x30`}, at: 20 * time.Minute, labels: "source=list"},
		{series: []string{`bigfleet_provider_price_age_seconds{provider="a",source="list"} 300x30`}, at: 20 * time.Minute, quiet: true},
	},
	"ProviderReadinessNone": {
		{series: []string{`bigfleet_provider_readiness_gate{provider="a",mode="none"} 1x70`}, at: 61 * time.Minute},
		{series: []string{`bigfleet_provider_readiness_gate{provider="a",mode="nodes"} 1x70`}, at: 61 * time.Minute, quiet: true},
	},
	"ProviderFencedCalls": {
		{series: []string{`bigfleet_provider_fenced_total{provider="a",method="Create"} 0+3x60`}, at: 30 * time.Minute},
		{series: []string{`bigfleet_provider_fenced_total{provider="a",method="Create"} 0 0 5x60`}, at: 30 * time.Minute, quiet: true}, // a failover
	},
	"ProviderIdentityRefused": {
		{series: []string{`bigfleet_provider_denied_total{provider="a",reason="shard"} 0+1x60`}, at: 30 * time.Minute, labels: "reason=shard"},
		{series: []string{`bigfleet_provider_denied_total{provider="a",reason="shard"} 7x60`}, at: 30 * time.Minute, quiet: true},
	},
	"ProviderRecordsRejected": {
		{series: []string{`bigfleet_provider_records_rejected_total{provider="a",reason="price"} 0+1x60`}, at: 40 * time.Minute, labels: "reason=price"},
		{series: []string{`bigfleet_provider_records_rejected_total{provider="a",reason="price"} 0x60`}, at: 40 * time.Minute, quiet: true},
	},
	"ProviderPaused": {
		{series: []string{`bigfleet_provider_paused{provider="a"} 1x70`}, at: 61 * time.Minute},
		{series: []string{`bigfleet_provider_paused{provider="a"} 1x40 0x40`}, at: 61 * time.Minute, quiet: true},
	},
	"ProviderPanics": {
		{series: []string{`bigfleet_provider_panics_total{provider="a"} 0x10 1x60`}, at: 20 * time.Minute},
		{series: []string{`bigfleet_provider_panics_total{provider="a"} 1x120`}, at: 100 * time.Minute, quiet: true},
	},
	"ProviderHostsSilent": {
		{series: []string{`bigfleet_provider_hosts_silent{provider="a"} 2x30`}, at: 16 * time.Minute},
		{series: []string{`bigfleet_provider_hosts_silent{provider="a"} 2x5 0x30`}, at: 16 * time.Minute, quiet: true}, // they were rebooted
	},
	"ProviderHostsNotClean": {
		{series: []string{`bigfleet_provider_hosts{provider="a",phase="quarantined"} 1x40`}, at: 31 * time.Minute},
		{series: []string{`bigfleet_provider_hosts{provider="a",phase="clean"} 9x40`, `bigfleet_provider_hosts{provider="a",phase="quarantined"} 0x40`}, at: 31 * time.Minute, quiet: true},
	},
	"ProviderAWSQueueUnread": {
		{series: []string{`bigfleet_provider_aws_queue_errors_total{provider="a"} 0+3x40`}, at: 30 * time.Minute, labels: "severity=page"},
		{series: []string{`bigfleet_provider_aws_queue_errors_total{provider="a"} 0 1x40`}, at: 30 * time.Minute, quiet: true}, // one answer was lost
	},
	"ProviderAWSPoolsEmpty": {
		{series: []string{`bigfleet_provider_aws_empty_pools{provider="a"} 1x70`}, at: 61 * time.Minute},
		{series: []string{`bigfleet_provider_aws_empty_pools{provider="a"} 1x20 0x50`}, at: 61 * time.Minute, quiet: true},
	},
	"ProviderCertificateExpiry": {
		{series: []string{`bigfleet_certificate_expiry_seconds{provider="a",use="leaf"} 604700-60x5`}, at: 5 * time.Minute, labels: "use=leaf"},
		{series: []string{`bigfleet_certificate_expiry_seconds{use="leaf"} 604700-60x5`}, at: 5 * time.Minute, quiet: true}, // another role's
	},
	"ProviderCertificateExpirySoon": {
		{series: []string{`bigfleet_certificate_expiry_seconds{provider="a",use="ca"} 86300-60x5`}, at: 5 * time.Minute, labels: "severity=page"},
		{series: []string{`bigfleet_certificate_expiry_seconds{provider="a",use="ca"} 604700-60x5`}, at: 5 * time.Minute, quiet: true},
	},
}

func TestProviderAlertsFire(t *testing.T) {
	rules, err := monitoring.Rules(deployed(t, "deploy", "monitoring", "provider-alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	engine := monitoring.Engine()
	for _, r := range rules {
		if len(situations[r.Alert]) < 2 {
			t.Errorf("%s has no situation in which it fires, or none in which it is quiet", r.Alert)
		}
		for i, s := range situations[r.Alert] {
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
				t.Errorf("%s, situation %d: fires %v", r.Alert, i, fired)
			case !s.quiet && len(fired) != 1:
				t.Errorf("%s, situation %d: %v, want one alert", r.Alert, i, fired)
			case !s.quiet && (fired[0]["provider"] != "a" || fired[0][key] != value):
				t.Errorf("%s, situation %d: labels %v, want provider=a and %s", r.Alert, i, fired[0], s.labels)
			}
		}
	}
	for name := range situations {
		if !strings.Contains(names(rules), " "+name+" ") {
			t.Errorf("there is no alert %s", name)
		}
	}
}

// OPS-9.5: severity, summary, and a page of the runbook for each.
func TestProviderAlertsAreExplained(t *testing.T) {
	rules, err := monitoring.Rules(deployed(t, "deploy", "monitoring", "provider-alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	runbook, err := os.ReadFile(deployed(t, "docs", "runbook-provider.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules {
		if s := r.Labels["severity"]; s != "page" && s != "ticket" {
			t.Errorf("%s: severity %q", r.Alert, s)
		}
		if !strings.HasSuffix(r.Annotations["summary"], ".") {
			t.Errorf("%s: no summary", r.Alert)
		}
		if want := "docs/runbook-provider.md#" + strings.ToLower(r.Alert); !strings.HasSuffix(r.Annotations["runbook_url"], want) {
			t.Errorf("%s: runbook_url %s, want …%s", r.Alert, r.Annotations["runbook_url"], want)
		}
		if !regexp.MustCompile(`(?m)^## ` + r.Alert + `$`).Match(runbook) {
			t.Errorf("the runbook has no chapter %s", r.Alert)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^## (\w+)$`).FindAllStringSubmatch(string(runbook), -1) {
		if !strings.Contains(names(rules), " "+m[1]+" ") {
			t.Errorf("the runbook has a chapter %s, and there is no such alert", m[1])
		}
	}
}

func names(rules []rulefmt.Rule) string {
	all := " "
	for _, r := range rules {
		all += r.Alert + " "
	}
	return all
}
