package command

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

// patience bounds every wait for something that surely comes, on a machine that does other things too.
const patience = 3 * time.Minute

// bigfleet is the built command.
type bigfleet struct {
	t    *testing.T
	path string
	home string // without the contexts of the user who runs the tests
}

func build(t *testing.T) bigfleet {
	t.Helper()
	return bigfleet{t, proc.BuildT(t, "services/bigfleet"), t.TempDir()}
}

// run runs one command line, off a terminal.
func (b bigfleet) run(args ...string) (code int, stdout, stderr string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.path, args...)
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+b.home, "KUBECONFIG="+filepath.Join(b.home, "none"))
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		b.t.Fatalf("bigfleet %v: %v", args, err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

// wants runs a command line that must end with this code and print each text, on stdout or stderr.
func (b bigfleet) wants(code int, texts []string, args ...string) string {
	b.t.Helper()
	got, out, errs := b.run(args...)
	if got != code {
		b.t.Errorf("bigfleet %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
	}
	for _, text := range texts {
		if !strings.Contains(out+errs, text) {
			b.t.Errorf("bigfleet %s does not print %q:\n%s%s", strings.Join(args, " "), text, out, errs)
		}
	}
	return out
}

// world is a `bigfleet up` on free ports.
type world struct {
	*proc.Process
	shard, provider, coordinator string
}

// up prepares `bigfleet up`; the caller starts it.
func (b bigfleet) up(args ...string) world {
	b.t.Helper()
	addresses := make([]string, 5)
	for i := range addresses {
		p, err := loopback.Reserve()
		if err != nil {
			b.t.Fatal(err)
		}
		b.t.Cleanup(p.Release)
		addresses[i] = p.Addr()
	}
	all := append([]string{"up", "--shard-listen", addresses[0], "--provider-listen", addresses[1], "--control-listen", addresses[2],
		"--coordinator-listen", addresses[3], "--raft-bind", addresses[4], "--log-file", filepath.Join(b.t.TempDir(), "parts.log")}, args...)
	p, err := proc.New(proc.Config{
		Name: "up", Path: b.path, Args: all, LogFile: filepath.Join(b.t.TempDir(), "up.log"), Ready: proc.LogContains("ready: shard at"),
		ReadyTimeout: patience, StopTimeout: patience,
	})
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		p.Kill()
		if b.t.Failed() {
			b.t.Logf("the end of `bigfleet up`:\n%s", p.Tail(60))
		}
	})
	return world{p, addresses[0], addresses[1], addresses[3]}
}

func (w world) start(t *testing.T) {
	t.Helper()
	if err := w.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// deploy creates a Deployment in namespace default.
func deploy(t *testing.T, cp *controlplane.ControlPlane, name string, replicas int32, cpu string, shape ...func(*corev1.PodSpec)) {
	t.Helper()
	labels := map[string]string{"app": name}
	grace := int64(0)
	spec := corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{
		Name: "main", Image: "registry.invalid/none",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse("1Gi")}},
	}}}
	for _, f := range shape {
		f(&spec)
	}
	_, err := cp.Client().AppsV1().Deployments("default").Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// on selects machines of a type, in one zone or in any.
func on(instanceType, zone string) func(*corev1.PodSpec) {
	return func(s *corev1.PodSpec) {
		s.NodeSelector = map[string]string{corev1.LabelInstanceTypeStable: instanceType}
		if zone != "" {
			s.NodeSelector[corev1.LabelTopologyZone] = zone
		}
	}
}

func scale(t *testing.T, cp *controlplane.ControlPlane, name string, replicas int32) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := cp.Client().AppsV1().Deployments("default").Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

// until asks again and again.
func until(t *testing.T, what string, seen func() (bool, string)) {
	t.Helper()
	last := ""
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		var ok bool
		if ok, last = seen(); ok {
			return
		}
	}
	t.Fatalf("never: %s; last: %s", what, last)
}

// runs waits until this many Pods of a Deployment run, and returns the name of one.
func runs(t *testing.T, cp *controlplane.ControlPlane, name string, pods int) (one string) {
	t.Helper()
	until(t, fmt.Sprintf("%d Pods of %s run in %s", pods, name, cp.Name()), func() (bool, string) {
		list, err := cp.Client().CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{LabelSelector: "app=" + name})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, p := range list.Items {
			if p.Status.Phase == corev1.PodRunning {
				n, one = n+1, p.Name
			}
		}
		return n == pods && len(list.Items) == pods, fmt.Sprintf("%d of %d", n, len(list.Items))
	})
	return one
}

// nodes are the Nodes of BigFleet's machines in each cluster, each with what must not change over a restart.
func nodes(t *testing.T, planes []*controlplane.ControlPlane) map[string]map[string]string {
	t.Helper()
	out := map[string]map[string]string{}
	for _, cp := range planes {
		list, err := cp.Client().CoreV1().Nodes().List(t.Context(), metav1.ListOptions{LabelSelector: "bigfleet.lucy.sh/machine-id"})
		if err != nil {
			t.Fatal(err)
		}
		out[cp.Name()] = map[string]string{}
		for _, n := range list.Items {
			out[cp.Name()][n.Name] = fmt.Sprintf("%s unschedulable=%v", n.UID, n.Spec.Unschedulable)
		}
	}
	return out
}
