package lazywatch

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

var gangs = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "gangs"}

// server is an API server that has gangs or not. Its one watch ends with the server.
type server struct {
	asked  atomic.Int32
	served atomic.Bool
	events chan map[string]any
}

func gang(name string) map[string]any {
	return map[string]any{"apiVersion": "example.com/v1", "kind": "Gang", "metadata": map[string]any{"namespace": "default", "name": name, "uid": name, "resourceVersion": "1"},
		"spec": map[string]any{"size": 3}}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.URL.Query().Get("watch") != "":
		if r.URL.Query().Get("sendInitialEvents") == "true" { // what there is, and its end
			end := gang("")
			end["metadata"] = map[string]any{"resourceVersion": "1", "annotations": map[string]any{"k8s.io/initial-events-end": "true"}}
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "ADDED", "object": gang("a")})
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "BOOKMARK", "object": end})
		}
		w.(http.Flusher).Flush()
		for {
			select {
			case <-r.Context().Done():
				return
			case e := <-s.events:
				_ = json.NewEncoder(w).Encode(e)
				w.(http.Flusher).Flush()
			}
		}
	case !s.served.Load():
		s.asked.Add(1)
		w.WriteHeader(http.StatusNotFound)
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404})
	default:
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": "GangList", "apiVersion": "example.com/v1", "metadata": map[string]any{"resourceVersion": "1"}, "items": []any{gang("a")}})
	}
}

// seen is what a Watcher has said.
type seen struct {
	mu       sync.Mutex
	served   []bool
	complete int
	objects  map[string]*unstructured.Unstructured
}

func (s *seen) until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		s.mu.Lock()
		ok := is()
		s.mu.Unlock()
		if ok {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("in 30 s not: %s", what)
		}
	}
}

// A kind is read from the first reference on: while the API server does not have it, that is said, and it is asked again; then all its objects
// are set, stripped, and what changes after that. Nothing is asked about a kind that nothing refers to.
func TestAKindIsReadOnceSomethingRefersToIt(t *testing.T) {
	api := &server{events: make(chan map[string]any, 4)}
	web := httptest.NewServer(api)
	ctx, cancel := context.WithCancel(t.Context())
	s := &seen{objects: map[string]*unstructured.Unstructured{}}
	w, err := New(Config{
		REST: &rest.Config{Host: web.URL}, Log: slog.New(slog.DiscardHandler), Kinds: []schema.GroupVersionResource{gangs}, AskEvery: 10 * time.Millisecond,
		Strip: func(o any) (any, error) { return Bare(o.(*unstructured.Unstructured)), nil },
		Served: func(_ schema.GroupVersionResource, served bool) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.served = append(s.served, served)
		},
		Complete: func(schema.GroupVersionResource) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.complete++
		},
		Set: func(_ schema.GroupVersionResource, namespace, name string, o *unstructured.Unstructured) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.objects[namespace+"/"+name] = o
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	time.Sleep(100 * time.Millisecond) // ten times as long as it takes to ask again
	if n := api.asked.Load(); n != 0 {
		t.Errorf("the API server was asked %d times about a kind that nothing refers to", n)
	}
	w.Need(gangs)
	w.Need(gangs) // does not block
	s.until(t, "asked twice about a kind that it does not have", func() bool { return api.asked.Load() > 1 && len(s.served) > 1 && !slices.Contains(s.served, true) })
	if s.complete > 0 || len(s.objects) > 0 {
		t.Errorf("complete %d times with %v while the kind is not served", s.complete, s.objects)
	}
	api.served.Store(true)
	s.until(t, "its object is read", func() bool { return s.complete == 1 && s.objects["default/a"] != nil && s.served[len(s.served)-1] })
	if _, whole := s.objects["default/a"].Object["spec"]; whole {
		t.Error("the object was not stripped")
	}
	api.events <- map[string]any{"type": "ADDED", "object": gang("b")}
	s.until(t, "a new object is set", func() bool { return s.objects["default/b"] != nil })
	api.events <- map[string]any{"type": "DELETED", "object": gang("a")}
	s.until(t, "an object that is gone is nil", func() bool { o, known := s.objects["default/a"]; return known && o == nil })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	web.CloseClientConnections()
	web.Close()
}
