package overhead

import (
	"fmt"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
)

// cluster is machines and their Nodes, whose allocatable is kept apart from what was offered.
type cluster struct {
	*testing.T
	machines *machine.Registry
	sum      *Sum
	changes  int
}

func newCluster(t *testing.T) *cluster {
	c := &cluster{T: t, machines: machine.New(func([]string) {})}
	c.sum = New(c.machines, func() { c.changes++ })
	return c
}

// offer makes a machine of a type without a Node.
func (c *cluster) offer(id, typ string, resources map[string]string, more ...func(*machine.Machine)) {
	m := machine.Machine{ID: id, Labels: map[string]string{corev1.LabelInstanceTypeStable: typ}, Resources: resources, Configured: time.Unix(1, 0)}
	for _, f := range more {
		f(&m)
	}
	c.machines.Set(m)
}

// join makes its Node Ready.
func (c *cluster) join(id, typ string, allocatable map[string]string, labels ...string) {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id, Labels: map[string]string{corev1.LabelInstanceTypeStable: typ}}}
	for i := 0; i < len(labels); i += 2 {
		n.Labels[labels[i]] = labels[i+1]
	}
	n.Status.Allocatable = corev1.ResourceList{}
	for k, v := range allocatable {
		n.Status.Allocatable[corev1.ResourceName(k)] = resource.MustParse(v)
	}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	c.machines.SetNode(n)
}

func (c *cluster) want(what string, rooms map[string]map[string]string) {
	c.Helper()
	c.sum.recount()
	got := map[string]map[string]string{}
	for _, r := range c.sum.Rooms() {
		got[r.InstanceType] = r.Resources
	}
	if !maps.EqualFunc(got, rooms, maps.Equal) {
		c.Errorf("%s: rooms %v, want %v", what, got, rooms)
	}
}

type (
	amount = map[string]string
	byType = map[string]amount
)

// OP-5.26: what Nodes of a type report in the place of what was offered is learnt, sent, and kept for the next machine of the type.
func TestLearnt(t *testing.T) {
	c := newCluster(t)
	offered := amount{"cpu": "4", "memory": "16Gi", "nvidia.com/gpu": "1"}
	c.offer("a", "big", offered)
	c.want("no Node", byType{})
	c.join("a", "big", amount{"cpu": "4", "memory": "16Gi", "pods": "110", "nvidia.com/gpu": "1"})
	c.want("as it was offered", byType{})
	c.join("a", "big", amount{"cpu": "3920m", "memory": "15Gi", "pods": "29", "hugepages-2Mi": "1Gi"})
	c.want("kube-reserved, a small maxPods, and a device plugin that has not started", byType{"big": {"cpu": "3920m", "memory": "15Gi", "pods": "29"}})
	if d := c.sum.Differences(); len(d) != 3 || d[0] != (Difference{"big", "cpu", "4", "3920m", 1}) || d[2] != (Difference{"big", "pods", "", "29", 1}) {
		t.Errorf("sent %+v", d)
	}
	c.offer("b", "big", offered)
	c.join("b", "big", amount{"cpu": "1", "memory": "15Gi", "pods": "29"})
	c.offer("c", "big", offered)
	c.join("c", "big", amount{"cpu": "3920m", "memory": "15500Mi", "pods": "29"})
	c.want("an odd Node, and one with a little more memory", byType{"big": {"cpu": "3920m", "memory": "15Gi", "pods": "29"}})
	for _, id := range []string{"a", "b", "c"} {
		c.machines.DeleteNode(id)
		c.machines.Forget(id)
	}
	c.want("all are gone", byType{"big": {"cpu": "3920m", "memory": "15Gi", "pods": "29"}})
	c.offer("d", "other", offered)
	c.join("d", "other", amount{"cpu": "5", "memory": "16Gi", "pods": "110", "example.com/fuse": "2"})
	c.want("more than was offered, and something that was not", byType{"big": {"cpu": "3920m", "memory": "15Gi", "pods": "29"}, "other": {"cpu": "5", "example.com/fuse": "2"}})
}

// OP-5.20, OP-5.26: DaemonSets count by type: with its labels, operating system and taints, and each takes one of the kubelet's Pods.
func TestDaemonsByType(t *testing.T) {
	c := newCluster(t)
	c.offer("a", "plain", amount{"cpu": "4", "pods": "110"})
	c.join("a", "plain", amount{"cpu": "4", "pods": "110"})
	c.offer("g", "gpu", amount{"cpu": "8"}, func(m *machine.Machine) {
		m.Taints = []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}
	})
	c.offer("w", "windows", amount{"cpu": "8"}, func(m *machine.Machine) { m.Labels[corev1.LabelOSStable] = "windows" })
	c.sum.Set(set("everywhere", "100m", func(p *corev1.PodSpec) { p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} }))
	c.want("on all", byType{})
	c.sum.Set(set("linux", "50m", on(corev1.LabelOSStable, "linux")))
	c.want("only where it runs", byType{"gpu": {"cpu": "7900m", "pods": "109"}, "windows": {"cpu": "7900m", "pods": "109"}})
	if got := c.sum.Text(); !maps.Equal(got, amount{"cpu": "150m", "pods": "2"}) {
		t.Errorf("of every node: %v", got)
	}
	c.sum.Set(set("driver", "1", on(corev1.LabelInstanceTypeStable, "gpu"), func(p *corev1.PodSpec) {
		p.Tolerations = []corev1.Toleration{{Key: "nvidia.com/gpu", Operator: corev1.TolerationOpExists}}
	}))
	c.want("only on GPUs, before one has joined", byType{"gpu": {"cpu": "6900m"}, "windows": {"cpu": "7900m", "pods": "109"}})
	c.join("g", "gpu", amount{"cpu": "7800m", "pods": "110"})
	c.want("and after it", byType{"gpu": {"cpu": "6700m"}, "windows": {"cpu": "7900m", "pods": "109"}})
}

// OP-5.26: what CSI drivers attach to a Node of the type is learnt from CSINodes.
func TestAttachLimits(t *testing.T) {
	c := newCluster(t)
	c.offer("a", "big", amount{"cpu": "4"})
	c.join("a", "big", amount{"cpu": "4", "pods": "110"})
	csi := func(node string, drivers ...any) *storagev1.CSINode {
		n := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: node}}
		for i := 0; i < len(drivers); i += 2 {
			d := storagev1.CSINodeDriver{Name: drivers[i].(string)}
			if count := int32(drivers[i+1].(int)); count > 0 {
				d.Allocatable = &storagev1.VolumeNodeResources{Count: &count}
			}
			n.Spec.Drivers = append(n.Spec.Drivers, d)
		}
		return n
	}
	c.sum.SetCSINode(csi("a", "ebs.csi.aws.com", 25, "nfs", 0))
	c.sum.SetCSINode(csi("elsewhere", "ebs.csi.aws.com", 3))
	c.want("one driver limits", byType{"big": {"attachable-volumes-csi-ebs.csi.aws.com": "25"}})
	if d := c.sum.Differences(); fmt.Sprint(d) != "[{big attachable-volumes-csi-ebs.csi.aws.com  25 1}]" {
		t.Errorf("sent %+v", d)
	}
	c.offer("b", "big", amount{"cpu": "4"})
	c.join("b", "big", amount{"cpu": "4", "pods": "110"})
	c.want("the driver of a second Node has not started", byType{"big": {"attachable-volumes-csi-ebs.csi.aws.com": "25"}})
	c.offer("d", "big", amount{"cpu": "4"})
	c.join("d", "big", amount{"cpu": "4", "pods": "110"})
	c.want("the driver runs on one Node of three", byType{"big": {"attachable-volumes-csi-ebs.csi.aws.com": "25"}})
}

// OP-5.26: changes of Nodes are counted once they rest, without a DaemonSet that changes.
func TestNodesAreLookedAt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		go func() { _ = c.sum.Run(t.Context()) }()
		c.offer("a", "big", amount{"cpu": "4"})
		c.join("a", "big", amount{"cpu": "3", "pods": "110"})
		c.sum.Touch()
		time.Sleep(settle / 2)
		c.join("a", "big", amount{"cpu": "3500m", "pods": "110"})
		c.sum.Touch()
		time.Sleep(2 * settle)
		synctest.Wait()
		if r := c.sum.Rooms(); len(r) != 1 || r[0].Resources["cpu"] != "3500m" || c.changes != 1 {
			t.Errorf("%d changes, rooms %v", c.changes, r)
		}
		c.sum.Touch()
		time.Sleep(2 * settle)
		synctest.Wait()
		if c.changes != 1 {
			t.Error("nothing changed, and that was sent")
		}
	})
}
