package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RequestPhase says how far a CapacityRequest got.
// +kubebuilder:validation:Enum=Pending;Acknowledged
type RequestPhase string

// Phases of a CapacityRequest. The step is one way; empty counts as Pending.
const (
	RequestPending      RequestPhase = "Pending"
	RequestAcknowledged RequestPhase = "Acknowledged"
)

// CapacityRequest states the demand of one Pod. Create one to request capacity from BigFleet; delete it to withdraw the
// request. It counts as long as the object exists, whether or not the Pod already runs, because BigFleet compares the
// total demand with the total capacity. `kubectl get cr` shows the phase. `kubectl describe cr` shows why capacity is
// missing, in the condition Fulfilled.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,path=capacityrequests,singular=capacityrequest,shortName={cr,crs,capreq},categories=fleet
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Fulfilled")].reason`
type CapacityRequest struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The requested capacity.
	Spec CapacityRequestSpec `json:"spec"`
	// Status of the request, written by the operator.
	// +optional
	// +kubebuilder:default={phase: Pending}
	Status CapacityRequestStatus `json:"status,omitzero"`
}

// CapacityRequestSpec is the demand of one Pod.
type CapacityRequestSpec struct {
	// Requirements are constraints on the labels of the node; all of them must hold. Empty means any node. The operators are In,
	// NotIn, Exists, DoesNotExist, Gt and Lt. A request with another operator is not counted, and its condition Valid says so.
	// +optional
	// +listType=atomic
	Requirements []corev1.NodeSelectorRequirement `json:"requirements,omitempty"`
	// Preferences are what the Pod prefers of its node: of machines that cost the same, those that satisfy more of them, by weight, are
	// bought. They never keep a machine away. The 8 largest count. Requests with a coLocation or a gang have none.
	// +optional
	// +listType=atomic
	Preferences []corev1.PreferredSchedulingTerm `json:"preferences,omitempty"`
	// Resources is the request of this one Pod, for example {cpu: 500m, memory: 1Gi}. A request without resources counts
	// as zero.
	Resources corev1.ResourceList `json:"resources"`
	// AttachedVolumes is how many volumes of each CSI driver the Pod attaches to its node, for example {ebs.csi.aws.com: 2}. They
	// count against what a node can attach, where that is known.
	// +optional
	AttachedVolumes map[string]int32 `json:"attachedVolumes,omitempty"`
	// Priority is the value of the Pod's PriorityClass. A request of higher priority is served first and may preempt machines of
	// lower priority. Use 0 for Pods without a PriorityClass.
	Priority int32 `json:"priority"`
	// TopologySpread are the Pod's spread constraints. Only DoNotSchedule has an effect.
	// +optional
	// +listType=atomic
	TopologySpread []TopologySpread `json:"topologySpread,omitempty"`
	// Tolerations are the taints that the Pod tolerates. Entries with a key under node.kubernetes.io/ and tolerationSeconds
	// (which admission adds to every Pod) should be left out. Without entries the Pod tolerates no taint.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// CoLocation asks that this Pod and its peers all land in one topology domain, such as one rack.
	// +optional
	CoLocation *CoLocation `json:"coLocation,omitempty"`
	// Gang asks that this Pod and its peers of the gang get capacity together or not at all.
	// +optional
	Gang *Gang `json:"gang,omitempty"`
	// InterruptionPenalty is what interrupting the Pod costs, in dollars (500m is half a dollar). It is rounded up to a
	// power of two. Absent means $0, and so does a negative one.
	// +optional
	InterruptionPenalty *resource.Quantity `json:"interruptionPenalty,omitempty"`
	// ReclamationPenalty is the value that is lost with the machine on which the Pod runs (a local cache, a warm model), in dollars.
	// It is rounded up to a power of two. Absent means $0, and so does a negative one.
	// +optional
	ReclamationPenalty *resource.Quantity `json:"reclamationPenalty,omitempty"`
	// MaxPerHost is how many Pods like this one may share a node: 1 for required Pod anti-affinity on kubernetes.io/hostname
	// against its own peers, and for host ports. 0 or absent means no limit.
	// +optional
	MaxPerHost int32 `json:"maxPerHost,omitempty"`
	// PreemptionPolicy is the one of the Pod. Never means that no machine of lower priority is preempted for it.
	// +optional
	PreemptionPolicy *corev1.PreemptionPolicy `json:"preemptionPolicy,omitempty"`
}

// TopologySpread is one spread constraint.
type TopologySpread struct {
	// TopologyKey is the node label whose values are the domains.
	TopologyKey string `json:"topologyKey"`
	// MaxSkew is the largest allowed difference between two domains; at least 1.
	MaxSkew int32 `json:"maxSkew"`
	// WhenUnsatisfiable is DoNotSchedule or ScheduleAnyway. ScheduleAnyway has no effect on capacity.
	WhenUnsatisfiable corev1.UnsatisfiableConstraintAction `json:"whenUnsatisfiable"`
	// MinDomains is the number of domains below which each domain may hold at most maxSkew Pods. Required Pod anti-affinity against a
	// Pod's own peers is stated as maxSkew 1 with the largest possible minDomains. Absent means 1.
	// +optional
	MinDomains int32 `json:"minDomains,omitempty"`
	// LabelSelector selects the Pods that count together, in the namespace of the CapacityRequest. Requests without one count with all
	// others of equal constraints.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
}

// CoLocation is the first required Pod affinity term of a Pod. All requests with the same term form one group that must
// fit into a single domain.
type CoLocation struct {
	// TopologyKey is the node label whose value all members must share, for example topology.bigfleet/rack.
	TopologyKey string `json:"topologyKey"`
	// LabelSelector selects the peers. If it is absent, the term selects nothing and is ignored.
	// +optional
	LabelSelector *metav1.LabelSelector `json:"labelSelector,omitempty"`
	// Namespaces of the peers. Empty means the namespace of the CapacityRequest, unless namespaceSelector is set.
	// +optional
	// +listType=atomic
	Namespaces []string `json:"namespaces,omitempty"`
	// NamespaceSelector selects further namespaces of peers by their labels.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
}

// Gang is a group of Pods that run together or not at all. All requests of a namespace with the same gang, priority and constraints form one
// row of demand: nothing is bought for it until capacity for minMembers is available.
type Gang struct {
	// Name of the gang, unique in its namespace.
	Name string `json:"name"`
	// MinMembers is the smallest number of members that can start. Nothing is bought until capacity for that many is available;
	// capacity for further members is then bought one by one. 0 or absent means that each member may start by itself, in one
	// domain if topologyKey is set.
	// +optional
	MinMembers int32 `json:"minMembers,omitempty"`
	// TopologyKey is a node label whose value all members must share. A coLocation of the request takes precedence.
	// +optional
	TopologyKey string `json:"topologyKey,omitempty"`
}

// CapacityRequestStatus is the status of the request.
type CapacityRequestStatus struct {
	// Phase is Pending until the shard has received the demand, and Acknowledged from then on. Acknowledged does not mean that
	// capacity exists: see the condition Fulfilled.
	Phase RequestPhase `json:"phase"`
	// AcknowledgedAt is when the phase became Acknowledged.
	// +optional
	AcknowledgedAt *metav1.Time `json:"acknowledgedAt,omitempty"`
	// Conditions are Valid (the request can be used) and Fulfilled (capacity is bound or on its way).
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// ObservedGeneration is the generation that the conditions refer to.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// CapacityRequestList is a list of CapacityRequests.
//
// +kubebuilder:object:root=true
type CapacityRequestList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items of the list.
	Items []CapacityRequest `json:"items"`
}
