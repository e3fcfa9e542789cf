package cached

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/translate"
)

// replica is a Pod of a workload with anti-affinity, so that its labels are read, and a claim of its own.
func replica(i int) *corev1.Pod {
	name := fmt.Sprintf("db-%d", i)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), ResourceVersion: fmt.Sprint(i),
			Labels: map[string]string{"app": "db", "statefulset.kubernetes.io/pod-name": name}, Annotations: map[string]string{"other": "x", "kubernetes.io/config.source": "api"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "db", Controller: new(true)}}},
		Spec: corev1.PodSpec{
			NodeName: fmt.Sprintf("node-%d", i),
			Containers: []corev1.Container{{Name: "main", Image: "db", Env: []corev1.EnvVar{{Name: "INDEX", Value: name}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi")}}}},
			Affinity: &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
				TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}}},
			Tolerations: []corev1.Toleration{{Key: "dedicated", Operator: corev1.TolerationOpExists}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + name}}},
				{Name: "token-" + name}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, PodIP: fmt.Sprintf("10.0.0.%d", i)},
	}
}

// OP-15.22: the cache holds of each Pod exactly what is read of it, and once what the Pods of a workload have in common.
func TestWhole(t *testing.T) {
	var all []*Pod
	for i := range 3 {
		in := replica(i)
		p := Of(in)
		if got, want := p.Whole(), translate.StripPod(in); !equality.Semantic.DeepEqual(got, want) {
			t.Errorf("got %+v\nwant %+v", got, want)
		}
		if p.Node() != in.Spec.NodeName {
			t.Errorf("node %q", p.Node())
		}
		if all = append(all, p); p.form != all[0].form {
			t.Errorf("Pod %d does not share its form", i)
		}
	}
	changed := replica(0)
	changed.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("3")
	if p := Of(changed); p.form == all[0].form || p.Whole().Spec.Containers[0].Resources.Requests.Cpu().Value() != 3 {
		t.Error("a Pod of another size has the form of the others")
	}
	if cpu := all[0].Whole().Spec.Containers[0].Resources.Requests.Cpu().Value(); cpu != 2 {
		t.Errorf("the first Pod asks for cpu %d since another changed", cpu)
	}
}

// OP-15.22: Pods of a DaemonSet, each of which may run on one node only, look the same.
func TestDaemons(t *testing.T) {
	daemon := func(node string) *Pod {
		p := replica(0)
		p.OwnerReferences[0].Kind = "DaemonSet"
		p.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{node}}}}}}}
		return Of(p)
	}
	a, b := daemon("a"), daemon("b")
	if a.form != b.form {
		t.Error("they do not share a form")
	}
	if got := translate.Eligible(a.Whole(), translate.Node{}, false); got != translate.Excluded {
		t.Errorf("a Pod of a DaemonSet is %v", got)
	}
}

// OP-15.22: a form goes with its last Pod, so that rollouts leave nothing behind.
func TestFormsGo(t *testing.T) {
	f := &forms{byContent: map[content]weakForm{}}
	kept := f.share(&corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: "kept"}})
	for i := range 100 {
		f.share(&corev1.Pod{Spec: corev1.PodSpec{PriorityClassName: fmt.Sprint(i)}})
	}
	left := 0
	for range 200 {
		runtime.GC()
		f.mu.Lock()
		left = len(f.byContent)
		f.mu.Unlock()
		if left == 1 {
			break
		}
		time.Sleep(10 * time.Millisecond) // cleanups run beside us
	}
	if left != 1 {
		t.Errorf("%d forms are left, want 1", left)
	}
	if f.share(kept.DeepCopy()) != kept {
		t.Error("a form with a Pod is gone")
	}
}
