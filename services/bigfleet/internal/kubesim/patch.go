package kubesim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

func (s *Server) patch(w http.ResponseWriter, r *http.Request, t target) error {
	body, err := readBody(r)
	if err != nil {
		return err
	}
	kind := types.PatchType(strings.TrimSpace(strings.Split(r.Header.Get("Content-Type"), ";")[0]))
	if kind == types.ApplyPatchType || kind == types.ApplyYAMLPatchType {
		return s.apply(w, r, t, body)
	}
	o, err := s.store.Update(t.resource.GroupVersionResource, t.namespace, t.name, t.part(), func(o *Object) error {
		return applyPatch(t.resource, kind, body, o)
	})
	return reply(w, r, http.StatusOK, o, err)
}

// apply is server-side apply without field ownership: create, or merge what is stated.
func (s *Server) apply(w http.ResponseWriter, r *http.Request, t target, body []byte) error {
	stated, err := yaml.YAMLToJSON(body)
	if err != nil {
		return apierrors.NewBadRequest("body: " + err.Error())
	}
	gvr := t.resource.GroupVersionResource
	o, err := s.store.Update(gvr, t.namespace, t.name, t.part(), func(o *Object) error {
		return applyPatch(t.resource, types.MergePatchType, stated, o)
	})
	if !apierrors.IsNotFound(err) || t.subresource != "" {
		return reply(w, r, http.StatusOK, o, err)
	}
	fresh := &Object{}
	if err := json.Unmarshal(stated, &fresh.Object); err != nil {
		return apierrors.NewBadRequest("body: " + err.Error())
	}
	fresh.SetName(t.name)
	fresh.SetNamespace(t.namespace)
	o, err = s.store.Create(gvr, fresh)
	return reply(w, r, http.StatusCreated, o, err)
}

// applyPatch changes o in place.
func applyPatch(r Resource, kind types.PatchType, body []byte, o *Object) error {
	current, err := json.Marshal(o.Object)
	if err != nil {
		return err
	}
	next, err := patched(r, kind, current, body)
	if err != nil {
		return err
	}
	o.Object = nil
	return json.Unmarshal(next, &o.Object)
}

func patched(r Resource, kind types.PatchType, current, body []byte) (next []byte, err error) {
	switch kind {
	case types.MergePatchType:
		next, err = jsonpatch.MergePatch(current, body)
	case types.JSONPatchType:
		var p jsonpatch.Patch
		if p, err = jsonpatch.DecodePatch(body); err == nil {
			next, err = p.Apply(current)
		}
	case types.StrategicMergePatchType:
		typed, unknown := scheme.Scheme.New(r.gvk())
		if unknown != nil {
			return nil, unsupported(fmt.Sprintf("%s for %s", kind, r.Kind))
		}
		next, err = strategicpatch.StrategicMergePatch(current, body, typed)
	default:
		return nil, unsupported(string(kind))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest("patch: " + err.Error())
	}
	return next, nil
}
