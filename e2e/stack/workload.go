package stack

import (
	"context"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Workload is a Deployment whose Pods ask for something.
type Workload struct {
	Name          string
	Replicas      int32
	CPU, Memory   string
	PriorityClass string // "" means none
	Annotations   map[string]string
}

// Deploy creates the Deployment in namespace default.
func (c *Cluster) Deploy(ctx context.Context, w Workload) error {
	labels := map[string]string{"app": w.Name}
	grace := int64(0)
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: w.Name, Namespace: "default"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &w.Replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: w.Annotations},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: &grace, PriorityClassName: w.PriorityClass,
					Containers: []corev1.Container{{
						Name: "main", Image: "registry.invalid/none",
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(w.CPU), "memory": resource.MustParse(w.Memory)}},
					}},
				},
			},
		},
	}
	_, err := c.Client().AppsV1().Deployments("default").Create(ctx, d, metav1.CreateOptions{})
	return err
}

// Scale sets the replicas of a Deployment. It is a patch, because the controller writes the same object.
func (c *Cluster) Scale(ctx context.Context, name string, replicas int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := c.Client().AppsV1().Deployments("default").Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// Latencies is how long things took, sorted.
type Latencies []time.Duration

// At is the quantile q of the samples themselves, 0 to 1.
func (l Latencies) At(q float64) time.Duration {
	if len(l) == 0 {
		return 0
	}
	return l[min(len(l)-1, int(q*float64(len(l))))]
}

func (l Latencies) String() string {
	return fmt.Sprintf("p50 %.2f s, p99 %.2f s, max %.2f s of %d", l.At(0.5).Seconds(), l.At(0.99).Seconds(), l.At(1).Seconds(), len(l))
}

// PodClock measures from the Pod seen created to the Pod seen Running, on this process's clock, by one watch: times in Pod
// objects have a resolution of one second.
type PodClock struct {
	created, running map[string]time.Time
	ended            chan struct{}
	stop             context.CancelFunc
}

// WatchPods starts a PodClock on namespace default.
func (c *Cluster) WatchPods(ctx context.Context) (*PodClock, error) {
	ctx, cancel := context.WithCancel(ctx)
	w, err := c.Client().CoreV1().Pods("default").Watch(ctx, metav1.ListOptions{})
	if err != nil {
		cancel()
		return nil, err
	}
	k := &PodClock{created: map[string]time.Time{}, running: map[string]time.Time{}, ended: make(chan struct{}), stop: cancel}
	go func() {
		defer close(k.ended)
		defer w.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case e, open := <-w.ResultChan():
				if !open {
					return
				}
				if p, ok := e.Object.(*corev1.Pod); ok {
					k.see(p, time.Now())
				}
			}
		}
	}()
	return k, nil
}

func (k *PodClock) see(p *corev1.Pod, at time.Time) {
	if _, known := k.created[p.Name]; !known {
		k.created[p.Name] = at
	}
	if _, known := k.running[p.Name]; !known && p.Status.Phase == corev1.PodRunning {
		k.running[p.Name] = at
	}
}

// Stop ends the watch and returns what it measured.
func (k *PodClock) Stop() Latencies {
	k.stop()
	<-k.ended
	var out Latencies
	for name, at := range k.running {
		out = append(out, at.Sub(k.created[name]))
	}
	slices.Sort(out)
	return out
}

const controlPlaneRole = "node-role.kubernetes.io/control-plane"

// AddControlPlaneNode gives the cluster the Node that every real one has: Ready, and tainted for Pods of users. Without any Node
// kube-scheduler takes a Pod's failure for an error and lets it wait out its backoff even when a Node comes.
func (c *Cluster) AddControlPlaneNode(ctx context.Context) error {
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "control-plane-0", Labels: map[string]string{controlPlaneRole: ""}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: controlPlaneRole, Effect: corev1.TaintEffectNoSchedule}}},
	}
	if _, err := c.Client().CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("the Node of the control plane: %w", err)
	}
	for {
		got, err := c.Client().CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if NodeReady(got) {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
