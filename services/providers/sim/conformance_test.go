package sim

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"

	"go.uber.org/goleak"
)

// asSim, in the environment, makes the test binary the program, so that it can be killed.
const asSim = "BIGFLEET_SIM_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asSim) != "" {
		Main()
		return
	}
	goleak.VerifyTestMain(m)
}

// start runs bigfleet-provider-sim in a process of its own.
func start(t *testing.T, config string, args ...string) *conformance.Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &conformance.Process{Path: self, Dir: t.TempDir(), Control: true, Env: []string{asSim + "=1"}}
	file := filepath.Join(p.Dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Args = append([]string{"--config", file}, args...)
	p.StartT(t)
	return p
}

const short = `
reconcile_interval: 300ms
shutdown_grace: 100ms
timeouts: {create: 2s, configure: 2s, delete: 2s, drain_extra: 2s}
retention: {failed: 1h, lost: 1h, stockout: 1h}
latency: {"": {constant: 2ms}}
`

// PROV-26.2, 26.9: the calm sim with its built-in catalogue passes core, cloud, spot, fault and durable.
func TestConformance(t *testing.T) {
	t.Parallel()
	r := start(t, short)
	conformance.Run(t, r.Target(conformance.Core, conformance.Cloud, conformance.Spot, conformance.Fault, conformance.Durable), conformance.Options{})
}

// PROV-26.2: with Delete left out and owned capacity, core and bare-metal.
func TestConformanceOfAFixedPool(t *testing.T) {
	t.Parallel()
	r := start(t, short+`
no_delete: true
offerings:
- {name: rack, instance_type: metal.64x, zone: rack-1, capacity_type: bare_metal, count: 60, resources: {cpu: "64", memory: 256Gi}}
`)
	conformance.Run(t, r.Target(conformance.Core, conformance.BareMetal, conformance.Fault, conformance.Durable), conformance.Options{})
}

// PROV-25.11, 26.2: 100,000 machines pass profile scale. What does not depend on the size is judged by TestConformance: sixteen full lists for
// list/junk-cursors alone would take half a minute here.
func TestConformanceAtScale(t *testing.T) {
	r := start(t, short, "--seed-count", "100000")
	target := r.Target(conformance.Core, conformance.Cloud, conformance.Spot, conformance.Scale)
	target.Size, target.Slack = 100_000, 20 // the certificate on a quiet machine has no slack
	report := conformance.Run(t, target, conformance.Options{Only: []string{"size"}})
	for _, result := range report.Results {
		for _, line := range result.Evidence {
			t.Log(result.Name+":", line)
		}
	}
}
