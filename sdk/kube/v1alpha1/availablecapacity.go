package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Availability says how likely capacity of a shape is to be available.
// +kubebuilder:validation:Enum=None;Low;Medium;High
type Availability string

// Degrees of availability.
const (
	// AvailabilityNone: no machine is available, or nothing is known.
	AvailabilityNone Availability = "None"
	// AvailabilityLow: matching machines are withheld or out of stock.
	AvailabilityLow Availability = "Low"
	// AvailabilityMedium: machines could be created.
	AvailabilityMedium Availability = "Medium"
	// AvailabilityHigh: idle machines exist.
	AvailabilityHigh Availability = "High"
)

// AvailableCapacity is a hint about the capacity available for one shape that this cluster requests. It is never a
// reservation: other clusters see the same machines, and it can change at any time. The operator writes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,path=availablecapacities,singular=availablecapacity,shortName=avc,categories=fleet
// +kubebuilder:printcolumn:name="Availability",type=string,JSONPath=`.spec.availability`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.spec.availableCount`
// +kubebuilder:printcolumn:name="Cost",type=string,JSONPath=`.spec.cost`
// +kubebuilder:printcolumn:name="USD/Hour",type=string,JSONPath=`.spec.pricePerHour`
// +kubebuilder:printcolumn:name="CPU",type=string,JSONPath=`.spec.resources.cpu`
// +kubebuilder:printcolumn:name="Memory",type=string,JSONPath=`.spec.resources.memory`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.spec.requirements[?(@.key=="node.kubernetes.io/instance-type")].values`
// +kubebuilder:printcolumn:name="Zone",type=string,JSONPath=`.spec.requirements[?(@.key=="topology.kubernetes.io/zone")].values`
// +kubebuilder:printcolumn:name="Updated",type=date,priority=1,JSONPath=`.status.updatedAt`
type AvailableCapacity struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The hint.
	Spec AvailableCapacitySpec `json:"spec"`
	// When the hint was last given.
	// +optional
	Status AvailableCapacityStatus `json:"status,omitzero"`
}

// AvailableCapacitySpec is the hint.
type AvailableCapacitySpec struct {
	// Requirements describe the shape.
	// +optional
	// +listType=atomic
	Requirements []corev1.NodeSelectorRequirement `json:"requirements,omitempty"`
	// Resources of one machine of the shape.
	Resources corev1.ResourceList `json:"resources"`
	// AvailableCount is the number of machines that are likely to be available soon.
	AvailableCount int32 `json:"availableCount"`
	// Availability is how likely that is.
	Availability Availability `json:"availability"`
	// Cost is the expected price of one machine in dollars per hour; "0" means unknown.
	Cost resource.Quantity `json:"cost"`
	// PricePerHour is the same price in decimal dollars, for display: cost shows 0.096 as 96m. Empty means unknown.
	// +optional
	PricePerHour string `json:"pricePerHour,omitempty"`
}

// AvailableCapacityStatus is when the hint was last given.
type AvailableCapacityStatus struct {
	// UpdatedAt is when the shard last changed the hint.
	// +optional
	UpdatedAt *metav1.Time `json:"updatedAt,omitempty"`
}

// AvailableCapacityList is a list of AvailableCapacities.
//
// +kubebuilder:object:root=true
type AvailableCapacityList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	// Items of the list.
	Items []AvailableCapacity `json:"items"`
}
