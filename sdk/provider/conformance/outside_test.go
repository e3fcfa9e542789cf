package conformance_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
)

// A provider in a module outside the workspace, in at most 150 lines, builds with GOWORK=off against the published paths
// (replace stands in for the registry) and is certified: core, cloud, spot, durable.
func TestAnOutsideProviderIsCertified(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("testdata/outside/main.go")
	if err != nil {
		t.Fatal(err)
	}
	if lines := bytes.Count(source, []byte("\n")); lines > 150 {
		t.Errorf("the provider has %d lines", lines)
	}
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	const mod = "github.com/bigfleet-dev/bigfleet/"
	gomod := "module example.com/shed\n\ngo 1.26.0\n\nrequire " + mod + "sdk/provider v0.0.0\n"
	for _, m := range []string{"gen/go", "sdk/identity", "sdk/otlp", "sdk/provider", "sdk/wal"} {
		gomod += fmt.Sprintf("\nreplace %s%s => %s\n", mod, m, filepath.Join(root, m))
	}
	for name, text := range map[string][]byte{"main.go": source, "go.mod": []byte(gomod)} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	binary := filepath.Join(dir, "shed")
	for _, args := range [][]string{{"mod", "tidy"}, {"build", "-o", binary, "."}} {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %v: %v\n%s", args, err, out)
		}
	}
	p := &conformance.Process{Path: binary, Dir: t.TempDir()}
	p.Args = []string{"--config", configFile(t, p.Dir, "seed_count: 200\nreconcile_interval: 300ms\nshutdown_grace: 100ms\n")}
	p.StartT(t)
	target := p.Target(conformance.Core, conformance.Cloud, conformance.Spot, conformance.Durable)
	target.Watch = 200 * time.Millisecond
	conformance.Run(t, target, conformance.Options{Seed: 1})
}
