package sim

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// program is bigfleet-provider-sim in a process of its own.
type running struct {
	dir, addr, control string
	args               []string
	cmd                *exec.Cmd
}

func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func start(t *testing.T, config string, args ...string) *running {
	t.Helper()
	r := &running{dir: t.TempDir(), addr: free(t), control: free(t), args: args}
	if err := os.WriteFile(filepath.Join(r.dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.kill(context.Background()) })
	if _, err := r.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *running) start(ctx context.Context) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	log, err := os.OpenFile(filepath.Join(r.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = log.Close() }()
	r.cmd = exec.Command(self, append([]string{"--config", filepath.Join(r.dir, "config.yaml"), "--data-dir", r.dir, "--addr", r.addr,
		"--control-addr", r.control, "--metrics-addr", ""}, r.args...)...)
	r.cmd.Env, r.cmd.Stderr = append(os.Environ(), asSim+"=1"), log
	if err := r.cmd.Start(); err != nil {
		return "", err
	}
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		res, err := h.Post("http://"+r.addr+"/bigfleet.v1alpha1.CapacityProvider/List", "application/json", strings.NewReader(`{"maxResults":1}`))
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return r.addr, nil
			}
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			text, _ := os.ReadFile(filepath.Join(r.dir, "log"))
			return "", fmt.Errorf("the sim does not answer:\n%s", text)
		}
	}
}

func (r *running) kill(context.Context) error {
	_ = r.cmd.Process.Kill()
	_ = r.cmd.Wait() // "signal: killed" is what was asked for
	return nil
}

func (r *running) stop(context.Context) error {
	return errors.Join(r.cmd.Process.Signal(os.Interrupt), r.cmd.Wait())
}

func (r *running) target(profiles ...conformance.Profile) conformance.Target {
	return conformance.Target{
		Addr: r.addr, Profiles: profiles, Settle: 30 * time.Second, Watch: 500 * time.Millisecond,
		Hooks: conformance.Hooks{
			Kill: r.kill, Stop: r.stop, Start: r.start, Faults: conformance.SubstrateControl(func() string { return r.control }, nil),
		},
	}
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
	r := start(t, short)
	conformance.Run(t, r.target(conformance.Core, conformance.Cloud, conformance.Spot, conformance.Fault, conformance.Durable), conformance.Options{})
}

// PROV-26.2: with Delete left out and owned capacity, core and bare-metal.
func TestConformanceOfAFixedPool(t *testing.T) {
	r := start(t, short+`
no_delete: true
offerings:
- {name: rack, instance_type: metal.64x, zone: rack-1, capacity_type: bare_metal, count: 60, resources: {cpu: "64", memory: 256Gi}}
`)
	conformance.Run(t, r.target(conformance.Core, conformance.BareMetal, conformance.Fault, conformance.Durable), conformance.Options{})
}

// PROV-25.11, 26.2: 100,000 machines pass profile scale.
func TestConformanceAtScale(t *testing.T) {
	r := start(t, short, "--seed-count", "100000")
	target := r.target(conformance.Core, conformance.Cloud, conformance.Spot, conformance.Scale)
	target.Size = 90_000
	report := conformance.Run(t, target, conformance.Options{Only: []string{"size", "list/junk-cursors", "list/pages"}})
	for _, result := range report.Results {
		for _, line := range result.Evidence {
			t.Log(result.Name+":", line)
		}
	}
}
