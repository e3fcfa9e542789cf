package command

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// The command on real clusters, from nothing: definitions, machines, a process that dies, and somebody else's provider. The parts
// follow each other on the same three control planes, which take the longest to start.
func TestRealClusters(t *testing.T) {
	planes := controlplane.StartAllT(t, controlplane.Config{Name: "red"}, controlplane.Config{Name: "blue"}, controlplane.Config{Name: "green"})
	red, blue := planes[0], planes[1]
	t.Run("definitions", func(t *testing.T) { definitions(t, red) })
	t.Run("up", func(t *testing.T) { upOnRealClusters(t, planes) })
	t.Run("provider", func(t *testing.T) { upWithProvider(t, blue) })
	t.Run("questions", func(t *testing.T) { questions(t, planes) }) // leaves its Nodes
}

// OPS-4.2 `crds print|diff|apply`: what is missing or differs is shown and makes exit code 4; apply puts it right and asks first.
func definitions(t *testing.T, red *controlplane.ControlPlane) {
	b := build(t)
	at := []string{"--kubeconfig", red.Kubeconfig()}
	crds := func(code int, texts []string, args ...string) string {
		t.Helper()
		return b.wants(code, texts, append(append([]string{"crds"}, args...), at...)...)
	}
	crds(4, []string{"+ capacityrequests.bigfleet.lucy.sh", "+ upcomingnodes.bigfleet.lucy.sh", "missing or from another version", "`bigfleet crds apply`"}, "diff")
	b.wants(4, []string{"fail  ", "capacityrequests.bigfleet.lucy.sh", "bigfleet crds apply"}, append([]string{"doctor", "--cluster-only"}, at...)...)
	crds(8, []string{"cannot ask for confirmation"}, "apply")
	crds(0, []string{"+ capacityrequests.bigfleet.lucy.sh"}, "apply", "--dry-run")
	crds(4, []string{"+ availablecapacities.bigfleet.lucy.sh"}, "diff")
	crds(0, []string{"Installs or updates", "applied"}, "apply", "--yes")
	crds(0, []string{"  capacityrequests.bigfleet.lucy.sh"}, "diff")
	crds(0, []string{"nothing to do: all CRDs are of this version"}, "apply", "--yes")

	// Somebody edits one: the path that differs is shown, and apply puts it back.
	d, err := dynamic.NewForConfig(red.RESTConfig())
	if err != nil {
		t.Fatal(err)
	}
	kind := d.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	short := []byte(`{"spec":{"names":{"shortNames":["other"]}}}`)
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

// OPS-5.4, OPS-5.6, scenario 16, user-asks 13: one process serves three real clusters; it asks before it writes; capacity follows the
// demand from one to the next; with the process gone the Nodes stay, and when it is back it drains nothing and gives back what is no
// longer needed.
func upOnRealClusters(t *testing.T, planes []*controlplane.ControlPlane) {
	b := build(t)
	red, blue := planes[0], planes[1]
	var clusters, asked []string
	for _, p := range planes {
		clusters = append(clusters, "--kubeconfig", p.Kubeconfig())
		asked = append(asked, p.Name()+" ("+p.Endpoint())
	}
	b.wants(8, append(asked, "will write CapacityRequests", "cannot ask for confirmation"), append([]string{"up"}, clusters...)...)
	b.wants(7, []string{"cluster blue lacks CRDs of this version: ", "Repeat with --install-crds"}, append([]string{"up", "--yes"}, clusters...)...)
	b.wants(2, []string{"no kubeconfig has a context"}, append([]string{"up", "--yes", "--contexts", "black"}, clusters...)...)

	state := t.TempDir()
	w := b.up(append([]string{"--yes", "--install-crds", "--data-dir", state}, clusters...)...)
	w.start(t)
	deploy(t, red, "web", 12, "1", on("m.8x", ""))
	deploy(t, blue, "web", 9, "1", on("m.8x", ""))
	pod := runs(t, red, "web", 12)
	runs(t, blue, "web", 9)
	before := nodes(t, planes)
	own := before[red.Name()]
	if len(own) == 0 {
		t.Fatal("the Pods run on Nodes that are not machines")
	}
	b.wants(0, []string{"Running, on Node", "is machine", "In use by "}, "explain", "pod/default/"+pod, "--kubeconfig", red.Kubeconfig(), "--shard", w.shard)
	for name := range own {
		b.wants(0, []string{"is machine " + name, "In use by "}, "explain", "node/"+name, "--kubeconfig", red.Kubeconfig(), "--coordinator", w.coordinator)
		break
	}
	b.wants(0, []string{"deployment/default/web has 12 Pods: 12 run, 0 wait for a Node"}, "explain", "deployment", "web", "-n", "default", "--kubeconfig", red.Kubeconfig(), "--shard", w.shard)
	b.wants(3, []string{"there is no job default/web in this cluster"}, "explain", "job/web", "--kubeconfig", red.Kubeconfig(), "--shard", w.shard)
	b.wants(0, []string{"ok    cluster"}, "doctor", "--shard", w.shard, "--kubeconfig", blue.Kubeconfig(), "--as", "")
	if out := b.wants(0, nil, "get", "machines", "--state", "configured", "--cluster", "red", "-o", "name", "--shard", w.shard); strings.Count(out, "\n") != len(own) {
		t.Errorf("the shard has %q, the cluster %v", out, own)
	}
	waitForRequest(t, blue)
	follows(t, planes)

	before = nodes(t, planes)
	w.Kill()
	time.Sleep(3 * time.Second) // longer than anything of it would live on
	if after := nodes(t, planes); !reflect.DeepEqual(after, before) {
		t.Errorf("with the process gone the Nodes changed:\n%v\n%v", before, after)
	}
	w.start(t)
	b.wants(0, nil, "wait", "--for", "satisfied", "--timeout", fmt.Sprint(patience), "--shard", w.shard)
	if after := nodes(t, planes); !reflect.DeepEqual(after, before) {
		t.Errorf("started again it changed the Nodes:\n%v\n%v", before, after)
	}
	scale(t, red, "web", 0)
	scale(t, blue, "web", 0)
	scale(t, planes[2], "metal", 0)
	until(t, "the Nodes of all are gone", func() (bool, string) {
		left := 0
		for _, n := range nodes(t, planes) {
			left += len(n)
		}
		return left == 0, fmt.Sprint(left)
	})
	for name := range own { // who removed this Node, and why: its cluster does not know, the decision log does
		until(t, "the machine of "+name+" has left its cluster", func() (bool, string) {
			_, out, errs := b.run("explain", "node/"+name, "--kubeconfig", red.Kubeconfig(), "--shard", w.shard)
			return strings.Contains(out, "Left cluster "), out + errs
		})
		b.wants(0, []string{"this cluster has no such Node now", "was machine " + name, "No need uses it any more"},
			"explain", "node/"+name, "--kubeconfig", red.Kubeconfig(), "--shard", w.shard)
		b.wants(0, []string{"No need uses it any more"}, "history", "node/"+name, "--since", "1d", "--shard", w.shard)
	}
	if err := w.Stop(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
}

// waitForRequest: user-asks 22: a user who writes a request without a Pod can wait until it is met, and for the Node.
func waitForRequest(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "request.yaml")
	text := `{"apiVersion":"bigfleet.lucy.sh/v1alpha1","kind":"CapacityRequest","metadata":{"name":"by-hand","namespace":"default"},` +
		`"spec":{"resources":{"cpu":"1","memory":"1Gi"},"priority":5}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"apply", "-f", file},
		{"wait", "--for=condition=Fulfilled", "capacityrequest/by-hand", "--timeout", fmt.Sprint(patience)},
		{"wait", "--for=condition=NodeReady", "upcomingnodes", "--all", "--timeout", fmt.Sprint(patience)},
		{"delete", "-f", file},
	} {
		cmd := exec.CommandContext(t.Context(), cp.Kubectl(), append(args, "--kubeconfig", cp.Kubeconfig())...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("kubectl %v: %v\n%s", args, err, out)
		}
	}
}

// follows moves demand for the only machine of its kind from cluster to cluster: there is nothing to buy instead, so the machine must
// come along, and the cluster that it leaves loses its Node.
func follows(t *testing.T, planes []*controlplane.ControlPlane) {
	t.Helper()
	for i, p := range planes {
		deploy(t, p, "metal", 1, "10", on("m.metal", "demo-1b"))
		runs(t, p, "metal", 1)
		for j, q := range planes {
			if _, has := nodes(t, planes)[q.Name()]["demo-metal-b0-0"]; has != (i == j) {
				t.Errorf("the demand is in %s; the machine is a Node of %s: %v", p.Name(), q.Name(), has)
			}
		}
		if i+1 < len(planes) {
			scale(t, p, "metal", 0)
		}
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
	deploy(t, blue, "more", 7, "1")
	runs(t, blue, "more", 7)
	for name := range nodes(t, []*controlplane.ControlPlane{blue})[blue.Name()] {
		if !strings.Contains(name, "theirs") {
			t.Errorf("Node %s is none of the other provider's machines", name)
		}
	}
	b.wants(0, []string{"theirs at " + port.Addr()}, "status", "--shard", w.shard)
	scale(t, blue, "more", 0)
}
