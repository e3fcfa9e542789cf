// Package published proves that people without this checkout can use BigFleet: they import its modules, install its command and
// write a provider from a module proxy that holds one release (OPS-1.4, docs/releases.md).
package published

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

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
	first, next := theRelease(t), makeRelease(t, t.TempDir(), "2")
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
	r := theRelease(t)
	env := append(r.env(t), "GOBIN="+bin())
	run(t, t.TempDir(), env, "go", "install", repository+"/services/bigfleet@"+r.version)
	bigfleet := filepath.Join(bin(), "bigfleet")
	if got := run(t, bin(), nil, bigfleet, "version", "--client"); !strings.Contains(got, r.version) {
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
	r := theRelease(t)
	direct := append(r.git(t), "GOWORK=off", "GOFLAGS=-modcacherw", "GOPROXY=direct", "GONOSUMDB=*", "GOMODCACHE="+t.TempDir())
	proxied := []string{"GOWORK=off", "GOFLAGS=-modcacherw", "GOPROXY=file://" + filepath.Join(r.dir, "proxy"), "GONOSUMDB=*", "GOMODCACHE=" + t.TempDir()}
	for _, m := range []string{"gen/go", "sdk/provider", "services/bigfleet"} {
		name := repository + "/" + m + "@" + r.version
		var tagged, stored struct{ Sum, GoModSum string }
		decode(t, run(t, t.TempDir(), direct, "go", "mod", "download", "-json", name), &tagged)
		decode(t, run(t, t.TempDir(), proxied, "go", "mod", "download", "-json", name), &stored)
		if tagged != stored || tagged.Sum == "" {
			t.Errorf("%s: the tag gives %+v, the proxy %+v", m, tagged, stored)
		}
	}
}
