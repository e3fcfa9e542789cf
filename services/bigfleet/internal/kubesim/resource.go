package kubesim

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Resource is one kind the server stores.
type Resource struct {
	schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Status     bool // has a status subresource
	Short      []string
}

func (r Resource) gvk() schema.GroupVersionKind { return r.GroupVersion().WithKind(r.Kind) }

func core(plural, kind string, namespaced, status bool, short ...string) Resource {
	return named("", "v1", plural, kind, namespaced, status, short...)
}

func named(group, version, plural, kind string, namespaced, status bool, short ...string) Resource {
	gvr := schema.GroupVersionResource{Group: group, Version: version, Resource: plural}
	return Resource{GroupVersionResource: gvr, Kind: kind, Namespaced: namespaced, Status: status, Short: short}
}

// The resources that models in this repository name.
var (
	Pods             = core("pods", "Pod", true, true, "po").GroupVersionResource
	Nodes            = core("nodes", "Node", false, true, "no").GroupVersionResource
	Namespaces       = core("namespaces", "Namespace", false, true, "ns").GroupVersionResource
	CapacityRequests = named(fleetGroup, fleetVersion, "capacityrequests", "CapacityRequest", true, true).GroupVersionResource
	Budgets          = named("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true, true).GroupVersionResource
	PriorityClasses  = named("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false, false).GroupVersionResource
	Definitions      = named("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false, true).GroupVersionResource
)

const (
	fleetGroup   = "bigfleet.lucy.sh"
	fleetVersion = "v1alpha1"
)

// served lists every kind, in the order discovery shows them.
func served() []Resource {
	return []Resource{
		core("namespaces", "Namespace", false, true, "ns"),
		core("nodes", "Node", false, true, "no"),
		core("pods", "Pod", true, true, "po"),
		core("events", "Event", true, false, "ev"),
		core("configmaps", "ConfigMap", true, false, "cm"),
		core("secrets", "Secret", true, false),
		core("persistentvolumeclaims", "PersistentVolumeClaim", true, true, "pvc"),
		core("persistentvolumes", "PersistentVolume", false, true, "pv"),
		named("apiextensions.k8s.io", "v1", "customresourcedefinitions", "CustomResourceDefinition", false, true, "crd", "crds"),
		named("apps", "v1", "daemonsets", "DaemonSet", true, true, "ds"),
		named("apps", "v1", "deployments", "Deployment", true, true, "deploy"),
		named("apps", "v1", "replicasets", "ReplicaSet", true, true, "rs"),
		named("coordination.k8s.io", "v1", "leases", "Lease", true, false),
		named("events.k8s.io", "v1", "events", "Event", true, false, "ev"),
		named("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", true, true, "pdb"),
		named("scheduling.k8s.io", "v1", "priorityclasses", "PriorityClass", false, false, "pc"),
		named("storage.k8s.io", "v1", "storageclasses", "StorageClass", false, false, "sc"),
		named("storage.k8s.io", "v1", "csinodes", "CSINode", false, false),
		named(fleetGroup, fleetVersion, "capacityrequests", "CapacityRequest", true, true, "cr", "crs"),
		named(fleetGroup, fleetVersion, "availablecapacities", "AvailableCapacity", false, true, "avc"),
		named(fleetGroup, fleetVersion, "upcomingnodes", "UpcomingNode", false, true, "upn"),
	}
}

// kindOf finds the resource of an object.
func kindOf(o *Object) (Resource, bool) {
	for _, r := range served() {
		if r.gvk() == o.GroupVersionKind() {
			return r, true
		}
	}
	return Resource{}, false
}

// apiResources is the discovery document of one group and version.
func apiResources(all []Resource, gv schema.GroupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{GroupVersion: gv.String()}
	list.Kind, list.APIVersion = "APIResourceList", "v1"
	verbs := metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"}
	for _, r := range all {
		if r.GroupVersion() != gv {
			continue
		}
		list.APIResources = append(list.APIResources, metav1.APIResource{
			Name: r.Resource, Kind: r.Kind, Namespaced: r.Namespaced, Verbs: verbs, ShortNames: r.Short,
		})
		if r.Status {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: r.Resource + "/status", Kind: r.Kind, Namespaced: r.Namespaced, Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
		if r.scalable() {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: r.Resource + "/scale", Group: "autoscaling", Version: "v1", Kind: "Scale", Namespaced: true, Verbs: metav1.Verbs{"get", "patch", "update"},
			})
		}
		if r.GroupVersionResource == Pods {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: "pods/eviction", Group: "policy", Version: "v1", Kind: "Eviction", Namespaced: true, Verbs: metav1.Verbs{"create"},
			})
		}
	}
	return list
}
