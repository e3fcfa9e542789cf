package operator

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// Section 18: the operator's process with 25,000 requests and as many Pods stays below 200 MB, with 250,000 below 700 MB
// (BIGFLEET_OPERATOR_REQUESTS=250000). The API server is a canned one that streams what it has and then says nothing: a real
// one would take minutes to fill, and the operator cannot tell the difference.
func TestMemory(t *testing.T) {
	t.Parallel()
	requests, limit := cannedRequests(t), int64(200e6)
	if requests > 25_000 {
		limit = 700e6
	}
	kubeconfig := cannedCluster(t, requests)
	port, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	s := startShard(t, allFeatures...)
	p, err := proc.Start(t.Context(), proc.Config{
		Name: "operator", Path: proc.BuildT(t, "services/operator/cmd/bigfleet-operator"), LogFile: filepath.Join(t.TempDir(), "operator.log"),
		Args: []string{"--cluster-id", clusterID, "--shard-addr", s.addr, "--kubeconfig", kubeconfig, "--no-leader-election", "--bootstrap-renderer", "stub",
			"--metrics-addr", port.Addr(), "--rollup-interval", "1s"},
		Ready: proc.HTTP("http://"+port.Addr()+"/readyz", nil), ReadyTimeout: 3 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	s.needs(t, "the whole demand", func(n []*pb.CapacityNeed) bool {
		units := int64(0)
		for _, need := range n {
			cpu, _ := strconv.ParseInt(need.AggregateResources["cpu"], 10, 64)
			units += cpu
		}
		return units == int64(requests)
	})
	at := s.count()
	s.until(t, "a few heartbeats", func(f []frame) bool { return len(f) > at+3 })
	residentAtMost(t, p, requests, limit)
}

// Section 18: the pod controller's process stays below 100 MB and 4 KB for each Pod with its request, 200 MB for 25,000, and writes
// nothing where each Pod has its request (OP-15.5).
func TestMemoryOfThePodController(t *testing.T) {
	t.Parallel()
	requests := cannedRequests(t)
	port, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	p, err := proc.Start(t.Context(), proc.Config{
		Name: "podcontroller", Path: proc.BuildT(t, "services/podcontroller/cmd/bigfleet-podcontroller"), LogFile: filepath.Join(t.TempDir(), "podcontroller.log"),
		Args:  []string{"--kubeconfig", cannedCluster(t, requests), "--no-leader-election", "--count-foreign-nodes", "--metrics-addr", port.Addr()},
		Ready: proc.HTTP("http://"+port.Addr()+"/readyz", nil), ReadyTimeout: 3 * time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	seen := map[string]int{}
	for deadline := time.Now().Add(3 * time.Minute); seen["cr_exists"] < requests; time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("of %d Pods these were looked at: %v", requests, seen)
		}
		seen = reconciled(t, "http://"+port.Addr()+"/metrics")
	}
	for outcome, n := range seen {
		if outcome != "cr_exists" && n > 0 {
			t.Errorf("outcomes %v, want only cr_exists", seen)
		}
	}
	residentAtMost(t, p, requests, 100e6+4_000*int64(requests))
}

// cannedRequests is how many Pods and requests a test of memory plays.
func cannedRequests(t *testing.T) int {
	text := os.Getenv("BIGFLEET_OPERATOR_REQUESTS")
	if text == "" {
		return 25_000
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("BIGFLEET_OPERATOR_REQUESTS=%q", text)
	}
	return n
}

// cannedCluster starts a canned API server and returns a kubeconfig for it.
func cannedCluster(t *testing.T, requests int) string {
	api := httptest.NewServer(canned(requests))
	t.Cleanup(api.Close)
	t.Cleanup(api.CloseClientConnections) // watches are open
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"c","contexts":[{"name":"c","context":{"cluster":"c","user":"c"}}],`+
		`"users":[{"name":"c","user":{}}],"clusters":[{"name":"c","cluster":{"server":%q}}]}`, api.URL), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// reconciled reads how often the pod controller came to each outcome.
func reconciled(t *testing.T, address string) map[string]int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]int{}
	for _, m := range outcomes.FindAllSubmatch(text, -1) {
		n, err := strconv.ParseFloat(string(m[2]), 64)
		if err != nil {
			t.Fatalf("%s: %v", m[0], err)
		}
		out[string(m[1])] = int(n)
	}
	return out
}

var outcomes = regexp.MustCompile(`(?m)^bigfleet_unschedulable_pod_controller_reconciles_total\{[^}]*outcome="([a-z_]+)"[^}]*\} (\S+)$`)

func residentAtMost(t *testing.T, p *proc.Process, requests int, limit int64) {
	t.Helper()
	resident, err := p.ResidentBytes()
	if err != nil {
		t.Skip(err) // no figure on this system
	}
	t.Logf("%d requests and Pods: %d MB resident", requests, resident/1e6)
	if resident > limit {
		t.Errorf("%d MB resident, want at most %d", resident/1e6, limit/1e6)
	}
}

// canned is an API server with n Pods and their requests in eight shapes, which never change.
func canned(n int) http.Handler {
	kinds := map[string]func(i int) any{"pods": cannedPod, "capacityrequests": cannedRequest}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.Method != http.MethodGet: // the status ConfigMap
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403}`, http.StatusForbidden)
		case path.Base(r.URL.Path) == "version":
			_, _ = w.Write([]byte(`{"gitVersion":"v1.36.3"}`))
		case r.URL.Query().Get("watch") == "":
			http.Error(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`, http.StatusNotFound)
		default:
			out := json.NewEncoder(w)
			if r.URL.Query().Get("sendInitialEvents") == "true" {
				if object := kinds[path.Base(r.URL.Path)]; object != nil {
					for i := range n {
						_ = out.Encode(map[string]any{"type": "ADDED", "object": object(i)})
					}
				}
				_ = out.Encode(map[string]any{"type": "BOOKMARK", "object": map[string]any{
					"apiVersion": versions[path.Base(r.URL.Path)][0], "kind": versions[path.Base(r.URL.Path)][1],
					"metadata": map[string]any{"resourceVersion": "1000000", "annotations": map[string]any{"k8s.io/initial-events-end": "true"}},
				}})
			}
			if f, ok := w.(http.Flusher); ok {
				f.Flush()
			}
			<-r.Context().Done()
		}
	})
}

var versions = map[string][2]string{
	"pods": {"v1", "Pod"}, "nodes": {"v1", "Node"}, "configmaps": {"v1", "ConfigMap"}, "daemonsets": {"apps/v1", "DaemonSet"},
	"poddisruptionbudgets": {"policy/v1", "PodDisruptionBudget"}, "persistentvolumeclaims": {"v1", "PersistentVolumeClaim"},
	"persistentvolumes": {"v1", "PersistentVolume"}, "storageclasses": {"storage.k8s.io/v1", "StorageClass"},
	"capacityrequests": {"bigfleet.lucy.sh/v1alpha1", "CapacityRequest"}, "upcomingnodes": {"bigfleet.lucy.sh/v1alpha1", "UpcomingNode"},
	"availablecapacities": {"bigfleet.lucy.sh/v1alpha1", "AvailableCapacity"},
}

func cannedMeta(i int, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: fmt.Sprintf("team-%d", i%20), Name: name, UID: types.UID(fmt.Sprintf("8d2ac8a5-20d2-46c8-a38f-%012d", i)), ResourceVersion: fmt.Sprint(i + 1),
		CreationTimestamp: metav1.Unix(1_790_000_000, 0), Labels: map[string]string{"app": "web", "pod-template-hash": "5d8f9c7b6", "example.com/team": "checkout"},
		Annotations: map[string]string{"example.com/config-hash": hash(name), "prometheus.io/scrape": "true"},
		ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:labels":{".":{},"f:app":{}}},"f:spec":{"f:containers":{}}}`)}},
	}
}

func cannedPod(i int) any {
	p := pod("", "", "1", onNode(fmt.Sprintf("node-%d", i/16)))
	p.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	p.Spec.Containers[0].Resources.Requests, p.Spec.Priority = resources("cpu", "1", "memory", fmt.Sprintf("%dGi", 1+i%4)), new(int32(i%2))
	p.ObjectMeta = cannedMeta(i, fmt.Sprintf("web-%d-5d8f9c7b6-%05d", i%97, i))
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-5d8f9c7b6", UID: "a", Controller: new(true)}}
	for k := range 8 {
		p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: fmt.Sprintf("SETTING_%d", k), Value: "a value of ordinary length"})
	}
	p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.2.3", Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodReady, Status: corev1.ConditionTrue}}, ContainerStatuses: []corev1.ContainerStatus{{Name: "main", Ready: true, Image: "test"}}}
	return p
}

func cannedRequest(i int) any {
	pod := cannedPod(i).(*corev1.Pod)
	r := request("", "", fmt.Sprintf(`{"resources":{"cpu":"1","memory":"%dGi"},"priority":%d,"requirements":[{"key":"node.kubernetes.io/instance-type","operator":"Exists"}]}`, 1+i%4, i%2))
	r.TypeMeta = metav1.TypeMeta{APIVersion: "bigfleet.lucy.sh/v1alpha1", Kind: "CapacityRequest"}
	r.ObjectMeta = cannedMeta(i, pod.Name+"-"+hash(string(pod.UID))[:10])
	r.UID = types.UID("c" + string(pod.UID)[1:])
	r.Labels = map[string]string{v1alpha1.LabelOwnedByPod: string(pod.UID)}
	r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID, Controller: new(true)}}
	r.Status.Phase, r.Status.AcknowledgedAt = v1alpha1.RequestAcknowledged, new(metav1.Unix(1_790_000_000, 0))
	return r
}
