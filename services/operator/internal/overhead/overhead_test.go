package overhead

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
)

func set(name, cpu string, more ...func(*corev1.PodSpec)) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	d.Spec.Template.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("0")}}}}
	for _, f := range more {
		f(&d.Spec.Template.Spec)
	}
	return d
}

func on(key, value string) func(*corev1.PodSpec) {
	return func(p *corev1.PodSpec) { p.NodeSelector = map[string]string{key: value} }
}

// OP-5.20: DaemonSets that run on every fresh node are summed by the scheduler's arithmetic, others are not; a change of the
// sum is sent once.
func TestSum(t *testing.T) {
	changes := 0
	machines := machine.New(func([]string) {})
	s := New(machines, func() { changes++ })
	want := func(what, cpu string, sent int) {
		t.Helper()
		got := s.Text()
		if cpu == "" && got != nil || cpu != "" && (got["cpu"] != cpu || len(got) != 2) || changes != sent {
			t.Errorf("%s: %v after %d changes, want cpu %q after %d", what, got, changes, cpu, sent)
		}
	}
	want("nothing", "", 0)
	s.Set(set("agent", "100m"))
	want("one", "100m", 1)
	s.Set(set("agent", "100m"))
	want("the same again", "100m", 1)
	s.Set(set("linux", "50m", on("kubernetes.io/os", "linux")))
	want("one for all Linux nodes", "150m", 2)
	s.Set(set("windows", "1", on("kubernetes.io/os", "windows")))
	s.Set(set("driver", "1", on("gpu", "yes")))
	want("some for other nodes", "150m", 2)
	s.Set(set("init", "10m", func(p *corev1.PodSpec) {
		p.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("200m")}}}}
		p.Overhead = corev1.ResourceList{"cpu": resource.MustParse("5m")}
	}))
	want("the larger of both stages, and overhead", "355m", 3)

	// What every Node of a machine carries, a fresh one will carry.
	machines.Set(machine.Machine{ID: "m1"})
	machines.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m1", Labels: map[string]string{"gpu": "yes"}}})
	s.Set(set("agent", "100m"))
	want("all nodes have a GPU", "1355m", 4)
	machines.Set(machine.Machine{ID: "m2"})
	machines.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "m2"}})
	s.Delete(set("init", "10m"))
	want("one has none", "150m", 5)
	gone := set("linux", "50m")
	now := metav1.Now()
	gone.DeletionTimestamp = &now
	s.Set(gone)
	want("one is being deleted", "100m", 6)
}

// OP-5.20: a DaemonSet that does not tolerate a taint with which every machine registers takes nothing of a fresh node.
func TestTaintedMachines(t *testing.T) {
	team := []corev1.Taint{{Key: "team", Value: "ml", Effect: corev1.TaintEffectNoSchedule}, {Key: "soft", Effect: corev1.TaintEffectPreferNoSchedule}}
	machines := machine.New(func([]string) {})
	s := New(machines, func() {})
	join := func(id string, taints ...corev1.Taint) {
		machines.Set(machine.Machine{ID: id, Taints: taints})
		machines.SetNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: id}})
	}
	want := func(what, cpu string) {
		t.Helper()
		set := set("everywhere", "10m", func(p *corev1.PodSpec) { p.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}} })
		stripped, err := Strip(set)
		if err != nil {
			t.Fatal(err)
		}
		s.Set(stripped.(*appsv1.DaemonSet))
		if got := s.Text()["cpu"]; got != cpu {
			t.Errorf("%s: cpu %s, want %s", what, got, cpu)
		}
	}
	join("m1", team...)
	s.Set(set("plain", "100m"))
	want("one does not tolerate the taint of the team", "10m")
	s.Set(set("ml", "1", func(p *corev1.PodSpec) { p.Tolerations = []corev1.Toleration{{Key: "team", Value: "ml"}} }))
	s.Set(set("web", "2", func(p *corev1.PodSpec) { p.Tolerations = []corev1.Toleration{{Key: "team", Value: "web"}} }))
	want("one tolerates it", "1010m")
	join("m2", corev1.Taint{Key: "team", Value: "web", Effect: corev1.TaintEffectNoSchedule})
	want("no taint is on all machines", "3110m")
}
