// Package overhead sums what DaemonSets take on every fresh worker node, so that the engine does not count on it: without
// this, Pods that fit on paper stay pending on a real node.
//
// A DaemonSet counts when its node selector and required node affinity would match a node without labels set by
// hand: one with the labels that all nodes of machines share now, and those that every kubelet sets; and when it tolerates the
// taints that all these machines register with. One that runs on some nodes only, such as a driver for GPUs, does not count: it
// is not overhead of every node.
//
// It also learns what Nodes of an instance type really have for Pods: what their kubelets report, less the DaemonSets that run on Nodes of
// that type (OP-5.26). Where that differs from what the shard would believe, Rooms says so.
//
// Start at Sum.Text and Sum.Rooms. Tests cite the operator specification as OP-n.n.
package overhead

import (
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"google.golang.org/protobuf/proto"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	scheduling "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
)

const resourcesMax = 64 // pairs on the wire

// Sum knows the DaemonSets. It is safe for concurrent use.
type Sum struct {
	machines *machine.Registry
	changed  func()

	mu   sync.Mutex
	sets map[types.UID]*appsv1.DaemonSet
	last map[string]string

	csi    map[string]amounts // attach limits by Node
	shapes map[string]*shape  // by instance type
	rooms  []*pb.NodeRoom
	wake   chan struct{}
}

// New returns an empty Sum. changed hears when the sum may have changed; it must not block.
func New(machines *machine.Registry, changed func()) *Sum {
	return &Sum{machines: machines, changed: changed, sets: map[types.UID]*appsv1.DaemonSet{}, csi: map[string]amounts{}, shapes: map[string]*shape{}, wake: make(chan struct{}, 1)}
}

// Set takes the present form of a DaemonSet.
func (s *Sum) Set(d *appsv1.DaemonSet) {
	s.mu.Lock()
	s.sets[d.UID] = d
	s.mu.Unlock()
	s.recount()
}

// Delete takes the end of a DaemonSet.
func (s *Sum) Delete(d *appsv1.DaemonSet) {
	s.mu.Lock()
	delete(s.sets, d.UID)
	s.mu.Unlock()
	s.recount()
}

func (s *Sum) recount() {
	fresh := s.fresh()
	s.learn()
	s.mu.Lock()
	general := s.daemons(fresh)
	now, rooms := general.text(), s.state(general)
	same := maps.Equal(now, s.last) && slices.EqualFunc(rooms, s.rooms, func(a, b *pb.NodeRoom) bool { return proto.Equal(a, b) })
	s.last, s.rooms = now, rooms
	s.mu.Unlock()
	if !same {
		s.changed()
	}
}

// Text is the sum as quantities by resource; nil when it is nothing. It must not be changed.
func (s *Sum) Text() map[string]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

// daemons sums the DaemonSets that run on a node like this one, each with one Pod of the kubelet's limit. s.mu is held.
func (s *Sum) daemons(on *corev1.Node) amounts {
	total := amounts{}
	for _, d := range s.sets {
		if d.DeletionTimestamp != nil || !matches(&d.Spec.Template.Spec, on) {
			continue
		}
		pod := &corev1.Pod{Spec: d.Spec.Template.Spec}
		for name, q := range resourcehelper.PodRequests(pod, resourcehelper.PodResourcesOptions{}) {
			if q.Sign() > 0 {
				total[string(name)] += q.MilliValue()
			}
		}
		total[pods] += 1000
	}
	return total
}

// text writes the largest list that the wire takes; nil when there is nothing.
func (a amounts) text() (out map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(a)) {
		if len(out) >= resourcesMax {
			break
		}
		if out == nil {
			out = map[string]string{}
		}
		out[name] = quantity.Format(name, a[name])
	}
	return out
}

// fresh is a node without labels set by hand.
func (s *Sum) fresh() *corev1.Node {
	var shared map[string]string
	var taints []corev1.Taint
	seen := false
	for _, n := range s.machines.Nodes() {
		id, ours := s.machines.MachineOf(n.Name)
		if !ours {
			continue
		}
		m, _ := s.machines.Machine(id)
		if !seen {
			seen, shared, taints = true, maps.Clone(n.Labels), slices.Clone(m.Taints)
			continue
		}
		maps.DeleteFunc(shared, func(k, v string) bool { return n.Labels[k] != v })
		taints = slices.DeleteFunc(taints, func(t corev1.Taint) bool {
			return !slices.ContainsFunc(m.Taints, func(x corev1.Taint) bool { return t.MatchTaint(&x) && t.Value == x.Value })
		})
	}
	return withDefaults(&corev1.Node{ObjectMeta: metaOf(shared), Spec: corev1.NodeSpec{Taints: taints}})
}

func metaOf(labels map[string]string) metav1.ObjectMeta { return metav1.ObjectMeta{Labels: labels} }

// withDefaults adds the labels that every kubelet sets.
func withDefaults(n *corev1.Node) *corev1.Node {
	labels := map[string]string{
		corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64", corev1.LabelHostname: "fresh",
		corev1.LabelInstanceTypeStable: "fresh", corev1.LabelTopologyZone: "fresh", corev1.LabelTopologyRegion: "fresh",
	}
	maps.Copy(labels, n.Labels)
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "fresh", Labels: labels}, Spec: n.Spec}
}

func matches(p *corev1.PodSpec, n *corev1.Node) bool {
	ok, err := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: *p}).Match(n)
	return err == nil && ok && !slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.Effect != corev1.TaintEffectPreferNoSchedule && !scheduling.TolerationsTolerateTaint(logr.Discard(), p.Tolerations, &t, true)
	})
}

// Strip drops what is not read of a DaemonSet, before it enters the cache.
func Strip(o any) (any, error) {
	d, ok := o.(*appsv1.DaemonSet)
	if !ok {
		return o, nil
	}
	spec := &d.Spec.Template.Spec
	strip := func(in []corev1.Container) []corev1.Container {
		out := make([]corev1.Container, 0, len(in))
		for _, c := range in {
			out = append(out, corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy})
		}
		return out
	}
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, UID: d.UID, ResourceVersion: d.ResourceVersion, DeletionTimestamp: d.DeletionTimestamp},
		Spec: appsv1.DaemonSetSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			Containers: strip(spec.Containers), InitContainers: strip(spec.InitContainers), Overhead: spec.Overhead, Resources: spec.Resources,
			NodeSelector: spec.NodeSelector, Affinity: spec.Affinity, Tolerations: spec.Tolerations,
		}}},
	}, nil
}
