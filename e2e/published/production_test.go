package published

import (
	"io"
	"log"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

const namespace = "bigfleet-system"

// OPS-1.4, OPS-7.1, OPS-8.4: every command of docs/production.md, on a real control plane, with charts and images from a registry that
// holds the release. Kubelets are played by the test: it runs the programs of Pods and Jobs from the very contents of their images, with the
// arguments, rights and Secrets of the objects that helm made. TLS is what the charts do by default.
func TestProductionGuide(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the images hold programs for linux")
	}
	t.Parallel() // it waits more than it works, as the suite does
	r := theRelease(t)
	dist, programs := t.TempDir(), t.TempDir()
	for _, program := range []string{"services/bigfleet", "services/providers/sim/cmd/bigfleet-provider-sim"} {
		run(t, programs, nil, "cp", proc.BuildT(t, program), filepath.Join(programs, filepath.Base(program)))
	}
	r.make(t, dist, "-programs", programs)
	p := &pods{t: t, registry: push(t, filepath.Join(dist, "oci")), ports: map[string]*loopback.Port{}, ran: map[string]bool{}, roots: map[string]string{}}
	p.cp = controlplane.StartT(t, controlplane.Config{Omit: []controlplane.Component{controlplane.Scheduler, controlplane.Kwok}})
	if err := p.cp.ApplyYAML(t.Context(), []byte(certManager)); err != nil {
		t.Fatal(err)
	}
	shell := p.shell()
	commands, headings := page(t, "production.md")
	said := map[string]string{}
	for _, h := range headings {
		script := strings.ReplaceAll(commands[h], "v0.2.0", r.version)
		if h == "4. See that it works" {
			script = clusterAddress.ReplaceAllStringFunc(script, p.at)
		}
		if script != "" {
			said[h] = shell("export BIGFLEET_VERSION=" + r.version + "\n" + script)
		}
		p.runJobs()
		if h == "3. Install" {
			p.startAll()
		}
	}
	for h, want := range map[string][]string{
		"3. Install":           {"statefulset.apps/bigfleet-shard", "networkpolicy.networking.k8s.io/bigfleet-coordinator", "job.batch/bigfleet-authority-"},
		"With cert-manager":    {"certificate.cert-manager.io/bigfleet-shard-tls-1 created", "certificate.cert-manager.io/bigfleet-operator-tls created"},
		"4. See that it works": {"bigfleet-coordinator-2", "bigfleet-shard-0", "bigfleet-shard-1", "eu-1b", "verified"},
		"6. Let it act":        {"REVISION: 2"},
	} {
		for _, w := range want {
			if !strings.Contains(said[h], w) {
				t.Errorf("%s does not say %q:\n%s", h, w, said[h])
			}
		}
	}
}

// push puts what an image layout holds into a registry of this machine, and returns its address.
func push(t *testing.T, dir string) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := strings.TrimPrefix(server.URL, "http://")
	path, err := layout.FromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	all, err := path.ImageIndex()
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		to := reference(t, host, m.Annotations["org.opencontainers.image.ref.name"])
		if m.MediaType.IsIndex() {
			var index v1.ImageIndex
			if index, err = all.ImageIndex(m.Digest); err == nil {
				err = remote.WriteIndex(to, index)
			}
		} else {
			var image v1.Image
			if image, err = all.Image(m.Digest); err == nil {
				err = remote.Write(to, image)
			}
		}
		if err != nil {
			t.Fatalf("%s: %v", to, err)
		}
	}
	return host
}

// reference is where an image of the charts is in the registry of the test.
func reference(t *testing.T, host, image string) name.Reference {
	t.Helper()
	ref, err := name.ParseReference(strings.Replace(image, "ghcr.io", host, 1))
	if err != nil {
		t.Fatal(err)
	}
	return ref
}
