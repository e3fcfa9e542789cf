package aggregate

import (
	corev1 "k8s.io/api/core/v1"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// Near is a co-location term, seen from a namespace, that is more than one host.
type Near struct {
	Namespace string
	*v1alpha1.CoLocation
}

func nearOf(namespace string, c *v1alpha1.CoLocation) *Near {
	if c == nil || c.LabelSelector == nil || c.TopologyKey == corev1.LabelHostname {
		return nil
	}
	return &Near{namespace, c}
}

// wireRequirementsMax is the number of requirements that a row has on the wire at most.
const wireRequirementsMax = requirementsMax + 1

// NearMoved reports whether rows with a term came or left since it was asked last.
func (a *Aggregate) NearMoved() bool {
	moved := a.nearMoved
	a.nearMoved = false
	return moved
}

// NearRows calls f with each row whose Pods must be near others, in no order: its term, the domains that it is confined to, and whether Place has
// said so.
func (a *Aggregate) NearRows(f func(rowID string, term *Near, where []string, placed bool)) {
	for id, r := range a.near {
		f(id, r.profile.near, r.where, r.placed)
	}
}

// Place confines a row to domains of its term, sorted; none lets all of it go to any one. The identity of the row stays what it is (OP-5.31).
func (a *Aggregate) Place(rowID string, where []string) {
	if r := a.near[rowID]; r != nil {
		r.placed, r.where, r.sent = true, where, nil
	}
}

// Placed reports whether a row is confined to domains.
func (a *Aggregate) Placed(rowID string) bool {
	r := a.near[rowID]
	return r != nil && len(r.where) > 0
}

// requirements are those of a row as they are sent. In several domains its Pods may be apart.
func (r *row) requirements() []*pb.NodeSelectorRequirement {
	all := r.profile.need.Requirements
	if len(r.where) == 0 {
		return all
	}
	out := make([]*pb.NodeSelectorRequirement, 0, len(all)+1)
	for _, q := range all {
		if len(r.where) == 1 || q.Operator != pb.NodeSelectorRequirement_OPERATOR_SAME {
			out = append(out, q)
		}
	}
	if len(out) >= wireRequirementsMax {
		return all
	}
	return append(out, &pb.NodeSelectorRequirement{Key: r.profile.near.TopologyKey, Operator: pb.NodeSelectorRequirement_OPERATOR_IN, Values: r.where})
}
