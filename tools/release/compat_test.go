package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// taggedRepository is one with one module, one proto, and the tag v0.1.0 on both.
func taggedRepository(t *testing.T) *plan {
	t.Helper()
	root := t.TempDir()
	p := &plan{root: root, out: t.TempDir(), version: "v0.2.0"}
	p.write(t, "go.work", "go 1.26.0\n\nuse (\n\t./sdk/x\n\t./sdk/z\n)\n")
	p.write(t, "sdk/x/go.mod", "module "+prefix+"sdk/x\n\ngo 1.26.0\n")
	p.write(t, "sdk/x/x.go", "package x\n\n// Open opens.\nfunc Open(name string) error { return nil }\n")
	p.write(t, "sdk/x/internal/y/y.go", "package y\n\nfunc Free() {}\n")
	const z = "module " + prefix + "sdk/z\n\ngo 1.26.0\n\nrequire " + prefix + "sdk/x "
	p.write(t, "sdk/z/go.mod", z+"v0.1.0\n") // a release: it has the version of its sibling, and no registry knows it here
	p.write(t, "sdk/z/z.go", "package z\n\nimport _ \""+prefix+"sdk/x\"\n")
	p.write(t, "buf.yaml", "version: v2\nmodules: [{path: proto}]\nbreaking: {use: [WIRE_JSON]}\n")
	p.write(t, "proto/bigfleet/v1alpha1/a.proto", "syntax = \"proto3\";\npackage bigfleet.v1alpha1;\nmessage A {\n  string id = 1;\n}\n")
	p.write(t, "tools/install.sh", "#!/bin/sh\n")                                       // the tool is there already
	if err := os.Chmod(filepath.Join(root, "tools", "install.sh"), 0o755); err != nil { //nolint:gosec // a program
		t.Fatal(err)
	}
	tools, err := filepath.Abs(filepath.Join("..", "..", "tools", "install.sh"))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tools, "api").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Symlink(filepath.Join(filepath.Dir(filepath.Dir(tools)), ".bin"), filepath.Join(root, ".bin")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"} {
		t.Setenv(name, "t")
	}
	for _, name := range []string{"GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"} {
		t.Setenv(name, "t@example.com")
	}
	for _, args := range [][]string{{"init", "-q"}, {"add", "."}, {"commit", "-qm", "one"}, {"tag", "v0.1.0"}, {"tag", "v0.2.0-rc.1"}, {"tag", "v0.9.0"}} {
		if _, err := p.git(args...); err != nil {
			t.Fatal(err)
		}
	}
	p.write(t, "sdk/z/go.mod", z+"v0.0.0\n\nreplace "+prefix+"sdk/x => ../x\n")
	return p
}

func (p *plan) write(t *testing.T, name, text string) {
	t.Helper()
	file := filepath.Join(p.root, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A release is compared with the highest release below it, by what people import. Before 1.0.0 a patch breaks nothing and a
// minor version says what it breaks; a package that cannot be imported may change.
func TestABrokenGoAPIIsFound(t *testing.T) {
	p := taggedRepository(t)
	check := func(version string) (string, error) {
		p.version = version
		return p.compatible()
	}
	p.write(t, "sdk/x/more.go", "package x\n\n// Close closes.\nfunc Close() {}\n")
	p.write(t, "sdk/x/internal/y/y.go", "package y\n\nfunc Free(int) {}\n")
	if notes, err := check("v0.1.1"); notes != "" || err != nil {
		t.Fatalf("an addition gave %q, %v", notes, err)
	}
	p.write(t, "sdk/x/x.go", "package x\n\n// Open opens.\nfunc Open(name string, flags int) error { return nil }\n")
	if _, err := check("v0.1.1"); !errors.Is(err, errAPI) || !strings.Contains(err.Error(), "sdk/x: Open: changed from func(string) error to func(string, int) error") {
		t.Fatalf("a patch with a changed function gave %v", err)
	}
	if notes, err := check("v0.2.0"); err != nil || !strings.Contains(notes, "break programs of v0.1.0") || !strings.Contains(notes, "Open: changed") {
		t.Fatalf("a minor version with a changed function gave %q, %v", notes, err)
	}
	if err := os.RemoveAll(filepath.Join(p.root, "sdk")); err != nil {
		t.Fatal(err)
	}
	if _, err := check("v0.1.1"); !errors.Is(err, errAPI) || !strings.Contains(err.Error(), "sdk/x: removed") {
		t.Fatalf("a patch without the module gave %v", err)
	}
	if notes, err := check("v0.0.9"); notes != "" || err != nil {
		t.Fatalf("before the first release: %q, %v", notes, err)
	}
}

// No version may break the wire contract.
func TestABrokenWireContractIsFound(t *testing.T) {
	p := taggedRepository(t)
	const proto = "proto/bigfleet/v1alpha1/a.proto"
	p.write(t, proto, "syntax = \"proto3\";\npackage bigfleet.v1alpha1;\nmessage A {\n  string id = 1;\n  string zone = 2;\n}\n")
	if notes, err := p.compatible(); notes != "" || err != nil {
		t.Fatalf("one field more gave %q, %v", notes, err)
	}
	p.write(t, proto, "syntax = \"proto3\";\npackage bigfleet.v1alpha1;\nmessage A {\n  int64 id = 1;\n}\n")
	if _, err := p.compatible(); !errors.Is(err, errWire) || !strings.Contains(err.Error(), `"id" on message "A" changed type`) {
		t.Fatalf("a field of another type gave %v", err)
	}
}

func TestWhichVersionsMayBreak(t *testing.T) {
	for _, c := range []struct {
		last, next string
		may        bool
	}{{"v0.1.0", "v0.1.1", false}, {"v0.1.4", "v0.2.0", true}, {"v0.9.0", "v1.0.0", true}, {"v1.1.0", "v1.2.0", false}, {"v1.2.0", "v2.0.0", true}} {
		if got := mayBreak(c.last, c.next); got != c.may {
			t.Errorf("%s after %s may break: %v", c.next, c.last, got)
		}
	}
}

// A tagged release is what is committed, has notes and every program, and a version that is new.
func TestWhatATaggedReleaseRefuses(t *testing.T) {
	p := taggedRepository(t)
	tag := func(args ...string) error {
		return run(append([]string{"-root", p.root, "-out", t.TempDir(), "-tag"}, args...))
	}
	if err := tag("-version", "v0.2.0"); !errors.Is(err, errDirty) {
		t.Errorf("with uncommitted changes: %v", err)
	}
	p.write(t, "CHANGELOG.md", "# Changelog\n\n## Unreleased\n\n- new\n")
	for _, args := range [][]string{{"add", "."}, {"commit", "-qm", "two"}, {"tag", "sdk/x/v0.3.0"}} {
		if _, err := p.git(args...); err != nil {
			t.Fatal(err)
		}
	}
	if err := tag("-version", "v0.2.0", "-platforms", "linux/amd64"); !errors.Is(err, errPartial) {
		t.Errorf("with one platform: %v", err)
	}
	for version, want := range map[string]string{"v0.2.0": "rename Unreleased", "v0.9.0": "has the tags v0.9.0", "v0.3.0": "has the tags sdk/x/v0.3.0"} {
		if err := tag("-version", version); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", version, err, want)
		}
	}
	if tags, err := p.git("tag", "--list", "*v0.[23].0"); err != nil || tags != "sdk/x/v0.3.0" {
		t.Errorf("a refused release left tags: %s, %v", tags, err)
	}
}
