package apiaccess

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
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
			REST: &rest.Config{Host: "https://127.0.0.1:1", QPS: 5, Burst: 10}, Scheme: runtime.NewScheme(), QPS: c.qps, Burst: c.burst,
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
