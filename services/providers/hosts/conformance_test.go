package hosts

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"

	"go.uber.org/goleak"
)

// asProvider, in the environment, makes the test binary the program, so that it can be killed.
const asProvider = "BIGFLEET_HOSTS_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProvider) != "" {
		Main()
		return
	}
	if role := os.Getenv(asRole); role != "" {
		roles[role]()
		return
	}
	goleak.VerifyTestMain(m)
}

// PROV-29.14, 32: with pretended hosts behind real agents the provider passes core and bare-metal, durable and fault.
func TestConformance(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &conformance.Process{Path: self, Dir: t.TempDir(), Control: true, Env: []string{asProvider + "=1"}}
	file := filepath.Join(p.Dir, "config.yaml")
	if err := os.WriteFile(file, []byte(`
use_fake_backend: true
reconcile_interval: 300ms
shutdown_grace: 100ms
timeouts: {create: 4s, configure: 4s, delete: 4s, drain_extra: 4s}
retention: {failed: 1h, lost: 1h, stockout: 1h}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Args = []string{"--config", file}
	p.StartT(t)
	target := p.Target(conformance.Core, conformance.BareMetal, conformance.Fault, conformance.Durable)
	conformance.Run(t, target, conformance.Options{})
}
