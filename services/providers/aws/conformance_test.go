package aws

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"

	"go.uber.org/goleak"
)

// soak makes it the whole certificate: make certify.
var soak = flag.Duration("soak", 0, "repeat the suite that long, with 10,000 machines and profile scale")

// limit is that of a transition with soak: a machine that does other work needs more, and some behaviours wait for it.
var limit = flag.Duration("limit", 30*time.Second, "limit of a transition in a soak, at most 2m")

// asProvider, in the environment, makes the test binary the program, so that it can be killed.
const asProvider = "BIGFLEET_AWS_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProvider) != "" {
		Main()
		return
	}
	goleak.VerifyTestMain(m)
}

const offered = `
use_fake_backend: true
reconcile_interval: 300ms
shutdown_grace: 100ms
timeouts: {create: 4s, configure: 4s, delete: 4s, drain_extra: 4s}
retention: {failed: 1h, lost: 1h, stockout: 1h}
offerings:
- {name: m5-a, instance_type: m5.large, zone: us-east-1a, capacity_type: on_demand, count: 60, price_per_hour: 0.096, resources: {cpu: "2", memory: 8Gi}}
- {name: m5-b-spot, instance_type: m5.large, zone: us-east-1b, capacity_type: spot, count: 60, price_per_hour: 0.04, interruption_probability: 0.001, resources: {cpu: "2", memory: 8Gi}}
`

// PROV-28.16, PROV-29.4: over the model of AWS the provider passes core, cloud and spot, durable and fault.
func TestConformance(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	profiles, configuration := []conformance.Profile{conformance.Core, conformance.Cloud, conformance.Spot, conformance.Durable, conformance.Fault}, offered
	if *soak > 0 {
		profiles, configuration = append(profiles, conformance.Scale), wholeSize(offered)
	}
	p := &conformance.Process{Path: self, Dir: t.TempDir(), Control: true, Env: []string{asProvider + "=1"}}
	file := filepath.Join(p.Dir, "config.yaml")
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Args = []string{"--config", file}
	p.StartT(t)
	target := p.Target(profiles...)
	target.Hooks.LoseStore = nil // instances outlive the store, so the next start rightly waits for --adopt-store (PROV-17.7)
	conformance.Run(t, target, conformance.Options{Soak: *soak})
}

// wholeSize offers ten thousand machines. A round of reconcile costs as much as there are machines, so it comes less often, and a transition has
// the time that a busy machine needs.
func wholeSize(configuration string) string {
	return strings.NewReplacer("count: 60", "count: 5000", "reconcile_interval: 300ms", "reconcile_interval: 3s", "4s", limit.String()).Replace(configuration)
}
