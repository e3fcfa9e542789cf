package nodeready

import (
	"context"
	"net"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
)

// An informer whose API server refuses connections ends at once when it is stopped: the error of its first stream is none for which
// client-go pauses without looking at the context. A later stream keeps its error, so that the informer need not list again.
func TestARefusedStreamIsNotWaitedFor(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	client, err := typedcorev1.NewForConfig(&rest.Config{Host: "http://" + l.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	w := ListWatch(
		func(context.Context, metav1.ListOptions) (runtime.Object, error) { return &corev1.NodeList{}, nil },
		func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			return client.Nodes().Watch(ctx, o)
		})
	for first, want := range map[*bool]bool{new(true): false, nil: true} {
		_, err := w.WatchFuncWithContext(t.Context(), metav1.ListOptions{SendInitialEvents: first})
		if err == nil || utilnet.IsConnectionRefused(err) != want {
			t.Errorf("first stream %v: %v", first != nil, err)
		}
	}
}
