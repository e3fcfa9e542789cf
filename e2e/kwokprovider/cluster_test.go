package kwokprovider

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"

	"connectrpc.com/connect"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

func node(t *testing.T, cp *controlplane.ControlPlane, name string) *corev1.Node {
	t.Helper()
	n, err := cp.Client().CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// PROV-27.1 to 27.6, scenario 60: one machine serves red, then blue. Its Node in red is gone before it is Idle; its Node in
// blue is Ready before it is Configured, and carries what it must.
func TestOneMachineTwoClusters(t *testing.T) {
	planes := controlplane.StartAllT(t, controlplane.Config{Name: "red"}, controlplane.Config{Name: "blue"})
	red, blue := planes[0], planes[1]
	r := start(t, options{}, configs(red, blue))
	m := id(0)
	r.create(t, m)
	for _, cp := range []*controlplane.ControlPlane{red, blue, red} {
		r.configure(t, m, cp.Name())
		got := r.settles(t, m, configured, 30*time.Second)
		n := node(t, cp, m)
		if n == nil || !ready(n) {
			t.Fatalf("CONFIGURED, but its node is not Ready: %v", n)
		}
		if n.Spec.ProviderID != got.GetHost().GetRef() || n.Spec.ProviderID != "kwok://kw/"+m || got.GetHost().GetProvider() != "kw" {
			t.Errorf("host %v, providerID %q", got.GetHost(), n.Spec.ProviderID)
		}
		for key, want := range map[string]string{
			"bigfleet.lucy.sh/machine-id": m, "bigfleet.lucy.sh/provider": "kw", "node.kubernetes.io/instance-type": "t.4x",
			"topology.kubernetes.io/zone": "z-1a", "kubernetes.io/hostname": m, "topology.bigfleet/rack": "r1",
			"kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
		} {
			if n.Labels[key] != want {
				t.Errorf("label %s is %q, want %q", key, n.Labels[key], want)
			}
		}
		if !hasTaint(n, "dedicated") || n.Status.Allocatable.Cpu().String() != "4" || n.Status.Allocatable.Pods().String() != "110" {
			t.Errorf("taints %v, allocatable %v", n.Spec.Taints, n.Status.Allocatable)
		}
		// PROV-27.12: the boot data itself is nowhere, its digest is.
		if sum := sha256.Sum256([]byte("join")); n.Annotations["bigfleet.lucy.sh/bootstrap-sha256"] != hex.EncodeToString(sum[:]) {
			t.Errorf("annotations %v lack the digest of the boot data", n.Annotations)
		}
		r.drain(t, m, 5)
		r.settles(t, m, idle, 30*time.Second)
		if n := node(t, cp, m); n != nil {
			t.Fatalf("IDLE, but its node is still in %s", cp.Name())
		}
	}
	// PROV-14.5: an unknown cluster.
	_, err := r.Configure(t.Context(), connect.NewRequest(&bigfleetv1alpha1.ConfigureRequest{MachineId: m, ClusterId: "green", BootstrapBlob: []byte("x")}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument || !strings.Contains(err.Error(), "green") {
		t.Fatalf("Configure for an unknown cluster: %v", err)
	}
	if got := r.get(t, m); got.GetState() != idle || got.GetCluster() != "" {
		t.Fatalf("after the refusal: %v", got)
	}
}

// PROV-11.13, 27.7, scenario 61: Drain evicts and deletes no Pod. It lets Pods end by themselves within the grace; then the Node goes,
// and the Pods that are left are still there, for the garbage collection of the cluster.
func TestDrainResetsAndEvictsNothing(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Config{Name: "red"})
	r := start(t, options{}, configs(cp))
	m := id(0)
	r.create(t, m)
	r.configure(t, m, "red")
	r.settles(t, m, configured, 30*time.Second)
	pods := cp.Client().CoreV1().Pods("default")
	deploy(t, cp, 2)
	waitFor(t, "two running pods", func(ctx context.Context) bool {
		list, err := pods.List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running"})
		return err == nil && len(list.Items) == 2
	})
	const grace = 4
	begin := time.Now()
	r.drain(t, m, grace)
	r.settles(t, m, idle, time.Minute)
	if took := time.Since(begin); took < grace*time.Second {
		t.Errorf("the machine was reset after %s, with pods on it; the grace is %d s", took, grace)
	}
	if n := node(t, cp, m); n != nil {
		t.Error("IDLE with its node still there")
	}
	list, err := pods.List(t.Context(), metav1.ListOptions{FieldSelector: "spec.nodeName=" + m})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("%d of 2 pods are left (%v): the provider deleted the others", len(list.Items), err)
	}
	for _, p := range list.Items {
		if p.DeletionTimestamp != nil {
			t.Errorf("pod %s was evicted or deleted", p.Name)
		}
	}
}

// Scenario 38, PROV-27.9 and 14.6: a Node that somebody deletes is a lost host; an apiserver that is away is not, and a Configure
// during the outage succeeds after it.
func TestLostNodeAndAbsentAPIServer(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Config{Name: "red"})
	r := start(t, options{slots: 3}, configs(cp))
	for i := range 3 {
		r.create(t, id(i))
	}
	for i := range 2 {
		r.configure(t, id(i), "red")
	}
	for i := range 2 {
		r.settles(t, id(i), configured, 30*time.Second)
	}
	if err := cp.Client().CoreV1().Nodes().Delete(t.Context(), id(0), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "the loss", func(context.Context) bool { return r.get(t, id(0)).GetState() == failed })
	lost := r.get(t, id(0))
	if lost.GetFailure() != bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_HOST_LOST || lost.GetCluster() != "red" || !strings.HasPrefix(lost.GetLastError(), "host: ") {
		t.Errorf("lost machine: %v", lost)
	}
	apiserver := cp.Component(controlplane.APIServer)
	if err := apiserver.Pause(); err != nil {
		t.Fatal(err)
	}
	r.configure(t, id(2), "red")
	time.Sleep(3 * time.Second) // ten rounds of reconcile
	if m := r.get(t, id(1)); m.GetState() != configured {
		t.Errorf("a machine was given up while its apiserver was away: %v", m)
	}
	if m := r.get(t, id(2)); m.GetState() != configuring {
		t.Errorf("a machine is %s while its apiserver is away", m.GetState())
	}
	if err := apiserver.Resume(); err != nil {
		t.Fatal(err)
	}
	r.settles(t, id(2), configured, time.Minute)
	if m := r.get(t, id(1)); m.GetState() != configured {
		t.Errorf("a machine was given up after the outage: %v", m)
	}
}

// PROV-12.3, 12.5 and 27.8: after a restart the bound machine is bound, the Node untouched; a Configure that was cut off is
// Failed as interrupted, and its Node goes with it.
func TestRestart(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Config{Name: "red"})
	o := options{slots: 2, state: filepath.Join(t.TempDir(), "p.db"), more: []provider.Option{
		provider.WithRetention(provider.Retention{Failed: 300 * time.Millisecond, Orphan: 300 * time.Millisecond}),
	}}
	r := start(t, o, configs(cp))
	r.create(t, id(0))
	r.create(t, id(1))
	r.configure(t, id(0), "red")
	r.settles(t, id(0), configured, 30*time.Second)
	before := node(t, cp, id(0)).UID
	if err := cp.Component(controlplane.Kwok).Pause(); err != nil {
		t.Fatal(err)
	}
	r.configure(t, id(1), "red") // its Node appears and does not become Ready
	waitFor(t, "the second node", func(context.Context) bool { return node(t, cp, id(1)) != nil })
	r.stop()

	again := start(t, o, configs(cp))
	again.seq = r.seq
	if m := again.get(t, id(0)); m.GetState() != configured || m.GetCluster() != "red" || m.GetShardMetadata()["k"] != "v" {
		t.Errorf("after the restart: %v", m)
	}
	if n := node(t, cp, id(0)); n == nil || n.UID != before {
		t.Error("the node of a bound machine was touched by a restart")
	}
	if m := again.get(t, id(1)); m.GetState() != failed || m.GetFailure() != bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_INTERRUPTED {
		t.Errorf("cut off: %v", m)
	}
	// PROV-18.2, 18.4: its node exists, so the janitor waits for an operator.
	answer, err := again.admin.RetireMachine(t.Context(), connect.NewRequest(&bigfleetv1alpha1.RetireMachineRequest{Id: id(1), Force: true, Reason: "test"}))
	if err != nil {
		t.Fatal(err)
	}
	if n := node(t, cp, id(1)); n != nil {
		t.Error("a retired machine left its node")
	}
	if m := again.get(t, answer.Msg.GetReplacementId()); m.GetState() != speculative {
		t.Errorf("replacement: %v", m)
	}
}

// PROV-27.10: 1,000 Configures at once. The figure is logged; what is asserted is that all of them succeed with one Node each.
func TestBurst(t *testing.T) {
	const machines = 1000
	cp := controlplane.StartT(t, controlplane.Config{Name: "red"})
	r := start(t, options{slots: machines}, configs(cp))
	each := func(do func(i int)) {
		var all sync.WaitGroup
		places := make(chan struct{}, 64)
		for i := range machines {
			places <- struct{}{}
			all.Go(func() { defer func() { <-places }(); do(i) })
		}
		all.Wait()
	}
	each(func(i int) { r.create(t, id(i)) })
	floor := burstOfNodes(t, cp, machines)
	since := r.list(t, nil).GetRevision()
	begin := time.Now()
	each(func(i int) { r.configure(t, id(i), "red") })
	accepted := time.Since(begin)
	// One reader with a cursor, as a shard reads: a Get per machine and moment would be the load that is measured.
	var took []time.Duration
	for len(took) < machines {
		delta := r.list(t, since)
		since = delta.GetRevision()
		for _, m := range delta.GetMachines() {
			switch m.GetState() {
			case configured:
				took = append(took, time.Since(begin))
			case configuring:
			default:
				t.Fatalf("%v", m)
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	last := percentile(took, 100)
	t.Logf("%d Configures at once: accepted in %s, p50 %s, p99 %s, last %s; bare Nodes of a plain client: %s, so %.2f times as long",
		machines, accepted, percentile(took, 50), percentile(took, 99), last, floor, float64(last)/float64(floor))
	nodes, err := cp.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "bigfleet.lucy.sh/provider=kw"})
	if err != nil || len(nodes.Items) != machines {
		t.Fatalf("%d nodes (%v)", len(nodes.Items), err)
	}
	begin = time.Now()
	each(func(i int) { r.drain(t, id(i), 0) })
	each(func(i int) { r.settles(t, id(i), idle, 5*time.Minute) })
	t.Logf("%d drains: %s", machines, time.Since(begin))
}

// burstOfNodes is the floor of TestBurst: as many Nodes, made by a plain client with as many writes in parallel on the same
// apiserver, until each is Ready.
func burstOfNodes(t *testing.T, cp *controlplane.ControlPlane, n int) time.Duration {
	t.Helper()
	config := cp.RESTConfig()
	config.QPS, config.Burst = -1, 0
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	nodes := client.CoreV1().Nodes()
	begin := time.Now()
	places := make(chan struct{}, 64)
	var all sync.WaitGroup
	for i := range n {
		places <- struct{}{}
		all.Go(func() {
			defer func() { <-places }()
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("floor-%d", i), Labels: map[string]string{"floor": "yes"}, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake"},
			}}
			if _, err := nodes.Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	waitFor(t, "the bare nodes to be Ready", func(ctx context.Context) bool {
		list, err := nodes.List(ctx, metav1.ListOptions{LabelSelector: "floor=yes", ResourceVersion: "0"})
		return err == nil && len(list.Items) == n && !slices.ContainsFunc(list.Items, func(n corev1.Node) bool { return !ready(&n) })
	})
	took := time.Since(begin)
	if err := nodes.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "floor=yes"}); err != nil {
		t.Fatal(err)
	}
	return took
}

// PROV-27.11: the rights of deploy/kwok/rbac.yaml are enough for a whole life: Configure, Drain with and without a grace,
// and Describe; nothing is forbidden and nothing more is granted.
func TestLeastPrivilege(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Config{Name: "red"})
	if err := cp.ApplyFile(t.Context(), "../../deploy/kwok/rbac.yaml"); err != nil {
		t.Fatal(err)
	}
	config, err := cp.UserConfig("bigfleet-provider-kwok")
	if err != nil {
		t.Fatal(err)
	}
	r := start(t, options{}, nodeready.RESTConfigs{"red": config})
	m := id(0)
	r.create(t, m)
	for _, grace := range []int64{2, 0} {
		r.configure(t, m, "red")
		r.settles(t, m, configured, time.Minute)
		if grace == 2 {
			deploy(t, cp, 1)
		}
		waitFor(t, "a running pod", func(ctx context.Context) bool {
			list, err := cp.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{FieldSelector: "status.phase=Running,spec.nodeName=" + m})
			return err == nil && len(list.Items) == 1
		})
		r.drain(t, m, grace)
		r.settles(t, m, idle, 2*time.Minute)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	for what, forbidden := range map[string]func(context.Context) error{
		"read secrets": func(ctx context.Context) error {
			_, err := client.CoreV1().Secrets("").List(ctx, metav1.ListOptions{})
			return err
		},
		"delete pods": func(ctx context.Context) error {
			return client.CoreV1().Pods("default").Delete(ctx, "p", metav1.DeleteOptions{})
		},
		"evict pods": func(ctx context.Context) error {
			return client.CoreV1().Pods("default").EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "default"}})
		},
		"make pods": func(ctx context.Context) error {
			_, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p"}}, metav1.CreateOptions{})
			return err
		},
		"write node status": func(ctx context.Context) error {
			_, err := client.CoreV1().Nodes().UpdateStatus(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m}}, metav1.UpdateOptions{})
			return err
		},
	} {
		if err := forbidden(t.Context()); !apierrors.IsForbidden(err) {
			t.Errorf("the provider's identity may %s: %v", what, err)
		}
	}
}

// Scenario 48 on real Nodes, PROV-17.7, 17.8, 27.4: a provider that lost its store is not ready over its Nodes; with
// --adopt-store the machine is CONFIGURED again, with cluster and metadata from the untouched Node.
func TestAdoptAfterALostStore(t *testing.T) {
	cp := controlplane.StartT(t, controlplane.Config{Name: "red"})
	r := start(t, options{slots: 2}, configs(cp))
	r.create(t, id(0))
	r.configure(t, id(0), "red")
	r.settles(t, id(0), configured, time.Minute)
	before := node(t, cp, id(0))
	r.stop()
	lost := before.Annotations["bigfleet.lucy.sh/store-id"]
	again := start(t, options{slots: 2, more: []provider.Option{provider.WithAdoptStore(lost)}}, configs(cp))
	bound := 0
	for _, m := range again.list(t, nil).GetMachines() {
		if m.GetState() != configured {
			continue
		}
		bound++
		if m.GetCluster() != "red" || m.GetShardMetadata()["k"] != "v" || m.GetInstanceType() != "t.4x" || m.GetHost().GetRef() != before.Spec.ProviderID {
			t.Errorf("adopted: %v", m)
		}
	}
	if after := node(t, cp, id(0)); bound != 1 || after == nil || after.UID != before.UID {
		t.Errorf("%d machines are bound; the node: %v", bound, after)
	}
}

// PROV-27.2: many clusters from a directory of kubeconfigs, some of which come while the provider runs.
func TestManyClusters(t *testing.T) {
	const clusters = 12
	cp := controlplane.StartT(t, controlplane.Config{Name: "red"})
	kubeconfig, err := os.ReadFile(cp.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	r := start(t, options{slots: clusters}, nodeready.Kubeconfigs{Dir: dir})
	for i := range clusters {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("cluster-%d.yaml", i)), kubeconfig, 0o600); err != nil {
			t.Fatal(err)
		}
		r.create(t, id(i))
		r.configure(t, id(i), fmt.Sprintf("cluster-%d", i))
	}
	for i := range clusters {
		if m := r.settles(t, id(i), configured, time.Minute); m.GetCluster() != fmt.Sprintf("cluster-%d", i) {
			t.Errorf("%v", m)
		}
		if n := node(t, cp, id(i)); n == nil || n.Annotations["bigfleet.lucy.sh/cluster"] != fmt.Sprintf("cluster-%d", i) {
			t.Errorf("node %v", n)
		}
	}
}

func ready(n *corev1.Node) bool {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

func hasTaint(n *corev1.Node, key string) bool {
	for _, t := range n.Spec.Taints {
		if t.Key == key {
			return true
		}
	}
	return false
}

func deploy(t *testing.T, cp *controlplane.ControlPlane, replicas int32) {
	t.Helper()
	labels := map[string]string{"app": "a"}
	if _, err := cp.Client().AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "a"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					Containers:  []corev1.Container{{Name: "c", Image: "c"}},
					Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
				},
			},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func waitFor(t *testing.T, what string, done func(context.Context) bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !done(t.Context()); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited a minute for %s", what)
		}
	}
}
