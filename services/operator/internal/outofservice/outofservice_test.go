package outofservice

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
)

var now = time.Unix(1_700_000_000, 0)

func node(id, zone string, change ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + id, UID: types.UID(id), CreationTimestamp: metav1.NewTime(now.Add(-time.Hour)),
		Labels: map[string]string{v1alpha1.LabelMachineID: id, corev1.LabelTopologyZone: zone}, Annotations: map[string]string{}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	for _, c := range change {
		c(n)
	}
	return n
}

func lost(since time.Duration) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Status.Conditions[0] = corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, Reason: "NodeStatusUnknown", LastTransitionTime: metav1.NewTime(now.Add(-since))}
	}
}

func tainted(key string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Effect: effect}) }
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }
func noted(key, text string) func(*corev1.Node) {
	return func(n *corev1.Node) { n.Annotations[key] = text }
}
func draining(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationDrain] = "{}" }
func young(n *corev1.Node)    { n.CreationTimestamp = metav1.NewTime(now.Add(-time.Minute)) }

func newWatcher(machines ...machine.Machine) *Watcher {
	r := machine.New(func([]string) {})
	for _, m := range machines {
		r.Set(m)
	}
	return New(Config{Machines: r, Pods: pods.New(nil, nil, nil), Changed: func([]string) {}})
}

// OP-11.7: a node that somebody else closed is named with the reason; ours, the machine's and Kubernetes' own marks are not.
func TestWhoClosedTheNode(t *testing.T) {
	for name, c := range map[string]struct {
		change []func(*corev1.Node)
		want   pb.MachineOutOfService_Reason
		detail string
	}{
		"serving":    {nil, 0, ""},
		"cordoned":   {[]func(*corev1.Node){cordoned, tainted("node.kubernetes.io/unschedulable", "NoSchedule")}, pb.MachineOutOfService_REASON_CORDONED, ""},
		"for repair": {[]func(*corev1.Node){cordoned, noted(v1alpha1.AnnotationCordonReason, "disk errors")}, pb.MachineOutOfService_REASON_CORDONED, "disk errors"},
		"for repair, by whom": {[]func(*corev1.Node){cordoned, noted(v1alpha1.AnnotationCordonReason, "disk errors"), noted(v1alpha1.AnnotationCordonedBy, "alice")},
			pb.MachineOutOfService_REASON_CORDONED, "disk errors, by alice"},
		"a note of old":          {[]func(*corev1.Node){noted(v1alpha1.AnnotationCordonReason, "disk errors")}, 0, ""},
		"drained by us":          {[]func(*corev1.Node){cordoned, draining}, 0, ""},
		"tainted by hand":        {[]func(*corev1.Node){tainted("maintenance", "NoSchedule")}, pb.MachineOutOfService_REASON_TAINTED, "maintenance"},
		"tainted, NoExecute":     {[]func(*corev1.Node){tainted("maintenance", "NoExecute")}, pb.MachineOutOfService_REASON_TAINTED, "maintenance"},
		"a preference":           {[]func(*corev1.Node){tainted("maintenance", "PreferNoSchedule")}, 0, ""},
		"the machine's taint":    {[]func(*corev1.Node){tainted("gpu", "NoSchedule")}, 0, ""},
		"the kubelet's":          {[]func(*corev1.Node){tainted("node.kubernetes.io/disk-pressure", "NoSchedule")}, 0, ""},
		"a startup taint":        {[]func(*corev1.Node){tainted("node.cilium.io/agent-not-ready", "NoSchedule")}, 0, ""},
		"young and not Ready":    {[]func(*corev1.Node){tainted("agent", "NoSchedule"), young, lost(time.Minute)}, 0, ""},
		"NotReady, not for long": {[]func(*corev1.Node){lost(299 * time.Second)}, 0, ""},
		"NotReady for long":      {[]func(*corev1.Node){lost(300 * time.Second)}, pb.MachineOutOfService_REASON_NOT_READY, "NodeStatusUnknown"},
		"NotReady, drained":      {[]func(*corev1.Node){lost(time.Hour), draining, cordoned}, 0, ""},
	} {
		w := newWatcher(machine.Machine{ID: "m1", Taints: []corev1.Taint{{Key: "gpu", Effect: "NoSchedule"}}})
		cached, err := machine.Strip(node("m1", "a", c.change...)) // what the cache leaves of it
		if err != nil {
			t.Fatal(err)
		}
		w.Machines.SetNode(cached.(*corev1.Node))
		w.evaluate(now)
		e, out := w.Of("m1")
		if out != (c.want != 0) || e.Reason != c.want || e.Detail != c.detail {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

// OP-11.7: since when a node is closed stays the same, and who listens hears only of changes.
func TestChanges(t *testing.T) {
	w := newWatcher(machine.Machine{ID: "m1"})
	var heard []string
	w.Changed = func(ids []string) { heard = append(heard, ids...) }
	w.Machines.SetNode(node("m1", "a", cordoned))
	w.evaluate(now)
	w.evaluate(now.Add(time.Minute))
	if e, _ := w.Of("m1"); !e.Since.Equal(now) || len(heard) != 1 {
		t.Fatalf("since %v, heard %v", e.Since, heard)
	}
	w.Pods.Set(pods.Of(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p"}, Spec: corev1.PodSpec{NodeName: "node-m1"}}))
	if list, left := w.List(); len(list) != 1 || list[0].Pods != 1 || !slices.Equal(left, []types.UID{"p"}) {
		t.Fatalf("list %v, left out %v", list, left)
	}
	w.Machines.SetNode(node("m1", "a"))
	w.evaluate(now.Add(2 * time.Minute))
	if list, left := w.List(); len(list)+len(left) != 0 || len(heard) != 2 {
		t.Fatalf("list %v, left out %v, heard %v", list, left, heard)
	}
}

// OP-11.7: a network fault buys no second fleet: at most a tenth of the cluster and a fifth of a zone is named, and those that
// are named stay so.
func TestLostNodesAreCapped(t *testing.T) {
	var machines []machine.Machine
	for i := range 40 {
		machines = append(machines, machine.Machine{ID: fmt.Sprintf("m%02d", i)})
	}
	w := newWatcher(machines...)
	set := func(lostFrom, lostTo int) {
		for i := range 40 {
			n := node(fmt.Sprintf("m%02d", i), []string{"a", "b", "c", "d"}[i/10])
			if i >= lostFrom && i < lostTo {
				lost(time.Hour - time.Duration(i)*time.Second)(n)
			}
			w.Machines.SetNode(n)
		}
		w.evaluate(now)
	}
	named := func() (out []string) {
		list, _ := w.List()
		for _, m := range list {
			out = append(out, m.MachineId)
		}
		return out
	}
	set(0, 10) // a zone is gone
	if got := named(); !slices.Equal(got, []string{"m00", "m01"}) || len(w.Entries()) != 10 {
		t.Fatalf("named %v of %d", got, len(w.Entries()))
	}
	set(0, 40) // everything is gone
	if got := named(); len(got) != 4 || got[0] != "m00" || got[1] != "m01" {
		t.Fatalf("named %v", got)
	}
	set(1, 10) // one of the named is back: another takes its place
	if got := named(); !slices.Equal(got, []string{"m01", "m02"}) {
		t.Fatalf("named %v", got)
	}
}
