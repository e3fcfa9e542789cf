package request

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// Request is one CapacityRequest. What a roll-up reads comes first, so that it lies together in memory.
type Request struct {
	Spec              *Spec  `json:"spec"` // shared by all requests that are written alike; nil before Strip if there was none
	Status            Status `json:"status,omitempty"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	metav1.TypeMeta   `json:",inline"`
	Held              bool `json:"-"` // no object: demand of a deleted Pod that waits for its replacement
}

// List is a list of Requests.
type List struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Request `json:"items"`
}

// Spec is what is asked for. It is never changed after decoding. Texts are as written; nothing is checked but what Fault says.
type Spec struct {
	Requirements        []corev1.NodeSelectorRequirement
	Resources           []Amount // sorted by name
	Priority            int32
	Spread              []v1alpha1.TopologySpread
	Tolerations         []corev1.Toleration
	Preferences         []corev1.PreferredSchedulingTerm
	CoLocation          *v1alpha1.CoLocation
	Gang                *v1alpha1.Gang
	InterruptionPenalty Quantity
	ReclamationPenalty  Quantity
	MaxPerHost          int32  // Pods of its kind on one node; 0: no limit
	NeverPreempts       bool   // preemptionPolicy Never
	Fault               *Fault // nil when every field could be read

	text unique.Handle[string] // as it was written
}

// Amount is one resource of a request.
type Amount struct {
	Name  string
	Milli int64
}

// Quantity is a number read with thousandths, rounded up.
type Quantity struct {
	Milli int64 // math.MaxInt64 when larger
}

// Fault names a field that cannot be used, and why.
type Fault struct {
	Field, Message string
}

// Status is the part of the status that the operator reads.
type Status struct {
	Phase      v1alpha1.RequestPhase `json:"phase,omitempty"`
	Conditions conditions            `json:"conditions,omitempty"`
}

type conditions []metav1.Condition

// UnmarshalJSON never fails: conditions that cannot be read are written again.
func (c *conditions) UnmarshalJSON(b []byte) error {
	var list []metav1.Condition
	if json.Unmarshal(b, &list) == nil {
		*c = list
	}
	return nil
}

// UnmarshalJSON never fails: what cannot be read becomes the Fault.
func (s *Spec) UnmarshalJSON(b []byte) error {
	var in struct {
		Requirements        []corev1.NodeSelectorRequirement `json:"requirements"`
		Resources           map[string]json.RawMessage       `json:"resources"`
		Priority            json.Number                      `json:"priority"`
		TopologySpread      []v1alpha1.TopologySpread        `json:"topologySpread"`
		Tolerations         []corev1.Toleration              `json:"tolerations"`
		Preferences         []corev1.PreferredSchedulingTerm `json:"preferences"`
		CoLocation          *v1alpha1.CoLocation             `json:"coLocation"`
		Gang                *v1alpha1.Gang                   `json:"gang"`
		InterruptionPenalty json.RawMessage                  `json:"interruptionPenalty"`
		ReclamationPenalty  json.RawMessage                  `json:"reclamationPenalty"`
		MaxPerHost          json.Number                      `json:"maxPerHost"`
		PreemptionPolicy    string                           `json:"preemptionPolicy"`
		AttachedVolumes     map[string]json.Number           `json:"attachedVolumes"`
	}
	*s = Spec{text: unique.Make(string(b))}
	if err := json.Unmarshal(b, &in); err != nil {
		s.Fault = &Fault{"spec", "cannot be read: " + err.Error()}
		return nil
	}
	s.Requirements, s.Spread, s.Tolerations, s.CoLocation = in.Requirements, in.TopologySpread, in.Tolerations, in.CoLocation
	s.Gang, s.Preferences = in.Gang, in.Preferences
	if p := in.Priority; p != "" {
		n, err := p.Int64()
		if err != nil || n < math.MinInt32 || n > math.MaxInt32 {
			s.Fault = &Fault{"spec.priority", fmt.Sprintf("%s is not a 32 bit integer", p)}
		}
		s.Priority = int32(n)
	}
	s.NeverPreempts = in.PreemptionPolicy == string(corev1.PreemptNever)
	if p := in.MaxPerHost; p != "" {
		n, err := p.Int64()
		if err != nil || n < 0 || n > math.MaxInt32 {
			s.Fault = &Fault{"spec.maxPerHost", fmt.Sprintf("%s is not a whole number from 0 on", p)}
		}
		s.MaxPerHost = int32(n)
	}
	for _, name := range slices.Sorted(maps.Keys(in.Resources)) {
		field := "spec.resources." + name
		q, err := parse(in.Resources[name])
		switch {
		case err != nil:
			s.Fault = &Fault{field, err.Error()}
		case q.Milli < 0:
			s.Fault = &Fault{field, "is negative"}
		case q.Milli == math.MaxInt64:
			s.Fault = &Fault{field, "is too large"}
		case q.Milli > 0:
			s.Resources = append(s.Resources, Amount{name, q.Milli})
		}
	}
	s.readVolumes(in.AttachedVolumes)
	for _, p := range []struct {
		field string
		in    json.RawMessage
		out   *Quantity
	}{
		{"spec.interruptionPenalty", in.InterruptionPenalty, &s.InterruptionPenalty},
		{"spec.reclamationPenalty", in.ReclamationPenalty, &s.ReclamationPenalty},
	} {
		q, err := parse(p.in)
		if err != nil {
			s.Fault = &Fault{p.field, err.Error()}
		}
		*p.out = q
	}
	return nil
}

// AttachPrefix begins the name of the resource that volumes of a CSI driver count as.
const AttachPrefix = "attachable-volumes-csi-"

// readVolumes adds the volumes of each driver to the resources.
func (s *Spec) readVolumes(in map[string]json.Number) {
	for _, driver := range slices.Sorted(maps.Keys(in)) {
		n, err := in[driver].Int64()
		if err != nil || n < 0 || n > math.MaxInt32 {
			s.Fault = &Fault{"spec.attachedVolumes." + driver, fmt.Sprintf("%s is not a whole number from 0 on", in[driver])}
			return
		}
		if n > 0 {
			s.Resources = append(s.Resources, Amount{AttachPrefix + driver, n * 1000})
		}
	}
	if len(in) > 0 {
		slices.SortFunc(s.Resources, func(a, b Amount) int { return strings.Compare(a.Name, b.Name) })
	}
}

// MarshalJSON writes the fields that a Spec keeps; it exists for tests and logs, the operator never writes a spec.
func (s Spec) MarshalJSON() ([]byte, error) {
	out := v1alpha1.CapacityRequestSpec{
		Requirements: s.Requirements, Priority: s.Priority, TopologySpread: s.Spread, Tolerations: s.Tolerations,
		CoLocation: s.CoLocation, Gang: s.Gang, Preferences: s.Preferences, Resources: corev1.ResourceList{}, MaxPerHost: s.MaxPerHost,
	}
	if s.NeverPreempts {
		out.PreemptionPolicy = new(corev1.PreemptNever)
	}
	for _, a := range s.Resources {
		if driver, ok := strings.CutPrefix(a.Name, AttachPrefix); ok {
			if out.AttachedVolumes == nil {
				out.AttachedVolumes = map[string]int32{}
			}
			out.AttachedVolumes[driver] = int32(a.Milli / 1000)
			continue
		}
		out.Resources[corev1.ResourceName(a.Name)] = *resource.NewMilliQuantity(a.Milli, resource.DecimalSI)
	}
	for _, p := range []struct {
		in  Quantity
		out **resource.Quantity
	}{{s.InterruptionPenalty, &out.InterruptionPenalty}, {s.ReclamationPenalty, &out.ReclamationPenalty}} {
		if p.in.Milli != 0 {
			*p.out = resource.NewMilliQuantity(p.in.Milli, resource.DecimalSI)
		}
	}
	return json.Marshal(out)
}

func parse(raw json.RawMessage) (Quantity, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return Quantity{}, nil
	}
	text := string(raw)
	if raw[0] == '"' {
		if err := json.Unmarshal(raw, &text); err != nil {
			return Quantity{}, fmt.Errorf("%s is not a quantity", raw)
		}
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return Quantity{}, fmt.Errorf("%q is not a quantity", text)
	}
	return Milli(q), nil
}

// Milli converts a quantity to thousandths, rounded up, saturating.
func Milli(q resource.Quantity) Quantity {
	if q.Sign() < 0 {
		return Quantity{Milli: -1}
	}
	if q.CmpInt64(math.MaxInt64/1000) >= 0 {
		return Quantity{Milli: math.MaxInt64}
	}
	return Quantity{Milli: q.MilliValue()}
}

// Pending says that the request was not acknowledged yet.
func (r *Request) Pending() bool { return r.Status.Phase != v1alpha1.RequestAcknowledged }

// Acknowledge makes the request count as acknowledged.
func (r *Request) Acknowledge() { r.Status.Phase = v1alpha1.RequestAcknowledged }

// Pod returns the Pod that controls the request, if one does.
func (r *Request) Pod() (name string, uid types.UID, ok bool) {
	for _, o := range r.OwnerReferences {
		if o.Controller != nil && *o.Controller && o.Kind == "Pod" {
			return o.Name, o.UID, true
		}
	}
	return "", "", false
}

// DeepCopyObject copies the object. The spec is never changed after decoding and is shared.
func (r *Request) DeepCopyObject() runtime.Object {
	out := *r
	r.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Status.Conditions = slices.Clone(r.Status.Conditions)
	return &out
}

// DeepCopyObject copies the list.
func (l *List) DeepCopyObject() runtime.Object {
	out := *l
	l.ListMeta.DeepCopyInto(&out.ListMeta)
	out.Items = make([]Request, len(l.Items))
	for i := range l.Items {
		out.Items[i] = *l.Items[i].DeepCopyObject().(*Request)
	}
	return &out
}

// Register puts Request into a scheme as the type of CapacityRequest.
func Register(s *runtime.Scheme) error {
	s.AddKnownTypeWithName(v1alpha1.GroupVersion().WithKind("CapacityRequest"), &Request{})
	s.AddKnownTypeWithName(v1alpha1.GroupVersion().WithKind("CapacityRequestList"), &List{})
	metav1.AddToGroupVersion(s, v1alpha1.GroupVersion()) // list and watch options of the group
	return nil
}
