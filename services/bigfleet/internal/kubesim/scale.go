package kubesim

import (
	"encoding/json"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// scalable says that a kind has the subresource that `kubectl scale` and autoscalers of Pods use.
func (r Resource) scalable() bool {
	return r.Group == "apps" && (r.Resource == "deployments" || r.Resource == "replicasets")
}

// scale answers for the subresource scale, which is a view of the object's replicas.
func (s *Server) scale(w http.ResponseWriter, r *http.Request, t target) error {
	switch r.Method {
	case http.MethodGet:
		o, err := s.store.Get(t.resource.GroupVersionResource, t.namespace, t.name)
		if err != nil {
			return err
		}
		writeJSON(w, http.StatusOK, scaleOf(o))
		return nil
	case http.MethodPut:
		var wanted scaled
		if err := readJSON(r, &wanted); err != nil {
			return err
		}
		return s.rescale(w, t, func(*Object) (scaled, error) { return wanted, nil })
	case http.MethodPatch:
		body, err := readBody(r)
		if err != nil {
			return err
		}
		kind := types.PatchType(strings.TrimSpace(strings.Split(r.Header.Get("Content-Type"), ";")[0]))
		if kind == types.StrategicMergePatchType { // a scale has no lists, so that both merges are one
			kind = types.MergePatchType
		}
		return s.rescale(w, t, func(o *Object) (wanted scaled, err error) {
			current, err := json.Marshal(scaleOf(o))
			if err != nil {
				return wanted, err
			}
			next, err := patched(t.resource, kind, current, body)
			if err != nil {
				return wanted, err
			}
			if err := json.Unmarshal(next, &wanted); err != nil {
				return wanted, apierrors.NewBadRequest("patch: " + err.Error())
			}
			return wanted, nil
		})
	}
	return apierrors.NewMethodNotSupported(t.resource.GroupResource(), r.Method)
}

// scaled is what a client may change of a scale.
type scaled struct{ Spec struct{ Replicas int64 } }

func (s *Server) rescale(w http.ResponseWriter, t target, want func(*Object) (scaled, error)) error {
	o, err := s.store.Update(t.resource.GroupVersionResource, t.namespace, t.name, Main, func(o *Object) error {
		wanted, err := want(o)
		if err != nil {
			return err
		}
		if wanted.Spec.Replicas < 0 {
			return apierrors.NewBadRequest("spec.replicas: must be 0 or more")
		}
		return unstructured.SetNestedField(o.Object, wanted.Spec.Replicas, "spec", "replicas")
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, scaleOf(o))
	return nil
}

// scaleOf is an object as its scale. Replicas that are not stated are one.
func scaleOf(o *Object) map[string]any {
	selector := ""
	if labels, ok, _ := unstructured.NestedStringMap(o.Object, "spec", "selector", "matchLabels"); ok {
		selector = metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})
	}
	return map[string]any{
		"kind": "Scale", "apiVersion": "autoscaling/v1",
		"metadata": map[string]any{"name": o.GetName(), "namespace": o.GetNamespace(), "uid": string(o.GetUID()), "resourceVersion": o.GetResourceVersion()},
		"spec":     map[string]any{"replicas": number(o, 1, "spec", "replicas")},
		"status":   map[string]any{"replicas": number(o, 0, "status", "replicas"), "selector": selector},
	}
}

// number is a whole number of an object. Clients and models write it in either way of JSON.
func number(o *Object, otherwise int64, path ...string) int64 {
	switch n := at(o, path...).(type) {
	case int64:
		return n
	case float64:
		return int64(n)
	}
	return otherwise
}
