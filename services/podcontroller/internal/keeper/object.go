package keeper

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// Object is a CapacityRequest as the cache holds it: its spec is kept as text, because an object that somebody else
// wrote may hold values that the typed client cannot decode, and one such object would fail the whole list.
type Object struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              text         `json:"spec,omitempty"`
	Status            ObjectStatus `json:"status,omitzero"`
	pod               types.UID    // of the label that names the Pod; in the cache, which holds no labels
}

// text is JSON as it was read. Requests of a workload have the same, which is kept once in the cache.
type text string

// MarshalJSON implements json.Marshaler.
func (t text) MarshalJSON() ([]byte, error) { return []byte(t), nil }

// UnmarshalJSON implements json.Unmarshaler.
func (t *text) UnmarshalJSON(data []byte) error {
	*t = text(data)
	return nil
}

// owner is the Pod that the request says to be for; empty: none.
func (o *Object) owner() types.UID {
	return cmp.Or(o.pod, types.UID(o.Labels[v1alpha1.LabelOwnedByPod]))
}

// ObjectStatus is what is read of a status: whether the request has capacity.
type ObjectStatus struct {
	Conditions         []metav1.Condition `json:"conditions,omitempty"`
	ObservedGeneration int64              `json:"observedGeneration,omitempty"`
}

// refused reports whether the shard said of the present form of the request that there is no capacity for it.
func (o *Object) refused() bool {
	if o.Status.ObservedGeneration != o.Generation {
		return false
	}
	c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionFulfilled)
	return c != nil && c.Status == metav1.ConditionFalse && slices.Contains(inVain, c.Reason)
}

// inVain are reasons of the condition Fulfilled for which another term of the node affinity may do (OP-14.1).
var inVain = []string{"NoMatchingSupply", "PriorityStarved", "TopologyUnsatisfiable", "SpreadUnsatisfiable", "PreemptionExhausted", "QuotaExceeded", "StockOut", "Withheld", "Parked"}

// ObjectList is a list of Objects.
type ObjectList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Object `json:"items"`
}

// DeepCopyObject implements runtime.Object. Spec and conditions are never changed and are shared.
func (o *Object) DeepCopyObject() runtime.Object {
	out := *o
	o.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	return &out
}

// DeepCopyObject implements runtime.Object.
func (l *ObjectList) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Object, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Object)
	}
	return &out
}

// Register puts Object into a scheme as the type of CapacityRequest.
func Register(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(v1alpha1.GroupVersion().WithKind("CapacityRequest"), &Object{})
	s.AddKnownTypeWithName(v1alpha1.GroupVersion().WithKind("CapacityRequestList"), &ObjectList{})
	s.AddKnownTypes(v1alpha1.GroupVersion(), &v1alpha1.UpcomingNode{}, &v1alpha1.UpcomingNodeList{})
	metav1.AddToGroupVersion(s, v1alpha1.GroupVersion()) // list and watch options of the group
	return nil
}

// Strip drops what is not read, before an object enters the cache.
func Strip(o any) (any, error) {
	r, ok := o.(*Object)
	if !ok {
		return o, nil
	}
	r.pod = r.owner()
	r.TypeMeta, r.Labels, r.OwnerReferences, r.ManagedFields, r.Finalizers = metav1.TypeMeta{}, nil, nil, nil, nil
	r.Namespace, r.Spec = unique.Make(r.Namespace).Value(), unique.Make(r.Spec).Value()
	reduced, ok := r.Annotations[v1alpha1.AnnotationReduced]
	if r.Annotations = nil; ok {
		r.Annotations = map[string]string{v1alpha1.AnnotationReduced: reduced}
	}
	if !r.refused() {
		r.Status = ObjectStatus{}
	}
	return r, nil
}

// spec is nil if it cannot be read.
func (o *Object) spec() *v1alpha1.CapacityRequestSpec {
	var out v1alpha1.CapacityRequestSpec
	if json.Unmarshal([]byte(o.Spec), &out) != nil {
		return nil
	}
	return &out
}

// matches reports whether the object has the desired spec and marks.
func (o *Object) matches(want *v1alpha1.CapacityRequest) bool {
	have := o.spec()
	return have != nil && equality.Semantic.DeepEqual(*have, want.Spec) &&
		o.Annotations[v1alpha1.AnnotationReduced] == want.Annotations[v1alpha1.AnnotationReduced] &&
		string(o.owner()) == want.Labels[v1alpha1.LabelOwnedByPod]
}

// StripUpcoming keeps the name of an UpcomingNode and the Node that it names.
func StripUpcoming(o any) (any, error) {
	u, ok := o.(*v1alpha1.UpcomingNode)
	if !ok {
		return o, nil
	}
	out := &v1alpha1.UpcomingNode{ObjectMeta: metav1.ObjectMeta{Name: u.Name, UID: u.UID, ResourceVersion: u.ResourceVersion}}
	out.Status.NodeRef = u.Status.NodeRef
	return out, nil
}

const nameCut = 240 // bytes of the Pod's name that a request's name keeps (OP-15.2)

// Name is the name of a Pod's request.
func Name(pod string, uid types.UID) string {
	if len(pod) > nameCut {
		pod = strings.TrimRight(pod[:nameCut], ".") // a part of a name must not begin with a dash
	}
	h := sha256.Sum256([]byte(uid))
	return pod + "-" + hex.EncodeToString(h[:5])
}

// wanted is the request that a Pod should have, without its spec.
func wanted(p *corev1.Pod, reduced []string) *v1alpha1.CapacityRequest {
	out := &v1alpha1.CapacityRequest{ObjectMeta: metav1.ObjectMeta{
		Namespace: p.Namespace, Name: Name(p.Name, p.UID),
		Labels: map[string]string{v1alpha1.LabelOwnedByPod: string(p.UID)},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: new(true),
		}},
	}}
	if len(reduced) > 0 {
		out.Annotations = map[string]string{v1alpha1.AnnotationReduced: strings.Join(reduced, "; ")}
	}
	return out
}
