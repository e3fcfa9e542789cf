package clusterapi

import (
	"context"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"

	"go.uber.org/goleak"
)

// soak makes it the whole certificate: make certify.
var soak = flag.Duration("soak", 0, "repeat the suite that long, with 10,000 machines and profile scale")

// limit is that of a transition with soak: a machine that does other work needs more, and some behaviours wait for it.
var limit = flag.Duration("limit", 30*time.Second, "limit of a transition in a soak, at most 2m")

// asProvider, in the environment, makes the test binary the provider on a management cluster in memory.
const asProvider = "BIGFLEET_CLUSTERAPI_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProvider) == "" {
		goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
		return
	}
	p := program()
	p.Build = overManagementCluster
	provider.Main(p)
}

// overManagementCluster is the real backend over a management cluster that outlives the program. With --control-addr the simulated cloud
// of the SDK stands in front, so that every fault can be injected.
func overManagementCluster(ctx context.Context, s provider.Setup[settings]) (provider.Backend, []provider.Option, error) {
	if err := os.MkdirAll(s.Common.DataDir, 0o700); err != nil {
		return nil, nil, err
	}
	f := newFakeCAPI(ctx, "conformance-a", "conformance-b")
	if err := f.outlives(filepath.Join(s.Common.DataDir, "management-cluster.json")); err != nil {
		return nil, nil, err
	}
	b, err := newBackend(Config{Name: s.Common.Provider, settings: fakeSettings("large"), client: f.client, mapper: f.mapper, Log: s.Log})
	if err != nil || s.Common.ControlAddr == "" {
		return b, options(), err
	}
	cloud, err := substrate.New(substrate.Config{Name: s.Common.Provider, Offerings: s.Offerings})
	if err != nil {
		return nil, nil, err
	}
	served, err := cloud.Serve(s.Common.ControlAddr, s.Common.Files())
	if err != nil {
		return nil, nil, err
	}
	front, err := substrate.NewFront(served, b)
	return front, options(), err
}

const offered = `
reconcile_interval: 300ms
shutdown_grace: 100ms
timeouts: {create: 4s, configure: 4s, delete: 4s, drain_extra: 4s}
retention: {failed: 1h, lost: 1h, stockout: 1h}
offerings:
- {name: large, instance_type: large, zone: zone-a, capacity_type: on_demand, count: 60, price_per_hour: 0.1, resources: {cpu: "4", memory: 16Gi}}
- {name: spot, instance_type: large, zone: zone-b, capacity_type: spot, count: 60, price_per_hour: 0.03, interruption_probability: 0.02, resources: {cpu: "4", memory: 16Gi}}
`

// PROV-28.16, PROV-29.4: over a management cluster that outlives it the provider passes core, cloud and spot, and durable with a
// readiness of its own; with faults in front of it, fault too.
func TestConformance(t *testing.T) {
	configuration, more := offered, []conformance.Profile(nil)
	if *soak > 0 {
		configuration, more = wholeSize(offered), []conformance.Profile{conformance.Scale}
	}
	for _, c := range []struct {
		name     string
		control  bool
		profiles []conformance.Profile
	}{
		{"durable", false, []conformance.Profile{conformance.Core, conformance.Cloud, conformance.Spot, conformance.Durable}},
		{"fault", true, []conformance.Profile{conformance.Core, conformance.Cloud, conformance.Spot, conformance.Durable, conformance.Fault}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // they wait more than they work
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			p := &conformance.Process{Path: self, Dir: t.TempDir(), Control: c.control, Env: []string{asProvider + "=1"}}
			file := filepath.Join(p.Dir, "config.yaml")
			if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
				t.Fatal(err)
			}
			p.Args = []string{"--config", file}
			p.StartT(t)
			target := p.Target(append(c.profiles, more...)...)
			target.Hooks.LoseStore = nil // Machines outlive the store, so the next start rightly waits for --adopt-store (PROV-17.7)
			conformance.Run(t, target, conformance.Options{Soak: *soak})
		})
	}
}

// wholeSize offers ten thousand machines. A round of reconcile costs as much as there are machines, so it comes less often, and a transition has
// the time that a busy machine needs.
func wholeSize(configuration string) string {
	return strings.NewReplacer("count: 60", "count: 5000", "reconcile_interval: 300ms", "reconcile_interval: 3s", "4s", limit.String()).Replace(configuration)
}
