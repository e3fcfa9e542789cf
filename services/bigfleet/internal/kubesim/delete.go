package kubesim

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	podGraceDefault = 30     // seconds, as core/v1 defaults terminationGracePeriodSeconds
	goneMax         = 20_000 // removed objects whose late dependents are recognised
)

// Delete removes an object, or marks a running Pod as terminating: its kubelet removes it with Remove.
func (s *Store) Delete(gvr schema.GroupVersionResource, namespace, object string, opts metav1.DeleteOptions) (*Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(gvr)
	if err != nil {
		return nil, err
	}
	n := name{namespace, object}
	o, err := t.get(n)
	if err != nil {
		return nil, err
	}
	if p := opts.Preconditions; p != nil {
		if p.UID != nil && *p.UID != o.GetUID() || p.ResourceVersion != nil && *p.ResourceVersion != o.GetResourceVersion() {
			return nil, apierrors.NewConflict(gvr.GroupResource(), object, fmt.Errorf("a precondition does not hold: read it again"))
		}
	}
	return s.delete(t, n, o, opts), nil
}

func (s *Store) delete(t *table, n name, o *Object, opts metav1.DeleteOptions) *Object {
	grace := int64(0)
	if t.resource.GroupVersionResource == Pods {
		grace = podGrace(o, opts.GracePeriodSeconds)
	}
	if grace == 0 && len(o.GetFinalizers()) == 0 {
		return s.remove(t, n, o)
	}
	when := metav1.NewTime(s.now().Add(time.Duration(grace) * time.Second).Truncate(time.Second))
	if at := o.GetDeletionTimestamp(); at != nil && !when.Before(at) {
		return o // already leaving, no later than asked
	}
	next := o.DeepCopy()
	next.SetDeletionTimestamp(&when)
	next.SetDeletionGracePeriodSeconds(&grace)
	s.commit(t, n, o, next)
	return next
}

// podGrace is how long a Pod may take to end: a Pod that no kubelet runs or that has ended is not waited for.
func podGrace(pod *Object, asked *int64) int64 {
	node, _, _ := unstructured.NestedString(pod.Object, "spec", "nodeName")
	phase, _, _ := unstructured.NestedString(pod.Object, "status", "phase")
	if node == "" || phase == "Succeeded" || phase == "Failed" {
		return 0
	}
	if asked != nil {
		return *asked
	}
	if g, ok, _ := unstructured.NestedInt64(pod.Object, "spec", "terminationGracePeriodSeconds"); ok {
		return g
	}
	return podGraceDefault
}

// Remove takes an object away at once, whatever its grace, unless another of its name took its place. Kubelet models call
// it when a Pod has ended.
func (s *Store) Remove(gvr schema.GroupVersionResource, namespace, object string, uid types.UID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.table(gvr)
	if err != nil {
		return err
	}
	n := name{namespace, object}
	o, err := t.get(n)
	if err != nil {
		return err
	}
	if o.GetUID() != uid {
		return apierrors.NewNotFound(gvr.GroupResource(), object)
	}
	s.remove(t, n, o)
	return nil
}

// remove drops the object and what it owned. Called with the lock held.
func (s *Store) remove(t *table, n name, o *Object) *Object {
	s.version++
	gone := o.DeepCopy()
	gone.SetResourceVersion(strconv.FormatUint(s.version, 10))
	before := t.objects[n]
	delete(t.objects, n)
	s.index(t, n, before, nil)
	t.publish(change{version: s.version, kind: watch.Deleted, object: gone, before: before})

	dependents := s.owned[o.GetUID()]
	delete(s.owned, o.GetUID())
	s.bury(o.GetUID())
	for at := range dependents {
		dt := s.tables[at.resource]
		if d := dt.objects[at.name]; d != nil {
			s.delete(dt, at.name, d, metav1.DeleteOptions{})
		}
	}
	return gone
}

// bury remembers the last removed objects.
func (s *Store) bury(uid types.UID) {
	s.gone[uid] = struct{}{}
	s.removed = append(s.removed, uid)
	if over := len(s.removed) - goneMax; over > goneMax/4 { // trimmed in steps, as the history of a table
		for _, old := range s.removed[:over] {
			delete(s.gone, old)
		}
		s.removed = slices.Clone(s.removed[over:])
	}
}
