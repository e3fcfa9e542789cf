package conformance_test

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"

	"go.uber.org/goleak"
)

// asProvider, in the environment, makes the test binary a provider: the SDK on its pretend cloud, in a process of its own,
// so that it can be killed.
const asProvider = "BIGFLEET_CONFORMANCE_TEST_PROVIDER"

func TestMain(m *testing.M) {
	if os.Getenv(asProvider) != "" {
		provider.Main(provider.Program[struct{}]{
			Name: "example", Short: "the SDK on its pretend cloud", Fake: substrate.Fake[struct{}](substrate.Config{
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

// process is that provider.
type process struct {
	t             *testing.T
	dir           string
	addr, control string
	binary        string // empty: the test binary itself
	cmd           *exec.Cmd
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

func newProcess(t *testing.T, slots int) *process {
	t.Helper()
	p := &process{t: t, dir: t.TempDir(), addr: freeAddr(t), control: freeAddr(t)}
	if err := os.WriteFile(filepath.Join(p.dir, "config.yaml"), []byte(config+fmt.Sprintf("seed_count: %d\n", slots)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := p.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.kill(context.Background()) })
	return p
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func (p *process) start(ctx context.Context) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	if p.binary != "" {
		self = p.binary
	}
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = log.Close() }()
	p.cmd = exec.Command(self, "--config", filepath.Join(p.dir, "config.yaml"), "--state", filepath.Join(p.dir, "state.db"),
		"--addr", p.addr, "--control-addr", p.control, "--metrics-addr", "")
	p.cmd.Env = append(os.Environ(), asProvider+"=1")
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		return "", err
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		if p.answers() {
			return p.addr, nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
			return "", fmt.Errorf("the provider does not answer:\n%s", text)
		}
	}
}

func (p *process) answers() bool {
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := h.Post("http://"+p.addr+"/bigfleet.v1alpha1.CapacityProvider/List", "application/json", strings.NewReader(`{"maxResults":1}`))
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}

func (p *process) kill(context.Context) error {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // "signal: killed" is what was asked for
	return nil
}

func (p *process) stop(context.Context) error {
	if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
		return err
	}
	return p.cmd.Wait()
}

func (p *process) target(profiles ...conformance.Profile) conformance.Target {
	return conformance.Target{
		Addr: p.addr, Profiles: profiles, Settle: 20 * time.Second, Watch: 500 * time.Millisecond,
		Hooks: conformance.Hooks{
			Kill: p.kill, Stop: p.stop, Start: p.start,
			Faults: conformance.SubstrateControl(func() string { return p.control }, nil),
		},
	}
}

// PROV-29.14: the SDK's own example passes everything it claims, twice in a row on one provider (PROV-29.7, scenario 65).
func TestTheSDKConforms(t *testing.T) {
	p := newProcess(t, 600)
	for range 2 {
		conformance.Run(t, p.target(conformance.Core, conformance.Cloud, conformance.Spot, conformance.Fault, conformance.Durable), conformance.Options{})
	}
}
