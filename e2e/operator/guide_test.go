package operator

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/bigfleet-dev/bigfleet/e2e/charts"
	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// OP-17.4, docs/clusters.md: every command, from top to bottom, on a cluster that has nothing of BigFleet. The Pods of the charts do
// not run here, so the programs run beside, with the rights that helm installed.
func TestGuide(t *testing.T) {
	t.Parallel()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "clusters.md"))
	if err != nil {
		t.Fatal(err)
	}
	blocks := shellBlock.FindAllStringSubmatch(string(text), -1)
	if len(blocks) < 9 {
		t.Fatalf("%d blocks of commands in docs/clusters.md", len(blocks))
	}
	w := emptyWorld(t)
	helm, err := charts.Helm(t.Context())
	w.must(err)
	bin := t.TempDir()
	w.must(os.Symlink(helm, filepath.Join(bin, "helm")))
	w.must(os.Symlink(w.cp.Kubectl(), filepath.Join(bin, "kubectl")))
	w.must(os.Symlink(proc.BuildT(t, "services/bigfleet"), filepath.Join(bin, "bigfleet")))
	home := t.TempDir()
	shell := func(script string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", script)
		cmd.Dir = root
		cmd.Env = []string{"PATH=" + bin + string(os.PathListSeparator) + os.Getenv("PATH"), "KUBECONFIG=" + w.cp.Kubeconfig(), "HOME=" + home}
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s\n%v\n%s", script, err, out)
		}
		return string(out)
	}
	s := startShard(t, allFeatures...)
	var programs []*process
	for i, b := range blocks {
		script := b[1]
		switch {
		case i == 1: // what helm installed is what the programs run with from here on
			programs = []*process{w.operator(s), w.podController()}
			w.until("the status is there", func() bool { return strings.Contains(w.status(), `"result": "accepted"`) })
		case strings.HasPrefix(script, "kubectl annotate"):
			s.needs(t, "the Deployment's demand", func(n []*pb.CapacityNeed) bool {
				return slices.ContainsFunc(n, func(n *pb.CapacityNeed) bool {
					return n.AggregateResources["cpu"] == "1500m" && n.ReclamationPenaltyBucket == pb.PenaltyBucket_PENALTY_BUCKET_2
				})
			})
		}
		var met sync.WaitGroup
		if strings.Contains(script, "kubectl wait --for=condition=Fulfilled") { // the block makes the request and waits for the shard's word on it
			met.Go(func() { s.meets(t, 1000) })
		}
		if strings.HasPrefix(script, "helm uninstall") { // their rights go
			for _, p := range programs {
				w.must(p.end())
			}
		}
		if i == 1 { // the mistake next to what the guide says: the definitions twice
			twice := exec.CommandContext(t.Context(), helm, "install", "again", "deploy/charts/bigfleet-operator", "--set", "clusterID=red,shardAddress=a:1")
			twice.Dir, twice.Env = root, []string{"KUBECONFIG=" + w.cp.Kubeconfig(), "HOME=" + home}
			if out, err := twice.CombinedOutput(); err == nil || !strings.Contains(string(out), "by the release bigfleet-crds in bigfleet-system: set crds.install=false") {
				t.Errorf("the definitions a second time: %v\n%s", err, out)
			}
		}
		out := shell(script)
		met.Wait()
		for what, want := range map[string]string{
			"get configmap bigfleet-operator-status": `"connected": true`, "auth can-i": "no\n", "explain capacityrequest.spec\n": "rounded up to a", "get cr training": "training-worker-0", "wait --for=condition=Fulfilled": "condition met",
			"helm uninstall": "capacityrequests.bigfleet.lucy.sh", "bigfleet doctor": "ok    instance types: the Nodes that have joined are as their provider offered them",
			// What the charts print leads to the next step.
			"helm install bigfleet-crds": "Next: bigfleet-operator", "helm install bigfleet-operator": "get configmap bigfleet-operator-status",
			"helm install bigfleet-pod-controller": "kubectl get capacityrequests",
		} {
			if strings.Contains(script, what) && !strings.Contains(out, want) {
				t.Errorf("%s\ndoes not say %q:\n%s", script, want, out)
			}
		}
	}
}

// meets says that the row with this priority is met, once there is one.
func (s *shard) meets(t testing.TB, priority int32) {
	row := ""
	s.needs(t, "the request's row", func(needs []*pb.CapacityNeed) bool {
		for _, n := range needs {
			if n.Priority == priority {
				row = n.RowId
			}
		}
		return row != ""
	})
	s.send(t, status(row, &pb.NeedStatus{Satisfied: true}))
}

// emptyWorld is a control plane without anything of BigFleet's.
func emptyWorld(t testing.TB) *world {
	t.Helper()
	w := &world{TB: t, cp: start(t, controlplane.Config{Omit: []controlplane.Component{controlplane.Scheduler}})}
	w.connect()
	return w
}
