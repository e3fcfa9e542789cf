package gangs

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse[T any](t *testing.T, text string) *T {
	t.Helper()
	out := new(T)
	if err := yaml.Unmarshal([]byte(text), out); err != nil {
		t.Fatal(err)
	}
	return out
}

// forms are the gangs of the ecosystem, each as its project's documentation writes Pods and the object that defines them.
var forms = []struct {
	name     string
	kind     schema.GroupVersionResource // of the object
	object   string                      // "" if the Pods say everything
	pod      string                      // of one member, without its name
	gang     v1alpha1.Gang
	unlike   string // another object or Pod that makes no gang
	isPod    bool   // unlike is a Pod
	enforced bool   // its scheduler binds no Pod before all members exist
}{
	{
		name: "Workload API of Kubernetes 1.36", kind: native,
		object: `
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: training-worker-0, namespace: ml}
spec:
  podGroupTemplateRef:
    workload: {workloadName: training, podGroupTemplateName: worker}
  schedulingPolicy:
    gang: {minCount: 4}
  schedulingConstraints:
    topology:
    - key: topology.kubernetes.io/rack`,
		pod: `
metadata: {namespace: ml}
spec:
  schedulingGroup: {podGroupName: training-worker-0}`,
		gang: v1alpha1.Gang{Name: "podgroups.scheduling.k8s.io/training-worker-0", MinMembers: 4, TopologyKey: "topology.kubernetes.io/rack"},
		unlike: `
apiVersion: scheduling.k8s.io/v1alpha2
kind: PodGroup
metadata: {name: training-worker-0, namespace: ml}
spec:
  schedulingPolicy: {basic: {}}`,
		enforced: true,
	},
	{
		name: "coscheduling", kind: coscheduling,
		object: `
apiVersion: scheduling.x-k8s.io/v1alpha1
kind: PodGroup
metadata: {name: nginx, namespace: ml}
spec:
  scheduleTimeoutSeconds: 10
  minMember: 3`,
		pod: `
metadata:
  namespace: ml
  labels: {app: nginx, scheduling.x-k8s.io/pod-group: nginx}`,
		gang:     v1alpha1.Gang{Name: "podgroups.scheduling.x-k8s.io/nginx", MinMembers: 3},
		enforced: true,
	},
	{
		name: "Volcano", kind: volcano,
		object: `
apiVersion: scheduling.volcano.sh/v1beta1
kind: PodGroup
metadata: {name: job-1-8f3c, namespace: ml}
spec:
  minMember: 3
  minResources: {cpu: "3"}
  queue: default`,
		pod: `
metadata:
  namespace: ml
  annotations: {scheduling.k8s.io/group-name: job-1-8f3c, volcano.sh/job-name: job-1, volcano.sh/task-spec: nginx}
spec: {schedulerName: volcano}`,
		gang:     v1alpha1.Gang{Name: "podgroups.scheduling.volcano.sh/job-1-8f3c", MinMembers: 3},
		enforced: true,
	},
	{
		name: "JobSet", kind: jobSet,
		object: `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: pytorch, namespace: ml}
spec:
  replicatedJobs:
  - name: driver
    template:
      spec: {template: {spec: {containers: []}}}
  - name: workers
    replicas: 2
    template:
      spec: {parallelism: 4, completions: 4, template: {spec: {containers: []}}}`,
		pod: `
metadata:
  namespace: ml
  labels: {jobset.sigs.k8s.io/jobset-name: pytorch, jobset.sigs.k8s.io/replicatedjob-name: workers, jobset.sigs.k8s.io/job-index: "1"}`,
		gang: v1alpha1.Gang{Name: "jobsets.jobset.x-k8s.io/pytorch", MinMembers: 9},
		unlike: `
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: pytorch, namespace: ml}
spec:
  startupPolicy: {startupPolicyOrder: InOrder}
  replicatedJobs:
  - {name: driver, replicas: 1, template: {spec: {parallelism: 1}}}
  - {name: workers, replicas: 1, template: {spec: {parallelism: 4}}}`,
	},
	{
		name: "LeaderWorkerSet",
		pod: `
metadata:
  namespace: ml
  labels: {leaderworkerset.sigs.k8s.io/name: vllm, leaderworkerset.sigs.k8s.io/group-index: "1", leaderworkerset.sigs.k8s.io/worker-index: "2"}
  annotations: {leaderworkerset.sigs.k8s.io/size: "4", leaderworkerset.sigs.k8s.io/leader-name: vllm-1}`,
		gang: v1alpha1.Gang{Name: "group.leaderworkerset.x-k8s.io/vllm-1", MinMembers: 4},
		unlike: `
metadata:
  namespace: ml
  labels: {leaderworkerset.sigs.k8s.io/name: vllm, leaderworkerset.sigs.k8s.io/group-index: "1"}
  annotations: {leaderworkerset.sigs.k8s.io/size: "4", leaderworkerset.sigs.k8s.io/exclusive-topology: rack}`,
		isPod: true,
	},
	{
		name: "Kueue's groups of Pods",
		pod: `
metadata:
  namespace: ml
  labels: {kueue.x-k8s.io/queue-name: user-queue, kueue.x-k8s.io/pod-group-name: sample-group}
  annotations: {kueue.x-k8s.io/pod-group-total-count: "2"}`,
		gang: v1alpha1.Gang{Name: "pod-group.kueue.x-k8s.io/sample-group", MinMembers: 2},
	},
}

// member is the nth Pod of a form.
func member(t *testing.T, text string, n int, now time.Time) *corev1.Pod {
	p := parse[corev1.Pod](t, text)
	p.UID, p.CreationTimestamp = types.UID(rune('a'+n)), metav1.NewTime(now)
	return p
}

// OP-15.30: every form is recognised by its shape; its members are one gang of the stated size, ask when all of them exist, and are looked at
// again then. What is shaped alike and is not a gang makes none.
func TestForms(t *testing.T) {
	now := time.Now()
	for _, f := range forms {
		t.Run(f.name, func(t *testing.T) {
			var again []types.UID
			needed := map[schema.GroupVersionResource]int{}
			s := New(func(list []types.UID) { again = append(again, list...) }, func(k schema.GroupVersionResource) { needed[k]++ })
			var pods []*corev1.Pod
			for n := range int(f.gang.MinMembers) {
				pods = append(pods, member(t, f.pod, n, now))
			}
			s.SetPod(pods[0])
			if f.object != "" {
				if g, unread := s.Of(pods[0]); g != nil || !unread || needed[f.kind] != 1 {
					t.Errorf("before its object is known: gang %v, unread %v, asked for %v", g, unread, needed)
				}
				s.setServed(f.kind, true)
				o := parse[unstructured.Unstructured](t, f.object)
				s.setObject(f.kind, o.GetNamespace(), o.GetName(), o)
			}
			for _, p := range pods[1:] {
				if left, why, waits := s.Waits(p, now); waits {
					t.Fatalf("a Pod that is not known waits for %v: %s", left, why)
				}
				if left, _, waits := s.Waits(pods[0], now); !waits || left <= 0 || left > gatherFor {
					t.Errorf("with fewer than all: waits %v for %v", waits, left)
				}
				_, why, waits := s.Waits(pods[0], now.Add(2*gatherFor))
				if waits != f.enforced || waits != (why != "") {
					t.Errorf("after a while, with fewer than all: waits %v: %q", waits, why)
				}
				again = nil
				s.SetPod(p)
			}
			if len(again) != len(pods) {
				t.Errorf("%d of %d are looked at again when the last one came", len(again), len(pods))
			}
			for _, p := range pods {
				if _, why, waits := s.Waits(p, now); waits {
					t.Errorf("with all: waits: %s", why)
				}
				if g, unread := s.Of(p); g == nil || *g != f.gang || unread {
					t.Errorf("gang %+v, want %+v", g, f.gang)
				}
			}
			switch {
			case f.isPod:
				p := member(t, f.unlike, 20, now)
				s.SetPod(p)
				if g, unread := s.Of(p); g != nil || unread {
					t.Errorf("%+v of a Pod that has none", g)
				}
			case f.unlike != "":
				o := parse[unstructured.Unstructured](t, f.unlike)
				s.setObject(f.kind, o.GetNamespace(), o.GetName(), o)
				if g, unread := s.Of(pods[0]); g != nil || unread {
					t.Errorf("%+v of an object that makes none", g)
				}
			}
			for _, p := range pods {
				s.DeletePod(p)
			}
			if len(s.of)+len(s.members)+len(s.own) != 0 {
				t.Errorf("left of Pods that are gone: %v %v %v", s.of, s.members, s.own)
			}
		})
	}
}

// OP-15.9, OP-15.30: a Pod that Kueue has not admitted is not a member that can start; its group asks when the last gate is gone.
func TestGatedMembers(t *testing.T) {
	now := time.Now()
	text := forms[len(forms)-1].pod
	s := New(func([]types.UID) {}, func(schema.GroupVersionResource) {})
	one, two := member(t, text, 0, now), member(t, text, 1, now)
	two.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/admission"}}
	s.SetPod(one)
	s.SetPod(two)
	if _, _, waits := s.Waits(one, now); !waits {
		t.Error("asks although the other is gated")
	}
	two = two.DeepCopy()
	two.Spec.SchedulingGates = nil
	s.SetPod(two)
	if _, why, waits := s.Waits(one, now); waits {
		t.Errorf("waits although none is gated: %s", why)
	}
}

// OP-15.30: where the API server does not have the kind, or does not let it be read, Pods wait no longer and ask one by one; when it has it, they
// are a gang. Nothing is asked before a Pod needs it.
func TestWatch(t *testing.T) {
	var mu sync.Mutex
	served, asked := false, 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		asked++
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !served:
			http.NotFound(w, r)
		case r.URL.Query().Get("watch") != "":
			w.WriteHeader(http.StatusOK)
		default:
			o, err := yaml.YAMLToJSON([]byte(strings.Replace(forms[1].object, "metadata: {", `metadata: {resourceVersion: "1", uid: x, `, 1)))
			if err != nil {
				t.Error(err)
			}
			_, _ = w.Write([]byte(`{"apiVersion":"scheduling.x-k8s.io/v1alpha1","kind":"PodGroupList","metadata":{"resourceVersion":"1"},"items":[` + string(o) + `]}`))
		}
	}))
	defer server.Close()
	changed := make(chan struct{}, 100)
	w, err := NewWatcher(&rest.Config{Host: server.URL}, slog.New(slog.DiscardHandler), func([]types.UID) {
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	w.AskEvery = time.Millisecond
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	defer func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	mu.Lock()
	if asked > 0 {
		t.Errorf("%d questions before a Pod needs any", asked)
	}
	mu.Unlock()
	p := member(t, forms[1].pod, 0, time.Now())
	w.SetPod(p)
	eventually := func(what string, ok func() bool) {
		t.Helper()
		limit := time.After(time.Minute)
		for !ok() {
			select {
			case <-changed:
			case <-limit:
				t.Fatal(what)
			}
		}
	}
	eventually("the Pod waits for an object that cannot be", func() bool { _, _, waits := w.Waits(p, time.Now()); return !waits })
	mu.Lock()
	served = true
	mu.Unlock()
	eventually("the object is not read", func() bool { g, _ := w.Of(p); return g != nil && g.MinMembers == 3 })
}
