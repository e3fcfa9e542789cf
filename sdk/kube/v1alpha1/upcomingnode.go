package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// NodePhase says where a machine is on its way into, through and out of the cluster.
// +kubebuilder:validation:Enum=Provisioning;Launched;Registered;Ready;Draining;Drained;Failed
type NodePhase string

// Phases of an UpcomingNode.
const (
	// NodeProvisioning: the machine is being created.
	NodeProvisioning NodePhase = "Provisioning"
	// NodeLaunched: the host exists and belongs to no cluster yet.
	NodeLaunched NodePhase = "Launched"
	// NodeRegistered: the host is being made a node of this cluster.
	NodeRegistered NodePhase = "Registered"
	// NodeReady: the machine serves this cluster.
	NodeReady NodePhase = "Ready"
	// NodeDraining: the machine is leaving; its Pods are being evicted.
	NodeDraining NodePhase = "Draining"
	// NodeDrained: no Pod is left that has to go; the object is deleted soon.
	NodeDrained NodePhase = "Drained"
	// NodeFailed: see status.lastError.
	NodeFailed NodePhase = "Failed"
)

// UpcomingNode shows one machine that is on its way into this cluster, serves it, or is leaving it. The operator writes
// it for people and tools; no decision of BigFleet depends on it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=upcomingnodes,singular=upcomingnode,shortName=upn,categories=fleet
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.status.nodeRef.name`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.labels.node\.kubernetes\.io/instance-type`
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.spec.labels.topology\.kubernetes\.io/zone`
// +kubebuilder:printcolumn:name="Capacity",type=string,JSONPath=`.spec.capacityType`
// +kubebuilder:printcolumn:name="USD/Hour",type=string,JSONPath=`.spec.pricePerHour`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Machine",type=string,priority=1,JSONPath=`.spec.machineID`
// +kubebuilder:printcolumn:name="Error",type=string,priority=1,JSONPath=`.status.lastError`
type UpcomingNode struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What the node will look like.
	Spec UpcomingNodeSpec `json:"spec"`
	// State of the machine.
	// +optional
	// +kubebuilder:default={phase: Provisioning}
	Status UpcomingNodeStatus `json:"status,omitzero"`
}

// UpcomingNodeSpec is what the node will look like.
type UpcomingNodeSpec struct {
	// Labels that the node joins with.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// Resources that Pods are expected to be able to use on the node.
	Resources corev1.ResourceList `json:"resources"`
	// Taints that the node joins with.
	// +optional
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`
	// MachineID is the shard's id of the machine.
	// +optional
	MachineID string `json:"machineID,omitempty"`
	// CapacityType is how the machine is paid for: OnDemand, Spot, Reserved or BareMetal. Empty means unknown.
	// +optional
	CapacityType string `json:"capacityType,omitempty"`
	// PricePerHour is the price of the machine in dollars, for example 0.096. Empty means that it is unknown or that the machine is
	// not billed.
	// +optional
	PricePerHour string `json:"pricePerHour,omitempty"`
}

// UpcomingNodeStatus is the state of the machine.
type UpcomingNodeStatus struct {
	// Phase of the machine.
	Phase NodePhase `json:"phase"`
	// NodeRef names the Node object once it exists.
	// +optional
	NodeRef *corev1.ObjectReference `json:"nodeRef,omitempty"`
	// ProviderID is the provider's reference to the host, comparable with spec.providerID of the Node.
	// +optional
	ProviderID string `json:"providerID,omitempty"`
	// ProvisioningStartTime is when the operator first learnt of the machine.
	// +optional
	ProvisioningStartTime *metav1.Time `json:"provisioningStartTime,omitempty"`
	// LastError says what went wrong while the phase is Failed.
	// +optional
	LastError string `json:"lastError,omitempty"`
	// Conditions are Provisioned, NodeReady and Draining, and InService once the node has been out of service.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// UpcomingNodeList is a list of UpcomingNodes.
//
// +kubebuilder:object:root=true
type UpcomingNodeList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items of the list.
	Items []UpcomingNode `json:"items"`
}
