package kwokprovider

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
)

// program is bigfleet-provider-kwok in a process of its own, so that it can be killed.
type program struct {
	binary, dir, addr, control string
	args                       []string
	cmd                        *exec.Cmd
}

func startProgram(t *testing.T, config string, args ...string) *program {
	t.Helper()
	binary, err := proc.Build(t.Context(), "services/providers/kwok/cmd/bigfleet-provider-kwok")
	if err != nil {
		t.Fatal(err)
	}
	p := &program{binary: binary, dir: t.TempDir(), addr: loopback.Addr(t), control: loopback.Addr(t), args: args}
	if err := os.WriteFile(filepath.Join(p.dir, "config.yaml"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.kill(context.Background()) })
	if _, err := p.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *program) start(ctx context.Context) (string, error) {
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = log.Close() }()
	p.cmd = exec.Command(p.binary, append([]string{"--config", filepath.Join(p.dir, "config.yaml"), "--data-dir", p.dir, "--addr", p.addr, "--metrics-addr", ""}, p.args...)...)
	p.cmd.Stderr = log
	if err := p.cmd.Start(); err != nil {
		return "", err
	}
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		res, err := h.Post("http://"+p.addr+"/bigfleet.v1alpha1.CapacityProvider/List", "application/json", strings.NewReader(`{"maxResults":1}`))
		if err == nil {
			_ = res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return p.addr, nil
			}
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
			return "", fmt.Errorf("the provider does not answer:\n%s", text)
		}
	}
}

func (p *program) kill(context.Context) error {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // "signal: killed" is what was asked for
	return nil
}

func (p *program) stop(context.Context) error {
	return errors.Join(p.cmd.Process.Signal(syscall.SIGTERM), p.cmd.Wait())
}

const quick = `
reconcile_interval: 500ms
shutdown_grace: 200ms
retention: {failed: 1h, lost: 1h, stockout: 1h}
seed_count: 400
`

// PROV-29.14: against a real control plane, kwok passes core, cloud, spot and durable.
func TestConformanceOnAControlPlane(t *testing.T) {
	planes := controlplane.StartAllT(t, controlplane.Config{Name: "red"}, controlplane.Config{Name: "blue"})
	p := startProgram(t, quick+fmt.Sprintf("clusters:\n  red: {kubeconfig: %q}\n  blue: {kubeconfig: %q}\n", planes[0].Kubeconfig(), planes[1].Kubeconfig()))
	conformance.Run(t, conformance.Target{
		Addr: p.addr, Clusters: []string{"red", "blue"}, Settle: 60 * time.Second, Watch: 500 * time.Millisecond,
		Profiles: []conformance.Profile{conformance.Core, conformance.Cloud, conformance.Spot, conformance.Durable},
		Hooks:    conformance.Hooks{Kill: p.kill, Stop: p.stop, Start: p.start},
	}, conformance.Options{})
}

// PROV-24.5, 29.14: with its simulated cloud, kwok passes fault too.
func TestConformanceOnTheFake(t *testing.T) {
	control := loopback.Addr(t)
	p := startProgram(t, quick+"timeouts: {create: 2s, configure: 2s, delete: 2s, drain_extra: 2s}\n", "--use-fake-backend", "--control-addr", control)
	conformance.Run(t, conformance.Target{
		Addr: p.addr, Settle: 30 * time.Second, Watch: 500 * time.Millisecond,
		Profiles: []conformance.Profile{conformance.Core, conformance.Cloud, conformance.Spot, conformance.Fault, conformance.Durable},
		Hooks: conformance.Hooks{
			Kill: p.kill, Stop: p.stop, Start: p.start, Faults: conformance.SubstrateControl(func() string { return control }, nil),
		},
	}, conformance.Options{})
}

// PROV-25.11: with 10,000 machines on offer kwok passes profile scale.
func TestConformanceAtScale(t *testing.T) {
	p := startProgram(t, strings.Replace(quick, "seed_count: 400", "seed_count: 10000", 1), "--use-fake-backend")
	conformance.Run(t, conformance.Target{
		Addr: p.addr, Settle: 60 * time.Second, Watch: 500 * time.Millisecond, Size: 10_000, Slack: 20,
		Profiles: []conformance.Profile{conformance.Core, conformance.Cloud, conformance.Spot, conformance.Scale},
	}, conformance.Options{Only: []string{"size", "list/pages"}})
}
