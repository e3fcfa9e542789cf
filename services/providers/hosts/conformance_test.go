package hosts

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"

	"go.uber.org/goleak"
)

// soak makes it the whole certificate: make certify.
var soak = flag.Duration("soak", 0, "repeat the suite that long, with 10,000 hosts and profile scale")

// longLimit is that of a transition with soak: a machine that does other work needs more, and some behaviours wait for it.
var longLimit = flag.Duration("limit", 30*time.Second, "limit of a transition in a soak, at most 2m")

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
	limit, reconcile := 4*time.Second, 300*time.Millisecond
	if *soak > 0 { // ten thousand agents share this machine, and a round of reconcile looks at each of them
		limit, reconcile = *longLimit, 3*time.Second
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, `
use_fake_backend: true
reconcile_interval: %[2]s
shutdown_grace: 100ms
timeouts: {create: %[1]s, configure: %[1]s, delete: %[1]s, drain_extra: %[1]s}
retention: {failed: 1h, lost: 1h, stockout: 1h}
`, limit, reconcile), 0o600); err != nil {
		t.Fatal(err)
	}
	p.Args = []string{"--config", file}
	if *soak > 0 {
		p.Args, p.Wait = append(p.Args, "--inventory", writeInventory(t, 10_000)), 5*time.Minute
	}
	p.StartT(t)
	profiles := []conformance.Profile{conformance.Core, conformance.BareMetal, conformance.Fault, conformance.Durable}
	if *soak > 0 {
		profiles = append(profiles, conformance.Scale)
	}
	conformance.Run(t, p.Target(profiles...), conformance.Options{Soak: *soak})
}

// writeInventory makes an inventory of n hosts.
func writeInventory(t *testing.T, n int) string {
	t.Helper()
	var list strings.Builder
	list.WriteString("defaults: {type: rack.64x, zone: z1, price_per_hour: 1, resources: {cpu: \"64\", memory: 256Gi, pods: \"110\"}}\nhosts:\n")
	for i := range n {
		fmt.Fprintf(&list, "- {name: host-%d, rack: r%d}\n", i, i/10)
	}
	file := filepath.Join(t.TempDir(), "inventory.yaml")
	if err := os.WriteFile(file, []byte(list.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}
