package template_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/template"
)

const checkout = "../../.."

func goes(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// PROV-23.1, 23.3, scenario 66: the written module, outside of any workspace, with a checkout standing in for the registry,
// builds, is formatted, and is certified by its own tests before any edit: every profile.
func TestTheTemplateIsCertified(t *testing.T) {
	dir, files, err := template.Write(template.Params{Name: "acme", Dir: filepath.Join(t.TempDir(), "acme"), Checkout: checkout})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"backend.go", "Dockerfile", ".github/workflows/ci.yaml", "chart/Chart.yaml", "chart/charts/bigfleet-provider-library/templates/_workload.tpl", "chart/values.schema.json", ".gitignore"} {
		if !slices.Contains(files, want) {
			t.Errorf("%s was not written: %v", want, files)
		}
	}
	goes(t, dir, "mod", "tidy")
	goes(t, dir, "vet", "./...")
	if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("gofmt: %v %s", err, out)
	}
	out := goes(t, dir, "test", "-count=1", "-v", "./...")
	for _, want := range []string{"--- PASS: TestConformance ", "--- PASS: TestScale ", "--- PASS: TestChart "} {
		if !strings.Contains(out, want) {
			t.Errorf("the module's own tests: no %q in\n%s", want, out)
		}
	}
}

// The real backend is the author's to write: until then the program says so and ends with 2 (PROV-20.5, 20.8).
func TestTheTemplateDoesNotPretendUnasked(t *testing.T) {
	dir, _, err := template.Write(template.Params{Name: "x", Dir: filepath.Join(t.TempDir(), "x"), Checkout: checkout})
	if err != nil {
		t.Fatal(err)
	}
	goes(t, dir, "mod", "tidy")
	binary := filepath.Join(t.TempDir(), "x")
	goes(t, dir, "build", "-o", binary, ".")
	out, err := exec.CommandContext(t.Context(), binary, "--config", filepath.Join(dir, "config.yaml"), "--state", "memory").CombinedOutput()
	if err == nil || !strings.Contains(err.Error(), "exit status 2") || !strings.Contains(string(out), "--use-fake-backend") {
		t.Errorf("%v: %s", err, out)
	}
	out, err = exec.CommandContext(t.Context(), binary, "--config", filepath.Join(dir, "config.yaml"), "--use-fake-backend", "--check").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "4 offerings, 160 slots") {
		t.Errorf("--check of config.yaml: %v: %s", err, out)
	}
}

func TestWriteRefuses(t *testing.T) {
	full := t.TempDir()
	if err := os.WriteFile(filepath.Join(full, "precious"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		p    template.Params
		want string
	}{
		"no name":         {template.Params{}, "provider name"},
		"capitals":        {template.Params{Name: "Acme"}, "provider name"},
		"a path":          {template.Params{Name: "../x"}, "provider name"},
		"a full house":    {template.Params{Name: "a", Dir: full}, "not empty"},
		"no checkout":     {template.Params{Name: "a", Dir: filepath.Join(full, "a"), Checkout: full}, "does not contain BigFleet's source"},
		"a broken module": {template.Params{Name: "a", Dir: filepath.Join(full, "a"), Module: "a b"}, "module path"},
	} {
		if _, _, err := template.Write(c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if entries, _ := os.ReadDir(full); len(entries) != 1 {
		t.Errorf("a refusal wrote something: %v", entries)
	}
}

// PROV-17.1, 23.1: against the registry, go.mod names the version and no directory of this machine.
func TestAgainstTheRegistry(t *testing.T) {
	dir, _, err := template.Write(template.Params{Name: "acme", Dir: filepath.Join(t.TempDir(), "acme"), SDKVersion: "v1.2.3", Module: "git.example/infra/acme"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^module git\.example/infra/acme\n(.|\n)*require github\.com/bigfleet-dev/bigfleet/sdk/provider v1\.2\.3\n`).Match(text) || strings.Contains(string(text), "replace") {
		t.Errorf("go.mod:\n%s", text)
	}
}
