package clusterapi

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"

	"go.uber.org/goleak"
)

// asProvider, in the environment, makes the test binary the provider on a management cluster in memory.
const asProvider = "BIGFLEET_CLUSTERAPI_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProvider) == "" {
		goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
		return
	}
	p := program()
	p.Build = func(ctx context.Context, s provider.Setup[settings]) (provider.Backend, []provider.Option, error) {
		f := newFakeCAPI(ctx, "conformance-a", "conformance-b")
		b, err := newBackend(Config{Name: s.Common.Provider, settings: fakeSettings("large"), client: f.client, mapper: f.mapper, Log: s.Log})
		return b, options(), err
	}
	provider.Main(p)
}

const offered = `
reconcile_interval: 300ms
shutdown_grace: 100ms
timeouts: {create: 5s, configure: 5s, delete: 5s, drain_extra: 5s}
offerings:
- {name: large, instance_type: large, zone: zone-a, capacity_type: on_demand, count: 60, price_per_hour: 0.1, resources: {cpu: "4", memory: 16Gi}}
- {name: spot, instance_type: large, zone: zone-b, capacity_type: spot, count: 60, price_per_hour: 0.03, interruption_probability: 0.02, resources: {cpu: "4", memory: 16Gi}}
`

// PROV-29.4: the provider passes core, cloud and spot. durable and fault need a management cluster that outlives the provider.
func TestConformance(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &conformance.Process{Path: self, Dir: t.TempDir(), Env: []string{asProvider + "=1"}}
	file := filepath.Join(p.Dir, "config.yaml")
	if err := os.WriteFile(file, []byte(offered), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Args = []string{"--config", file}
	p.StartT(t)
	conformance.Run(t, p.Target(conformance.Core, conformance.Cloud, conformance.Spot), conformance.Options{})
}
