package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupName is the API group of all three kinds.
const GroupName = "bigfleet.lucy.sh"

// GroupVersion returns the group and version of the types in this package.
func GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: GroupName, Version: "v1alpha1"}
}

// Resource qualifies an unversioned resource name with the group, for API errors and RESTMappers.
func Resource(resource string) schema.GroupResource {
	return schema.GroupResource{Group: GroupName, Resource: resource}
}

// AddToScheme registers the types of this package in a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion(),
		&CapacityRequest{}, &CapacityRequestList{},
		&UpcomingNode{}, &UpcomingNodeList{},
		&AvailableCapacity{}, &AvailableCapacityList{},
	)
	metav1.AddToGroupVersion(s, GroupVersion())
	return nil
}
