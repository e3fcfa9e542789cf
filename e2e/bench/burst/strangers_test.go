package burst

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// group is that of the strangers: the definitions of BigFleet under a name that nothing of BigFleet watches.
const group = "floor.example.com"

const writers = 64 // as many as the pod controller has, and as the provider sends to one cluster

// strangers are the objects that BigFleet must write for Pods and machines at the least, one request a Pod and one
// UpcomingNode a machine, as a plain client writes them.
type strangers struct {
	objects            dynamic.Interface
	requests, upcoming schema.GroupVersionResource
}

func strangersOf(t *testing.T, ctx context.Context, c *fixture.Cluster) *strangers {
	t.Helper()
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	s := &strangers{objects: c.Dynamic}
	for plural, into := range map[string]*schema.GroupVersionResource{"capacityrequests": &s.requests, "upcomingnodes": &s.upcoming} {
		text, err := os.ReadFile(filepath.Join(root, "deploy", "crds", "bigfleet.lucy.sh_"+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"  group: ", "  name: " + plural + "."} {
			text = bytes.ReplaceAll(text, []byte(field+"bigfleet.lucy.sh\n"), []byte(field+group+"\n"))
		}
		if err := c.ApplyYAML(ctx, text); err != nil {
			t.Fatal(err)
		}
		*into = schema.GroupVersionResource{Group: group, Version: "v1alpha1", Resource: plural}
	}
	return s
}

// react writes, for each Pod that it sees in a namespace, a request, and after each few of them an UpcomingNode and its Node,
// until as many Pods as were said are served. It decides nothing, waits for nothing and keeps nothing in step.
func (s *strangers) react(ctx context.Context, c *fixture.Cluster, namespace string, pods int) error {
	factory := informers.NewSharedInformerFactoryWithOptions(c.Client(), 0, informers.WithNamespace(namespace))
	informer := factory.Core().V1().Pods().Informer()
	seen := make(chan *corev1.Pod, pods)
	_, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		if p, ok := o.(*corev1.Pod); ok {
			seen <- p
		}
	}})
	if err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	defer factory.Shutdown()
	defer stop()
	factory.Start(watching.Done())
	var served atomic.Int64
	failed := make(chan error, writers)
	var wait sync.WaitGroup
	left := make(chan struct{}, pods)
	for range pods {
		left <- struct{}{}
	}
	close(left)
	for range writers {
		wait.Go(func() {
			for range left {
				select {
				case <-ctx.Done():
					failed <- context.Cause(ctx)
					return
				case p := <-seen:
					if err := s.request(ctx, p); err != nil {
						failed <- err
						return
					}
					if n := served.Add(1); n%podsPerNode == 0 {
						if err := s.machine(ctx, c, nodeOf(fmt.Sprintf("%s-%04d", namespace, n/podsPerNode), namespace)); err != nil {
							failed <- err
							return
						}
					}
				}
			}
		})
	}
	wait.Wait()
	close(failed)
	return <-failed
}

// request writes what the pod controller would.
func (s *strangers) request(ctx context.Context, p *corev1.Pod) error {
	r := object("CapacityRequest", p.Name+"-0123456789", map[string]any{
		"requirements": []any{map[string]any{"key": "node.kubernetes.io/instance-type", "operator": "Exists"}},
		"resources":    map[string]any{"cpu": "1", "memory": "1Gi"}, "priority": int64(0),
	})
	r.SetNamespace(p.Namespace)
	r.SetLabels(map[string]string{"owned-by-pod": string(p.UID)})
	r.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: p.Name, UID: p.UID, Controller: new(true)}})
	_, err := s.objects.Resource(s.requests).Namespace(p.Namespace).Create(ctx, r, metav1.CreateOptions{})
	return err
}

func (s *strangers) machine(ctx context.Context, c *fixture.Cluster, node *corev1.Node) error {
	u := object("UpcomingNode", "un-"+node.Name, map[string]any{"machineID": node.Name, "resources": map[string]any{"cpu": "4", "memory": "16Gi"}})
	if _, err := s.objects.Resource(s.upcoming).Create(ctx, u, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := c.Client().CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	return err
}

func object(kind, name string, spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": group + "/v1alpha1", "kind": kind, "metadata": map[string]any{"name": name}, "spec": spec,
	}}
}
