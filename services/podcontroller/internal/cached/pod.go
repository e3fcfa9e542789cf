// Package cached holds Pods in little memory.
//
// Pods of one workload differ in their names, and in little else that is read of them. A Pod holds what is its own, and shares the
// rest, its form, with all Pods that look the same. A form goes with its last Pod. Start at Strip and Pod.Whole.
package cached

import (
	"crypto/sha256"
	"runtime"
	"sync"
	"unique"
	"weak"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/translate"
)

// Pod is a Pod as the cache holds it. It is never changed.
type Pod struct {
	metav1.ObjectMeta                 // without annotations and owners, which the form has
	node              string          // of its spec
	volumes           []corev1.Volume // of its spec: each Pod of a StatefulSet has claims of its own
	form              *corev1.Pod     // the rest, shared and never changed
}

// GetObjectKind implements runtime.Object.
func (p *Pod) GetObjectKind() schema.ObjectKind { return schema.EmptyObjectKind }

// DeepCopyObject implements runtime.Object. What is never changed is shared.
func (p *Pod) DeepCopyObject() k8sruntime.Object {
	out := *p
	return &out
}

// Node is the name of the node that the Pod is bound to; empty: none.
func (p *Pod) Node() string { return p.node }

// Whole is the Pod in the API's type, with the fields that translation reads. It shares memory with other Pods and must not be changed.
func (p *Pod) Whole() *corev1.Pod {
	out := *p.form
	out.ObjectMeta = p.ObjectMeta
	out.Annotations, out.OwnerReferences = p.form.Annotations, p.form.OwnerReferences
	out.Spec.NodeName, out.Spec.Volumes = p.node, p.volumes
	return &out
}

// Strip makes a Pod of the API one of the cache (OP-15.22).
func Strip(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok {
		return Of(p), nil
	}
	return o, nil
}

// Of reads a Pod of the API.
func Of(p *corev1.Pod) *Pod {
	form := translate.StripPod(p)
	out := &Pod{ObjectMeta: form.ObjectMeta, node: unique.Make(form.Spec.NodeName).Value(), volumes: form.Spec.Volumes}
	out.Namespace = unique.Make(out.Namespace).Value()
	out.Annotations, out.OwnerReferences = nil, nil
	form.ObjectMeta = metav1.ObjectMeta{Annotations: form.Annotations, OwnerReferences: form.OwnerReferences}
	form.Spec.NodeName, form.Spec.Volumes = "", nil
	out.form = known.share(form)
	return out
}

// forms are the forms of the Pods that there are, by their content.
type forms struct {
	mu        sync.Mutex
	byContent map[content]weakForm
}

type (
	content  [sha256.Size]byte
	weakForm = weak.Pointer[corev1.Pod]
)

var known = forms{byContent: map[content]weakForm{}}

// share returns the form that looks like this one, which is this one if there was none.
func (f *forms) share(p *corev1.Pod) *corev1.Pod {
	data, err := p.Marshal()
	if err != nil {
		return p // a Pod that cannot be written is one of its own
	}
	key := content(sha256.Sum256(data))
	f.mu.Lock()
	defer f.mu.Unlock()
	if same := f.byContent[key].Value(); same != nil {
		return same
	}
	f.byContent[key] = weak.Make(p)
	runtime.AddCleanup(p, f.forget, key)
	return p
}

// forget drops a form without Pods, unless another took its place.
func (f *forms) forget(key content) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byContent[key].Value() == nil {
		delete(f.byContent, key)
	}
}
