package reference_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
)

// OPS-2.4: each default that differs from what operators of such systems know says so where it is set and has its row, with the
// value that it has, in the upgrade guide.
func TestDefaultsThatDiffer(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "docs/upgrade.md"))
	if err != nil {
		t.Fatal(err)
	}
	row := func(setting, value string) {
		t.Helper()
		if !regexp.MustCompile(`(?m)^\|[^|]+\| ` + "`" + regexp.QuoteMeta(setting) + "`" + ` \| ` + regexp.QuoteMeta(value) + ` \|`).Match(raw) {
			t.Errorf("the upgrade guide has no row for %s with its default %s", setting, value)
		}
	}
	commands := cli.New(app.New(env.System()))
	for _, d := range []struct{ role, flag, says string }{
		{"shard", "execute-concurrency", "other implementations default to 1"},
		{"shard", "incremental-reconcile", "other implementations have it off"},
		{"shard", "provider-addr", "there is no fake one"},
		{"shard", "decision-log-retention", "on by default"},
		{"operator", "qps", "other controllers default to 20"},
		{"podcontroller", "qps", "other controllers default to 20"},
		{"operator", "bootstrap-renderer", "no longer means the stub"},
		{"shard", "enable-pprof", "off by default"},
		{"coordinator", "raft-heartbeat-timeout", "default is 1s"},
		{"coordinator", "raft-election-timeout", "default is 1s"},
		{"coordinator", "raft-leader-lease", "default is 500ms"},
	} {
		verb, _, err := commands.Find([]string{d.role})
		if err != nil {
			t.Fatal(err)
		}
		f := verb.Flags().Lookup(d.flag)
		if f == nil || !strings.Contains(f.Usage, d.says) {
			t.Errorf("the help of %s --%s does not say %q", d.role, d.flag, d.says)
			continue
		}
		value := strings.TrimSuffix(f.DefValue, "0m0s")
		if value == "[]" {
			value = "none"
		}
		row("--"+d.flag, value)
	}
	for _, v := range []struct{ chart, setting, value, text string }{
		{"bigfleet-operator", "replicas", "2", "(other implementations default to 1).\nreplicas: 2\n"},
		{"bigfleet", "shard.storage.size", "10Gi", "(other implementations default to less). An existing volume keeps its size.\n  storage: {size: 10Gi,"},
	} {
		values, err := os.ReadFile(filepath.Join(root, "deploy/charts", v.chart, "values.yaml"))
		if err != nil || !strings.Contains(string(values), v.text) {
			t.Errorf("%s: values.yaml does not explain %s: %v", v.chart, v.setting, err)
		}
		row(v.setting, v.value)
	}
}
