package deptest

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// trackedFiles lists what git tracks. It reads every folder too, so that a cached result does not outlive a new file.
func trackedFiles(t *testing.T) []string {
	t.Helper()
	files, err := Files(root)
	if err != nil {
		t.Fatal(err)
	}
	folders := map[string]bool{}
	for _, name := range files {
		folders[path.Dir(name)] = true
	}
	for folder := range folders {
		if _, err := os.ReadDir(filepath.Join(root, folder)); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// The repository holds sources: no program, no large file, no record of a failure.
func TestTreeIsClean(t *testing.T) {
	files := trackedFiles(t)
	if !slices.Contains(files, "README.md") || !slices.Contains(files, "tools/deptest/tree_test.go") {
		t.Fatalf("git ls-files lists %d files, and not this one", len(files))
	}
	found, err := CheckFiles(root, files)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range found {
		t.Error(line)
	}
}

// Each kind of unwanted file is found, and what may stay is not.
func TestTreeCheckBites(t *testing.T) {
	dir := t.TempDir()
	large := strings.Repeat("x", fileBytesMax+1)
	for name, c := range map[string]struct{ content, want string }{
		"bigfleet":                     {"\x7fELF\x02\x01", "a program (ELF)"},
		"tools/bin/tool":               {"\xcf\xfa\xed\xfe\x07", "a program (Mach-O)"},
		"tool.exe":                     {"MZ\x90", "a program (PE)"},
		"deploy/trace.json":            {large, "300 KiB is the limit"},
		"a/testdata/rapid/T/T.fail":    {"x", "rapid"},
		"services/shard/cpu.prof":      {"x", "one run"},
		"services/shard/core.test":     {"x", "one run"},
		"services/shard/sim/seed7.log": {"x", "one run"},
		"gen/openapi/bigfleet.yaml":    {large, ""},
		"docs/spec/wire.md":            {large, ""},
		"proto/baseline/release.binpb": {large, ""},
		"e2e/go.sum":                   {large, ""},
		"services/shard/core/core.go":  {"package core", ""},
		"empty":                        {"", ""},
		"M":                            {"M", ""},
	} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(c.content), 0o644); err != nil {
			t.Fatal(err)
		}
		found, err := CheckFiles(dir, []string{name})
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(found, "\n"); (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
