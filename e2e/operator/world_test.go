package operator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/e2e/charts"
	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/crds"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/operator"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller"
)

const (
	clusterID = "red"
	namespace = "bigfleet-system"
)

// atOnce is how many tests run at a time unless -parallel says otherwise: they mostly wait, for a deadline, a debounce or a
// scheduler, and hardly use a processor meanwhile.
const atOnce = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err) // the testing package has that flag
		}
	}
	const multi = "sigs.k8s.io/controller-runtime/pkg/cache.newMultiNamespaceInformer"
	// controller-runtime waits forever for the first listing of a cache that was stopped before it was complete.
	ignore := []goleak.Option{goleak.IgnoreTopFunction(multi + ".func1"), goleak.IgnoreTopFunction(multi + "HandlerRegistration.func1"), goleak.Cleanup(func(code int) {
		if code == 0 && flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.list").Value.String() == "" {
			code = checkRights()
		}
		os.Exit(code)
	})}
	goleak.VerifyTestMain(m, ignore...)
}

// checkRights fails when the charts grant what nothing in all tests of this package used (OP-16.1: nothing else).
func checkRights() int {
	unused, err := everUsed.unused(context.Background())
	for _, right := range unused {
		fmt.Fprintf(os.Stderr, "the chart grants what nothing uses: %s\n", right)
	}
	if err != nil || len(unused) > 0 {
		fmt.Fprintln(os.Stderr, "FAIL: the rights of the charts are not exactly what is needed", err)
		return 1
	}
	return 0
}

// world is one control plane with the charts installed, and a client that may do everything.
type world struct {
	testing.TB
	cp     *controlplane.ControlPlane
	client client.WithWatch
	kube   kubernetes.Interface
	calls  *calls // of the programs under test

	registry *prometheus.Registry // of the newest operator
}

// starts lets control planes start one after the other: side by side they would each need as long as all together, and a
// slow machine would exceed the limit of each.
var starts sync.Mutex

func start(t testing.TB, c controlplane.Config) *controlplane.ControlPlane {
	t.Helper()
	starts.Lock()
	defer starts.Unlock()
	return controlplane.StartT(t, c)
}

func newWorld(t testing.TB, omit ...controlplane.Component) *world {
	t.Helper()
	return newWorldOf(t, controlplane.Config{Omit: omit})
}

func newWorldOf(t testing.TB, c controlplane.Config) *world {
	t.Helper()
	w := &world{TB: t, cp: start(t, c)}
	for _, f := range crds.All() {
		w.must(w.cp.ApplyYAML(t.Context(), f.YAML))
	}
	w.connect()
	w.install()
	return w
}

// connect makes the clients. In every scenario the programs need no right that the charts do not give (OP-16.1, scenario 51).
func (w *world) connect() {
	w.Helper()
	s := runtime.NewScheme()
	w.must(errors.Join(clientgoscheme.AddToScheme(s), v1alpha1.AddToScheme(s)))
	var err error
	w.client, err = client.NewWithWatch(w.cp.RESTConfig(), client.Options{Scheme: s})
	w.must(err)
	w.kube = w.cp.Client()
	w.calls = &calls{}
	w.Cleanup(func() {
		for _, f := range w.calls.forbidden() {
			w.Errorf("the API server refused the rights of the chart: %s", f)
		}
	})
}

// status is the operator's account of itself.
func (w *world) status() string {
	w.Helper()
	m, _ := get(w, namespace, "bigfleet-operator-status", &corev1.ConfigMap{})
	return m.Data["status.json"]
}

// install applies the charts, so that the programs run with their rights and nothing more.
func (w *world) install() {
	w.Helper()
	w.must(w.cp.ApplyYAML(w.Context(), []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n")))
	for _, r := range charted() {
		render, err := charts.Render(w.Context(), r)
		w.must(err)
		w.must(w.cp.ApplyYAML(w.Context(), rightsOf(render)))
	}
}

// charted are the releases whose rights the programs have.
func charted() []charts.Release {
	return []charts.Release{
		{Chart: "bigfleet-operator", Name: "bigfleet-operator", Namespace: namespace, Values: "clusterID: red\nshardAddress: shard:7780\ncrds: {install: false}\nreplicas: 1\n"},
		{Chart: "bigfleet-pod-controller", Name: "bigfleet-pod-controller", Namespace: namespace, Values: "replicas: 1\n"},
	}
}

// rightsOf keeps what grants rights: nothing here would run the Pods of the Deployments.
func rightsOf(render []byte) []byte {
	var keep []string
	for doc := range strings.SplitSeq(string(render), "\n---\n") {
		for _, kind := range []string{"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "FlowSchema", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"} {
			if strings.Contains("\n"+doc, "\nkind: "+kind+"\n") {
				keep = append(keep, doc)
			}
		}
	}
	return []byte(strings.Join(keep, "\n---\n"))
}

// account is a client configuration of a service account of the charts, whose requests are counted.
func (w *world) account(name string) *rest.Config {
	w.Helper()
	c, err := w.cp.UserConfig("system:serviceaccount:"+namespace+":"+name, "system:serviceaccounts", "system:serviceaccounts:"+namespace, "system:authenticated")
	w.must(err)
	c.Wrap(func(next http.RoundTripper) http.RoundTripper { return counter{next, w.calls, name} })
	return c
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
	p := w.run("operator", func(ctx context.Context, t *telemetry.Telemetry) error {
		c := operator.Config{ClusterID: clusterID, ShardAddr: s.addr, REST: w.account("bigfleet-operator"), Telemetry: t, Namespace: namespace,
			NoLeaderElection: true, BootstrapRenderer: operator.RendererStub}
		for _, f := range more {
			f(&c)
		}
		return operator.Run(ctx, c)
	})
	w.registry = p.telemetry.Registry
	return p
}

func syncWithin(d time.Duration) func(*operator.Config) {
	return func(c *operator.Config) { c.CacheSyncTimeout = d }
}

// podController runs a pod controller.
func (w *world) podController(more ...func(*podcontroller.Config)) *process {
	w.Helper()
	return w.run("podcontroller", func(ctx context.Context, t *telemetry.Telemetry) error {
		c := podcontroller.Config{REST: w.account("bigfleet-pod-controller"), Telemetry: t, Namespace: namespace, NoLeaderElection: true}
		for _, f := range more {
			f(&c)
		}
		return podcontroller.Run(ctx, c)
	})
}

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

// nodeOf is the Node of a machine, as a provider's kubelet would register it.
func (w *world) nodeOf(name, machine string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		"node.kubernetes.io/instance-type": "test.large", "topology.kubernetes.io/zone": "z1", "kubernetes.io/hostname": name,
	}}}
	if machine != "" {
		n.Labels[v1alpha1.LabelMachineID], n.Spec.ProviderID = machine, "test://"+machine
	}
	n.Status.Allocatable = resources("cpu", "4", "memory", "16Gi", "pods", "110")
	n.Status.Capacity = n.Status.Allocatable
	return n
}

// node makes a Node, which kwok makes Ready.
func (w *world) node(name, machine string, more ...func(*corev1.Node)) *corev1.Node {
	w.Helper()
	n := w.nodeOf(name, machine)
	for _, f := range more {
		f(n)
	}
	w.create(n)
	w.until("node "+name+" is Ready", func() bool {
		n, ok := get(w, "", name, &corev1.Node{})
		return ok && isReady(n)
	})
	return n
}

// with is the same world for a subtest.
func (w *world) with(t *testing.T) *world {
	out := *w
	out.TB = t
	return &out
}

// event finds an event about an object.
func (w *world) event(kind, name, reason string) *corev1.Event {
	w.Helper()
	var list corev1.EventList
	w.must(w.client.List(w.Context(), &list))
	for i, e := range list.Items {
		if e.InvolvedObject.Kind == kind && e.InvolvedObject.Name == name && e.Reason == reason {
			return &list.Items[i]
		}
	}
	return nil
}

// metric sums the operator's samples of a metric that have a label value.
func (w *world) metric(t testing.TB, name, label string) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, f := range families {
		if f.GetName() != "bigfleet_operator_"+name {
			continue
		}
		for _, m := range f.Metric {
			if label != "" && !slices.ContainsFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetValue() == label }) {
				continue
			}
			total += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return total
}

func isReady(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// watch follows all objects of a kind from now on, without a gap: the API server ends watches now and then, above all while
// it is busy.
func (w *world) watch(list client.ObjectList) watch.Interface {
	w.Helper()
	w.must(w.client.List(w.Context(), list))
	out, err := watchtools.NewRetryWatcherWithContext(w.Context(), list.GetResourceVersion(), watchFunc(func(o metav1.ListOptions) (watch.Interface, error) {
		return w.client.Watch(w.Context(), list.DeepCopyObject().(client.ObjectList), &client.ListOptions{Raw: &o})
	}))
	w.must(err)
	w.Cleanup(out.Stop)
	return out
}

type watchFunc func(metav1.ListOptions) (watch.Interface, error)

// WatchWithContext implements cache.WatcherWithContext.
func (f watchFunc) WatchWithContext(_ context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return f(o)
}
