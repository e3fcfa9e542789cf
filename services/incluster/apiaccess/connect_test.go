package apiaccess

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OP-2.1: no client-side limit unless one is asked for; then the burst is twice the rate, or what was said.
func TestLimit(t *testing.T) {
	for _, c := range []struct {
		qps   float32
		burst int
		want  rest.Config
	}{
		{-1, 0, rest.Config{QPS: -1}}, {0, 7, rest.Config{QPS: -1}}, {50, 0, rest.Config{QPS: 50, Burst: 100}}, {0.2, 0, rest.Config{QPS: 0.2, Burst: 1}},
		{50, 60, rest.Config{QPS: 50, Burst: 60}},
	} {
		a, err := Connect(Config{
			REST: &rest.Config{Host: "https://127.0.0.1:1", QPS: 5, Burst: 10}, Program: "test/v1", Scheme: runtime.NewScheme(), QPS: c.qps, Burst: c.burst,
			Kinds: []Kind{{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Resource: "pods"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if a.REST.QPS != c.want.QPS || a.REST.Burst != c.want.Burst {
			t.Errorf("--qps %v --burst %d: the client takes %v and %d", c.qps, c.burst, a.REST.QPS, a.REST.Burst)
		}
	}
}

// OP-2.3: every request names the program, so that the audit log of a cluster says who wrote.
func TestProgramIsNamed(t *testing.T) {
	agents := make(chan string, 10)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		agents <- r.UserAgent()
		http.Error(w, "no", http.StatusForbidden)
	}))
	defer server.Close()
	s := runtime.NewScheme()
	if err := corev1.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	a, err := Connect(Config{REST: &rest.Config{Host: server.URL}, Program: "bigfleet-test/v1.2.3", Scheme: s,
		Kinds: []Kind{{GVK: corev1.SchemeGroupVersion.WithKind("Pod"), Resource: "pods"}}})
	if err != nil {
		t.Fatal(err)
	}
	_ = a.Client.Get(t.Context(), client.ObjectKey{Namespace: "a", Name: "b"}, &corev1.Pod{})
	_, _ = a.ServerVersion(t.Context())
	for range 2 {
		if got := <-agents; got != "bigfleet-test/v1.2.3" {
			t.Errorf("user agent %q", got)
		}
	}
}
