// Package v1alpha1 holds the Go types of BigFleet's three custom resources: CapacityRequest, UpcomingNode and
// AvailableCapacity, in group bigfleet.lucy.sh, version v1alpha1.
//
// Anybody who wants capacity from BigFleet imports this package and creates CapacityRequests, one per Pod's worth of
// demand; deleting one withdraws it. UpcomingNode and AvailableCapacity are written by the operator alone and are for
// people and tools to read: nothing in BigFleet reads them back to decide.
//
// The schemas are additive only and are never tightened, so that an object that some producer writes today is accepted
// tomorrow; what BigFleet cannot use it reports in the condition Valid instead of refusing it. The YAML that is
// generated from these types is embedded in the sibling package crds.
//
// Start at CapacityRequestSpec. Names of labels and annotations are in wellknown.go. Section 10 of the wire contract is
// the source of every name here.
//
// +kubebuilder:object:generate=true
// +groupName=bigfleet.lucy.sh
package v1alpha1
