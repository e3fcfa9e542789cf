package operator

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/crds"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/operator"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller"
)

const clusterID = "red"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is one control plane with the definitions installed, and a client that may do everything.
type world struct {
	testing.TB
	cp     *controlplane.ControlPlane
	client client.WithWatch
	kube   kubernetes.Interface
}

func newWorld(t testing.TB, omit ...controlplane.Component) *world {
	t.Helper()
	w := &world{TB: t, cp: controlplane.StartT(t, controlplane.Config{Omit: omit})}
	for _, f := range crds.All() {
		if err := w.cp.ApplyYAML(t.Context(), f.YAML); err != nil {
			t.Fatal(err)
		}
	}
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	if err := v1alpha1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	var err error
	if w.client, err = client.NewWithWatch(w.cp.RESTConfig(), client.Options{Scheme: s}); err != nil {
		t.Fatal(err)
	}
	w.kube = w.cp.Client()
	return w
}

// process is a program under test that runs in this process.
type process struct {
	telemetry *telemetry.Telemetry
	stop      context.CancelFunc
	done      chan error
	err       error
	ended     bool
}

// end stops the program and returns its error.
func (p *process) end() error {
	if !p.ended {
		p.stop()
		p.err, p.ended = <-p.done, true
	}
	return p.err
}

func (w *world) run(name string, run func(ctx context.Context, t *telemetry.Telemetry) error) *process {
	w.Helper()
	tel, err := telemetry.New(context.Background(), telemetry.Config{Component: name, Log: slog.New(slog.NewTextHandler(logWriter{w.TB, name}, nil))})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p := &process{telemetry: tel, stop: cancel, done: make(chan error, 1)}
	go func() { p.done <- run(ctx, tel) }()
	w.Cleanup(func() {
		if p.ended {
			return
		}
		if err := p.end(); err != nil {
			w.Errorf("%s ended with: %v", name, err)
		}
		_ = tel.Close(context.Background())
	})
	return p
}

type logWriter struct {
	t    testing.TB
	name string
}

func (l logWriter) Write(b []byte) (int, error) {
	l.t.Logf("%s: %s", l.name, strings.TrimRight(string(b), "\n"))
	return len(b), nil
}

// operator runs an operator against a shard.
func (w *world) operator(s *shard, more ...func(*operator.Config)) *process {
	w.Helper()
	return w.run("operator", func(ctx context.Context, t *telemetry.Telemetry) error {
		c := operator.Config{ClusterID: clusterID, ShardAddr: s.addr, REST: w.rest(), Telemetry: t, Namespace: "default",
			NoLeaderElection: true, BootstrapRenderer: operator.RendererStub}
		for _, f := range more {
			f(&c)
		}
		return operator.Run(ctx, c)
	})
}

// podController runs a pod controller.
func (w *world) podController(more ...func(*podcontroller.Config)) *process {
	w.Helper()
	return w.run("podcontroller", func(ctx context.Context, t *telemetry.Telemetry) error {
		c := podcontroller.Config{REST: w.rest(), Telemetry: t, Namespace: "default", NoLeaderElection: true}
		for _, f := range more {
			f(&c)
		}
		return podcontroller.Run(ctx, c)
	})
}

func (w *world) rest() *rest.Config { return w.cp.RESTConfig() }

// until waits for a condition.
func (w *world) until(what string, ok func() bool) {
	w.Helper()
	w.within(60*time.Second, what, ok)
}

func (w *world) within(limit time.Duration, what string, ok func() bool) {
	w.Helper()
	for start := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > limit {
			w.Fatalf("after %v still not: %s", limit, what)
		}
	}
}

// never checks that a condition does not come true for a while.
func (w *world) never(how time.Duration, what string, bad func() bool) {
	w.Helper()
	for start := time.Now(); time.Since(start) < how; time.Sleep(50 * time.Millisecond) {
		if bad() {
			w.Fatalf("it happened: %s", what)
		}
	}
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) create(objects ...client.Object) {
	w.Helper()
	for _, o := range objects {
		w.must(w.client.Create(w.Context(), o))
	}
}

// get reads an object; nil when there is none.
func get[T client.Object](w *world, namespace, name string, into T) (T, bool) {
	w.Helper()
	err := w.client.Get(w.Context(), client.ObjectKey{Namespace: namespace, Name: name}, into)
	if client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	}
	return into, err == nil
}

func (w *world) requests(opts ...client.ListOption) []v1alpha1.CapacityRequest {
	w.Helper()
	var list v1alpha1.CapacityRequestList
	w.must(w.client.List(w.Context(), &list, opts...))
	return list.Items
}

func (w *world) upcoming(machine string) *v1alpha1.UpcomingNode {
	w.Helper()
	if o, ok := get(w, "", "un-"+machine, &v1alpha1.UpcomingNode{}); ok {
		return o
	}
	return nil
}

func (w *world) phase(machine string) v1alpha1.NodePhase {
	w.Helper()
	if o := w.upcoming(machine); o != nil {
		return o.Status.Phase
	}
	return ""
}

// node makes a Node of a machine, as a provider's kubelet would. kwok makes it Ready.
func (w *world) node(name, machine string, more ...func(*corev1.Node)) *corev1.Node {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"node.kubernetes.io/instance-type": "test.large", "topology.kubernetes.io/zone": "z1", "kubernetes.io/hostname": name,
	}}, Spec: corev1.NodeSpec{ProviderID: "test://" + machine}}
	if machine != "" {
		n.Labels[v1alpha1.LabelMachineID] = machine
	} else {
		n.Spec.ProviderID = ""
	}
	n.Status.Allocatable = resources("cpu", "4", "memory", "16Gi", "pods", "110")
	n.Status.Capacity = n.Status.Allocatable
	for _, f := range more {
		f(n)
	}
	w.create(n)
	w.until("node "+name+" is Ready", func() bool {
		n, ok := get(w, "", name, &corev1.Node{})
		return ok && ready(n)
	})
	return n
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
