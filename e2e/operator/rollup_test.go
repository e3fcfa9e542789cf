package operator

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator"
)

func hash(text string) string {
	h := sha256.Sum256([]byte(text))
	return hex.EncodeToString(h[:16])
}

// raw creates a CapacityRequest whose spec the typed client could not even hold.
func (w *world) raw(name string, spec map[string]any) {
	w.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "bigfleet.lucy.sh/v1alpha1", "kind": "CapacityRequest",
		"metadata": map[string]any{"namespace": "default", "name": name}, "spec": spec}}
	w.must(w.client.Create(w.Context(), o))
}

// conditions reads a request's conditions without the typed client.
func (w *world) condition(name, kind string) *metav1.Condition {
	w.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("bigfleet.lucy.sh/v1alpha1")
	o.SetKind("CapacityRequest")
	w.must(w.client.Get(w.Context(), client.ObjectKey{Namespace: "default", Name: name}, o))
	list, _, _ := unstructured.NestedSlice(o.Object, "status", "conditions")
	for _, c := range list {
		m := c.(map[string]any)
		if m["type"] == kind {
			return &metav1.Condition{Type: kind, Status: metav1.ConditionStatus(m["status"].(string)), Reason: m["reason"].(string), Message: m["message"].(string)}
		}
	}
	return nil
}

func (w *world) phaseOf(name string) string {
	w.Helper()
	o := &unstructured.Unstructured{}
	o.SetAPIVersion("bigfleet.lucy.sh/v1alpha1")
	o.SetKind("CapacityRequest")
	w.must(w.client.Get(w.Context(), client.ObjectKey{Namespace: "default", Name: name}, o))
	phase, _, _ := unstructured.NestedString(o.Object, "status", "phase")
	return phase
}

func TestRollups(t *testing.T) {
	t.Parallel()
	w := newWorld(t, controlplane.Kwok, controlplane.Scheduler)
	s := startShard(t, allFeatures...)

	// OP-15.6, OP-17.3, WIRE scenario 28: a fresh request reads as Pending and is found by that field, before any
	// controller has seen it.
	t.Run("the default phase", func(t *testing.T) {
		w := w.with(t)
		w.create(request("default", "fresh", `{"resources":{"cpu":"1"},"priority":1}`))
		var list v1alpha1.CapacityRequestList
		w.must(w.client.List(t.Context(), &list, client.MatchingFields{"status.phase": "Pending"}))
		if len(list.Items) != 1 || list.Items[0].Status.Phase != v1alpha1.RequestPending {
			t.Errorf("found %v", list.Items)
		}
		w.must(w.client.Delete(t.Context(), &list.Items[0]))
	})
	const heartbeat = 3 * time.Second
	w.operator(s, func(c *operator.Config) { c.RollupInterval = heartbeat })
	s.needs(t, "the first roll-up", func(n []*pb.CapacityNeed) bool { return len(n) == 0 })

	// Scenario 10: a created request leaves within 300 ms outside the spacing.
	t.Run("latency", func(t *testing.T) {
		w := w.with(t)
		time.Sleep(1500 * time.Millisecond)
		start := time.Now()
		w.create(request("default", "quick", `{"resources":{"cpu":"1"},"priority":1}`))
		s.needs(t, "it is in a roll-up", func(n []*pb.CapacityNeed) bool { return len(n) == 1 })
		t.Logf("created to roll-up on the wire: %v", time.Since(start))
		w.until("acknowledged", func() bool { return w.phaseOf("quick") == "Acknowledged" })
		w.must(w.client.Delete(t.Context(), request("default", "quick", `{}`)))
		s.needs(t, "it is withdrawn", func(n []*pb.CapacityNeed) bool { return len(n) == 0 })
	})

	// Scenario 18, WIRE scenario 26, OP-5.12: what cannot be translated spoils itself alone.
	t.Run("odd requests", func(t *testing.T) {
		w := w.with(t)
		resources := map[string]any{"cpu": "1"}
		w.raw("good", map[string]any{"resources": resources, "priority": int64(1)})
		for name, spec := range map[string]map[string]any{
			"near":      {"resources": resources, "priority": int64(1), "requirements": []any{map[string]any{"key": "n", "operator": "Near", "values": []any{"1"}}}},
			"number":    {"resources": resources, "priority": int64(1), "requirements": []any{map[string]any{"key": "n", "operator": "Gt", "values": []any{"many"}}}},
			"no-values": {"resources": resources, "priority": int64(1), "requirements": []any{map[string]any{"key": "n", "operator": "In"}}},
			"skew":      {"resources": resources, "priority": int64(1), "topologySpread": []any{map[string]any{"topologyKey": "z", "maxSkew": int64(0), "whenUnsatisfiable": "DoNotSchedule"}}},
			"negative":  {"resources": map[string]any{"cpu": "-1"}, "priority": int64(1)},
			"fraction":  {"resources": map[string]any{"cpu": "1e1.5"}, "priority": int64(1)},
		} {
			w.raw(name, spec)
			w.until(name+" gets the reason", func() bool {
				c := w.condition(name, v1alpha1.ConditionValid)
				return c != nil && c.Status == metav1.ConditionFalse && strings.HasPrefix(c.Message, "spec.")
			})
		}
		needs := s.needs(t, "the good one alone is sent", func(n []*pb.CapacityNeed) bool { return len(n) == 1 && n[0].AggregateResources["cpu"] == "1" })
		if len(needs) != 1 || w.phaseOf("near") != "Pending" {
			t.Error("an untranslatable request is counted or acknowledged (OP-6.4)")
		}
		// A valid one that is edited into nonsense keeps its last contribution, says so, and comes back.
		patch := func(body string) {
			o := request("default", "good", `{}`)
			w.must(w.client.Patch(t.Context(), o, client.RawPatch("application/merge-patch+json", []byte(body))))
		}
		patch(`{"spec":{"resources":{"cpu":"7"},"requirements":[{"key":"n","operator":"Lt","values":["few"]}]}}`)
		w.until("it is reported", func() bool {
			c := w.condition("good", v1alpha1.ConditionValid)
			return c != nil && c.Status == metav1.ConditionFalse
		})
		if n := lastRollup(s.since(0)).Needs; len(n) != 1 || n[0].AggregateResources["cpu"] != "1" {
			t.Errorf("the contribution changed: %v", n)
		}
		patch(`{"spec":{"requirements":null}}`)
		s.needs(t, "the repaired one counts", func(n []*pb.CapacityNeed) bool { return len(n) == 1 && n[0].AggregateResources["cpu"] == "7" })
		w.until("and says so", func() bool {
			c := w.condition("good", v1alpha1.ConditionValid)
			return c.Status == metav1.ConditionTrue && c.Reason == "Valid"
		})
		w.must(w.client.DeleteAllOf(t.Context(), &v1alpha1.CapacityRequest{}, client.InNamespace("default")))
		s.needs(t, "all are withdrawn", func(n []*pb.CapacityNeed) bool { return len(n) == 0 })
	})

	// Scenario 20, OP-5.6, OP-14.4: held and rejected roll-ups are reported; the next accepted one clears it.
	t.Run("refused roll-ups", func(t *testing.T) {
		w := w.with(t)
		s.mu.Lock()
		s.answer = func(*pb.ClusterCapacityNeeds) *pb.RollupResult {
			return &pb.RollupResult{Disposition: pb.RollupDisposition_ROLLUP_DISPOSITION_REJECTED, Reason: "quantity", Message: "need 0 is odd", FieldPath: "needs[0].min_unit"}
		}
		s.mu.Unlock()
		w.create(request("default", "refused", `{"resources":{"cpu":"1"},"priority":1}`))
		w.until("the status object says why", func() bool {
			m, _ := get(w, namespace, "bigfleet-operator-status", &corev1.ConfigMap{})
			return strings.Contains(m.Data["status.json"], `"result": "rejected"`) && strings.Contains(m.Data["status.json"], "needs[0].min_unit")
		})
		w.until("an event says so", func() bool { return w.event("ConfigMap", "bigfleet-operator-status", "RollupRejected") != nil })
		w.until("kubectl shows it", func() bool {
			return strings.Contains(w.kubectl("--namespace", namespace, "describe", "configmap", "bigfleet-operator-status"), "RollupRejected")
		})
		w.until("the condition says so", func() bool {
			c := w.condition("refused", v1alpha1.ConditionFulfilled)
			return c != nil && c.Reason == "Rejected"
		})
		if w.phaseOf("refused") != "Pending" { // scenario 22
			t.Error("a request of a refused roll-up is acknowledged")
		}
		s.mu.Lock()
		s.answer = nil
		s.mu.Unlock()
		w.within(90*time.Second, "all is well again", func() bool {
			return w.phaseOf("refused") == "Acknowledged" && w.condition("refused", v1alpha1.ConditionFulfilled) == nil
		})
		w.must(w.client.DeleteAllOf(t.Context(), &v1alpha1.CapacityRequest{}, client.InNamespace("default")))
		s.needs(t, "withdrawn", func(n []*pb.CapacityNeed) bool { return len(n) == 0 })
	})

	// Scenario 21, OP-18.1: 1,000 Pending requests are 1,000 patches, no read, no retry; a new session writes nothing.
	t.Run("acknowledging 1,000", func(t *testing.T) {
		w := w.with(t)
		mark := w.calls.mark()
		w.many(1000)
		w.until("all are acknowledged", func() bool {
			for _, r := range w.requests() {
				if r.Status.Phase != v1alpha1.RequestAcknowledged {
					return false
				}
			}
			return true
		})
		if n := w.calls.of(mark, "patch", "capacityrequests/status"); n != 1000 {
			t.Errorf("%d patches, want 1,000", n)
		}
		if n := w.calls.of(mark, "get", "capacityrequests"); n != 0 {
			t.Errorf("%d reads, want none", n)
		}
		r := lastRollup(s.since(0))
		if size := proto.Size(r); len(r.Needs) != 1 || size > 2048 {
			t.Errorf("%d rows in %d bytes", len(r.Needs), size)
		}
		time.Sleep(6 * time.Second) // the account of itself
		mark = w.calls.mark()
		before := s.count()
		s.cut(errors.New("cut"))
		s.until(t, "a new session with a roll-up", func(f []frame) bool { return lastRollup(f[before:]) != nil })
		time.Sleep(3 * time.Second)
		for what, n := range w.calls.writes(mark) {
			if strings.Contains(what, "bigfleet") || strings.Contains(what, "capacityrequests") {
				t.Errorf("a session restart wrote: %d times %s", n, what)
			}
		}
	})

	// OP-18.1: nothing changes, nothing is written.
	t.Run("at rest", func(t *testing.T) {
		w := w.with(t)
		time.Sleep(6 * time.Second)
		mark := w.calls.mark()
		time.Sleep(3*heartbeat + time.Second)
		if got := w.calls.writes(mark); len(got) != 0 {
			t.Errorf("writes at rest: %v", got)
		}
	})

	// Scenario 11, OP-5.3: the API server is away; heartbeats repeat the last demand and nothing shrinks.
	t.Run("an outage of the API server", func(t *testing.T) {
		w := w.with(t)
		want := lastRollup(s.since(0)).Needs[0].AggregateResources["cpu"]
		w.cp.Component(controlplane.APIServer).Kill() // a busy one may need longer to stop than a stop may take
		before := s.count()
		s.within(t, 90*time.Second, "heartbeats go on", func(f []frame) bool {
			n := 0
			for _, x := range f[before:] {
				if r := x.m.GetRollup(); r != nil {
					if len(r.Needs) != 1 || r.Needs[0].AggregateResources["cpu"] != want {
						t.Fatalf("the demand shrank during the outage: %v", r.Needs)
					}
					n++
				}
			}
			return n >= 3
		})
		if age := w.metric(t, "cache_age_seconds", ""); age <= 0 {
			t.Errorf("the age of the cache is %v", age)
		}
		w.calls.starting(true)
		defer w.calls.starting(false)
		w.must(w.cp.RestartAPIServer(t.Context()))
		w.create(request("default", "after", `{"resources":{"cpu":"100m","memory":"128Mi"},"priority":1}`)) // of the others' row
		s.within(t, 90*time.Second, "the demand is followed again", func(f []frame) bool {
			n := lastRollup(f).Needs
			return len(n) == 1 && n[0].AggregateResources["cpu"] != want
		})
	})
}

// many creates equal requests in parallel.
func (w *world) many(n int) {
	w.Helper()
	errs := make(chan error, n)
	places := make(chan struct{}, 32)
	for i := range n {
		places <- struct{}{}
		go func() {
			errs <- w.client.Create(w.Context(), request("default", fmt.Sprintf("many-%05d", i), `{"resources":{"cpu":"100m","memory":"128Mi"},"priority":1}`))
			<-places
		}()
	}
	for range n {
		w.must(<-errs)
	}
}

// Scenario 11, OP-3.2: a start without API server sends no roll-up at all, and ends with a reason.
func testNoRollupWithoutAPIServer(t *testing.T, w *world) {
	s := startShard(t)
	w.calls.interfere(nil, func(*http.Request) error { return errors.New("no route to host") })
	defer w.calls.interfere(nil, nil)
	op := w.operator(s, syncWithin(3*time.Second))
	err := <-op.done
	op.ended = true
	if err == nil || !strings.Contains(err.Error(), "caches were not complete") {
		t.Errorf("it ended with %v", err)
	}
	if s.count() != 0 {
		t.Errorf("%d frames were sent", s.count())
	}
}

// Scenario 9, OP-1.7, WIRE scenario 13: a shard without any extension: every duty that needs none is done, no frame from 1000 up
// is sent.
func testShardWithoutExtensions(t *testing.T, w *world) {
	s := startShard(t)
	w.operator(s)
	w.create(request("default", "r", `{"resources":{"cpu":"1"},"priority":1}`))
	w.until("acknowledged", func() bool { return w.phaseOf("r") == "Acknowledged" })
	w.machine(s, "x1")
	p := pod("default", "p", "10m", onNode("node-x1"))
	w.running(p)
	after := s.count()
	s.send(t, &pb.ShardMessage{Payload: &pb.ShardMessage_ReclaimInstruction{ReclaimInstruction: &pb.ReclaimInstruction{InstructionId: "0000000000000301", Nodes: []string{"node-x1"}}}})
	if ack := s.ack(t, "0000000000000301", after); ack.NodesStarted != 1 {
		t.Errorf("answer %v", ack)
	}
	w.until("drained", func() bool { return w.phase("x1") == v1alpha1.NodeDrained && !w.exists(p) })
	s.send(t, &pb.ShardMessage{Payload: &pb.ShardMessage_BootstrapRequest{BootstrapRequest: &pb.BootstrapRequest{RequestId: "b1", ClusterId: clusterID}}})
	s.until(t, "a blob", func(f []frame) bool {
		for _, x := range f {
			if b := x.m.GetBootstrapResponse(); b != nil && b.RequestId == "b1" {
				return b.Error == "" && len(b.UserData) > 0 && b.TtlSeconds > 0
			}
		}
		return false
	})
	s.send(t, node("x1", pb.MachineState_MACHINE_STATE_IDLE))
	w.until("gone", func() bool { return w.upcoming("x1") == nil })
	s.send(t, node("x2", pb.MachineState_MACHINE_STATE_CONFIGURED))
	w.until("shown", func() bool { return w.phase("x2") == v1alpha1.NodeReady })
	for _, f := range s.since(0) {
		switch f.m.Payload.(type) {
		case *pb.OperatorMessage_NodeReport, *pb.OperatorMessage_DrainReport, *pb.OperatorMessage_UnplacedPods:
			t.Errorf("an extension frame was sent: %v", f.m)
		}
	}
	if c := meta.FindStatusCondition(w.requests()[0].Status.Conditions, v1alpha1.ConditionFulfilled); c != nil {
		t.Errorf("condition %v from a shard that says nothing of rows", c)
	}
}
