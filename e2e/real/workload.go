package real

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sys/unix"
)

// Hello creates a Deployment of Pods that answer HTTP, each too large for two on one host.
func (c *Cluster) Hello(ctx context.Context, name string, replicas int32, priorityClass string) error {
	labels := map[string]string{"app": name}
	grace := int64(1)
	_, err := c.Client().AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					TerminationGracePeriodSeconds: &grace, PriorityClassName: priorityClass,
					Containers: []corev1.Container{{
						Name: "main", Image: HelloImage, Env: []corev1.EnvVar{{Name: "CLUSTER", Value: c.ID}},
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("64Mi")}},
					}},
				},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

// Scale sets the replicas of a Deployment.
func (c *Cluster) Scale(ctx context.Context, name string, replicas int32) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := c.Client().AppsV1().Deployments("default").Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// Answers asks each Pod of a Deployment over its own address, from the host that it runs on, and returns what it says by Pod.
func (f *Fleet) Answers(ctx context.Context, c *Cluster, name string) (map[string]string, error) {
	pods, err := c.Client().CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + name})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, p := range pods.Items {
		for _, h := range f.Hosts {
			if h.Name != p.Spec.NodeName || p.Status.PodIP == "" || p.DeletionTimestamp != nil {
				continue
			}
			if said, err := h.get(ctx, "http://"+net.JoinHostPort(p.Status.PodIP, "8080")); err == nil {
				out[p.Name] = said
			}
		}
	}
	return out, nil
}

// get asks a web server from inside the host's network.
func (h *Host) get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	transport := &http.Transport{DisableKeepAlives: true, DialContext: h.dial}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return "", err
	}
	defer func() { _ = answer.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 4<<10))
	return string(text), err
}

// dial makes a connection whose socket belongs to the host's network namespace.
func (h *Host) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		there, err := os.Open("/proc/" + strconv.Itoa(h.pid) + "/ns/net")
		if err == nil {
			err = unix.Setns(int(there.Fd()), unix.CLONE_NEWNET)
			_ = there.Close()
		}
		if err != nil {
			done <- result{nil, err}
			return
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}
