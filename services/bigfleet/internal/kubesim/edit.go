package kubesim

import (
	"k8s.io/apimachinery/pkg/api/equality"
)

// Part is the half of an object that a write may change.
type Part int

const (
	Main   Part = iota // everything but status, where the kind has a status subresource
	Status             // status alone
	Whole              // both, for models that live in the process
)

// merge builds the object that results from writing next over old through part. Identity fields never change.
func merge(r Resource, old, next *Object, part Part) *Object {
	out := next
	switch {
	case part == Status:
		out = old.DeepCopy()
		if s, ok := next.Object["status"]; ok {
			out.Object["status"] = s
		} else {
			delete(out.Object, "status")
		}
	case part == Main && r.Status:
		if s, ok := old.Object["status"]; ok {
			out.Object["status"] = s
		} else {
			delete(out.Object, "status")
		}
	}
	out.SetGroupVersionKind(r.gvk())
	out.SetName(old.GetName())
	out.SetNamespace(old.GetNamespace())
	out.SetUID(old.GetUID())
	out.SetCreationTimestamp(old.GetCreationTimestamp())
	out.SetDeletionTimestamp(old.GetDeletionTimestamp())
	out.SetDeletionGracePeriodSeconds(old.GetDeletionGracePeriodSeconds())
	out.SetResourceVersion(old.GetResourceVersion())
	out.SetGeneration(old.GetGeneration())
	if !equality.Semantic.DeepEqual(old.Object["spec"], out.Object["spec"]) {
		out.SetGeneration(old.GetGeneration() + 1)
	}
	return out
}

func same(a, b *Object) bool { return equality.Semantic.DeepEqual(a.Object, b.Object) }
