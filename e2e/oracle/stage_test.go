package oracle

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
)

const patience = 4 * time.Minute // of one world

// stage is a control plane on which one world after the other is played, each with a BigFleet that knows nothing of the last.
type stage struct {
	*testing.T
	*fixture.Fixture
	red *fixture.Cluster
}

func newStage(t *testing.T) *stage {
	s := &stage{T: t, Fixture: fixture.StartT(t, fixture.Config{
		Offerings: "offerings:\n- {name: none, instance_type: none, zone: none, capacity_type: on_demand, count: 1, price_per_hour: 1, resources: {cpu: \"1\"}}\n",
		ShardArgs: []string{"--release-delay", "8s", "--release-delay-empty", "5s", "--release-unused-after", "10s", "--reclaim-cap-fraction", "0"},
	})}
	s.red = s.Clusters[0]
	s.must(s.red.AddControlPlaneNode(t.Context()))
	for name, value := range map[string]int32{"urgent": 1000, "patient": -10} {
		_, err := s.red.Client().SchedulingV1().PriorityClasses().Create(t.Context(), &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}, metav1.CreateOptions{})
		s.must(err)
	}
	return s
}

func (s *stage) must(err error) {
	s.Helper()
	if err != nil {
		s.Fatal(err)
	}
}

func namespace(w *world) string { return fmt.Sprintf("seed-%d", w.seed) }

// stop ends BigFleet, the last part first.
func (s *stage) stop() {
	for _, p := range slices.Backward(s.Processes()) {
		if p.Running() {
			s.must(p.Stop())
		}
	}
}

// begin starts a BigFleet that sells the catalogue of a world, in a cluster that holds only the nodes that others made.
func (s *stage) begin(ctx context.Context, w *world) {
	text, err := w.catalogue()
	s.must(err)
	s.must(os.WriteFile(filepath.Join(s.Dir(), "offerings.yaml"), []byte(text), 0o600))
	for _, data := range []string{"shard", "provider"} {
		s.must(os.RemoveAll(filepath.Join(s.Dir(), data)))
	}
	for _, n := range w.foreign {
		_, err := s.red.Client().CoreV1().Nodes().Create(ctx, n, metav1.CreateOptions{})
		s.must(err)
	}
	_, err = s.red.Client().CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(w)}}, metav1.CreateOptions{})
	s.must(err)
	if w.overhead != "" {
		s.daemons(ctx, w)
	}
	for _, p := range s.Processes() {
		s.must(p.Start(ctx))
	}
	s.must(s.Settled(ctx))
}

func (s *stage) daemons(ctx context.Context, w *world) {
	labels := map[string]string{"app": "daemon"}
	_, err := s.red.Client().AppsV1().DaemonSets(namespace(w)).Create(ctx, &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Name: "daemon"},
		Spec: appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels},
			Spec: corev1.PodSpec{
				TerminationGracePeriodSeconds: new(int64(0)),
				Tolerations:                   []corev1.Toleration{{Key: dedicated, Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{Name: "main", Image: "registry.invalid/none",
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(w.overhead)}}}},
			},
		}},
	}, metav1.CreateOptions{})
	s.must(err)
}

// clear removes what a world left.
func (s *stage) clear(ctx context.Context, w *world) {
	s.stop()
	c, now := s.red.Client(), metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}
	s.must(c.CoreV1().Namespaces().Delete(ctx, namespace(w), metav1.DeleteOptions{}))
	s.must(errors.Join(
		c.AppsV1().DaemonSets(namespace(w)).DeleteCollection(ctx, now, metav1.ListOptions{}),
		c.AppsV1().ReplicaSets(namespace(w)).DeleteCollection(ctx, now, metav1.ListOptions{}),
		c.CoreV1().Nodes().DeleteCollection(ctx, now, metav1.ListOptions{LabelSelector: "!node-role.kubernetes.io/control-plane"}),
		c.CoreV1().PersistentVolumes().DeleteCollection(ctx, now, metav1.ListOptions{}),
		s.red.Dynamic.Resource(fixture.UpcomingNodes).DeleteCollection(ctx, now, metav1.ListOptions{}),
		s.red.Dynamic.Resource(fixture.CapacityRequests).Namespace(namespace(w)).DeleteCollection(ctx, now, metav1.ListOptions{}),
	))
	for {
		s.must(c.CoreV1().Pods(namespace(w)).DeleteCollection(ctx, now, metav1.ListOptions{}))
		left, err := c.CoreV1().Pods(namespace(w)).List(ctx, metav1.ListOptions{})
		s.must(err)
		upcoming, err := s.red.Dynamic.Resource(fixture.UpcomingNodes).List(ctx, metav1.ListOptions{})
		s.must(err)
		requests, err := s.red.Dynamic.Resource(fixture.CapacityRequests).List(ctx, metav1.ListOptions{})
		s.must(err)
		if len(left.Items)+len(upcoming.Items)+len(requests.Items) == 0 {
			return
		}
		s.pause(ctx, 100*time.Millisecond)
	}
}

func (s *stage) pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
		s.Fatal(context.Cause(ctx))
	case <-time.After(d):
	}
}

// create makes the apps of a wave.
func (s *stage) create(ctx context.Context, w *world, wave int) {
	for _, a := range w.apps {
		if a.wave != wave {
			continue
		}
		if a.claim != "" {
			s.volume(ctx, w, a)
		}
		replicas := int32(a.replicas)
		_, err := s.red.Client().AppsV1().ReplicaSets(namespace(w)).Create(ctx, &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Name: a.name},
			Spec:       appsv1.ReplicaSetSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: a.pod.Labels}, Template: a.pod},
		}, metav1.CreateOptions{})
		s.must(err)
	}
}

// volume makes the claim of an app, bound to a volume of a zone.
func (s *stage) volume(ctx context.Context, w *world, a *app) {
	size := corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
	modes, none := []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany}, ""
	name := namespace(w) + "-" + a.name
	_, err := s.red.Client().CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			Capacity: size, AccessModes: modes, ClaimRef: &corev1.ObjectReference{Namespace: namespace(w), Name: a.name},
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/none"}},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{
				term(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, a.claim)}}},
		},
	}, metav1.CreateOptions{})
	s.must(err)
	_, err = s.red.Client().CoreV1().PersistentVolumeClaims(namespace(w)).Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: a.name},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: modes, StorageClassName: &none, VolumeName: name,
			Resources: corev1.VolumeResourceRequirements{Requests: size}},
	}, metav1.CreateOptions{})
	s.must(err)
}

// view is what is there at a moment.
type view struct {
	bound    map[string]int // Pods by app
	pending  []corev1.Pod   // those that no gate holds back
	machines map[string]float64
}

func (s *stage) look(ctx context.Context, w *world) view {
	v := view{bound: map[string]int{}, machines: map[string]float64{}}
	pods, err := s.red.Client().CoreV1().Pods(namespace(w)).List(ctx, metav1.ListOptions{LabelSelector: "app!=daemon"})
	s.must(err)
	for _, p := range pods.Items {
		switch {
		case p.Spec.NodeName != "":
			v.bound[p.Labels["app"]]++
		case len(p.Spec.SchedulingGates) == 0:
			v.pending = append(v.pending, p)
		}
	}
	nodes, err := s.red.Client().CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: "bigfleet.lucy.sh/provider"})
	s.must(err)
	for _, n := range nodes.Items {
		for _, o := range w.offerings {
			if o.InstanceType == n.Labels[corev1.LabelInstanceTypeStable] && o.Zone == n.Labels[corev1.LabelTopologyZone] {
				v.machines[n.Name] = o.Price
			}
		}
	}
	return v
}

func (v view) sum() (n int) {
	for _, b := range v.bound {
		n += b
	}
	return n
}

func (v view) dollars() (sum float64) {
	for _, name := range slices.Sorted(maps.Keys(v.machines)) {
		sum += v.machines[name]
	}
	return sum
}

// words are the events of BigFleet about a Pod.
func (s *stage) words(ctx context.Context, p *corev1.Pod) string {
	events, err := s.red.Client().CoreV1().Events(p.Namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(p.UID)})
	s.must(err)
	var out []string
	for _, e := range events.Items {
		if e.Source.Component != "default-scheduler" && e.ReportingController != "default-scheduler" {
			out = append(out, e.Reason+": "+e.Message)
		}
	}
	return strings.Join(out, " | ")
}
