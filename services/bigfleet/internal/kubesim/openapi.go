package kubesim

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// serveOpenAPI says as much as kubectl asks before it creates or applies something: that the server judges fields itself. It has no
// schemas, so that `kubectl explain` finds nothing, and every field is taken.
func serveOpenAPI(w http.ResponseWriter, path string) bool {
	if path == "openapi/v3" {
		paths := map[string]any{}
		for _, r := range served() {
			at := pathOf(r.GroupVersion())
			paths[at] = map[string]any{"serverRelativeURL": "/openapi/v3/" + at}
		}
		writeJSON(w, http.StatusOK, map[string]any{"paths": paths})
		return true
	}
	at, ok := strings.CutPrefix(path, "openapi/v3/")
	if !ok {
		return false
	}
	paths := map[string]any{}
	for _, r := range served() {
		if pathOf(r.GroupVersion()) != at {
			continue
		}
		object := "/" + at + "/"
		if r.Namespaced {
			object += "namespaces/{namespace}/"
		}
		judges := map[string]any{
			"parameters":                      []any{map[string]any{"name": "fieldValidation", "in": "query", "schema": map[string]any{"type": "string"}}},
			"responses":                       map[string]any{"200": map[string]any{"description": "OK"}},
			"x-kubernetes-group-version-kind": map[string]any{"group": r.Group, "version": r.Version, "kind": r.Kind},
		}
		paths[object+r.Resource+"/{name}"] = map[string]any{"patch": judges}
		paths[object+r.Resource] = map[string]any{"post": judges}
	}
	if len(paths) == 0 {
		return false
	}
	writeJSON(w, http.StatusOK, map[string]any{"openapi": "3.0.0", "info": map[string]any{"title": "simulated cluster", "version": "v1"}, "paths": paths})
	return true
}

// pathOf is where a group and version is served.
func pathOf(gv schema.GroupVersion) string {
	if gv.Group == "" {
		return "api/" + gv.Version
	}
	return "apis/" + gv.Group + "/" + gv.Version
}
