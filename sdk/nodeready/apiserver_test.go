package nodeready

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// apiserver serves the Nodes of one cluster: get, list and watch, as much as this package may use.
type apiserver struct {
	*httptest.Server
	mu       sync.Mutex
	revision int
	nodes    map[string]*corev1.Node
	watchers map[chan event]bool
	away     bool
}

type event struct {
	Type   string `json:"type"`
	Object any    `json:"object"`
}

func newAPIServer(t *testing.T) *apiserver {
	t.Helper()
	a := &apiserver{revision: 1, nodes: map[string]*corev1.Node{}, watchers: map[chan event]bool{}}
	a.Server = httptest.NewServer(a)
	t.Cleanup(func() {
		a.CloseClientConnections()
		a.Close()
	})
	return a
}

func (a *apiserver) config() *rest.Config { return &rest.Config{Host: a.URL} }

// put makes or changes a node and tells the watchers.
func (a *apiserver) put(name, providerID string, ready corev1.ConditionStatus, change ...func(*corev1.Node)) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revision++
	n := &corev1.Node{
		TypeMeta:   metav1.TypeMeta{Kind: "Node", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u-1", ResourceVersion: strconv.Itoa(a.revision), Labels: map[string]string{"p": "x"}},
		Spec:       corev1.NodeSpec{ProviderID: providerID, PodCIDR: "10.0.0.0/24"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}},
	}
	for _, c := range change {
		c(n)
	}
	kind := "ADDED"
	if a.nodes[name] != nil {
		kind = "MODIFIED"
	}
	a.nodes[name] = n
	a.notify(event{kind, n})
}

func (a *apiserver) remove(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.revision++
	n := a.nodes[name].DeepCopy()
	n.ResourceVersion = strconv.Itoa(a.revision)
	delete(a.nodes, name)
	a.notify(event{"DELETED", n})
}

func (a *apiserver) notify(e event) {
	for w := range a.watchers {
		w <- e
	}
}

// leave makes every call fail, and ends the watches.
func (a *apiserver) leave(away bool) {
	a.mu.Lock()
	a.away = away
	a.mu.Unlock()
	if away {
		a.CloseClientConnections()
	}
}

func (a *apiserver) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mu.Lock()
	away := a.away
	a.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	name, one := strings.CutPrefix(r.URL.Path, "/api/v1/nodes/")
	switch {
	case away:
		a.fail(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
	case r.Method != http.MethodGet:
		a.fail(w, http.StatusForbidden, metav1.StatusReasonForbidden) // the package only reads
	case one:
		a.mu.Lock()
		n := a.nodes[name]
		a.mu.Unlock()
		if n == nil {
			a.fail(w, http.StatusNotFound, metav1.StatusReasonNotFound)
			return
		}
		_ = json.NewEncoder(w).Encode(n)
	case r.URL.Query().Get("watch") != "":
		a.watch(w, r)
	default:
		a.mu.Lock()
		list := corev1.NodeList{TypeMeta: metav1.TypeMeta{Kind: "NodeList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(a.revision)}}
		for _, n := range a.nodes {
			list.Items = append(list.Items, *n)
		}
		a.mu.Unlock()
		_ = json.NewEncoder(w).Encode(list)
	}
}

func (a *apiserver) watch(w http.ResponseWriter, r *http.Request) {
	events := make(chan event, 1000)
	a.mu.Lock()
	if r.URL.Query().Get("sendInitialEvents") == "true" {
		for _, n := range a.nodes {
			events <- event{"ADDED", n}
		}
		events <- event{"BOOKMARK", &corev1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{
			ResourceVersion: strconv.Itoa(a.revision), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"},
		}}}
	}
	a.watchers[events] = true
	a.mu.Unlock()
	defer func() {
		a.mu.Lock()
		delete(a.watchers, events)
		a.mu.Unlock()
	}()
	flusher := w.(http.Flusher)
	flusher.Flush()
	for {
		select {
		case <-r.Context().Done():
			return
		case e := <-events:
			if json.NewEncoder(w).Encode(e) != nil {
				return
			}
			flusher.Flush()
		}
	}
}

func (a *apiserver) fail(w http.ResponseWriter, code int, reason metav1.StatusReason) {
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Code: int32(code), //nolint:gosec // a small number
	})
}
