package nodereport

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/contents"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
)

// sheet keeps what was reported, in order.
type sheet struct {
	mu   sync.Mutex
	kept []*pb.NodeReport
}

func (s *sheet) Report(_ string, m *pb.OperatorMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = append(s.kept, m.GetNodeReport())
}

// reports are those so far, after everything that is due at this moment has happened.
func (s *sheet) reports() []*pb.NodeReport {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.kept)
}

func (s *sheet) last() *pb.NodeReport { return s.reports()[len(s.reports())-1] }

// ready keeps whom the Reporter called Ready.
type ready struct {
	mu  sync.Mutex
	ids []string
}

func (h *ready) hear(id, _ string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ids = append(h.ids, id)
}

func (h *ready) list() []string {
	synctest.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.ids)
}

// remembered is how much a Reporter remembers.
func remembered(r *Reporter) int {
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.dirty) + len(r.ready) + len(r.sent)
}

func node(ready bool) *corev1.Node {
	state := map[bool]corev1.ConditionStatus{true: corev1.ConditionTrue, false: corev1.ConditionFalse}[ready]
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "a", Labels: map[string]string{"bigfleet.lucy.sh/machine-id": "m1"}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: state}}},
	}
}

// rig is a Reporter over one machine whose Node tests turn up and down.
func rig(t *testing.T, f func(t *testing.T, r *Reporter, machines *machine.Registry, heard *ready)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var r *Reporter
		heard := &ready{}
		machines := machine.New(func(ids []string) { r.Touch(ids) })
		r = New(machines, contents.New(func(node string) { r.TouchContents(node) }), heard.hear)
		machines.Set(machine.Machine{ID: "m1"})
		machines.SetNode(node(true))
		f(t, r, machines, heard)
	})
}

func run(t *testing.T, r *Reporter) {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = r.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// OP-11.1: the full set goes out when the shard has answered Hello, closed by an end marker.
func TestFullSet(t *testing.T) {
	rig(t, func(t *testing.T, r *Reporter, _ *machine.Registry, _ *ready) {
		s := &sheet{}
		r.Greeted(s, false)
		if len(s.reports()) != 2 || !s.reports()[0].Ready || s.reports()[0].NodeName != "node-a" || !s.reports()[1].LastOfFullSet {
			t.Errorf("reports %v", s.reports())
		}
	})
}

// OP-11.2: readiness that comes is reported after a second, readiness that goes after ten; a kubelet that blinks causes nothing.
func TestReadinessIsDebounced(t *testing.T) {
	rig(t, func(t *testing.T, r *Reporter, machines *machine.Registry, _ *ready) {
		s := &sheet{}
		run(t, r)
		time.Sleep(3 * time.Second)
		r.Greeted(s, false)
		before := len(s.reports())
		machines.SetNode(node(false))
		time.Sleep(5 * time.Second)
		machines.SetNode(node(true))
		time.Sleep(30 * time.Second)
		if len(s.reports()) != before {
			t.Fatalf("a blink was reported: %v", s.reports()[before:])
		}
		machines.SetNode(node(false))
		time.Sleep(9 * time.Second)
		if len(s.reports()) != before {
			t.Fatalf("reported after 9 s: %v", s.last())
		}
		time.Sleep(2 * time.Second)
		if l := s.last(); len(s.reports()) != before+1 || l.Ready || !l.Present {
			t.Fatalf("after 11 s: %v", s.reports()[before:])
		}
		machines.SetNode(node(true))
		time.Sleep(2 * time.Second)
		if l := s.last(); len(s.reports()) != before+2 || !l.Ready {
			t.Fatalf("2 s after it came back: %v", s.reports()[before:])
		}
	})
}

// OP-3.3: a standby replica keeps nothing of what changes; when it takes over, it looks at every machine.
func TestStandbyKeepsNothing(t *testing.T) {
	rig(t, func(t *testing.T, r *Reporter, machines *machine.Registry, heard *ready) {
		for range 100 {
			machines.SetNode(node(false))
			machines.SetNode(node(true))
		}
		if n, ids := remembered(r), heard.list(); n != 0 || len(ids) != 0 {
			t.Fatalf("a standby keeps %d entries and heard of %v", n, ids)
		}
		run(t, r)
		time.Sleep(3 * time.Second)
		if ids := heard.list(); len(ids) != 1 || ids[0] != "m1" {
			t.Errorf("after the take-over %v were heard to be Ready, want m1", ids)
		}
	})
}

// OP-11.1: a machine that is no longer this cluster's leaves nothing behind, whichever goes first, it or its Node.
func TestForgottenMachinesLeaveNothing(t *testing.T) {
	for name, end := range map[string]func(machines *machine.Registry){
		"the Node first":    func(m *machine.Registry) { m.DeleteNode("node-a"); m.Forget("m1") },
		"the machine first": func(m *machine.Registry) { m.Forget("m1"); m.DeleteNode("node-a") },
	} {
		t.Run(name, func(t *testing.T) {
			rig(t, func(t *testing.T, r *Reporter, machines *machine.Registry, _ *ready) {
				s := &sheet{}
				run(t, r)
				r.Greeted(s, false)
				time.Sleep(3 * time.Second)
				before := len(s.reports())
				end(machines)
				time.Sleep(30 * time.Second)
				if n := remembered(r); n != 0 {
					t.Errorf("%d entries are kept", n)
				}
				if len(s.reports()) != before {
					t.Errorf("a report of a machine that is not ours: %v", s.reports()[before:])
				}
			})
		})
	}
}

// OP-11.6: contents are sent after they rest for a second, at the latest after five; emptiness and protection at once, and
// nothing of them to a shard that does not know them.
func TestContentsAreDebounced(t *testing.T) {
	rig(t, func(t *testing.T, r *Reporter, machines *machine.Registry, _ *ready) {
		n := node(true)
		n.Labels["kubernetes.io/os"], n.Labels["rack"] = "linux", "r1"
		n.Status.Allocatable = corev1.ResourceList{"cpu": resource.MustParse("3900m")}
		machines.SetNode(n)
		n.Labels["no-need-selects-by"] = "it"
		machines.Set(machine.Machine{ID: "m1", Labels: map[string]string{"rack": "r1"}})
		r.SetKeys([]string{"absent", "kubernetes.io/os", "rack"})
		s := &sheet{}
		run(t, r)
		time.Sleep(3 * time.Second)
		r.Greeted(s, true)
		c := s.reports()[0].GetContents()
		if c == nil || c.Pods != 0 || c.EmptySinceUnixNanos == 0 || len(c.Labels) != 1 || c.Labels["kubernetes.io/os"] != "linux" || c.Allocatable["cpu"] != "3900m" {
			t.Fatalf("contents %v", c)
		}
		r.SetKeys([]string{"kubernetes.io/os", "no-need-selects-by"})
		time.Sleep(time.Second)
		if got := s.reports(); got[len(got)-1].GetContents().GetLabels()["no-need-selects-by"] != "it" {
			t.Fatalf("a new key of the demand: %v", got[len(got)-1])
		}
		s = &sheet{}
		r.Greeted(s, true)
		pod := func(name string, mark ...string) *pods.Pod {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "node-a"}}
			for _, m := range mark {
				p.Annotations = map[string]string{m: "true"}
			}
			return pods.Of(p)
		}
		sent := len(s.reports())
		expect := func(after time.Duration, reports int, check func(c *pb.NodeContents) bool) {
			t.Helper()
			time.Sleep(after)
			if sent += reports; len(s.reports()) != sent || reports > 0 && !check(s.last().Contents) {
				t.Fatalf("reports %v, want %d", s.reports(), sent)
			}
		}
		r.contents.SetPod(nil, pod("first"))
		expect(300*time.Millisecond, 1, func(c *pb.NodeContents) bool {
			return c.Pods == 1 && c.EmptySinceUnixNanos == 0 && c.DisruptionCostCents == 1
		})
		r.contents.SetPod(nil, pod("second"))
		expect(700*time.Millisecond, 0, nil)
		expect(time.Second, 1, func(c *pb.NodeContents) bool { return c.Pods == 2 })
		for i := range 10 { // churn
			r.contents.SetPod(nil, pod(fmt.Sprint("churn", i)))
			time.Sleep(700 * time.Millisecond)
		}
		expect(0, 1, func(c *pb.NodeContents) bool { return c.Pods >= 9 && c.Pods < 12 })
		expect(2*time.Second, 1, func(c *pb.NodeContents) bool { return c.Pods == 12 })
		r.contents.SetPod(nil, pod("guarded", "bigfleet.lucy.sh/do-not-disrupt"))
		expect(300*time.Millisecond, 1, func(c *pb.NodeContents) bool { return c.PodsProtected == 1 })
		r.Greeted(s, false)
		sent = len(s.reports())
		if s.reports()[sent-2].Contents != nil {
			t.Fatalf("contents for a shard that does not know them: %v", s.reports()[sent-2])
		}
		r.contents.SetPod(nil, pod("later"))
		expect(10*time.Second, 0, nil)
	})
}
