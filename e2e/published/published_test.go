// Package published proves that people without this checkout can use BigFleet: they import its modules, install its command and
// write a provider from a module proxy that holds one release (OPS-1.4, docs/releases.md).
package published

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

const repository = "github.com/bigfleet-dev/bigfleet"

// release is one release in a file proxy. Its version is a hash of the sources, so the module cache never holds a version twice
// with different content.
type release struct{ version, dir string }

func makeRelease(t *testing.T, suffix string) release {
	t.Helper()
	root := checkout(t)
	diff := run(t, root, nil, "sh", "-c", "git rev-parse HEAD && git diff HEAD")
	sum := sha256.Sum256([]byte(diff + suffix))
	r := release{version: "v0.0.1-rc." + suffix + "h" + hex.EncodeToString(sum[:6]), dir: t.TempDir()}
	run(t, filepath.Join(root, "tools", "release"), []string{"GOWORK=off"}, "go", "run", ".", "-root", root, "-version", r.version, "-out", r.dir, "-binaries=false")
	return r
}

// env makes the go command use the release, and nothing of the checkout.
func (r release) env(t *testing.T) []string {
	t.Helper()
	upstream := strings.TrimSpace(run(t, t.TempDir(), nil, "go", "env", "GOPROXY"))
	return []string{"GOWORK=off", "GOFLAGS=", "GOPROXY=file://" + filepath.ToSlash(filepath.Join(r.dir, "proxy")) + "," + upstream,
		"GONOSUMDB=" + repository + "/*"}
}

func checkout(t *testing.T) string {
	t.Helper()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// run runs a command in dir and returns what it printed.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, name, args...)
	c.Dir, c.Env = dir, append(os.Environ(), env...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out.String(), errs.String())
	}
	return out.String()
}

// consumer uses every module that people import.
const consumer = `package main

import (
	"fmt"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
)

var (
	_ identity.Files
	_ nodeready.Kubeconfigs
	_ provider.Backend
	_ = conformance.Run
)

func main() {
	fmt.Println(bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE, v1alpha1.GroupVersion())
}
`

func TestModulesAreImportedByVersion(t *testing.T) {
	first, next := makeRelease(t, "1"), makeRelease(t, "2")
	dir := t.TempDir()
	write(t, dir, "main.go", consumer)
	run(t, dir, first.env(t), "go", "mod", "init", "example.com/consumer")
	get := []string{"get"}
	for _, m := range []string{"gen/go", "sdk/identity", "sdk/kube", "sdk/nodeready", "sdk/provider"} {
		get = append(get, repository+"/"+m+"@"+first.version)
	}
	run(t, dir, first.env(t), "go", get...)
	if got := run(t, dir, first.env(t), "go", "run", "."); !strings.Contains(got, "MACHINE_STATE_IDLE bigfleet.lucy.sh/v1alpha1") {
		t.Fatalf("the consumer printed %q", got)
	}
	for i, arg := range get[1:] {
		get[i+1] = strings.Replace(arg, first.version, next.version, 1)
	}
	run(t, dir, next.env(t), "go", get...)
	run(t, dir, next.env(t), "go", "build", "-o", os.DevNull, ".")
	if mod := read(t, dir, "go.mod"); strings.Contains(mod, first.version) || strings.Contains(mod, "replace") {
		t.Fatalf("after the upgrade go.mod still holds the release before, or a replace:\n%s", mod)
	}
}

// The command installs by version, knows its release, and writes a provider that certifies itself.
func TestCommandIsInstalledByVersion(t *testing.T) {
	r := makeRelease(t, "1")
	bin := t.TempDir()
	env := append(r.env(t), "GOBIN="+bin)
	run(t, t.TempDir(), env, "go", "install", repository+"/services/bigfleet@"+r.version)
	bigfleet := filepath.Join(bin, "bigfleet")
	if got := run(t, bin, nil, bigfleet, "version", "--client"); !strings.Contains(got, r.version) {
		t.Fatalf("bigfleet version says %q, not %s", got, r.version)
	}
	work := t.TempDir()
	run(t, work, nil, bigfleet, "provider", "init", "acme")
	acme := filepath.Join(work, "acme")
	if mod := read(t, acme, "go.mod"); !strings.Contains(mod, r.version) || strings.Contains(mod, "replace") {
		t.Fatalf("the provider's go.mod is not that of the release:\n%s", mod)
	}
	run(t, acme, env, "go", "mod", "tidy")
	if got := run(t, acme, env, "go", "test", "-count=1", "-v", "./..."); !strings.Contains(got, "--- PASS: TestConformance") {
		t.Fatalf("the new provider was not certified:\n%s", got)
	}
}

// What people fetch from the tags is what the release wrote into the proxy, sum for sum.
func TestTagsGiveTheModulesOfTheProxy(t *testing.T) {
	clone := filepath.Join(t.TempDir(), "bigfleet")
	run(t, t.TempDir(), nil, "git", "clone", "--quiet", "--no-local", "file://"+checkout(t), clone)
	const version = "v0.0.1-rc.tags"
	changelog := strings.Replace(read(t, clone, "CHANGELOG.md"), "## Unreleased", "## "+version, 1)
	write(t, clone, "CHANGELOG.md", changelog)
	author := []string{"GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@example.com", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@example.com"}
	run(t, clone, author, "git", "commit", "--quiet", "-am", "changelog: "+version)
	out := t.TempDir()
	run(t, filepath.Join(checkout(t), "tools", "release"), append(author, "GOWORK=off"), "go", "run", ".", "-root", clone, "-version", version, "-out", out, "-binaries=false", "-tag")

	config := filepath.Join(t.TempDir(), "gitconfig")
	write(t, filepath.Dir(config), "gitconfig", "[url \"file://"+clone+"\"]\n\tinsteadOf = https://"+repository+"\n[protocol \"file\"]\n\tallow = always\n")
	direct := []string{"GOWORK=off", "GOFLAGS=-modcacherw", "GOPROXY=direct", "GONOSUMDB=*", "GOMODCACHE=" + t.TempDir(), "GIT_CONFIG_GLOBAL=" + config}
	proxied := []string{"GOWORK=off", "GOFLAGS=-modcacherw", "GOPROXY=file://" + filepath.Join(out, "proxy"), "GONOSUMDB=*", "GOMODCACHE=" + t.TempDir()}
	for _, m := range []string{"gen/go", "sdk/provider", "services/bigfleet"} {
		name := repository + "/" + m + "@" + version
		var tagged, stored struct{ Sum, GoModSum string }
		decode(t, run(t, t.TempDir(), direct, "go", "mod", "download", "-json", name), &tagged)
		decode(t, run(t, t.TempDir(), proxied, "go", "mod", "download", "-json", name), &stored)
		if tagged != stored || tagged.Sum == "" {
			t.Errorf("%s: the tag gives %+v, the proxy %+v", m, tagged, stored)
		}
	}
}

func decode(t *testing.T, text string, into any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), into); err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, dir, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
