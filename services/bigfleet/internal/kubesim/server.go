package kubesim

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/rest"
)

// Server answers the Kubernetes REST protocol over a Store.
type Server struct{ store *Store }

// NewServer serves the objects of s.
func NewServer(s *Store) *Server { return &Server{store: s} }

// ClientConfig is how a client-go client reaches a Server that listens on address (host:port).
func ClientConfig(address string) *rest.Config {
	return &rest.Config{Host: "http://" + address, QPS: -1}
}

// target is what a request path names.
type target struct {
	resource    Resource
	namespace   string
	name        string
	subresource string
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.serveMeta(w, r) {
		return
	}
	t, err := s.resolve(r.URL.Path)
	if err == nil {
		err = s.serveObject(w, r, t)
	}
	if err != nil {
		writeError(w, err)
	}
}

// serveMeta answers what is not about objects: health, version, discovery, access reviews.
func (s *Server) serveMeta(w http.ResponseWriter, r *http.Request) bool {
	path := strings.Trim(r.URL.Path, "/")
	switch path {
	case "readyz", "healthz", "livez":
		_, _ = io.WriteString(w, "ok")
		return true
	case "version":
		writeJSON(w, http.StatusOK, version.Info{Major: "1", Minor: "36", GitVersion: "v1.36.3-kubesim"})
		return true
	case "api":
		v := metav1.APIVersions{Versions: []string{"v1"}}
		v.Kind = "APIVersions"
		writeJSON(w, http.StatusOK, v)
		return true
	case "apis":
		writeJSON(w, http.StatusOK, groups())
		return true
	case "api/v1":
		writeJSON(w, http.StatusOK, apiResources(served(), schema.GroupVersion{Version: "v1"}))
		return true
	case "apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
		s.review(w, r, map[string]any{"allowed": true})
		return true
	case "apis/authentication.k8s.io/v1/selfsubjectreviews":
		s.review(w, r, map[string]any{"userInfo": map[string]any{"username": "kubernetes-admin"}})
		return true
	}
	if serveOpenAPI(w, path) {
		return true
	}
	if parts := strings.Split(path, "/"); len(parts) == 3 && parts[0] == "apis" {
		list := apiResources(served(), schema.GroupVersion{Group: parts[1], Version: parts[2]})
		if len(list.APIResources) > 0 {
			writeJSON(w, http.StatusOK, list)
			return true
		}
	}
	return false
}

// review answers who somebody is and what they may do: a simulated cluster has one person and no authorisation.
func (s *Server) review(w http.ResponseWriter, r *http.Request, status map[string]any) {
	var review map[string]any
	if err := readJSON(r, &review); err != nil {
		writeError(w, err)
		return
	}
	review["status"] = status
	writeJSON(w, http.StatusCreated, review)
}

func groups() metav1.APIGroupList {
	list := metav1.APIGroupList{}
	list.Kind, list.APIVersion = "APIGroupList", "v1"
	seen := map[string]bool{}
	for _, r := range served() {
		if r.Group == "" || seen[r.Group] {
			continue
		}
		seen[r.Group] = true
		v := metav1.GroupVersionForDiscovery{GroupVersion: r.GroupVersion().String(), Version: r.Version}
		list.Groups = append(list.Groups, metav1.APIGroup{Name: r.Group, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v})
	}
	return list
}

// resolve reads /api/v1/… and /apis/<group>/<version>/….
func (s *Server) resolve(path string) (target, error) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) > 2 && parts[0] == "api":
		gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return target{}, notServed(path)
	}
	var t target
	if parts[0] == "namespaces" && len(parts) > 2 && parts[2] != "status" {
		t.namespace, parts = parts[1], parts[2:]
	}
	table, err := s.store.table(gv.WithResource(parts[0]))
	if err != nil || len(parts) > 3 {
		return target{}, notServed(path)
	}
	t.resource = table.resource
	if len(parts) > 1 {
		t.name = parts[1]
	}
	if len(parts) > 2 {
		t.subresource = parts[2]
	}
	return t, nil
}

func notServed(path string) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusNotFound, Reason: metav1.StatusReasonNotFound,
		Message: fmt.Sprintf("the simulated cluster does not serve %s", path),
	}}
}

func (s *Server) serveObject(w http.ResponseWriter, r *http.Request, t target) error {
	if t.subresource == "eviction" && r.Method == http.MethodPost {
		return s.evict(w, r, t)
	}
	if t.subresource == "scale" && t.resource.scalable() {
		return s.scale(w, r, t)
	}
	if t.subresource != "" && t.subresource != "status" {
		return notServed(r.URL.Path)
	}
	switch r.Method {
	case http.MethodGet:
		if t.name == "" {
			return s.list(w, r, t)
		}
		o, err := s.store.Get(t.resource.GroupVersionResource, t.namespace, t.name)
		return reply(w, r, http.StatusOK, o, err)
	case http.MethodPost:
		return s.create(w, r, t)
	case http.MethodPut:
		return s.replace(w, r, t)
	case http.MethodPatch:
		return s.patch(w, r, t)
	case http.MethodDelete:
		return s.remove(w, r, t)
	}
	return apierrors.NewMethodNotSupported(t.resource.GroupResource(), r.Method)
}

func (s *Server) list(w http.ResponseWriter, r *http.Request, t target) error {
	f, err := filterOf(r, t)
	if err != nil {
		return err
	}
	if v := r.URL.Query().Get("watch"); v == "true" || v == "1" {
		return s.watch(w, r, t, f)
	}
	items, at, err := s.store.List(t.resource.GroupVersionResource, f)
	if err != nil {
		return err
	}
	if asTable(r) {
		writeJSON(w, http.StatusOK, tableOf(t.resource, strconv.FormatUint(at, 10), items...))
		return nil
	}
	all := make([]any, len(items))
	for i, o := range items {
		all[i] = shape(r, o)
	}
	gvk := t.resource.gvk()
	kind, group := gvk.Kind+"List", gvk.GroupVersion().String()
	if metadataOnly(r) {
		kind, group = "PartialObjectMetadataList", "meta.k8s.io/v1"
	}
	writeJSON(w, http.StatusOK, map[string]any{
		"kind": kind, "apiVersion": group,
		"metadata": map[string]any{"resourceVersion": strconv.FormatUint(at, 10)}, "items": all,
	})
	return nil
}

func filterOf(r *http.Request, t target) (Filter, error) {
	q := r.URL.Query()
	l, err := labels.Parse(q.Get("labelSelector"))
	if err != nil {
		return Filter{}, apierrors.NewBadRequest("labelSelector: " + err.Error())
	}
	f, err := fields.ParseSelector(q.Get("fieldSelector"))
	if err != nil {
		return Filter{}, apierrors.NewBadRequest("fieldSelector: " + err.Error())
	}
	return Filter{Namespace: t.namespace, Labels: l, Fields: f}, nil
}

func (s *Server) create(w http.ResponseWriter, r *http.Request, t target) error {
	o, err := readObject(r)
	if err != nil {
		return err
	}
	if o.GetNamespace() == "" {
		o.SetNamespace(t.namespace)
	}
	o, err = s.store.Create(t.resource.GroupVersionResource, o)
	return reply(w, r, http.StatusCreated, o, err)
}

func (s *Server) replace(w http.ResponseWriter, r *http.Request, t target) error {
	in, err := readObject(r)
	if err != nil {
		return err
	}
	o, err := s.store.Update(t.resource.GroupVersionResource, t.namespace, t.name, t.part(), func(o *Object) error {
		o.Object = in.Object
		return nil
	})
	return reply(w, r, http.StatusOK, o, err)
}

func (t target) part() Part {
	if t.subresource == "status" {
		return Status
	}
	return Main
}

func (s *Server) remove(w http.ResponseWriter, r *http.Request, t target) error {
	if t.name == "" {
		return apierrors.NewMethodNotSupported(t.resource.GroupResource(), "deletecollection")
	}
	var opts metav1.DeleteOptions
	if err := readJSON(r, &opts); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if g := r.URL.Query().Get("gracePeriodSeconds"); g != "" && opts.GracePeriodSeconds == nil {
		n, err := strconv.ParseInt(g, 10, 64)
		if err != nil {
			return apierrors.NewBadRequest("gracePeriodSeconds: " + err.Error())
		}
		opts.GracePeriodSeconds = &n
	}
	o, err := s.store.Delete(t.resource.GroupVersionResource, t.namespace, t.name, opts)
	return reply(w, r, http.StatusOK, o, err)
}

func metadataOnly(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "as=PartialObjectMetadata")
}

// shape is the object as the request wants it: whole, its metadata alone, or a table with one row.
func shape(r *http.Request, o *Object) any {
	if asTable(r) {
		if kind, known := kindOf(o); known {
			return tableOf(kind, o.GetResourceVersion(), o)
		}
	}
	if !metadataOnly(r) {
		return o.Object
	}
	return map[string]any{"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": o.Object["metadata"]}
}

func reply(w http.ResponseWriter, r *http.Request, code int, o *Object, err error) error {
	if err != nil {
		return err
	}
	writeJSON(w, code, shape(r, o))
	return nil
}

func writeJSON(w http.ResponseWriter, code int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(v) // a client that went away needs no answer
}

func writeError(w http.ResponseWriter, err error) {
	var known apierrors.APIStatus
	if !errors.As(err, &known) {
		known = apierrors.NewInternalError(err)
	}
	status := known.Status()
	status.Kind, status.APIVersion = "Status", "v1"
	if d := status.Details; d != nil && d.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(d.RetryAfterSeconds)))
	}
	writeJSON(w, int(status.Code), status)
}
