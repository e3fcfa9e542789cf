package drain

import (
	"context"
	"encoding/json"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/upcoming"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// cluster is an API server with one node, and a Drainer at work on it.
type cluster struct {
	client.Client
	*Drainer
	t *testing.T

	mu      sync.Mutex
	node    *corev1.Node
	evicted []string
	deleted []types.UID
	events  []events.Event
	reports []*pb.DrainReport
}

func newCluster(t *testing.T, change ...func(*Config)) *cluster {
	t.Helper()
	i, err := instruments.New(prometheus.NewRegistry(), instruments.Reads{
		CacheAge: func() float64 { return 0 }, AcceptedAge: func() float64 { return 0 }, EvictionsStopped: func() bool { return false },
	})
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{t: t}
	done := make(chan struct{})
	close(done)
	config := Config{
		Client: c, Machines: machine.New(func([]string) {}), Pods: pods.New(nil, nil, nil), Instruments: i, Log: slog.New(slog.DiscardHandler),
		Show:    func(string, upcoming.DrainState, string) <-chan struct{} { return done },
		Report:  func(r *pb.DrainReport) { c.mu.Lock(); defer c.mu.Unlock(); c.reports = append(c.reports, r) },
		Record:  func(e events.Event) { c.mu.Lock(); defer c.mu.Unlock(); c.events = append(c.events, e) },
		Stopped: func() bool { return false },
	}
	for _, f := range change {
		f(&config)
	}
	if c.Drainer, err = New(config); err != nil {
		t.Fatal(err)
	}
	c.setNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a", UID: "a", Labels: map[string]string{v1alpha1.LabelMachineID: "m1"}},
		Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}})
	c.Machines.Set(machine.Machine{ID: "m1"})
	return c
}

// start runs the Drainer until the test ends.
func (c *cluster) start() {
	ctx, cancel := context.WithCancel(c.t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.Run(ctx) }()
	c.t.Cleanup(func() { cancel(); <-done })
	synctest.Wait()
}

func (c *cluster) setNode(n *corev1.Node) {
	c.mu.Lock()
	c.node = n
	c.mu.Unlock()
	c.Machines.SetNode(n)
}

func (c *cluster) pod(name string, mark ...string) *pods.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}, Spec: corev1.PodSpec{NodeName: "node-a"}}
	for _, m := range mark {
		p.Annotations = map[string]string{m: "true"}
	}
	out := pods.Of(p)
	c.Pods.Set(out)
	return out
}

func (c *cluster) instruct(cause pb.ReclaimInstruction_Cause, grace int64) {
	c.t.Helper()
	ack := c.Instruct(c.t.Context(), &pb.ReclaimInstruction{InstructionId: "i-" + cause.String(), Nodes: []string{"m1"}, MachineIds: []string{"m1"}, GracePeriodSeconds: grace, Cause: cause})
	if ack.NodesStarted != 1 {
		c.t.Fatalf("answer %v", ack)
	}
}

func (c *cluster) gone() []string {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.evicted)
}

func (c *cluster) event(reason string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, e := range c.events {
		if e.Reason == reason {
			return e.Message
		}
	}
	return ""
}

// Patch applies what a cordon or its end says to the node.
func (c *cluster) Patch(_ context.Context, _ client.Object, patch client.Patch, _ ...client.PatchOption) error {
	body, _ := patch.Data(nil)
	var in struct {
		Metadata struct{ Annotations map[string]*string }
		Spec     *struct{ Unschedulable *bool }
	}
	if err := json.Unmarshal(body, &in); err != nil {
		return err
	}
	c.mu.Lock()
	n := c.node.DeepCopy()
	c.mu.Unlock()
	n.Annotations = map[string]string{}
	for k, v := range in.Metadata.Annotations {
		if v != nil {
			n.Annotations[k] = *v
		}
	}
	if in.Spec != nil {
		n.Spec.Unschedulable = in.Spec.Unschedulable != nil && *in.Spec.Unschedulable
	}
	c.setNode(n)
	return nil
}

// List gives the Pods of the node.
func (c *cluster) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	for _, p := range c.Pods.On("node-a") {
		list.(*corev1.PodList).Items = append(list.(*corev1.PodList).Items, corev1.Pod{ObjectMeta: p.ObjectMeta, Spec: corev1.PodSpec{NodeName: p.Node}})
	}
	return nil
}

// Delete takes Nodes only.
func (c *cluster) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	applied := (&client.DeleteOptions{}).ApplyOptions(opts)
	c.mu.Lock()
	c.deleted = append(c.deleted, *applied.Preconditions.UID)
	c.mu.Unlock()
	c.Machines.DeleteNode(o.GetName())
	return nil
}

// SubResource evicts.
func (c *cluster) SubResource(string) client.SubResourceClient { return evictions{c: c} }

type evictions struct {
	client.SubResourceClient
	c *cluster
}

func (e evictions) Create(_ context.Context, o client.Object, sub client.Object, _ ...client.SubResourceCreateOption) error {
	e.c.mu.Lock()
	e.c.evicted = append(e.c.evicted, o.GetName())
	e.c.mu.Unlock()
	uid := sub.(*policyv1.Eviction).DeleteOptions.Preconditions.UID
	e.c.Pods.Delete(e.c.Pods.Get(*uid))
	e.c.Wake("node-a")
	return nil
}

// OP-9.2, OP-8.17: a voluntary drain never evicts a Pod marked do-not-disrupt; it names the Pod at once, and gives up at its
// deadline. A preemption evicts it last, after half of the grace.
func TestDoNotDisrupt(t *testing.T) {
	for cause, want := range map[pb.ReclaimInstruction_Cause]map[time.Duration][]string{
		pb.ReclaimInstruction_CAUSE_VOLUNTARY: {2 * time.Second: {"plain"}, 70 * time.Second: {"plain"}},
		pb.ReclaimInstruction_CAUSE_PREEMPT:   {2 * time.Second: {"plain"}, 29 * time.Second: {"plain"}, 32 * time.Second: {"plain", "guarded"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t)
			c.start()
			c.pod("plain")
			c.pod("guarded", v1alpha1.AnnotationDoNotDisrupt)
			began := time.Now()
			c.instruct(cause, 60)
			for _, at := range []time.Duration{2 * time.Second, 29 * time.Second, 32 * time.Second, 70 * time.Second} {
				time.Sleep(time.Until(began.Add(at)))
				if names, checked := want[at]; checked && !slices.Equal(c.gone(), names) {
					t.Errorf("%v after %v: evicted %v, want %v", cause, at, c.gone(), names)
				}
				if at == 2*time.Second && cause == pb.ReclaimInstruction_CAUSE_VOLUNTARY && !strings.Contains(c.event("DrainBlocked"), "do-not-disrupt stay: default/guarded") {
					t.Errorf("event after 2 s: %q", c.event("DrainBlocked"))
				}
			}
			last := c.reports[len(c.reports)-1]
			if state := map[bool]pb.DrainState{true: pb.DrainState_DRAIN_STATE_DEADLINE_EXCEEDED, false: pb.DrainState_DRAIN_STATE_DONE}[cause == pb.ReclaimInstruction_CAUSE_VOLUNTARY]; last.State != state {
				t.Errorf("%v ended as %v", cause, last.State)
			}
		})
	}
}

// OP-8.9, OP-9.2: a successor knows that the drain is voluntary, and a preemption that joins it ends that.
func TestCauseSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		n := c.node.DeepCopy()
		n.Spec.Unschedulable = true
		n.Annotations = map[string]string{v1alpha1.AnnotationDrain: state{Instruction: "i1", Machine: "m1", Deadline: time.Now().Add(time.Minute).Unix(),
			Cause: pb.ReclaimInstruction_CAUSE_VOLUNTARY.String()}.text()}
		c.setNode(n)
		c.pod("guarded", v1alpha1.AnnotationDoNotDisrupt)
		c.start()
		time.Sleep(45 * time.Second)
		if got := c.gone(); len(got) != 0 {
			t.Fatalf("evicted %v", got)
		}
		c.instruct(pb.ReclaimInstruction_CAUSE_PREEMPT, 10)
		time.Sleep(2 * time.Second)
		if got := c.gone(); len(got) != 1 {
			t.Fatalf("evicted %v for a preemption", got)
		}
	})
}

// OP-8.8: a Pod that somebody else deletes is waited for, and no eviction is called for it.
func TestTerminatingPodsAreNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := c.pod("leaves")
		c.evictions = make(chan struct{}, 1)
		c.evictions <- struct{}{} // the eviction waits for its turn,
		c.start()
		c.instruct(pb.ReclaimInstruction_CAUSE_PREEMPT, 60)
		synctest.Wait()
		leaves := *p
		leaves.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		c.Pods.Set(&leaves) // and meanwhile the Pod is deleted
		<-c.evictions
		time.Sleep(5 * time.Second)
		if got := c.gone(); len(got) != 0 {
			t.Fatalf("evicted %v", got)
		}
		c.Pods.Delete(&leaves)
		time.Sleep(3 * time.Second)
		if last := c.reports[len(c.reports)-1]; last.State != pb.DrainState_DRAIN_STATE_DONE {
			t.Errorf("ended as %v", last.State)
		}
	})
}

// OP-8.18: the Node of a drained machine that is gone is deleted after two minutes, if its kubelet is silent and the shard has
// said which machines there are.
func TestOrphanedNodes(t *testing.T) {
	for name, x := range map[string]struct {
		known, ready, unsynced, keep bool
	}{"left behind": {}, "machine known": {known: true}, "kubelet alive": {ready: true}, "no replay yet": {unsynced: true}, "switched off": {keep: true}} {
		synctest.Test(t, func(t *testing.T) {
			c := newCluster(t, func(c *Config) { c.KeepNodes = x.keep })
			c.start()
			c.instruct(pb.ReclaimInstruction_CAUSE_VOLUNTARY, 60)
			time.Sleep(3 * time.Second) // nothing is on it: drained
			if !x.unsynced {
				c.Opened()
				c.Resynced()
			}
			if !x.known {
				c.Machines.Forget("m1")
			}
			if !x.ready {
				n := c.node.DeepCopy()
				n.Status.Conditions[0].Status = corev1.ConditionUnknown
				c.setNode(n)
			}
			time.Sleep(119 * time.Second)
			synctest.Wait()
			if len(c.deleted) != 0 {
				t.Errorf("%s: deleted before two minutes", name)
			}
			time.Sleep(5 * time.Second)
			synctest.Wait()
			want := []types.UID{}
			if name == "left behind" {
				want = append(want, "a")
			}
			if !slices.Equal(c.deleted, want) && len(c.deleted)+len(want) > 0 {
				t.Errorf("%s: deleted %v", name, c.deleted)
			}
		})
	}
}
