package command

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/loopback"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// The command on real clusters, from nothing: definitions, machines, a process that dies, and somebody else's provider. The parts
// follow each other on the same two control planes, which take the longest to start.
func TestRealClusters(t *testing.T) {
	planes := controlplane.StartAllT(t, controlplane.Config{Name: "red"}, controlplane.Config{Name: "blue"})
	red, blue := planes[0], planes[1]
	t.Run("definitions", func(t *testing.T) { definitions(t, red) })
	t.Run("up", func(t *testing.T) { upOnRealClusters(t, red, blue) })
	t.Run("provider", func(t *testing.T) { upWithProvider(t, blue) })
}

// OPS-4.2 `crds print|diff|apply`: what is missing or differs is shown and makes exit code 4; apply puts it right and asks first.
func definitions(t *testing.T, red *controlplane.ControlPlane) {
	b := build(t)
	at := []string{"--kubeconfig", red.Kubeconfig()}
	crds := func(code int, texts []string, args ...string) string {
		t.Helper()
		return b.wants(code, texts, append(append([]string{"crds"}, args...), at...)...)
	}
	crds(4, []string{"+ capacityrequests.bigfleet.lucy.sh", "+ upcomingnodes.bigfleet.lucy.sh", "missing or of another version", "`bigfleet crds apply`"}, "diff")
	b.wants(4, []string{"fail  ", "capacityrequests.bigfleet.lucy.sh", "bigfleet crds apply"}, append([]string{"doctor", "--cluster-only"}, at...)...)
	crds(8, []string{"nobody can be asked"}, "apply")
	crds(0, []string{"+ capacityrequests.bigfleet.lucy.sh"}, "apply", "--dry-run")
	crds(4, []string{"+ availablecapacities.bigfleet.lucy.sh"}, "diff")
	crds(0, []string{"Installs or updates", "applied"}, "apply", "--yes")
	crds(0, []string{"  capacityrequests.bigfleet.lucy.sh"}, "diff")
	crds(0, []string{"nothing to do: all are of this version"}, "apply", "--yes")

	// Somebody edits one: the path that differs is shown, and apply puts it back.
	d, err := dynamic.NewForConfig(red.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	kind := d.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	short := []byte(`{"spec":{"names":{"shortNames":["nobody"]}}}`)
	if _, err := kind.Patch(t.Context(), "capacityrequests.bigfleet.lucy.sh", types.MergePatchType, short, v1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	crds(4, []string{"~ capacityrequests.bigfleet.lucy.sh", "spec.names.shortNames"}, "diff")
	var items struct {
		Items []struct {
			Name    string
			Differs []string
		}
	}
	if err := json.Unmarshal([]byte(crds(4, nil, "diff", "-o", "json")), &items); err != nil || len(items.Items) != 3 {
		t.Errorf("crds diff -o json: %v, %+v", err, items)
	}
	crds(0, []string{"applied"}, "apply", "--yes")
	crds(0, nil, "diff")
	b.wants(5, []string{"Check --kubeconfig and that the API server runs"}, "crds", "diff", "--kubeconfig", deadKubeconfig(t))
}

func deadKubeconfig(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := `{"apiVersion":"v1","kind":"Config","current-context":"dead","clusters":[{"name":"dead","cluster":{"server":"http://127.0.0.1:1"}}],"contexts":[{"name":"dead","context":{"cluster":"dead"}}]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// OPS-5.4, OPS-5.6, scenario 16, user-asks 13: one process serves two real clusters; it asks before it writes; with it gone the
// Nodes stay, and when it is back it drains nothing and gives back what is no longer needed.
func upOnRealClusters(t *testing.T, red, blue *controlplane.ControlPlane) {
	b := build(t)
	clusters := []string{"--kubeconfig", red.Kubeconfig(), "--kubeconfig", blue.Kubeconfig()}
	b.wants(8, []string{"will write CapacityRequests", "red (" + red.Endpoint(), "blue (" + blue.Endpoint(), "nobody can be asked"}, append([]string{"up"}, clusters...)...)
	b.wants(7, []string{"cluster blue lacks definitions of this version: ", "Repeat with --install-crds"}, append([]string{"up", "--yes"}, clusters...)...)
	b.wants(2, []string{"no kubeconfig has a context"}, append([]string{"up", "--yes", "--contexts", "green"}, clusters...)...)

	state := t.TempDir()
	w := b.up(append([]string{"--yes", "--install-crds", "--data-dir", state}, clusters...)...)
	w.start(t)
	deploy(t, red, "web", 12, "1")
	deploy(t, blue, "web", 9, "1")
	pod := runs(t, red, 12)
	runs(t, blue, 9)
	before := nodes(t, red)
	if len(before) == 0 {
		t.Fatal("the Pods run on Nodes that are not machines")
	}
	b.wants(0, []string{"Running, on Node", "is machine", "A need claims it."}, "explain", "pod/default/"+pod, "--kubeconfig", red.Kubeconfig(), "--shard", w.shard)
	for name := range before {
		b.wants(0, []string{"is machine " + name, "A need claims it."}, "explain", "node/"+name, "--kubeconfig", red.Kubeconfig(), "--coordinator", w.coordinator)
		break
	}
	b.wants(0, []string{"ok    cluster"}, "doctor", "--shard", w.shard, "--kubeconfig", blue.Kubeconfig(), "--as", "")
	if out := b.wants(0, nil, "get", "machines", "--state", "configured", "--cluster", "red", "-o", "name", "--shard", w.shard); strings.Count(out, "\n") != len(before) {
		t.Errorf("the shard has %q, the cluster %v", out, before)
	}

	w.Kill()
	time.Sleep(3 * time.Second) // longer than anything of it would live on
	if after := nodes(t, red); !maps.Equal(after, before) {
		t.Errorf("with the process gone the Nodes changed:\n%v\n%v", before, after)
	}
	w.start(t)
	b.wants(0, nil, "wait", "--for", "satisfied", "--timeout", fmt.Sprint(patience), "--shard", w.shard)
	if after := nodes(t, red); !maps.Equal(after, before) {
		t.Errorf("started again it changed the Nodes:\n%v\n%v", before, after)
	}
	scale(t, red, "web", 0)
	scale(t, blue, "web", 0)
	until(t, "the Nodes of both are gone", func() (bool, string) {
		left := len(nodes(t, red)) + len(nodes(t, blue))
		return left == 0, fmt.Sprint(left)
	})
	if err := w.Stop(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
}

const catalogue = `
offerings:
- {name: theirs, instance_type: theirs.4x, zone: theirs-1a, capacity_type: on_demand, count: 6, price_per_hour: 0.2, resources: {cpu: "4", memory: 16Gi}}
`

// OPS-5.4 with --provider: the machines are those of a process that runs elsewhere.
func upWithProvider(t *testing.T, blue *controlplane.ControlPlane) {
	b := build(t)
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	port, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	defer port.Release()
	proc.StartT(t, proc.Config{
		Name: "provider", Path: b.path, Ready: proc.TCP(port.Addr()),
		Args: []string{"provider", "kwok", "--addr", port.Addr(), "--data-dir", filepath.Join(dir, "data"), "--metrics-addr", "127.0.0.1:0",
			"--offerings", file("offerings.yaml", catalogue), "--config", file("config.yaml", fmt.Sprintf("clusters:\n  blue: {kubeconfig: %q}\n", blue.Kubeconfig()))},
	})
	w := b.up("--yes", "--kubeconfig", blue.Kubeconfig(), "--provider", "theirs="+port.Addr())
	w.start(t)
	scale(t, blue, "web", 7)
	runs(t, blue, 7)
	for name := range nodes(t, blue) {
		if !strings.Contains(name, "theirs") {
			t.Errorf("Node %s is none of the other provider's machines", name)
		}
	}
	b.wants(0, []string{"theirs at " + port.Addr()}, "status", "--shard", w.shard)
}
