package operator

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

func resources(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

// request is a CapacityRequest with a spec written as JSON.
func request(namespace, name, spec string) *v1alpha1.CapacityRequest {
	r := &v1alpha1.CapacityRequest{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := json.Unmarshal([]byte(spec), &r.Spec); err != nil {
		panic(err)
	}
	return r
}

// pod is a Pod of one container.
func pod(namespace, name, cpu string, more ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "test"}},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "main", Image: "test", Resources: corev1.ResourceRequirements{Requests: resources("cpu", cpu, "memory", "64Mi")}}},
			// The harness has no token controller.
			AutomountServiceAccountToken: new(false), TerminationGracePeriodSeconds: new(int64(0)),
		},
	}
	for _, f := range more {
		f(p)
	}
	return p
}

func onNode(name string) func(*corev1.Pod) { return func(p *corev1.Pod) { p.Spec.NodeName = name } }
