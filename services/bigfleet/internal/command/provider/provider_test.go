package provider_test

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// run is one command line.
func run(t *testing.T, args ...string) (code exit.Code, out, message string) {
	t.Helper()
	var o, e bytes.Buffer
	code = cli.Main(t.Context(), env.Env{In: strings.NewReader(""), Out: &o, Err: &e, Getenv: func(string) string { return "" }, Now: time.Now}, append([]string{"provider"}, args...))
	return code, o.String(), e.String()
}

// serve runs the SDK on its simulated cloud, and says where.
func serve(t *testing.T) string {
	t.Helper()
	offerings := provider.GeneralCatalogue(400)
	cloud, err := substrate.New(substrate.Config{Offerings: offerings})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p, err := provider.New("acme", cloud, provider.WithListener(l), provider.WithStore(store.Memory()), provider.WithOfferings(offerings...),
		provider.WithReadiness(provider.SubstrateReadiness()), provider.WithLogger(slog.New(slog.DiscardHandler)), provider.WithVersion("v1.2.3"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

func TestPing(t *testing.T) {
	addr := serve(t)
	code, out, message := run(t, "ping", addr, "--wait", "30s")
	for _, want := range []string{"Provider acme answers at " + addr, "v1.2.3", "machines   400", "mutations  served", "readiness  as its infrastructure reports it", "on-demand"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s%s", want, out, message)
		}
	}
	if code != exit.OK {
		t.Errorf("exit %d: %s", code, message)
	}
	if code, out, _ := run(t, "ping", addr, "-o", "json"); code != exit.OK || !strings.Contains(out, `"name": "acme"`) {
		t.Errorf("-o json: exit %d: %s", code, out)
	}
	begin := time.Now()
	if code, _, message := run(t, "ping", "127.0.0.1:1", "--wait", "300ms"); code != exit.Unreachable || !strings.Contains(message, "127.0.0.1:1") || time.Since(begin) < 300*time.Millisecond {
		t.Errorf("no server: exit %d: %s", code, message)
	}
	if code, _, _ := run(t, "ping"); code != exit.Usage {
		t.Errorf("no address: exit %d", code)
	}
}

func TestList(t *testing.T) {
	addr := serve(t)
	if code, _, message := run(t, "ping", addr, "--wait", "30s"); code != exit.OK {
		t.Fatal(message)
	}
	code, out, message := run(t, "list", addr)
	if code != exit.OK || strings.Count(out, "\n") != 401 || !strings.Contains(out, "speculative") || !strings.Contains(out, "spot") {
		t.Errorf("exit %d, %d lines: %s", code, strings.Count(out, "\n"), message)
	}
	if code, out, _ := run(t, "list", addr, "--state", "idle", "-o", "name"); code != exit.OK || out != "" {
		t.Errorf("none is idle: exit %d: %s", code, out)
	}
	if code, out, _ := run(t, "list", addr, "--state", "Speculative", "-o", "jsonl"); code != exit.OK || strings.Count(out, `"id":"acme-`) != 400 {
		t.Errorf("-o jsonl: exit %d: %.200s", code, out)
	}
	if code, _, message := run(t, "list", addr, "--state", "bored"); code != exit.Usage || !strings.Contains(message, "configured") {
		t.Errorf("no such state: exit %d: %s", code, message)
	}
	if code, _, _ := run(t, "list", "127.0.0.1:1"); code != exit.Unreachable {
		t.Errorf("no server: exit %d", code)
	}
}

// PROV-29.11: the suite's own exit codes; PROV-29.6: a plan changes nothing.
func TestConformance(t *testing.T) {
	addr := serve(t)
	if code, _, message := run(t, "ping", addr, "--wait", "30s"); code != exit.OK {
		t.Fatal(message)
	}
	report := filepath.Join(t.TempDir(), "report")
	code, out, message := run(t, "conformance", addr, "--profile", "cloud,spot", "--only", "args,field", "--watch", "50ms", "--report", report)
	if code != exit.OK || !strings.Contains(out, "CONFORMANT") {
		t.Errorf("exit %d: %s%s", code, out, message)
	}
	for _, name := range []string{"report.json", "junit.xml", "badge.json", "report.txt"} {
		if _, err := os.Stat(filepath.Join(report, name)); err != nil {
			t.Error(err)
		}
	}
	// A claim that the target contradicts is a failure.
	if code, _, message := run(t, "test", addr, "--profile", "bare-metal", "--only", "field", "--quiet"); code != exit.Failed || !strings.Contains(message, "NOT CONFORMANT") {
		t.Errorf("a wrong claim: exit %d: %s", code, message)
	}
	for name, args := range map[string][]string{
		"no such profile": {"conformance", addr, "--profile", "gold"}, "no address": {"conformance"}, "no server": {"conformance", "127.0.0.1:1", "--quiet"},
	} {
		if code, _, message := run(t, args...); code != exit.Usage {
			t.Errorf("%s: exit %d: %s", name, code, message)
		}
	}
	if code, out, _ := run(t, "conformance", addr, "--plan"); code != exit.OK || !strings.Contains(out, "needed:") || !strings.Contains(out, "fence/") {
		t.Errorf("--plan: exit %d: %s", code, out)
	}
}

func TestInit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "acme")
	code, out, message := run(t, "init", "acme", "--dir", dir, "--checkout", "../../../../..", "--module", "git.example/acme")
	if code != exit.OK || !strings.Contains(out, dir+"/backend.go") || !strings.Contains(message, "go mod tidy && go test") {
		t.Errorf("exit %d: %s%s", code, out, message)
	}
	if text, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || !strings.HasPrefix(string(text), "module git.example/acme\n") {
		t.Errorf("%v: %s", err, text)
	}
	for name, args := range map[string][]string{
		"a second time": {"init", "acme", "--dir", dir, "--checkout", "../../../../.."},
		"a bad name":    {"init", "Acme!", "--checkout", "../../../../.."},
		"no name":       {"init"},
		// A binary of a checkout cannot know a released version: it asks instead of writing a go.mod that cannot resolve.
		"no version": {"init", "acme", "--dir", filepath.Join(t.TempDir(), "x")},
	} {
		if code, _, message := run(t, args...); code != exit.Usage || message == "" {
			t.Errorf("%s: exit %d: %s", name, code, message)
		}
	}
}
