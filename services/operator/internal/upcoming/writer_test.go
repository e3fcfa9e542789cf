package upcoming

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
)

// server takes the writes of UpcomingNodes, each after a while.
type server struct {
	client.Client
	takes time.Duration
	t     *testing.T

	mu      sync.Mutex
	objects map[string]v1alpha1.UpcomingNode
	patches map[string]int // of the status, by object
	writes  int
}

func (s *server) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	time.Sleep(s.takes)
	u := o.(*v1alpha1.UpcomingNode)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	u.UID = types.UID(strconv.Itoa(s.writes))
	u.Status.Phase, u.ResourceVersion = v1alpha1.NodeProvisioning, strconv.Itoa(s.writes) // the schema's default
	s.objects[u.Name] = *u.DeepCopy()
	return nil
}

func (s *server) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	time.Sleep(s.takes)
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, o.GetName())
	return nil
}

func (s *server) Status() client.SubResourceWriter { return statuses{s: s} }

type statuses struct {
	client.SubResourceWriter
	s *server
}

// Patch is refused when it names a resource version: in a burst a quarter of such patches conflict (OP-12.6).
func (w statuses) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.SubResourcePatchOption) error {
	time.Sleep(w.s.takes)
	u := o.(*v1alpha1.UpcomingNode)
	if body, err := p.Data(u); err != nil || p.Type() != types.MergePatchType || strings.Contains(string(body), "resourceVersion") {
		w.s.t.Errorf("patch %s %s: %v", p.Type(), body, err)
	}
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.s.writes++
	u.ResourceVersion = strconv.Itoa(w.s.writes)
	w.s.objects[u.Name] = *u.DeepCopy()
	w.s.patches[u.Name]++
	return nil
}

// shows says what the object of a machine shows, and how often its status was written.
func (s *server) shows(id string) (phase v1alpha1.NodePhase, nodeReady bool, patches int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[Name(id)]
	return o.Status.Phase, meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionNodeReady), s.patches[Name(id)]
}

// bench is a Writer at work on machines whose Nodes a test brings.
type bench struct {
	*Writer
	server *server
}

func newBench(t *testing.T, takes time.Duration) *bench {
	t.Helper()
	none := func() float64 { return 0 }
	i, err := instruments.New(prometheus.NewRegistry(), instruments.Reads{CacheAge: none, AcceptedAge: none, EvictionsStopped: func() bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{server: &server{t: t, takes: takes, objects: map[string]v1alpha1.UpcomingNode{}, patches: map[string]int{}}}
	b.Writer, err = New(Config{Client: b.server, Machines: machine.New(func(ids []string) { b.Touch(ids) }), Draining: func(string) bool { return false },
		Record: func(events.Event) {}, Instruments: i, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = b.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return b
}

// comes tells of a machine that goes through all states within the time of a write or two, as the simulated ones do.
func (b *bench) comes(id string) {
	for state := pb.MachineState_MACHINE_STATE_CREATING; state <= pb.MachineState_MACHINE_STATE_CONFIGURED; state++ {
		if state == pb.MachineState_MACHINE_STATE_CONFIGURED {
			b.Machines.Set(machine.Machine{ID: id, Configured: time.Now()})
		}
		b.Update(&pb.NodeStateUpdate{MachineId: id, State: state})
		time.Sleep(b.server.takes / 2)
	}
}

// joins brings the Node of a machine, Ready.
func (b *bench) joins(id string) {
	b.Machines.SetNode(&corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: id, Labels: map[string]string{v1alpha1.LabelMachineID: id}},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	})
}

// OP-4.14, OP-12.6, OP-12.7: a machine whose Node joins at once is shown with one write of the status; one whose Node takes its time is shown
// as Ready without it, and a Node that changes nothing more causes no write.
func TestReadyWaitsAMomentForItsNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, time.Millisecond)
		b.comes("quick")
		b.comes("late")
		time.Sleep(passingMin / 2)
		b.joins("quick")
		time.Sleep(passingMin)
		if phase, ready, n := b.server.shows("quick"); phase != v1alpha1.NodeReady || !ready || n != 1 {
			t.Errorf("quick: %s, Node Ready %v after %d writes; want both with one", phase, ready, n)
		}
		if phase, ready, n := b.server.shows("late"); phase != v1alpha1.NodeReady || ready || n != 1 {
			t.Errorf("late: %s, Node Ready %v after %d writes; want Ready without a Node", phase, ready, n)
		}
		time.Sleep(time.Minute)
		b.joins("late")
		time.Sleep(2 * settle)
		if phase, ready, n := b.server.shows("late"); phase != v1alpha1.NodeReady || !ready || n != 2 {
			t.Errorf("late, joined: %s, Node Ready %v after %d writes", phase, ready, n)
		}
		b.joins("late")
		time.Sleep(time.Minute)
		if _, _, n := b.server.shows("late"); n != 2 {
			t.Errorf("%d writes of what says nothing new", n)
		}
	})
}

// OP-4.14: while the API server is slow Ready waits longer, with or without its Node, never longer than the bound; what ends a
// machine waits for nothing.
func TestASlowServerIsSparedAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, 200*time.Millisecond)
		for i := range 32 {
			b.comes(string(rune('a'+i%26)) + string(rune('a'+i/26)))
		}
		time.Sleep(time.Minute)
		b.comes("quick")
		b.joins("quick")
		b.Touch([]string{"quick"})
		b.comes("m1")
		b.comes("m2")
		b.comes("m3")
		time.Sleep(passingMax / 2)
		if _, _, n := b.server.shows("m1"); n != 0 {
			t.Errorf("%d writes of the status before the Node came", n)
		}
		if _, _, n := b.server.shows("quick"); n != 0 {
			t.Errorf("%d writes of the status that the server could have been spared", n)
		}
		b.Update(&pb.NodeStateUpdate{MachineId: "m3", State: pb.MachineState_MACHINE_STATE_FAILED, LastError: "broken"})
		time.Sleep(time.Second)
		if phase, _, _ := b.server.shows("m3"); phase != v1alpha1.NodeFailed {
			t.Errorf("m3 is %s, and failed a second ago", phase)
		}
		b.joins("m1")
		time.Sleep(2 * passingMax)
		if phase, ready, n := b.server.shows("m1"); phase != v1alpha1.NodeReady || !ready || n != 1 {
			t.Errorf("m1: %s, Node Ready %v after %d writes; want both with one", phase, ready, n)
		}
		if phase, ready, n := b.server.shows("m2"); phase != v1alpha1.NodeReady || ready || n != 1 {
			t.Errorf("m2: %s, Node Ready %v after %d writes; want Ready after the bound", phase, ready, n)
		}
	})
}

// OP-12.3, OP-17.2: an UpcomingNode says how its machine is bought and what it costs, where the shard says so.
func TestAnUpcomingNodeSaysItsPrice(t *testing.T) {
	b := newBench(t, 0)
	for _, c := range []struct {
		frame       *pb.NodeStateUpdate
		kind, price string
	}{
		{&pb.NodeStateUpdate{CapacityType: pb.CapacityType_CAPACITY_TYPE_SPOT, PricePerHour: 0.096}, "Spot", "0.096"},
		{&pb.NodeStateUpdate{CapacityType: pb.CapacityType_CAPACITY_TYPE_BARE_METAL}, "BareMetal", ""},
		{&pb.NodeStateUpdate{}, "", ""},
	} {
		o := v1alpha1.UpcomingNode{}
		b.spec(&o, "m1", c.frame)
		if o.Spec.CapacityType != c.kind || o.Spec.PricePerHour != c.price {
			t.Errorf("%v: %q, %q", c.frame, o.Spec.CapacityType, o.Spec.PricePerHour)
		}
	}
}
