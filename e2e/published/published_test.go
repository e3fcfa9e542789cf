// Package published proves that people without this checkout can use BigFleet: they import its modules, install its command and
// write a provider from a module proxy that holds one release (OPS-1.4, docs/releases.md).
package published

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
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
	first, next := theRelease(t), theNextRelease(t)
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

// The command installs by version, knows its release, and writes a provider that certifies itself. The same provider continues with
// the next release: what it changes in the provider's files is two commands, and the state is read.
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
	machine := startAcme(t, acme, env, work, true)
	next := theNextRelease(t)
	run(t, acme, next.env(t), "go", "get", repository+"/sdk/provider@"+next.version)
	run(t, acme, next.env(t), "go", "mod", "tidy")
	run(t, acme, next.env(t), "go", "test", "-count=1", "-run", "TestChart", ".", "-rewrite")
	if got := run(t, acme, next.env(t), "go", "test", "-count=1", "-v", "./..."); !strings.Contains(got, "--- PASS: TestConformance") {
		t.Fatalf("the upgraded provider was not certified:\n%s", got)
	}
	if mod, library := read(t, acme, "go.mod"), read(t, acme, "chart/charts/bigfleet-provider-library/values.yaml"); strings.Contains(mod, r.version) || !strings.HasSuffix(library, changedInNext) {
		t.Fatalf("the provider still uses the release before:\n%s\n%s", mod, library)
	}
	if after := startAcme(t, acme, next.env(t), work, false); after != machine {
		t.Fatalf("machine before the upgrade: %s\nafter: %s", machine, after)
	}
}

// startAcme builds and runs the provider on its state in work, buys a machine if asked to, and returns what the provider says of the
// machine that is bought.
func startAcme(t *testing.T, acme string, env []string, work string, buy bool) string {
	t.Helper()
	binary := filepath.Join(work, "provider")
	run(t, acme, env, "go", "build", "-o", binary, ".")
	addr, ops := loopback.Addr(t), loopback.Addr(t)
	p := proc.StartT(t, proc.Config{Name: "acme", Path: binary, Dir: acme, LogFile: filepath.Join(work, "log"), Args: []string{"--use-fake-backend", "--config", "config.yaml", "--data-dir", filepath.Join(work, "state"),
		"--addr", addr, "--metrics-addr", ops}, Ready: proc.HTTP("http://"+ops+"/readyz", nil)})
	client := bigfleetv1alpha1connect.NewCapacityProviderClient(http.DefaultClient, "http://"+addr)
	list := func() []*bigfleetv1alpha1.Machine {
		got, err := client.List(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ListFilter{}))
		if err != nil {
			t.Fatal(err)
		}
		return got.Msg.GetMachines()
	}
	if buy {
		if _, err := client.Create(t.Context(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{MachineId: list()[0].GetId(), ShardId: "shard-0", ShardEpoch: 1, SequenceNumber: 1})); err != nil {
			t.Fatal(err)
		}
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		for _, m := range list() {
			if m.GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_IDLE {
				if err := p.Stop(); err != nil {
					t.Fatal(err)
				}
				return m.GetId() + " on " + m.GetHost().GetRef()
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("no machine is idle: %v", list())
		}
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
