package deptest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A package whose files have prefixes says in doc.go what each prefix is. Every file has one of them or is named there, and what is named exists.
func TestPackageDocsNameTheirFiles(t *testing.T) {
	for _, pkg := range []string{"sdk/provider", "services/shard/internal/core", "services/shard/internal/engine/planner"} {
		dir := filepath.Join(root, filepath.FromSlash(pkg))
		text, err := os.ReadFile(filepath.Join(dir, "doc.go"))
		if err != nil {
			t.Fatal(err)
		}
		found, err := filepath.Glob(filepath.Join(dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		var files []string
		for _, f := range found {
			if name := filepath.Base(f); !strings.HasSuffix(name, "_test.go") && name != "doc.go" {
				files = append(files, name)
			}
		}
		for _, bad := range misfiled(string(text), files) {
			t.Errorf("%s: %s", pkg, bad)
		}
	}
}

func misfiled(doc string, files []string) (bad []string) {
	prefixes := regexp.MustCompile(`\b[a-z]+_\*`).FindAllString(doc, -1)
	names := regexp.MustCompile(`\b[a-z_]+\.go\b`).FindAllString(doc, -1)
	used := map[string]bool{}
	for _, f := range files {
		ok := false
		for _, p := range prefixes {
			if strings.HasPrefix(f, strings.TrimSuffix(p, "*")) {
				ok, used[p] = true, true
			}
		}
		for _, n := range names {
			if f == n {
				ok, used[n] = true, true
			}
		}
		if !ok {
			bad = append(bad, f+" has no prefix and no line in doc.go")
		}
	}
	for _, n := range append(prefixes, names...) {
		if !used[n] {
			bad = append(bad, "doc.go names "+n+", which does not exist")
		}
	}
	return bad
}

func TestMisfiled(t *testing.T) {
	got := misfiled("run_* is one, stop_* another, main.go the third, gone.go a fourth", []string{"run_a.go", "main.go", "other.go"})
	want := []string{"other.go has no prefix and no line in doc.go", "doc.go names stop_*, which does not exist", "doc.go names gone.go, which does not exist"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("%q", got)
	}
}
