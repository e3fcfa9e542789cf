package conformance_test

import (
	"flag"
	"fmt"
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

// asProvider, in the environment, makes the test binary a provider: the SDK on its simulated cloud, in a process of its own,
// so that it can be killed.
const asProvider = "BIGFLEET_CONFORMANCE_TEST_PROVIDER"

func TestMain(m *testing.M) {
	if os.Getenv(asProvider) != "" {
		provider.Main(provider.Program[struct{}]{
			Name: "example", Short: "the SDK on its simulated cloud", Fake: substrate.Fake[struct{}](substrate.Config{
				Latency: map[string]substrate.Latency{"": {Constant: 3 * time.Millisecond}},
			}),
		})
		return
	}
	// The tests of wrong providers wait far more than they compute: dozens run side by side on two cores.
	flag.Parse()
	if err := flag.Set("test.parallel", "24"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(m)
}

// config makes failures end soon enough for a test and FAILED machines stay.
const config = `
use_fake_backend: true
reconcile_interval: 200ms
loss_rounds: 3
shutdown_grace: 100ms
timeouts: {create: 2s, configure: 2s, delete: 2s, drain_extra: 2s}
retention: {failed: 1h, lost: 1h, stockout: 1h, orphan: 1s}
prices: {interval: 1h}
`

func newProcess(t *testing.T, slots int) *conformance.Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &conformance.Process{Path: self, Dir: t.TempDir(), Control: true, Env: []string{asProvider + "=1"}}
	p.Args = []string{"--config", configFile(t, p.Dir, config+fmt.Sprintf("seed_count: %d\n", slots))}
	p.StartT(t)
	return p
}

func configFile(t *testing.T, dir, text string) string {
	t.Helper()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// PROV-29.14: the SDK's own example passes everything it claims, twice in a row on one provider (PROV-29.7, scenario 65).
func TestTheSDKConforms(t *testing.T) {
	t.Parallel()
	p := newProcess(t, 600)
	target := p.Target(conformance.Core, conformance.Cloud, conformance.Spot, conformance.Fault, conformance.Durable)
	conformance.Run(t, target, conformance.Options{})
	// What the first run may have left behind shows in the areas that use machines; kills and faults need no second round.
	conformance.Run(t, target, conformance.Options{Only: []string{"life", "args", "fence", "once", "meta", "field", "list", "race", "walk"}})
}

// Scenario 64, PROV-29.5, 29.6: a target with too few machines is INCOMPLETE with the numbers, before the first behaviour.
func TestTooFewMachines(t *testing.T) {
	t.Parallel()
	p := newProcess(t, 2)
	report, err := conformance.Execute(t.Context(), p.Target(conformance.Core, conformance.Cloud, conformance.Spot), conformance.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if report.Verdict != conformance.Incomplete || report.ExitCode() != 2 || report.Count(conformance.Pass) != 0 || report.Count(conformance.CannotJudge) == 0 {
		t.Errorf("%s, exit %d, %d pass", report.Verdict, report.ExitCode(), report.Count(conformance.Pass))
	}
	for _, one := range report.Results {
		if one.Outcome == conformance.CannotJudge && !strings.Contains(one.Reason, "there are 2 in SPECULATIVE") {
			t.Errorf("%s: %q does not say what is there", one.Name, one.Reason)
			break
		}
	}
}

// PROV-29.15: a soak repeats what can be repeated and counts its passes; the provider still conforms, with as many machines as before.
func TestSoak(t *testing.T) {
	t.Parallel()
	p := newProcess(t, 300)
	report := conformance.Run(t, p.Target(conformance.Core, conformance.Cloud, conformance.Spot), conformance.Options{
		Only: []string{"walk", "once", "fence/random"}, Soak: 3 * time.Second,
	})
	if report.SoakPasses < 1 || len(report.Failed) > 0 {
		t.Errorf("%d passes, left FAILED %v", report.SoakPasses, report.Failed)
	}
}
