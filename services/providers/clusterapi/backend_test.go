package clusterapi

import (
	"context"
	"encoding/base64"
	"errors"
	"iter"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const testStore = "store-1"

// books is the fleet of a provider without the provider.
type books []provider.Machine

func (b *books) StoreID() string                      { return testStore }
func (b *books) Machines() iter.Seq[provider.Machine] { return slices.Values(*b) }
func (b *books) Machine(id string) (provider.Machine, bool) {
	i := slices.IndexFunc(*b, func(m provider.Machine) bool { return m.ID == id })
	if i < 0 {
		return provider.Machine{}, false
	}
	return (*b)[i], true
}

func machine(id string) provider.Machine {
	return provider.Machine{ID: id, HostRef: "clusterapi://capi/" + id, Attributes: provider.Attributes{InstanceType: "large", Zone: "zone-a"}}
}

func newTest(t *testing.T, fleet ...provider.Machine) (*backend, *fakeCAPI, *books) {
	t.Helper()
	f := newFakeCAPI(t.Context(), "red", "blue")
	b, err := newBackend(Config{Name: "capi", settings: fakeSettings("large"), client: f.client, mapper: f.mapper, OrphanAge: time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	all := books(fleet)
	b.Attach(&all)
	t.Cleanup(func() { _ = b.Close() })
	return b, f, &all
}

func (f *fakeCAPI) get(t *testing.T, r schema.GroupVersionResource, name string) *unstructured.Unstructured {
	t.Helper()
	o, err := f.client.Resource(r).Namespace(fakeNamespace).Get(t.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func configure(id, op string) provider.ConfigureOp {
	return provider.ConfigureOp{ID: op, Machine: machine(id), Cluster: "red", Metadata: map[string]string{"k": "v"}, Blob: []byte("#cloud-config")}
}

// PROV-28.18: what the infrastructure names itself is not named by boot data; all else of it stays.
func TestProviderIDStaysOutOfBootData(t *testing.T) {
	const ref = "clusterapi://capi/m-1"
	for blob, want := range map[string]string{
		"kubelet \\\n  --node-labels=a=b \\\n      --provider-id=" + ref + "\nruncmd: []\n": "kubelet \\\n  --node-labels=a=b \\\n      \nruncmd: []\n",
		"kubelet --provider-id=" + ref + " --v=2":                                           "kubelet  --v=2",
		"--provider-id=" + ref:        "",
		"--provider-id=" + ref + "0":  "--provider-id=" + ref + "0",
		"--provider-id=hcloud://4711": "--provider-id=hcloud://4711",
		"\x1f\x8b packed":             "\x1f\x8b packed",
	} {
		if got := string(withoutProviderID([]byte(blob), ref)); got != want {
			t.Errorf("%q became %q, want %q", blob, got, want)
		}
	}
}

// PROV-12: a Configure makes the three objects of Cluster API's contract, once however often it is called, and a Drain
// leaves none of them.
func TestMachineOfACluster(t *testing.T) {
	b, f, _ := newTest(t)
	op := configure("m-0", "op-1")
	for range 2 {
		if err := b.Configure(t.Context(), op); err != nil {
			t.Fatal(err)
		}
	}
	bound := op.Machine
	bound.Cluster = "red"
	if err := b.Ready(t.Context(), bound); err != nil {
		t.Fatal(err)
	}
	m, infra, boot := f.get(t, machines, "m-0"), f.get(t, infraMachines, "m-0"), f.get(t, secrets, "m-0")
	spec, _, _ := unstructured.NestedMap(m.Object, "spec")
	if spec["clusterName"] != "red" || spec["failureDomain"] != "zone-a" {
		t.Errorf("spec of the Machine: %v", spec)
	}
	if size, _, _ := unstructured.NestedString(infra.Object, "spec", "size"); size != "large" || infra.GetAnnotations()[annotationClonedName] != "shape" {
		t.Errorf("the infrastructure machine is not the template's: %v", infra.Object)
	}
	value, _, _ := unstructured.NestedString(boot.Object, "data", "value")
	if got, err := base64.StdEncoding.DecodeString(value); err != nil || string(got) != "#cloud-config" {
		t.Errorf("boot data %q, %v", got, err)
	}
	if owners := boot.GetOwnerReferences(); len(owners) != 1 || owners[0].UID != m.GetUID() {
		t.Errorf("the boot data does not go with the Machine: %v", owners)
	}
	if _, ok := m.GetAnnotations()[annotationNoDrain]; !ok {
		t.Error("PROV-11.13: Cluster API would evict Pods")
	}
	if err := b.Drain(t.Context(), provider.DrainOp{ID: "op-2", Machine: bound, Cluster: "red"}); err != nil {
		t.Fatal(err)
	}
	if f.get(t, machines, "m-0") != nil || f.get(t, infraMachines, "m-0") != nil || f.get(t, secrets, "m-0") != nil {
		t.Error("something is left after the Drain")
	}
}

// A Machine of somebody else in our place is left alone; one of an earlier operation of ours makes room.
func TestPlaceIsTaken(t *testing.T) {
	b, f, _ := newTest(t)
	if err := b.Configure(t.Context(), configure("m-0", "op-1")); err != nil {
		t.Fatal(err)
	}
	err := b.Configure(t.Context(), configure("m-0", "op-2"))
	if class, _ := provider.ClassOf(err); class != provider.ClassTransient {
		t.Fatalf("an object of op-1 in the way: %v", err)
	}
	for err != nil {
		if class, _ := provider.ClassOf(err); class != provider.ClassTransient {
			t.Fatal(err)
		}
		err = b.Configure(t.Context(), configure("m-0", "op-2"))
	}
	if got := f.get(t, machines, "m-0").GetAnnotations()[annotationOperation]; got != "op-2" {
		t.Errorf("the Machine is of %s", got)
	}
	foreign := object("v1", "Secret", "m-1", map[string]any{})
	if _, err := f.client.Resource(secrets).Namespace(fakeNamespace).Create(t.Context(), foreign, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = b.Configure(t.Context(), configure("m-1", "op-3"))
	if class, _ := provider.ClassOf(err); err == nil || class != provider.ClassPermanent || !strings.Contains(err.Error(), "is not managed by this provider") {
		t.Errorf("a Secret of somebody else: %v", err)
	}
	if f.get(t, secrets, "m-1") == nil {
		t.Error("it was removed")
	}
}

// PROV-15.6: what the infrastructure says becomes the class that the shard acts on, and the sentence is kept.
func TestRefusals(t *testing.T) {
	for text, want := range map[string]provider.Class{
		"InsufficientInstanceCapacity: no m5.large in zone-a": provider.ClassCapacity,
		"AllocationFailed: the region is full":                provider.ClassCapacity,
		"QuotaExceeded: 100 vCPU":                             provider.ClassQuota,
	} {
		b, f, _ := newTest(t)
		f.refuseWith(text)
		if err := b.Configure(t.Context(), configure("m-0", "op-1")); err != nil {
			t.Fatal(err)
		}
		err := b.Ready(t.Context(), machine("m-0"))
		if class, _ := provider.ClassOf(err); class != want || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: class %d, %v", text, class, err)
		}
	}
	b, f, _ := newTest(t)
	f.refuseWith("the network of the cluster is being made")
	if err := b.Configure(t.Context(), configure("m-0", "op-1")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := b.Ready(ctx, machine("m-0")); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "the network of the cluster") {
		t.Errorf("a Machine that waits: %v", err)
	}
}

// PROV-17.1, 17.4, 17.6: Describe reports what exists, leaves out what is definitely gone, shows Machines of another store
// with their binding, and removes those of ours that nothing explains.
func TestDescribe(t *testing.T) {
	here, gone := machine("m-here"), machine("m-gone")
	here.State, here.Cluster, gone.State, gone.Cluster = lifecycle.Configured, "red", lifecycle.Configured, "red"
	idle := machine("m-idle")
	idle.State = lifecycle.Idle
	b, f, _ := newTest(t, here, gone, idle)
	for _, id := range []string{"m-here", "m-orphan", "m-foreign"} {
		if err := b.Configure(t.Context(), configure(id, "op-"+id)); err != nil {
			t.Fatal(err)
		}
	}
	other := f.get(t, machines, "m-foreign")
	a := other.GetAnnotations()
	a[annotationStore] = "another"
	other.SetAnnotations(a)
	if _, err := f.machines().Update(t.Context(), other, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	describe := func() map[string]provider.Host {
		found := map[string]provider.Host{}
		if err := b.Describe(t.Context(), func(h provider.Host) error { found[h.MachineID] = h; return nil }); err != nil {
			t.Fatal(err)
		}
		return found
	}
	until(t, "the watch shows the change", func() bool {
		m := b.seen.get("m-foreign")
		return m != nil && m.GetAnnotations()[annotationStore] == "another" && b.seen.get("m-orphan") != nil
	})
	got := describe()
	if _, ok := got["m-here"]; !ok || len(got) != 3 {
		t.Fatalf("found %v", got)
	}
	if _, ok := got["m-gone"]; ok {
		t.Error("a Machine that does not exist was described")
	}
	if h := got["m-foreign"]; h.StoreID != "another" || h.Binding == nil || h.Binding.Cluster != "red" || h.Binding.Metadata["k"] != "v" || h.Attributes == nil || h.Attributes.Zone != "zone-a" {
		t.Errorf("the Machine of another store: %+v", h)
	}
	until(t, "the orphan is removed", func() bool { describe(); return f.get(t, machines, "m-orphan") == nil })
	if f.get(t, machines, "m-foreign") == nil || f.get(t, machines, "m-here") == nil {
		t.Error("more than the orphan was removed")
	}
}

// PROV-28.6: a Machine that somebody else deletes is announced, and then gone.
func TestNotices(t *testing.T) {
	m := machine("m-0")
	m.State, m.Cluster = lifecycle.Configured, "red"
	b, f, _ := newTest(t, m)
	if err := b.Configure(t.Context(), configure("m-0", "op-1")); err != nil {
		t.Fatal(err)
	}
	until(t, "the Machine is seen", func() bool { return b.seen.get("m-0") != nil })
	news := make(chan provider.Notice, 10)
	go func() { _ = b.Notify(t.Context(), func(n provider.Notice) { news <- n }) }()
	o := f.get(t, machines, "m-0")
	now := metav1.Now()
	o.SetDeletionTimestamp(&now)
	if _, err := f.machines().Update(t.Context(), o, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if n := <-news; n.MachineID != "m-0" || n.InterruptionProbability != 1 {
		t.Errorf("a Machine that is being deleted: %+v", n)
	}
	if err := f.machines().Delete(t.Context(), "m-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for n := range news {
		if n.Gone {
			return
		}
	}
}

// What cannot work is refused before anything is made, with what to do.
func TestAdmission(t *testing.T) {
	b, _, _ := newTest(t)
	other := machine("m-0")
	other.InstanceType = "tiny"
	if err := b.Admit(provider.Configure, other, "red"); err == nil || !strings.Contains(err.Error(), "templates[tiny]") {
		t.Errorf("no template: %v", err)
	}
	b.settings.Namespace = ""
	if err := b.Admit(provider.Configure, machine("m-0"), "red"); err == nil || !strings.Contains(err.Error(), "add it to clusters") {
		t.Errorf("no Cluster: %v", err)
	}
	bad := settings{Clusters: map[string]cluster{"red": {}}, Templates: map[string]template{"x": {Kind: "AWSMachine"}}}
	err := bad.Validate()
	for _, want := range []string{"clusters[red]: namespace", "api_version", "does not end with Template", "name is missing"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if err := (&settings{}).complete([]provider.Offering{{Attributes: provider.Attributes{InstanceType: "large"}}}); err == nil ||
		!strings.Contains(err.Error(), "no cluster is configured") || !strings.Contains(err.Error(), "templates[large]") {
		t.Errorf("nothing configured: %v", err)
	}
	op := configure("m-0", "op")
	op.Blob = nil
	if class, _ := provider.ClassOf(b.Configure(t.Context(), op)); class != provider.ClassBootstrap {
		t.Errorf("no boot data: class %d", class)
	}
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for range 1000 {
		if done() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("never: %s", what)
}
