package capi

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"

	bootstrapv1 "sigs.k8s.io/cluster-api/api/bootstrap/kubeadm/v1beta2"
	clusterv1 "sigs.k8s.io/cluster-api/api/core/v1beta2"
	"sigs.k8s.io/cluster-api/controllers/clustercache"
	"sigs.k8s.io/cluster-api/core/reconcilers/cluster"
	"sigs.k8s.io/cluster-api/core/reconcilers/machine"
	"sigs.k8s.io/cluster-api/core/setup"
	"sigs.k8s.io/cluster-api/test/infrastructure/container"
	infrav1 "sigs.k8s.io/cluster-api/test/infrastructure/docker/api/v1beta2"
	infracontrollers "sigs.k8s.io/cluster-api/test/infrastructure/docker/controllers"
	cloudv1 "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/cloud/api/v1alpha1"
	inmemoryruntime "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/runtime"
	inmemoryserver "sigs.k8s.io/cluster-api/test/infrastructure/inmemory/pkg/server"
	"sigs.k8s.io/cluster-api/util/conditions"
	"sigs.k8s.io/cluster-api/util/index"
	"sigs.k8s.io/cluster-api/util/secret"
)

// management is a management cluster with Cluster API.
type management struct {
	*controlplane.ControlPlane
	client client.Client
}

const (
	namespace    = "fleet"
	contract     = "cluster.x-k8s.io/v1beta2"
	templateName = "server"
	concurrent   = 20
	launch       = 200 * time.Millisecond // of a server, and again of its kubelet
)

// startManagement starts an API server, installs Cluster API's CRDs and runs its controllers until the test ends.
func startManagement(t *testing.T) *management {
	t.Helper()
	cp := controlplane.StartT(t, controlplane.Config{Name: "management", Omit: []controlplane.Component{controlplane.Scheduler, controlplane.Kwok}})
	installCRDs(t, cp)
	scheme := schemeOf(t, clientgoscheme.AddToScheme, clusterv1.AddToScheme, infrav1.AddToScheme, bootstrapv1.AddToScheme, apiextensionsv1.AddToScheme)
	ctrl.SetLogger(logr.Discard())
	config := cp.RESTConfig()
	config.QPS, config.Burst = 500, 1000
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"}, Client: setup.ManagerClientOptions(),
		Cache: setup.ManagerCacheOptions(scheme, "capi-e2e", "", 10*time.Minute),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	runControllers(ctx, t, mgr)
	ended := make(chan error, 1)
	go func() { ended <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Cluster API's controllers: %v", err)
		}
	})
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	m := &management{ControlPlane: cp, client: c}
	m.create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})
	wait := infrav1.CommonProvisioningSettings{StartupDuration: metav1.Duration{Duration: launch}}
	m.create(t, &infrav1.DevMachineTemplate{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: templateName},
		Spec: infrav1.DevMachineTemplateSpec{Template: infrav1.DevMachineTemplateResource{Spec: infrav1.DevMachineSpec{
			Backend: infrav1.DevMachineBackendSpec{InMemory: &infrav1.InMemoryMachineBackendSpec{
				VM: &infrav1.InMemoryVMSpec{Provisioning: wait}, Node: &infrav1.InMemoryNodeSpec{Provisioning: wait},
			}},
		}}},
	})
	return m
}

func schemeOf(t *testing.T, add ...func(*runtime.Scheme) error) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	for _, one := range add {
		if err := one(s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// installCRDs installs the CRDs that the modules carry, with the label by which Cluster API finds a contract's version.
func installCRDs(t *testing.T, cp *controlplane.ControlPlane) {
	t.Helper()
	for module, pattern := range map[string]string{
		"sigs.k8s.io/cluster-api": "core/config/crd/bases/*.yaml", "sigs.k8s.io/cluster-api/test": "infrastructure/docker/config/crd/bases/*.yaml",
	} {
		out, err := list(t, module)
		if err != nil {
			t.Fatal(err)
		}
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), pattern))
		if err != nil || len(files) == 0 {
			t.Fatalf("no CRDs in %s: %v", module, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var crd apiextensionsv1.CustomResourceDefinition
			if err := yaml.Unmarshal(text, &crd); err != nil {
				t.Fatal(err)
			}
			crd.Labels = map[string]string{contract: "v1beta2"}
			if text, err = yaml.Marshal(&crd); err != nil {
				t.Fatal(err)
			}
			if err := cp.ApplyYAML(t.Context(), text); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// list finds a module's directory. The module of this test is outside of go.work.
func list(t *testing.T, module string) ([]byte, error) {
	cmd := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	return cmd.Output()
}

// runControllers sets up the controllers of Cluster and Machine, and those of the in-memory infrastructure.
func runControllers(ctx context.Context, t *testing.T, mgr ctrl.Manager) {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	check(index.AddDefaultIndexes(ctx, mgr))
	secretClient, err := setup.CreateSecretCachingClient(mgr)
	check(err)
	many := controller.Options{MaxConcurrentReconciles: concurrent}
	clusterCache, err := clustercache.SetupWithManager(ctx, mgr, clustercache.Options{
		SecretClient: secretClient, Cache: setup.ClusterCacheCacheOptions(), Client: setup.ClusterCacheClientOptions("capi-e2e", 500, 1000),
	}, many)
	check(err)
	check((&cluster.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusterCache, RemoteConnectionGracePeriod: time.Minute,
	}).SetupWithManager(ctx, mgr, many))
	check((&machine.Reconciler{
		Client: mgr.GetClient(), APIReader: mgr.GetAPIReader(), ClusterCache: clusterCache, RemoteConditionsGracePeriod: 5 * time.Minute,
	}).SetupWithManager(ctx, mgr, many))
	inMemory := inmemoryruntime.NewManager(schemeOf(t, cloudv1.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme,
		storagev1.AddToScheme, apiextensionsv1.AddToScheme, policyv1.AddToScheme))
	check(inMemory.Start(ctx))
	mux, err := inmemoryserver.NewWorkloadClustersMux(inMemory, "127.0.0.1")
	check(err)
	none := &container.FakeRuntime{} // both want one, and the in-memory backend calls none
	check((&infracontrollers.DevMachineReconciler{
		Client: mgr.GetClient(), ClusterCache: clusterCache, InMemoryManager: inMemory, APIServerMux: mux, ContainerRuntime: none,
	}).SetupWithManager(ctx, mgr, many))
	check((&infracontrollers.DevClusterReconciler{Client: mgr.GetClient(), InMemoryManager: inMemory, APIServerMux: mux, ContainerRuntime: none}).SetupWithManager(ctx, mgr, many))
}

func (m *management) create(t *testing.T, o client.Object) {
	t.Helper()
	if err := m.client.Create(t.Context(), o); err != nil {
		t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

// addCluster makes a Cluster with one control plane machine and returns once Cluster API calls its control plane
// initialized.
func (m *management) addCluster(t *testing.T, name string) {
	t.Helper()
	c := &clusterv1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: clusterv1.ClusterSpec{InfrastructureRef: clusterv1.ContractVersionedObjectReference{
			APIGroup: infrav1.GroupVersion.Group, Kind: "DevCluster", Name: name,
		}},
	}
	m.create(t, &infrav1.DevCluster{ // its reconciler panics without any annotation
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: map[string]string{"bigfleet.lucy.sh/test": "true"}, Labels: map[string]string{clusterv1.ClusterNameLabel: name}},
		Spec:       infrav1.DevClusterSpec{Backend: infrav1.DevClusterBackendSpec{InMemory: &infrav1.InMemoryClusterBackendSpec{}}},
	})
	m.create(t, c)
	key := client.ObjectKeyFromObject(c)
	owner := *metav1.NewControllerRef(c, clusterv1.GroupVersion.WithKind("Cluster"))
	if err := secret.NewCertificatesForInitialControlPlane(&bootstrapv1.ClusterConfiguration{}).LookupOrGenerate(t.Context(), m.client, key, owner); err != nil {
		t.Fatal(err)
	}
	m.until(t, name+" has an endpoint", func() (bool, string) {
		err := m.client.Get(t.Context(), key, c)
		return err == nil && c.Spec.ControlPlaneEndpoint.Port != 0, fmt.Sprint(c.ResourceVersion, err)
	})
	m.addControlPlaneMachine(t, c)
	m.until(t, name+" has an API server", func() (bool, string) {
		var d infrav1.DevMachine
		err := m.client.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name + "-control-plane"}, &d)
		return err == nil && d.Spec.ProviderID != "", fmt.Sprint(d.ResourceVersion, err)
	})
	// What a control plane provider says once its first API server answers. Cluster API connects to the cluster from then on.
	if err := m.client.Get(t.Context(), key, c); err != nil {
		t.Fatal(err)
	}
	before := c.DeepCopy()
	c.Status.Initialization.ControlPlaneInitialized = new(true)
	conditions.Set(c, metav1.Condition{Type: clusterv1.ClusterControlPlaneInitializedCondition, Status: metav1.ConditionTrue, Reason: clusterv1.ClusterControlPlaneInitializedReason})
	if err := m.client.Status().Patch(t.Context(), c, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
}

func (m *management) addControlPlaneMachine(t *testing.T, c *clusterv1.Cluster) {
	t.Helper()
	name := c.Name + "-control-plane"
	labels := map[string]string{clusterv1.ClusterNameLabel: c.Name, clusterv1.MachineControlPlaneLabel: ""}
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
	m.create(t, &corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"value": []byte("boot")}})
	m.create(t, &infrav1.DevMachine{ObjectMeta: meta, Spec: infrav1.DevMachineSpec{
		Backend: infrav1.DevMachineBackendSpec{InMemory: &infrav1.InMemoryMachineBackendSpec{}},
	}})
	m.create(t, &clusterv1.Machine{ObjectMeta: meta, Spec: clusterv1.MachineSpec{
		ClusterName: c.Name, Version: "v1.36.3", Bootstrap: clusterv1.Bootstrap{DataSecretName: &name},
		InfrastructureRef: clusterv1.ContractVersionedObjectReference{APIGroup: infrav1.GroupVersion.Group, Kind: "DevMachine", Name: name},
	}})
}

// workers lists the Machines of the provider.
func (m *management) workers(t *testing.T) []clusterv1.Machine {
	t.Helper()
	var list clusterv1.MachineList
	if err := m.client.List(t.Context(), &list, client.InNamespace(namespace), client.HasLabels{"bigfleet.lucy.sh/machine-id"}); err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// progress counts how far Cluster API is with the Machines of the provider.
func (m *management) progress(t *testing.T) string {
	t.Helper()
	server, node, deleting := 0, 0, 0
	all := m.workers(t)
	for _, one := range all {
		if one.Spec.ProviderID != "" {
			server++
		}
		if one.Status.NodeRef.IsDefined() {
			node++
		}
		if one.DeletionTimestamp != nil {
			deleting++
		}
	}
	return fmt.Sprintf("%d Machines: %d with a server, %d with a Node, %d being deleted", len(all), server, node, deleting)
}

// left names what the provider made and what still exists.
func (m *management) left(t *testing.T) (all []string) {
	t.Helper()
	for _, list := range []client.ObjectList{&clusterv1.MachineList{}, &infrav1.DevMachineList{}, &corev1.SecretList{}} {
		if err := m.client.List(t.Context(), list, client.InNamespace(namespace), client.HasLabels{"bigfleet.lucy.sh/machine-id"}); err != nil {
			t.Fatal(err)
		}
		text, err := yaml.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "bigfleet.lucy.sh/machine-id:"); n > 0 {
			all = append(all, fmt.Sprintf("%d in %T", n, list))
		}
	}
	return all
}

// stall is how long nothing may move before a wait gives up. A wait that sees progress has no other end: how long a burst takes is a matter
// of the machine that runs it.
const stall = 5 * time.Minute

// until waits until done says so. seen is what done looked at; it must change now and then.
func (m *management) until(t *testing.T, what string, done func() (ok bool, seen string)) {
	t.Helper()
	last, moved := "", time.Now()
	for {
		ok, seen := done()
		switch {
		case ok:
			return
		case seen != last:
			last, moved = seen, time.Now()
		case time.Since(moved) > stall:
			t.Fatalf("%s: nothing has moved for %s; last seen: %s", what, stall, seen)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
