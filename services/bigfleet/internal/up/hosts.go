package up

import (
	"context"
	"log/slog"
	"maps"
	"time"

	"connectrpc.com/connect"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
)

// What the Node of a machine carries (WIRE-11).
const (
	labelMachine  = "bigfleet.lucy.sh/machine-id"
	labelProvider = "bigfleet.lucy.sh/provider"
)

const (
	sweepEvery = 250 * time.Millisecond
	evictEvery = 300 * time.Millisecond
)

// hosts plays what runs on the machines of simulated clusters: a kubelet that registers its Node when the machine gets its
// boot data, and the node controller of a cloud, which removes the Node of a machine that is no more.
//
// The simulated cloud calls Join and Leave itself. With a provider outside this process the sweep does the same from what its
// List says, so that anybody's provider can be tried on simulated clusters.
type hosts struct {
	clusters map[string]*Cluster
	provider string
	outside  bool                   // the provider is not ours: Join and Leave are not called
	alive    func() map[string]bool // machines that have a host in the simulated cloud; nil for a provider that is not ours
	machines bigfleetv1alpha1connect.CapacityProviderClient
	log      *slog.Logger

	odd map[string]bool // what the last sweep found wrong; a thing must be wrong twice
}

// node is what a kubelet knows of its machine.
type node struct {
	id, ref, instanceType, zone string
	labels, room                map[string]string
	taints                      []corev1.Taint
}

// Join implements sim.Agent.
func (h *hosts) Join(ctx context.Context, op provider.ConfigureOp) error {
	c := h.clusters[op.Cluster]
	if c == nil && len(h.clusters) == 0 {
		return nil // a cluster from elsewhere: what joins it is not ours to play
	}
	if c == nil {
		return provider.Permanentf("there is no cluster %q here", op.Cluster)
	}
	m := op.Machine
	n := node{id: m.ID, ref: m.HostRef, instanceType: m.InstanceType, zone: m.Zone, labels: m.Labels, room: m.Allocatable}
	if len(n.room) == 0 {
		n.room = m.Resources
	}
	for _, t := range m.Taints {
		n.taints = append(n.taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	return h.register(ctx, c, n)
}

func (h *hosts) register(ctx context.Context, c *Cluster, n node) error {
	labels := maps.Clone(n.labels)
	if labels == nil {
		labels = map[string]string{}
	}
	for k, v := range map[string]string{
		corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	} {
		if labels[k] == "" {
			labels[k] = v
		}
	}
	labels[corev1.LabelHostname], labels[corev1.LabelInstanceTypeStable], labels[corev1.LabelTopologyZone] = n.id, n.instanceType, n.zone
	labels[labelMachine], labels[labelProvider] = n.id, h.provider
	room := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	for name, text := range n.room {
		q, err := resource.ParseQuantity(text)
		if err != nil {
			return provider.Permanentf("resource %s = %q: %v", name, text, err)
		}
		room[corev1.ResourceName(name)] = q
	}
	_, err := c.Client.CoreV1().Nodes().Create(ctx, &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.id, Labels: labels}, Spec: corev1.NodeSpec{ProviderID: n.ref, Taints: n.taints},
		Status: corev1.NodeStatus{Capacity: room, Allocatable: room},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil // joined before, by an earlier try
	}
	return transient(err)
}

func transient(err error) error {
	if err == nil {
		return nil
	}
	return provider.Transient(err)
}

// Leave implements sim.Agent: cordon, evict within the grace, then the Node goes with whatever is left on it.
func (h *hosts) Leave(ctx context.Context, op provider.DrainOp) error {
	c := h.clusters[op.Cluster]
	if c == nil {
		return nil
	}
	nodes := c.Client.CoreV1().Nodes()
	_, err := nodes.Patch(ctx, op.Machine.ID, types.MergePatchType, []byte(`{"spec":{"unschedulable":true}}`), metav1.PatchOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return transient(err)
	}
	graceful, end := context.WithTimeout(ctx, op.Grace)
	defer end()
	for h.evict(graceful, c, op.Machine.ID) > 0 && graceful.Err() == nil {
		select {
		case <-graceful.Done():
		case <-time.After(evictEvery):
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := nodes.Delete(ctx, op.Machine.ID, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return transient(err)
	}
	return nil
}

// evict asks for the eviction of every Pod of a node and says how many are still there. Budgets are respected; the operator
// evicts too, and names what blocks.
func (h *hosts) evict(ctx context.Context, c *Cluster, nodeName string) int {
	pods, err := c.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + nodeName})
	if err != nil {
		return 1 // unknown is not empty
	}
	for _, p := range pods.Items {
		if p.DeletionTimestamp == nil {
			_ = c.Client.CoreV1().Pods(p.Namespace).EvictV1(ctx, &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: p.Name, Namespace: p.Namespace}}) // a refusal is tried again
		}
	}
	return len(pods.Items)
}

// run sweeps until ctx ends.
func (h *hosts) run(ctx context.Context) error {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			h.sweep(ctx)
		}
	}
}

// sweep compares Nodes with machines. A provider that does not answer changes nothing.
func (h *hosts) sweep(ctx context.Context) {
	bound := map[string]map[string]*bigfleetv1alpha1.Machine{}
	for id := range h.clusters {
		bound[id] = map[string]*bigfleetv1alpha1.Machine{}
	}
	bounded, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	got, err := h.machines.List(bounded, connect.NewRequest(&bigfleetv1alpha1.ListFilter{}))
	if err != nil || got.Msg.GetMore() {
		return
	}
	for _, m := range got.Msg.GetMachines() {
		if in := bound[m.GetCluster()]; in != nil && m.GetHost() != nil {
			in[m.GetId()] = m
		}
	}
	if h.alive != nil { // a machine whose host was taken away is still bound; its Node has nothing behind it all the same
		alive := h.alive()
		for _, machines := range bound {
			maps.DeleteFunc(machines, func(id string, _ *bigfleetv1alpha1.Machine) bool { return !alive[id] })
		}
	}
	odd := map[string]bool{}
	for id, c := range h.clusters {
		h.sweepCluster(ctx, c, bound[id], odd)
	}
	h.odd = odd
}

func (h *hosts) sweepCluster(ctx context.Context, c *Cluster, bound map[string]*bigfleetv1alpha1.Machine, odd map[string]bool) {
	twice := func(what string) bool {
		odd[c.ID()+"\x00"+what] = true
		return h.odd[c.ID()+"\x00"+what]
	}
	nodes, _, err := c.Store().List(kubesim.Nodes, kubesim.Filter{})
	if err != nil {
		return
	}
	there := map[string]bool{}
	for _, n := range nodes {
		there[n.GetName()] = true
		if n.GetLabels()[labelProvider] == h.provider && bound[n.GetName()] == nil && twice("no machine "+n.GetName()) {
			h.log.Info("a Node without a machine is removed", "cluster", c.ID(), "machine", n.GetName())
			_ = c.Client.CoreV1().Nodes().Delete(ctx, n.GetName(), metav1.DeleteOptions{}) // the next sweep tries again
		}
	}
	for id, m := range bound {
		joins := m.GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURED ||
			h.outside && m.GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_CONFIGURING
		if joins && !there[id] && twice("no node "+id) {
			_ = h.register(ctx, c, fromWire(m)) // the next sweep tries again
		}
		if h.outside && there[id] && m.GetState() == bigfleetv1alpha1.MachineState_MACHINE_STATE_DRAINING {
			h.evict(ctx, c, id)
		}
	}
}

func fromWire(m *bigfleetv1alpha1.Machine) node {
	n := node{id: m.GetId(), ref: m.GetHost().GetRef(), instanceType: m.GetInstanceType(), zone: m.GetZone(), labels: m.GetLabels(), room: m.GetAllocatable().GetResources()}
	if len(n.room) == 0 {
		n.room = m.GetResources().GetResources()
	}
	for _, t := range m.GetTaints() {
		n.taints = append(n.taints, corev1.Taint{Key: t.GetKey(), Value: t.GetValue(), Effect: corev1.TaintEffect(t.GetEffect())})
	}
	return n
}
