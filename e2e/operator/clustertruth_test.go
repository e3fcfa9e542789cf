package operator

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator"
)

// contentsOf is what the newest node report says that a machine holds.
func contentsOf(frames []frame, machine string) *pb.NodeContents {
	for _, f := range slices.Backward(frames) {
		if r := f.m.GetNodeReport(); r.GetMachineId() == machine && r.GetContents() != nil {
			return r.Contents
		}
	}
	return nil
}

// TestClusterTruth: the shard hears what a cluster holds, beside what it asks for.
func TestClusterTruth(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := startShard(t, append(slices.Clone(allFeatures), "node-contents", "out-of-service", "reclaim-cancel")...)
	w.operator(s)
	w.podController()

	// OP-11.6: a node's Pods, their protection by a budget, and since when it is empty.
	t.Run("a node says what it holds", func(t *testing.T) {
		w := w.with(t)
		w.machine(s, "h1")
		s.until(t, "it is empty, with its allocatable", func(f []frame) bool {
			c := contentsOf(f, "h1")
			return c != nil && c.Pods == 0 && c.EmptySinceUnixNanos > 0 && c.Allocatable["cpu"] == "4"
		})
		p := pod("default", "held-h1", "10m", onNode("node-h1"), labelled("app", "h1"), func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1alpha1.AnnotationInterruptionPenalty: "2.50"}
			p.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "node-h1"}
		})
		w.running(p)
		s.until(t, "one Pod, with its penalty, and the label that it selects", func(f []frame) bool {
			c := contentsOf(f, "h1")
			return c.GetLabels()["kubernetes.io/hostname"] == "node-h1" && c.GetPods() == 1 && c.PodsProtected == 0 && c.EmptySinceUnixNanos == 0 && c.DisruptionCostCents == 251
		})
		b := w.budget("h1", "h1", 1)
		s.until(t, "a budget protects it", func(f []frame) bool { return contentsOf(f, "h1").GetPodsProtected() == 1 })
		w.must(w.client.Delete(t.Context(), b))
		s.until(t, "none does", func(f []frame) bool { return contentsOf(f, "h1").GetPodsProtected() == 0 })
		w.must(w.client.Delete(t.Context(), p))
		s.until(t, "it is empty again", func(f []frame) bool {
			c := contentsOf(f, "h1")
			return c.GetPods() == 0 && c.GetEmptySinceUnixNanos() > 0
		})
	})

	// OP-11.7: a node that a person cordons is named, and its Pod asks for nothing, in one roll-up; uncordoned, both come back.
	t.Run("a cordoned node", func(t *testing.T) {
		w := w.with(t)
		w.machine(s, "o1")
		w.running(pod("default", "held-o1", "1234m", onNode("node-o1")))
		asks := func(n *pb.ClusterCapacityNeeds) bool {
			return slices.ContainsFunc(n.GetNeeds(), func(c *pb.CapacityNeed) bool { return c.AggregateResources["cpu"] == "1234m" })
		}
		out := func(n *pb.ClusterCapacityNeeds) *pb.MachineOutOfService {
			for _, m := range n.GetOutOfService() {
				if m.MachineId == "o1" {
					return m
				}
			}
			return nil
		}
		s.until(t, "the Pod asks for its node", func(f []frame) bool { return asks(lastRollup(f)) && out(lastRollup(f)) == nil })
		from := s.count()
		set := func(unschedulable string) {
			w.must(w.client.Patch(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-o1"}},
				client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":`+unschedulable+`}}`))))
		}
		set("true")
		s.until(t, "the machine is named, and the Pod asks for nothing", func(f []frame) bool {
			m := out(lastRollup(f))
			return m.GetReason() == pb.MachineOutOfService_REASON_CORDONED && m.Pods == 1 && !asks(lastRollup(f))
		})
		s.until(t, "supply and demand changed in one frame", func(f []frame) bool {
			for _, f := range f[from:] {
				if n := f.m.GetRollup(); n != nil && (out(n) == nil) != asks(n) {
					t.Fatalf("a roll-up names the machine: %v, and asks for its Pod: %v", out(n), asks(n))
				}
			}
			return true
		})
		w.until("the owner sees it", func() bool {
			for _, c := range w.upcoming("o1").Status.Conditions {
				if c.Type == v1alpha1.ConditionInService {
					return c.Status == metav1.ConditionFalse && c.Reason == "Cordoned"
				}
			}
			return false
		})
		w.until("so does the status", func() bool { return strings.Contains(w.status(), `"outOfService"`) })
		set("null")
		s.until(t, "the Pod asks for its node again", func(f []frame) bool { return asks(lastRollup(f)) && out(lastRollup(f)) == nil })
	})

	// OP-9.2, OP-8.15, OP-8.17: a voluntary drain leaves a Pod marked do-not-disrupt alone and names it at once; cancelled, the
	// node is as it was.
	t.Run("do not disrupt", func(t *testing.T) {
		w := w.with(t)
		w.machine(s, "d1")
		p := pod("default", "stays-d1", "10m", onNode("node-d1"), func(p *corev1.Pod) {
			p.Annotations = map[string]string{v1alpha1.AnnotationDoNotDisrupt: "true"}
		})
		other := pod("default", "goes-d1", "10m", onNode("node-d1"))
		w.running(p, other)
		m := reclaim("00000000000001d1", 10, "d1")
		m.GetReclaimInstruction().Cause = pb.ReclaimInstruction_CAUSE_VOLUNTARY
		s.send(t, m)
		w.until("the other goes", func() bool { return !w.exists(other) })
		w.until("the Pod is named", func() bool {
			e := w.event("UpcomingNode", "un-d1", "DrainBlocked")
			return e != nil && strings.Contains(e.Message, "default/stays-d1")
		})
		s.until(t, "the drain ends at its deadline", func(f []frame) bool {
			r := report(f, "d1", pb.DrainState_DRAIN_STATE_DEADLINE_EXCEEDED)
			return r != nil && slices.Contains(r.ProtectedPods, "default/stays-d1")
		})
		if !w.exists(p) {
			t.Error("the Pod is gone")
		}
		s.send(t, &pb.ShardMessage{Payload: &pb.ShardMessage_ReclaimCancel{ReclaimCancel: &pb.ReclaimCancel{InstructionId: "00000000000001d1", Reason: "blocked"}}})
		w.until("the node is as it was", func() bool { return !w.cordoned("d1") && !w.noted("d1") && w.phase("d1") == v1alpha1.NodeReady })
	})
}

// OP-8.18: the Node of a drained machine that is gone is deleted where no cloud controller does it.
func TestNodeLeftBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Kwok, controlplane.ControllerManager, controlplane.Scheduler) // nothing makes the Node Ready
	s := startShard(t, allFeatures...)
	w.operator(s, func(c *operator.Config) { c.DrainedNodeTimeout = time.Second })
	w.create(w.nodeOf("node-b1", "b1"))
	s.send(t, node("b1", pb.MachineState_MACHINE_STATE_CONFIGURED))
	w.until("the machine is shown", func() bool { return w.phase("b1") != "" })
	s.send(t, reclaim("00000000000001b1", 30, "b1"))
	w.until("the node is drained", func() bool { return w.phase("b1") == v1alpha1.NodeDrained })
	gone := node("b1", pb.MachineState_MACHINE_STATE_IDLE)
	gone.GetNodeStateUpdate().Released = true
	s.send(t, gone)
	s.send(t, resynced())
	w.until("the Node is deleted", func() bool {
		_, there := get(w, "", "node-b1", &corev1.Node{})
		return !there
	})
}

// OP-15.10: nodes that were there before BigFleet are the cluster's own: Pods on them ask for nothing. A Pod that fits nowhere
// asks once the scheduler has said so.
func TestNodesOfTheClustersOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	own := w.nodeOf("node-own", "")
	w.create(own)
	w.until("it is Ready", func() bool {
		n, ok := get(w, "", "node-own", &corev1.Node{})
		return ok && isReady(n)
	})
	n, _ := get(w, "", "node-own", &corev1.Node{})
	w.running(pod("default", "resident", "3", onNode("node-own")))
	w.within(3*time.Minute, "the Node is too old to be one that joins", func() bool { return time.Since(n.CreationTimestamp.Time) > 2*time.Minute })
	w.podController()
	w.create(pod("default", "fits", "500m"), pod("default", "waits", "2"))
	w.until("the Pod that fits nowhere asks", func() bool { return w.requestOf("waits") != nil })
	w.until("the other runs", func() bool {
		p, _ := get(w, "default", "fits", &corev1.Pod{})
		return p.Status.Phase == corev1.PodRunning
	})
	w.never(3*time.Second, "a Pod on the cluster's own node asks", func() bool { return w.requestOf("resident") != nil || w.requestOf("fits") != nil })
	w.node("node-ours", "m1")
	w.until("the Pod runs on a machine and still asks", func() bool {
		p, _ := get(w, "default", "waits", &corev1.Pod{})
		return p.Spec.NodeName == "node-ours" && w.requestOf("waits") != nil
	})
}
