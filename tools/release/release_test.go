package main

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestDependenciesComeFirst(t *testing.T) {
	a := &module{path: prefix + "a", siblings: []string{prefix + "b", prefix + "c"}}
	b := &module{path: prefix + "b", siblings: []string{prefix + "c"}}
	c := &module{path: prefix + "c"}
	got, err := dependenciesFirst([]*module{a, b, c})
	if err != nil {
		t.Fatal(err)
	}
	if got[0] != c || got[1] != b || got[2] != a {
		t.Fatalf("order %s, %s, %s", got[0].path, got[1].path, got[2].path)
	}
	c.siblings = []string{prefix + "a"}
	if _, err := dependenciesFirst([]*module{a, b, c}); err == nil || !strings.Contains(err.Error(), "requires itself") {
		t.Fatalf("a circle gave %v", err)
	}
	c.siblings = []string{prefix + "e2e"}
	if _, err := dependenciesFirst([]*module{a, b, c}); err == nil || !strings.Contains(err.Error(), "not released") {
		t.Fatalf("a requirement of a module that is not released gave %v", err)
	}
}

func TestEveryModuleOfTheCheckoutIsReleasable(t *testing.T) {
	all, err := publishedModules(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 10 || all[len(all)-1].path == prefix+"gen/go" {
		t.Fatalf("%d modules, the last is %s", len(all), all[len(all)-1].path)
	}
}

func TestAReplaceOfAForeignModuleIsRefused(t *testing.T) {
	dir := t.TempDir()
	mod := "module " + prefix + "x\n\ngo 1.26.0\n\nrequire (\n\t" + prefix + "y v0.0.0\n\texample.com/z v1.0.0\n)\n\nreplace " + prefix + "y => ../y\n"
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &plan{version: "v0.3.0"}
	if err := p.rewriteMod(dir); err != nil {
		t.Fatal(err)
	}
	got, err := readModule(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Replace) != 0 || got.Require[0].Mod.Version != "v0.3.0" || got.Require[1].Mod.Version != "v1.0.0" {
		t.Fatalf("rewritten to %v, replaces %v", got.Require, got.Replace)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.mod"), []byte(mod+"\nreplace example.com/z => ../z\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.rewriteMod(dir); err == nil || !strings.Contains(err.Error(), "example.com/z") {
		t.Fatalf("a replace that consumers ignore gave %v", err)
	}
}

func TestNotesAreTheSectionOfTheVersion(t *testing.T) {
	log := "# Changelog\n\n## Unreleased\n\n- new\n\n## v0.2.0\n\n- old\n"
	if got := section(log, "v0.2.0"); got != "- old\n" {
		t.Errorf("v0.2.0: %q", got)
	}
	if got := section(log, "Unreleased"); got != "- new\n" {
		t.Errorf("Unreleased: %q", got)
	}
	if got := section(log, "v9.9.9"); got != "" {
		t.Errorf("v9.9.9: %q", got)
	}
}

func TestAVersionMustBeSemantic(t *testing.T) {
	for _, version := range []string{"", "1.0.0", "v1", "v1.0", "v1.0.0+build", "latest"} {
		if err := run([]string{"-version", version, "-out", t.TempDir()}); err == nil || !strings.Contains(err.Error(), "semantic version") {
			t.Errorf("%q gave %v", version, err)
		}
	}
}

// Equal sources give equal files: zips, charts, images of charts, the npm package. Programs are the same as far as `go build` is.
func TestTwoRunsGiveEqualFiles(t *testing.T) {
	release := func() map[string]string {
		out := t.TempDir()
		if err := run([]string{"-root", filepath.Join("..", ".."), "-version", "v0.0.1", "-out", out, "-binaries=false"}); err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		if err := fs.WalkDir(os.DirFS(out), ".", func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(filepath.Join(out, path))
			files[path] = string(data)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		return files
	}
	first, second := release(), release()
	if len(first) < 60 || !maps.Equal(first, second) {
		for name, data := range first {
			if second[name] != data {
				t.Errorf("%s differs", name)
			}
		}
		t.Errorf("%d and %d files", len(first), len(second))
	}
}

// The Buf module holds the API and nothing else, and builds beside what it requires.
func TestTheBufModuleBuilds(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	p := &plan{root: root, out: t.TempDir()}
	if err := p.writeBuf(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(filepath.Join(root, "tools", "install.sh"), "api").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// A registry would give the module that it requires; here it stands beside, under the same name.
	if err := os.CopyFS(filepath.Join(p.out, "rules"), os.DirFS(filepath.Join(root, "proto", "third_party", "protovalidate"))); err != nil {
		t.Fatal(err)
	}
	config, err := os.ReadFile(filepath.Join(p.out, "buf", "buf.yaml"))
	if err != nil || !strings.Contains(string(config), "name: buf.build/bigfleet-dev/bigfleet\n") {
		t.Fatalf("%v: %s", err, config)
	}
	workspace := "version: v2\nmodules:\n  - path: buf\n    name: buf.build/bigfleet-dev/bigfleet\n  - path: rules\n    name: buf.build/bufbuild/protovalidate\n"
	if err := os.WriteFile(filepath.Join(p.out, "buf.yaml"), []byte(workspace), 0o600); err != nil {
		t.Fatal(err)
	}
	said, err := p.buf(p.out, "ls-files")
	if err != nil || strings.Contains(said, "coordinatorlog") || strings.Count(said, "bigfleet/v1alpha1/") < 10 {
		t.Fatalf("%v: %s", err, said)
	}
	if _, err := p.buf(p.out, "build"); err != nil {
		t.Fatal(err)
	}
}

// A dry run leaves nothing behind that the release of the same version would meet.
func TestARunDoesNotSeeTheModulesOfTheLast(t *testing.T) {
	fetched := func(text string) string {
		p, tree, dir := &plan{version: "v0.0.1", out: t.TempDir()}, t.TempDir(), t.TempDir()
		for name, data := range map[string]string{"go.mod": "module " + prefix + "sdk/x\n\ngo 1.26.0\n", "x.go": text} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.writeProxy(&module{path: prefix + "sdk/x", dir: "sdk/x"}, dir); err != nil {
			t.Fatal(err)
		}
		c := exec.Command("go", "mod", "download", "-json", prefix+"sdk/x@v0.0.1")
		c.Dir, c.Env = t.TempDir(), append(append(os.Environ(), p.proxyEnv(tree)...), "GOWORK=off", "GOFLAGS=-modcacherw")
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		_, sum, _ := strings.Cut(string(out), `"Sum": "`)
		sum, _, _ = strings.Cut(sum, `"`)
		return sum
	}
	if first, second := fetched("package x\n"), fetched("package x // changed\n"); first == "" || first == second {
		t.Errorf("a changed module of the same version has the sums %q and %q", first, second)
	}
}
