package conformance

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// Process is a provider program in a process of its own, for tests that end it and start it again: profile durable. It
// fits every program made with provider.Main, whose flags it sets: --addr, --data-dir, --metrics-addr and, with Control,
// --control-addr. A test binary can be that program too: name os.Executable as Path, set a variable in Env, and let
// TestMain call provider.Main when it is there.
type Process struct {
	Path    string   // of the binary
	Args    []string // besides those above
	Env     []string // besides the test's own, "KEY=value"
	Dir     string   // of its state and its log
	Control bool     // the program serves SubstrateControl
	// Wait bounds a start. Default 60 s: a large store is read before the first answer.
	Wait time.Duration

	addr, control string
	ports         []*loopback.Port // no other test takes them while the program is away
	cmd           *exec.Cmd
}

// StartT starts p for the length of a test.
func (p *Process) StartT(t testing.TB) {
	t.Helper()
	if p.Dir == "" {
		p.Dir = t.TempDir()
	}
	t.Cleanup(func() {
		_ = p.Kill(context.Background())
		for _, port := range p.ports {
			port.Release()
		}
	})
	if _, err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Start starts the program, on the addresses of the first start, and returns once it answers.
func (p *Process) Start(ctx context.Context) (addr string, err error) {
	for _, a := range []*string{&p.addr, &p.control} {
		if *a != "" {
			continue
		}
		port, err := loopback.Reserve()
		if err != nil {
			return "", err
		}
		*a, p.ports = port.Addr(), append(p.ports, port)
	}
	log, err := os.OpenFile(p.LogFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	defer func() { _ = log.Close() }()
	args := append([]string{"--addr", p.addr, "--data-dir", p.Dir, "--metrics-addr", ""}, p.Args...)
	if p.Control {
		args = append(args, "--control-addr", p.control)
	}
	p.cmd = exec.Command(p.Path, args...) // it outlives ctx: Kill and Stop end it
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = append(os.Environ(), p.Env...), log, log
	if err := p.cmd.Start(); err != nil {
		p.cmd = nil
		return "", err
	}
	wait := p.Wait
	if wait == 0 {
		wait = time.Minute
	}
	for deadline := time.Now().Add(wait); !answers(ctx, p.addr); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) || ctx.Err() != nil {
			text, _ := os.ReadFile(p.LogFile())
			return "", fmt.Errorf("%s does not answer; its log:\n%s", p.Path, text)
		}
	}
	return p.addr, nil
}

// LogFile is where the program's output goes.
func (p *Process) LogFile() string { return filepath.Join(p.Dir, "log") }

// Addr is where it listens, once started.
func (p *Process) Addr() string { return p.addr }

// ControlAddr is where SubstrateControl listens, once started.
func (p *Process) ControlAddr() string { return p.control }

// Kill ends it at once (SIGKILL).
func (p *Process) Kill(context.Context) error {
	if p.cmd == nil {
		return nil
	}
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // "signal: killed" is what was asked for
	p.cmd = nil
	return nil
}

// Stop asks it to end and waits; an exit code other than 0 is an error.
func (p *Process) Stop(context.Context) error {
	if p.cmd == nil {
		return nil
	}
	err := errors.Join(p.cmd.Process.Signal(os.Interrupt), p.cmd.Wait())
	p.cmd = nil
	return err
}

// LoseStore removes the state while the program does not run. A program whose substrate outlives it will then refuse to start,
// and rightly so (PROV-17.7).
func (p *Process) LoseStore(context.Context) error {
	files, err := filepath.Glob(filepath.Join(p.Dir, "provider.db*"))
	for _, file := range files {
		err = errors.Join(err, os.Remove(file))
	}
	return err
}

// Target is p as the suite wants it: claimed profiles, and the hooks that p can offer. A simulated cloud ends with its process, so
// with Control the store can be lost too.
func (p *Process) Target(profiles ...Profile) Target {
	t := Target{
		Addr: p.addr, Profiles: profiles, Settle: time.Minute, Watch: 500 * time.Millisecond,
		Hooks: Hooks{Kill: p.Kill, Stop: p.Stop, Start: p.Start},
	}
	if p.Control {
		t.Hooks.Faults, t.Hooks.LoseStore = SubstrateControl(p.ControlAddr, nil), p.LoseStore
	}
	return t
}

// answers says whether the provider at addr answers List: then its inventory is known.
func answers(ctx context.Context, addr string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+addr+"/bigfleet.v1alpha1.CapacityProvider/List", strings.NewReader(`{"maxResults":1}`))
	if err != nil {
		return false
	}
	req.Header.Set("Content-Type", "application/json")
	h := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := h.Do(req)
	if err != nil {
		return false
	}
	_ = res.Body.Close()
	return res.StatusCode == http.StatusOK
}
