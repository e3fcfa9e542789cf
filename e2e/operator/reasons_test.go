package operator

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
)

// kubectl runs kubectl as an administrator.
func (w *world) kubectl(args ...string) string {
	w.Helper()
	out, err := exec.CommandContext(w.Context(), w.cp.Kubectl(), append([]string{"--kubeconfig=" + w.cp.Kubeconfig()}, args...)...).CombinedOutput()
	if err != nil {
		w.Fatalf("kubectl %v: %v\n%s", args, err, out)
	}
	return string(out)
}

func status(row string, s *pb.NeedStatus) *pb.ShardMessage {
	s.RowId, s.SupersedesKey = row, "need:"+row
	return &pb.ShardMessage{Payload: &pb.ShardMessage_NeedStatus{NeedStatus: s}}
}

// only gives a Pod a row that it shares with its like alone.
func only(what string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"for": what} }
}

// rowOf waits for the row of Pods that are only for something and ask for so much together, and returns its id.
func rowOf(t testing.TB, s *shard, what, cpu string) (id string) {
	t.Helper()
	s.needs(t, "a row for "+what+" with cpu "+cpu, func(n []*pb.CapacityNeed) bool {
		i := slices.IndexFunc(n, func(n *pb.CapacityNeed) bool {
			return n.AggregateResources["cpu"] == cpu && slices.Equal(n.Requirements[0].Values, []string{what})
		})
		if i >= 0 {
			id = n[i].RowId
		}
		return i >= 0
	})
	return id
}

// Where people look: kubectl describe of the Pod and of its request, in plain words. OP-14.1 to OP-14.3.
func TestReasons(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := startShard(t, allFeatures...)
	w.operator(s)
	w.podController()

	t.Run("demand that cannot be met", func(t *testing.T) {
		t.Parallel()
		w := w.with(t)
		mark := w.calls.mark()
		w.create(pod("default", "huge", "500", only("huge")), pod("default", "huge-too", "500", only("huge")))
		row := rowOf(t, s, "huge", "1000")
		w.until("it is acknowledged", func() bool {
			r := w.requestOf("huge")
			return r != nil && r.Status.Phase == v1alpha1.RequestAcknowledged
		})
		start := time.Now()
		s.send(t, status(row, &pb.NeedStatus{Reason: pb.UnmetReason_UNMET_REASON_NO_MATCHING_SUPPLY, Detail: pb.NeedDetail_NEED_DETAIL_TOO_SMALL,
			Text: "the largest machine offers cpu 96, the Pod asks for cpu 500", Suggestion: "lower the request or add a larger instance type"}))
		var shown string
		w.until("kubectl describe pod names the reason", func() bool {
			shown = w.kubectl("describe", "pod", "huge")
			return strings.Contains(shown, "the largest machine offers cpu 96")
		})
		took := time.Since(start)
		t.Logf("kubectl describe pod says it %v after the shard (promised: 10 s)", took)
		for _, want := range []string{"Warning", "NoCapacity", "bigfleet-operator", "NoMatchingSupply", "lower the request or add a larger instance type"} {
			if !strings.Contains(shown, want) {
				t.Errorf("kubectl describe pod does not show %q:\n%s", want, shown)
			}
		}
		w.until("the condition says so", func() bool {
			r := w.requestOf("huge-too")
			c := w.condition(r.Name, v1alpha1.ConditionFulfilled)
			return c != nil && c.Status == metav1.ConditionFalse && c.Reason == "NoMatchingSupply"
		})
		if list := w.kubectl("get", "capacityrequests", "-o", "wide"); !strings.Contains(list, "NoMatchingSupply") || !strings.Contains(list, "REASON") {
			t.Errorf("kubectl get capacityrequests -o wide:\n%s", list)
		}
		// A Pod that joins a row which is known to be short gets the reason as well.
		w.create(pod("default", "huge-late", "500", only("huge")))
		w.until("the latecomer gets the reason", func() bool { return w.event("Pod", "huge-late", "NoCapacity") != nil })
		// It is met: the condition turns, and the two conditions are all that was written.
		s.send(t, status(row, &pb.NeedStatus{Satisfied: true}))
		w.until("the condition turns", func() bool {
			c := w.condition(w.requestOf("huge").Name, v1alpha1.ConditionFulfilled)
			return c != nil && c.Status == metav1.ConditionTrue && c.Reason == "Satisfied"
		})
		// Section 18: one acknowledgement, and at most two conditions while unmet.
		if n := w.calls.of(mark, "patch", "capacityrequests/status", w.requestOf("huge").Name); n > 3 {
			t.Errorf("%d status patches of one request, want at most 3", n)
		}
	})

	t.Run("every reason has words", func(t *testing.T) {
		t.Parallel()
		w := w.with(t)
		w.create(pod("default", "why", "7", only("why")))
		row := rowOf(t, s, "why", "7")
		for detail, want := range map[pb.NeedDetail]string{
			pb.NeedDetail_NEED_DETAIL_PAUSED:    "Paused: The shard is paused or in dry run.",
			pb.NeedDetail_NEED_DETAIL_STOCK_OUT: "StockOut: The provider is out of such machines.",
		} {
			s.send(t, status(row, &pb.NeedStatus{Detail: detail, Reason: pb.UnmetReason_UNMET_REASON_NO_MATCHING_SUPPLY}))
			reason, _, _ := strings.Cut(want, ":")
			// Events of one reason are rare on purpose, so the condition is what follows each change.
			w.until(want, func() bool {
				c := w.condition(w.requestOf("why").Name, v1alpha1.ConditionFulfilled)
				return c != nil && c.Reason == reason && strings.HasPrefix(reason+": "+c.Message, want)
			})
		}
	})

	t.Run("a machine on its way", func(t *testing.T) {
		t.Parallel()
		w := w.with(t)
		w.create(pod("default", "soon", "11", only("soon")))
		row := rowOf(t, s, "soon", "11")
		s.send(t, node("way", pb.MachineState_MACHINE_STATE_CREATING, func(u *pb.NodeStateUpdate) { u.RowId = row }))
		w.until("the event names the field", func() bool {
			e := w.event("Pod", "soon", "CapacityOnTheWay")
			return e != nil && strings.Contains(e.Message, "un-way")
		})
	})

	// OP-5.20: what DaemonSets take of a fresh node is sent, and a change of it is a change of demand.
	t.Run("node overhead", func(t *testing.T) {
		t.Parallel()
		w := w.with(t)
		set := func(name, cpu string, selector map[string]string) *appsv1.DaemonSet {
			p := pod("default", name, cpu)
			p.Spec.NodeSelector = selector
			labels := map[string]string{"set": name}
			return &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: appsv1.DaemonSetSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: p.Spec},
			}}
		}
		w.create(set("agent", "150m", nil), set("driver", "700m", map[string]string{"gpu": "yes"}))
		overhead := func(cpu string) func(f []frame) bool {
			return func(f []frame) bool { r := lastRollup(f); return r != nil && r.NodeOverhead["cpu"] == cpu }
		}
		s.until(t, "the overhead of every node is sent", overhead("150m"))
		w.must(w.client.DeleteAllOf(t.Context(), &appsv1.DaemonSet{}, client.InNamespace("default")))
		s.until(t, "it goes", overhead(""))
	})

	// OP-11.5: capacity that is enough on paper and fragmented in fact, by the real scheduler's own words. It takes 30 s.
	t.Run("unplaced Pods", func(t *testing.T) {
		t.Parallel()
		w := w.with(t)
		w.machine(s, "small", func(n *corev1.Node) { n.Labels["for"] = "wide" })
		w.create(pod("default", "wide", "6", only("wide")))
		s.send(t, status(rowOf(t, s, "wide", "6"), &pb.NeedStatus{Satisfied: true}))
		wide := func(f []frame) (pods int32) {
			for i := len(f) - 1; i >= 0; i-- {
				if u := f[i].m.GetUnplacedPods(); u != nil {
					for _, r := range u.Rows {
						if r.Resources["cpu"] == "6" {
							pods += r.Pods
						}
					}
					return pods
				}
			}
			return -1
		}
		s.within(t, 90*time.Second, "the Pod is reported", func(f []frame) bool { return wide(f) == 1 })
		w.until("its owner gets an event", func() bool { return w.event("Pod", "wide", "CapacityFragmented") != nil })
		p, _ := get(w, "default", "wide", &corev1.Pod{})
		w.must(w.client.Delete(t.Context(), p))
		s.until(t, "and no more", func(f []frame) bool { return wide(f) == 0 })
	})
}
