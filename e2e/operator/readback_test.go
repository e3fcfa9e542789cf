package operator

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator"
)

func TestUpcomingNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := startShard(t, allFeatures...)
	op := w.operator(s, func(c *operator.Config) { c.NodeJoinTimeout = 3 * time.Second })

	// OP-18.1: 1 create, at most one status patch per phase, 1 delete.
	t.Run("a machine's life within the write budget", func(t *testing.T) {
		w := w.with(t)
		mark := w.calls.mark()
		for _, step := range []struct {
			state pb.MachineState
			phase v1alpha1.NodePhase
		}{
			{pb.MachineState_MACHINE_STATE_CREATING, v1alpha1.NodeProvisioning}, {pb.MachineState_MACHINE_STATE_IDLE, v1alpha1.NodeLaunched},
			{pb.MachineState_MACHINE_STATE_CONFIGURING, v1alpha1.NodeRegistered}, {pb.MachineState_MACHINE_STATE_CONFIGURED, v1alpha1.NodeReady},
			{pb.MachineState_MACHINE_STATE_DRAINING, v1alpha1.NodeDraining},
		} {
			s.send(t, node("w1", step.state))
			w.until(string(step.phase), func() bool { return w.phase("w1") == step.phase })
		}
		s.send(t, node("w1", pb.MachineState_MACHINE_STATE_IDLE))
		w.until("gone", func() bool { return w.upcoming("w1") == nil })
		w.until("the deletion is answered", func() bool { return w.calls.of(mark, "delete", "upcomingnodes", "un-w1") > 0 })
		got := w.calls.writes(mark)
		if got["post upcomingnodes"] != 1 || got["delete upcomingnodes"] != 1 || got["patch upcomingnodes"] != 0 || got["patch upcomingnodes/status"] < 5 || got["patch upcomingnodes/status"] > 6 {
			t.Errorf("writes %v; want 1 create, 5 or 6 status patches (it is created as Provisioning), 1 delete", got)
		}
	})

	// Scenario 6: states in quick succession become one or two writes, and the last one is shown.
	t.Run("states in quick succession", func(t *testing.T) {
		w := w.with(t)
		mark := w.calls.mark()
		for _, state := range []pb.MachineState{3, 4, 5} {
			s.send(t, node("q1", state))
		}
		w.until("Ready", func() bool { return w.phase("q1") == v1alpha1.NodeReady })
		if n := w.calls.of(mark, "patch", "upcomingnodes/status"); n > 2 {
			t.Errorf("%d status patches, want at most 2", n)
		}
	})

	// OP-12.11: nothing reads the objects back: one that somebody changed makes no report, no cordon and no roll-up, and says the truth again with
	// the next frame.
	t.Run("an object that somebody changed", func(t *testing.T) {
		w := w.with(t)
		w.machine(s, "z1")
		s.until(t, "its Node is reported", func(f []frame) bool {
			return slices.ContainsFunc(f, func(f frame) bool {
				return f.m.GetNodeReport().GetMachineId() == "z1" && f.m.GetNodeReport().GetReady()
			})
		})
		after := s.count()
		o := w.upcoming("z1")
		w.must(w.client.Status().Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(`{"status":{"phase":"Failed","lastError":"by hand","providerID":"test://other","nodeRef":null}}`))))
		w.must(w.client.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"resources":{"cpu":"400"}}}`))))
		w.never(3*time.Second, "the node is touched", func() bool { return w.cordoned("z1") })
		for _, f := range s.since(after) {
			if f.m.GetNodeReport().GetMachineId() == "z1" || f.m.GetDrainReport() != nil || f.m.GetBootstrapResponse() != nil {
				t.Errorf("the shard hears %v", f.m)
			}
		}
		s.send(t, node("z1", pb.MachineState_MACHINE_STATE_CONFIGURED))
		w.until("the object says the truth again", func() bool {
			o := w.upcoming("z1")
			return o.Status.Phase == v1alpha1.NodeReady && o.Status.LastError == "" && o.Spec.Resources.Cpu().Value() == 4
		})
	})

	// OP-12.3, OP-12.4, OP-12.5: what the object shows, and what changes it.
	t.Run("content", func(t *testing.T) {
		w := w.with(t)
		s.send(t, node("c1", pb.MachineState_MACHINE_STATE_CONFIGURING, func(u *pb.NodeStateUpdate) {
			u.Taints = []*pb.Taint{{Key: "gpu", Value: "yes", Effect: "NoSchedule"}}
			u.Resources.Resources["nonsense"] = "12x"
		}))
		w.until("Registered", func() bool { return w.phase("c1") == v1alpha1.NodeRegistered })
		o := w.upcoming("c1")
		if o.Spec.MachineID != "c1" || o.Spec.Labels["topology.kubernetes.io/zone"] != "z1" || o.Spec.Resources.Cpu().Value() != 4 || len(o.Spec.Resources) != 2 ||
			len(o.Spec.Taints) != 1 || o.Status.ProviderID != "test://c1" || o.Status.ProvisioningStartTime == nil || o.Status.LastError != "" {
			t.Errorf("object %+v", o)
		}
		w.node("node-c1", "c1")
		s.send(t, node("c1", pb.MachineState_MACHINE_STATE_CONFIGURED))
		w.until("nodeRef and NodeReady are set", func() bool {
			o := w.upcoming("c1")
			return o.Status.NodeRef != nil && o.Status.NodeRef.Name == "node-c1" && meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionNodeReady)
		})
		s.send(t, node("c1", pb.MachineState_MACHINE_STATE_FAILED, failed("the host is on fire")))
		w.until("Failed, with the reason", func() bool {
			o := w.upcoming("c1")
			return o.Status.Phase == v1alpha1.NodeFailed && o.Status.LastError == "the host is on fire"
		})
		s.send(t, node("c1", pb.MachineState_MACHINE_STATE_CONFIGURED))
		w.until("the error goes when it is over", func() bool {
			o := w.upcoming("c1")
			return o.Status.Phase == v1alpha1.NodeReady && o.Status.LastError == ""
		})
		s.send(t, node("c1", pb.MachineState_MACHINE_STATE_CONFIGURED, released))
		w.until("released", func() bool { return w.upcoming("c1") == nil })
	})

	// Scenario 39, OP-12.8: the API server fails every first write; the final phase is right.
	t.Run("transient errors", func(t *testing.T) {
		w := w.with(t)
		var mu sync.Mutex
		seen := map[string]bool{}
		w.calls.interfere(nil, func(r *http.Request) error {
			mu.Lock()
			defer mu.Unlock()
			key := r.Method + r.URL.Path
			if !strings.Contains(r.URL.Path, "/upcomingnodes") || r.Method == http.MethodGet || seen[key] {
				return nil
			}
			seen[key] = true
			return errors.New("connection reset")
		})
		defer w.calls.interfere(nil, nil)
		for i := range 20 {
			id := fmt.Sprintf("e%d", i)
			for _, state := range []pb.MachineState{2, 3, 4, 5} {
				s.send(t, node(id, state))
			}
		}
		w.until("all are Ready", func() bool {
			for i := range 20 {
				if w.phase(fmt.Sprintf("e%d", i)) != v1alpha1.NodeReady {
					return false
				}
			}
			return true
		})
	})

	// An object that somebody deletes comes back; one that exists already is taken over (OP-12.9).
	t.Run("foreign hands", func(t *testing.T) {
		w := w.with(t)
		s.send(t, node("h1", pb.MachineState_MACHINE_STATE_CONFIGURED))
		w.until("Ready", func() bool { return w.phase("h1") == v1alpha1.NodeReady })
		first := w.upcoming("h1")
		w.must(w.client.Delete(t.Context(), first))
		w.until("it is back", func() bool {
			o := w.upcoming("h1")
			return o != nil && o.UID != first.UID && o.Status.Phase == v1alpha1.NodeReady
		})
		// It is there before the cache knows.
		w.calls.once("post", "upcomingnodes", func() {
			w.create(&v1alpha1.UpcomingNode{ObjectMeta: metav1.ObjectMeta{Name: "un-h2"}, Spec: v1alpha1.UpcomingNodeSpec{Resources: resources("cpu", "1")}})
		})
		defer w.calls.interfere(nil, nil)
		s.send(t, node("h2", pb.MachineState_MACHINE_STATE_CONFIGURED))
		w.until("the object is taken over", func() bool {
			return w.phase("h2") == v1alpha1.NodeReady && w.upcoming("h2").Spec.Resources.Cpu().Value() == 4
		})
	})

	// Scenario 40, OP-11.3, OP-11.4: it is reported, and nothing else happens to it.
	t.Run("a node that never joins", func(t *testing.T) {
		w := w.with(t)
		s.send(t, node("n1", pb.MachineState_MACHINE_STATE_CONFIGURED))
		w.within(90*time.Second, "NeverJoined is shown", func() bool {
			o := w.upcoming("n1")
			if o == nil {
				return false
			}
			c := meta.FindStatusCondition(o.Status.Conditions, v1alpha1.ConditionNodeReady)
			return c != nil && c.Status == metav1.ConditionFalse && c.Reason == "NeverJoined"
		})
		w.until("and reported", func() bool {
			return w.event("UpcomingNode", "un-n1", "NeverJoined") != nil && w.metric(t, "nodes_never_joined", "") > 0
		})
		if w.phase("n1") != v1alpha1.NodeReady || w.metric(t, "drain_duration_seconds", "") != 0 {
			t.Errorf("the machine is shown as %s, or something was drained", w.phase("n1"))
		}
	})

	// Scenario 38, OP-12.7: a replay of unchanged machines on a new session causes no write.
	t.Run("a replay of 1,000 machines", func(t *testing.T) {
		w := w.with(t)
		const n = 1000
		replay := func() {
			for i := range n {
				s.send(t, node(fmt.Sprintf("p%04d", i), pb.MachineState_MACHINE_STATE_CONFIGURING))
			}
		}
		shown := w.watchPhases("un-p")
		start := time.Now()
		replay()
		at := shown(n)
		t.Logf("%d node states in a burst visible: p50 %v, p99 %v", n, at[n/2].Sub(start), at[n*99/100].Sub(start))
		w.within(2*time.Minute, "all are Registered", func() bool {
			time.Sleep(500 * time.Millisecond) // a thousand objects are not listed all the time
			var all v1alpha1.UpcomingNodeList
			w.must(w.client.List(t.Context(), &all))
			registered := 0
			for _, o := range all.Items {
				if strings.HasPrefix(o.Name, "un-p") && o.Status.Phase == v1alpha1.NodeRegistered {
					registered++
				}
			}
			return registered == n
		})
		time.Sleep(4 * time.Second) // what is settled later
		mark := w.calls.mark()
		before := s.count()
		s.cut(errors.New("cut"))
		s.until(t, "a new session", func(frames []frame) bool {
			return slices.ContainsFunc(frames[before:], func(f frame) bool { return f.m.GetHello() != nil })
		})
		replay()
		s.send(t, node("marker", pb.MachineState_MACHINE_STATE_CREATING))
		w.until("the replay was handled", func() bool { return w.phase("marker") == v1alpha1.NodeProvisioning })
		time.Sleep(time.Second)
		w.calls.mu.Lock()
		for _, c := range w.calls.list[mark:] {
			if strings.HasPrefix(c.resource, "upcomingnodes") && strings.HasPrefix(c.name, "un-p") && c.verb != "get" && c.verb != "watch" {
				t.Errorf("a write: %s %s %s", c.verb, c.resource, c.name)
				break
			}
		}
		w.calls.mu.Unlock()
		// OP-12.10, scenario 37: the marker prunes what was not mentioned.
		s.send(t, resynced())
		w.until("objects not mentioned are gone", func() bool { return w.upcoming("q1") == nil && w.upcoming("h1") == nil })
		if w.upcoming("marker") == nil || w.upcoming("p0000") == nil {
			t.Error("a machine that was mentioned was pruned")
		}
	})
	w.must(op.end())
}

// watchPhases notes when objects are first shown in any phase, by one watch: polling a thousand objects would slow what is measured.
func (w *world) watchPhases(prefix string) func(n int) []time.Time {
	w.Helper()
	watcher := w.watch(&v1alpha1.UpcomingNodeList{})
	return func(n int) (at []time.Time) {
		defer watcher.Stop()
		seen := map[string]bool{}
		limit := time.After(time.Minute)
		for len(at) < n {
			select {
			case e := <-watcher.ResultChan():
				if o, ok := e.Object.(*v1alpha1.UpcomingNode); ok && strings.HasPrefix(o.Name, prefix) && o.Status.Phase != "" && !seen[o.Name] {
					seen[o.Name] = true
					at = append(at, time.Now())
				}
			case <-limit:
				w.Fatalf("%d of %d objects are shown after a minute", len(at), n)
			}
		}
		return at
	}
}

// Scenario 37, WIRE-6.21: a machine that went while the operator was away. Without the marker nothing is pruned; an
// operator killed in the middle of a replay prunes nothing either.
func testPruningAfterAbsence(t *testing.T, w *world) {
	s := startShard(t, allFeatures...)
	first := w.operator(s)
	for _, id := range []string{"a1", "a2", "a3"} {
		s.send(t, node(id, pb.MachineState_MACHINE_STATE_CONFIGURED))
	}
	s.send(t, node("a4", pb.MachineState_MACHINE_STATE_FAILED, failed("broken")))
	w.until("all are shown", func() bool { return w.phase("a3") == v1alpha1.NodeReady && w.phase("a4") == v1alpha1.NodeFailed })
	w.must(first.end())

	second := w.operator(s)
	s.until(t, "the second operator is there", func([]frame) bool { return s.sessions == 2 })
	s.send(t, node("a1", pb.MachineState_MACHINE_STATE_CONFIGURED)) // the replay begins
	w.never(3*time.Second, "something was pruned without the marker", func() bool { return w.upcoming("a2") == nil })
	w.must(second.end()) // in the middle of it

	w.operator(s)
	s.until(t, "the third operator is there", func([]frame) bool { return s.sessions == 3 })
	s.send(t, node("a1", pb.MachineState_MACHINE_STATE_CONFIGURED))
	s.send(t, node("a2", pb.MachineState_MACHINE_STATE_IDLE)) // it was drained meanwhile, and is not bound
	s.send(t, resynced())
	w.until("what was not mentioned is gone", func() bool { return w.upcoming("a3") == nil })
	if w.phase("a1") != v1alpha1.NodeReady {
		t.Error("a machine that was mentioned is not shown")
	}
	if w.phase("a4") != v1alpha1.NodeFailed {
		t.Error("a young failure was pruned")
	}
}

// OP-13.1, OP-13.2, OP-17.2, scenario 41: hints.
func testAvailableCapacity(t *testing.T, w *world) {
	s := startShard(t, allFeatures...)
	w.operator(s)
	hint := func(key string, c pb.AvailableCapacityUpdate_Confidence, cost float64) *pb.ShardMessage {
		return &pb.ShardMessage{Payload: &pb.ShardMessage_AvailableCapacity{AvailableCapacity: &pb.AvailableCapacityUpdate{
			SupersedesKey: key, AvailableCount: 7, Confidence: c, CostPerHour: cost, Resources: &pb.Resources{Resources: map[string]string{"cpu": "4"}},
			Requirements: []*pb.NodeSelectorRequirement{{Key: "zone", Operator: pb.NodeSelectorRequirement_OPERATOR_IN, Values: []string{"a"}},
				{Key: "rack", Operator: pb.NodeSelectorRequirement_OPERATOR_SAME}},
		}}}
	}
	list := func() []v1alpha1.AvailableCapacity {
		var l v1alpha1.AvailableCapacityList
		w.must(w.client.List(t.Context(), &l))
		return l.Items
	}
	w.calls.once("post", "availablecapacities", func() { // it is there before the cache knows
		w.create(&v1alpha1.AvailableCapacity{ObjectMeta: metav1.ObjectMeta{Name: "ac-" + hash("available:f1")},
			Spec: v1alpha1.AvailableCapacitySpec{Resources: resources("cpu", "1"), Availability: v1alpha1.AvailabilityNone}})
	})
	s.send(t, hint("available:f1", pb.AvailableCapacityUpdate_CONFIDENCE_HIGH, 0.0961))
	s.send(t, hint("", pb.AvailableCapacityUpdate_CONFIDENCE_HIGH, 1))
	w.until("the hint is shown, with its age", func() bool {
		return len(list()) == 1 && list()[0].Spec.AvailableCount == 7 && list()[0].Status.UpdatedAt != nil
	})
	w.calls.interfere(nil, nil)
	o := list()[0]
	if o.Name != "ac-"+hash("available:f1") || o.Spec.Cost.String() != "96100u" || o.Spec.Availability != v1alpha1.AvailabilityHigh || o.Spec.AvailableCount != 7 ||
		len(o.Spec.Requirements) != 1 || o.Spec.Requirements[0].Key != "zone" {
		t.Errorf("object %+v", o)
	}
	mark := w.calls.mark()
	s.send(t, hint("available:f1", pb.AvailableCapacityUpdate_CONFIDENCE_HIGH, 0.0961))
	s.send(t, hint("available:f1", pb.AvailableCapacityUpdate_CONFIDENCE_NONE, 0))
	w.until("None is shown", func() bool {
		return list()[0].Spec.Availability == v1alpha1.AvailabilityNone && len(w.calls.writes(mark)) > 0
	})
	w.until("and since when", func() bool { return w.calls.of(mark, "patch", "availablecapacities/status") == 1 })
	if got := w.calls.writes(mark); got["patch availablecapacities"] != 1 || got["post availablecapacities"] != 0 {
		t.Errorf("writes %v, want one patch", got)
	}
}
