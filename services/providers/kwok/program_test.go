package kwok

import (
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// program runs one command line until it ends, or for a moment.
func runProgram(t *testing.T, args ...string) (code int, out, say string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var o, e bytes.Buffer
	c := NewCommand()
	c.SetArgs(args)
	c.SetOut(&o)
	c.SetErr(&e)
	err := c.ExecuteContext(ctx)
	if err != nil {
		e.WriteString(err.Error())
	}
	return provider.ExitCode(err), o.String(), e.String()
}

// PROV-27.2: a kubeconfig that cannot be used may come later, so it is a warning; it names the flag.
func TestUnusableKubeconfigsAreNamed(t *testing.T) {
	nope := filepath.Join(t.TempDir(), "nope")
	code, out, say := runProgram(t, "--kubeconfig", nope, "--state", "memory", "--check")
	if code != 1 || !strings.Contains(say, "--kubeconfig") || !strings.Contains(say, nope) {
		t.Errorf("--check: exit %d: %s%s", code, out, say)
	}
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte("clusters: {red: {kubeconfig: "+nope+"}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, say = runProgram(t, "--config", file, "--state", "memory", "--check"); code != 1 || !strings.Contains(say, `cluster "red"`) || !strings.Contains(say, nope) {
		t.Errorf("--check of a named cluster: exit %d: %s%s", code, out, say)
	}
	code, _, say = runProgram(t, "--kubeconfig-dir", nope, "--state", "memory", "--addr", "127.0.0.1:0", "--metrics-addr", "")
	if code != 0 || !strings.Contains(say, "level=WARN") || !strings.Contains(say, "--kubeconfig-dir") || !strings.Contains(say, "provider serves") {
		t.Errorf("a run: exit %d: %s", code, say)
	}
	if code, _, say := runProgram(t, "--state", "memory"); code != 2 || !strings.Contains(say, "--kubeconfig") {
		t.Errorf("no cluster at all: exit %d: %s", code, say)
	}
}

// PROV-20.3: --check fails for an apiserver that refuses connections, and names it.
func TestCheckAsksTheClusters(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, []byte(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c}}],
clusters: [{name: c, cluster: {server: "http://`+addr+`"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, out, say := runProgram(t, "--kubeconfig", file, "--state", "memory", "--check"); code != 2 || !strings.Contains(say, addr) || strings.Contains(out, "all well") {
		t.Errorf("exit %d: %s%s", code, out, say)
	}
}

// PROV-24.4: a real backend serves no SubstrateControl, and says so.
func TestNoControlOfRealClusters(t *testing.T) {
	code, _, say := runProgram(t, "--kubeconfig", "x", "--state", "memory", "--control-addr", "127.0.0.1:0", "--addr", "127.0.0.1:0", "--metrics-addr", "")
	if code != 2 || !strings.Contains(say, "--control-addr") || !strings.Contains(say, "--use-fake-backend") {
		t.Errorf("exit %d: %s", code, say)
	}
}

// PROV-20.8: what cannot start ends with 2 and says everything that is wrong.
func TestWrongCommandLines(t *testing.T) {
	if code, _, say := runProgram(t, "stray"); code != 2 || !strings.Contains(say, "stray") {
		t.Errorf("an argument: exit %d: %s", code, say)
	}
	code, _, say := runProgram(t, "--kubeconfig", "x", "--tls-cert", "only", "--log-level", "loud", "--provider", "No!", "--offerings", "missing.yaml")
	for _, want := range []string{"TLS", "loud", "No!", "missing.yaml"} {
		if code != 2 || !strings.Contains(say, want) {
			t.Errorf("exit %d, no %q in: %s", code, want, say)
		}
	}
	if _, out, _ := runProgram(t, "--version"); !strings.Contains(out, "devel") && !strings.Contains(out, "version v") {
		t.Errorf("--version: %s", out)
	}
	var start *provider.StartError
	if err := Run(t.Context(), Config{}); !errors.As(err, &start) {
		t.Errorf("Run without anything: %v", err)
	}
}
