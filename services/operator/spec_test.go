package operator

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
)

// section returns a section of the operator specification.
func section(t *testing.T, title string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/spec/operator.md")
	if err != nil {
		t.Fatal(err)
	}
	_, from, found := strings.Cut(string(text), "\n## "+title+"\n")
	if !found {
		t.Fatalf("the specification has no section %q", title)
	}
	out, _, _ := strings.Cut(from, "\n## ")
	return out
}

// OP-2, OP-3.6: every flag that the specification names exists, with its default.
func TestFlagsAreThoseOfTheSpecification(t *testing.T) {
	fs := NewCommand().Flags()
	named := regexp.MustCompile(`--([a-z][a-z-]+)`).FindAllStringSubmatch(section(t, "2. Constants")+section(t, "3. Process"), -1)
	if len(named) < 20 {
		t.Fatalf("the specification names %d flags", len(named))
	}
	for _, m := range named {
		if fs.Lookup(m[1]) == nil {
			t.Errorf("no flag --%s", m[1])
		}
	}
	for name, want := range map[string]string{
		"rollup-debounce": "250ms", "rollup-interval": "10s", "reconnect-initial-backoff": "500ms", "reconnect-max-backoff": "30s",
		"dispatch-concurrency": "32", "bootstrap-ttl": "10m0s", "bootstrap-token-pool": "16", "ack-concurrency": "4", "ack-qps": "400",
		"node-join-timeout": "10m0s", "node-not-ready-after": "5m0s", "demand-hold": "3m0s", "drained-node-timeout": "2m0s", "cache-sync-timeout": "2m0s", "qps": "-1", "metrics-addr": ":8770", "enable-pprof": "false", "bootstrap-renderer": "auto",
	} {
		if f := fs.Lookup(name); f == nil || f.DefValue != want {
			t.Errorf("--%s: %v, want the default %s", name, f, want)
		}
	}
}

// OP-19.1, OP-19.2, OP-19.3: every metric that the specification names exists, with its labels.
func TestMetricsAreThoseOfTheSpecification(t *testing.T) {
	none := func() float64 { return 0 }
	i, err := instruments.New(prometheus.NewRegistry(), instruments.Reads{CacheAge: none, AcceptedAge: none, EvictionsStopped: func() bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	have := map[string]string{}
	for _, row := range i.Table() {
		have[row.Name] = strings.Join(row.Labels, ",")
	}
	named := regexp.MustCompile("`(?:bigfleet_operator_|…_)([a-z_]+)(?:\\{([a-z_,]+)[^}]*\\})?`").FindAllStringSubmatch(section(t, "19. Metrics"), -1)
	if len(named) < 25 {
		t.Fatalf("the specification names %d metrics", len(named))
	}
	for _, m := range named {
		labels, found := have["bigfleet_operator_"+m[1]]
		if !found || labels != m[2] {
			t.Errorf("bigfleet_operator_%s: there %v, labels %q, want %q", m[1], found, labels, m[2])
		}
	}
}
