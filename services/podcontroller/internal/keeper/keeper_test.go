package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/cached"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller/internal/translate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server holds the requests as an API server would, and the events of the watch that were not delivered yet.
type server struct {
	client.Client
	live   map[types.NamespacedName]*Object
	next   int
	events []func(*Keeper) // of the watch, in order
	fail   bool            // the next write fails before it is done
	lose   bool            // the next write is done, and its answer is lost
	most   map[string]int  // requests that existed at once, by Pod
}

var requests = schema.GroupResource{Group: v1alpha1.GroupName, Resource: "capacityrequests"}

var errLost = errors.New("connection reset")

// attempt does a write, unless it is to fail.
func (s *server) attempt(write func() error) error {
	if s.fail {
		s.fail = false
		return errLost
	}
	err := write()
	if err == nil && s.lose {
		s.lose = false
		return errLost
	}
	return err
}

func (s *server) count() {
	now := map[string]int{}
	for _, o := range s.live {
		now[o.Labels[v1alpha1.LabelOwnedByPod]]++
	}
	for pod, n := range now {
		s.most[pod] = max(s.most[pod], n)
	}
}

func (s *server) Create(_ context.Context, obj client.Object, _ ...client.CreateOption) error {
	return s.attempt(func() error {
		o, name := obj.(*Object), client.ObjectKeyFromObject(obj)
		if s.live[name] != nil {
			return apierrors.NewAlreadyExists(requests, o.Name)
		}
		s.next++
		o.UID = types.UID(fmt.Sprint("request-", s.next))
		stored := o.DeepCopyObject().(*Object)
		s.live[name] = stored
		s.count()
		s.events = append(s.events, func(k *Keeper) { k.SetObject(stored) })
		return nil
	})
}

func (s *server) Get(_ context.Context, name client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	o := s.live[name]
	if o == nil {
		return apierrors.NewNotFound(requests, name.Name)
	}
	*into.(*Object) = *o.DeepCopyObject().(*Object)
	return nil
}

func (s *server) Patch(_ context.Context, obj client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return s.attempt(func() error {
		if s.live[client.ObjectKeyFromObject(obj)] == nil {
			return apierrors.NewNotFound(requests, obj.GetName())
		}
		return nil
	})
}

func (s *server) Delete(_ context.Context, obj client.Object, opts ...client.DeleteOption) error {
	return s.attempt(func() error {
		name := client.ObjectKeyFromObject(obj)
		o := s.live[name]
		if o == nil {
			return apierrors.NewNotFound(requests, name.Name)
		}
		var options client.DeleteOptions
		options.ApplyOptions(opts)
		if p := options.Preconditions; p != nil && p.UID != nil && *p.UID != o.UID {
			return apierrors.NewConflict(requests, name.Name, errors.New("another object"))
		}
		delete(s.live, name)
		s.events = append(s.events, func(k *Keeper) { k.DeleteObject(o) })
		return nil
	})
}

func newKeeper(t interface{ Fatal(...any) }, s client.Client) *Keeper {
	floor := corev1.ResourceList{"cpu": resource.MustParse("10m")}
	vec := func(label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: "x"}, []string{label})
	}
	k, err := New(Config{
		Client: s, Defaults: translate.Defaults{Floor: floor}, Unmanaged: labels.SelectorFromSet(labels.Set{"control": "yes"}), Record: func(events.Event) {},
		Reconciles: vec("outcome"), Unsupported: vec("kind"), Repairs: prometheus.NewCounter(prometheus.CounterOpts{Name: "y"}), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// Scenario 43, OP-15.2, OP-15.3: whatever the cache has not seen yet, whichever write fails or is answered into the void, and
// however often the controller starts again: never two requests for one Pod, and in the end exactly one for each that is active.
func TestNeverTwo(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &server{live: map[types.NamespacedName]*Object{}, most: map[string]int{}}
		k := newKeeper(t, s)
		defer func() { k.Close() }()
		pods := map[string]*corev1.Pod{} // by name
		births := 0
		look := func(uid types.UID) { _, _ = k.reconcile(context.Background(), uid) }
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			name := rapid.SampledFrom([]string{"a", "b"}).Draw(t, "pod")
			p := pods[name]
			switch op := rapid.SampledFrom([]string{"born", "dies", "look", "look", "look", "watch", "watch", "restart", "fail", "lose", "ends"}).Draw(t, "op"); {
			case op == "born" && p == nil:
				births++
				p = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(fmt.Sprint(name, births))}}
				pods[name] = p
				k.SetPod(cached.Of(p))
			case op == "dies" && p != nil:
				delete(pods, name)
				k.DeletePod(cached.Of(p))
				look(p.UID)
			case op == "ends" && p != nil:
				p = p.DeepCopy()
				p.Status.Phase = corev1.PodSucceeded
				pods[name] = p
				k.SetPod(cached.Of(p))
			case op == "look" && p != nil:
				look(p.UID)
			case op == "watch" && len(s.events) > 0:
				s.events[0](k)
				s.events = s.events[1:]
			case op == "restart": // with a full list
				k.Close()
				k, s.events = newKeeper(t, s), nil
				for _, o := range s.live {
					k.SetObject(o)
				}
				for _, p := range pods {
					k.SetPod(cached.Of(p))
				}
			case op == "fail":
				s.fail = true
			case op == "lose":
				s.lose = true
			}
		}
		s.fail, s.lose = false, false
		for range 4 { // the queue comes to rest
			for ; len(s.events) > 0; s.events = s.events[1:] {
				s.events[0](k)
			}
			for _, uid := range k.known() {
				look(uid)
			}
		}
		for pod, n := range s.most {
			if n > 1 {
				t.Fatalf("Pod %s had %d requests at once", pod, n)
			}
		}
		active := 0
		for _, p := range pods {
			if p.Status.Phase == corev1.PodSucceeded {
				continue
			}
			active++
			if s.live[types.NamespacedName{Namespace: "default", Name: Name(p.Name, p.UID)}] == nil {
				t.Fatalf("Pod %s has no request", p.UID)
			}
		}
		if len(s.live) != active {
			t.Fatalf("%d requests for %d active Pods", len(s.live), active)
		}
	})
}

// OP-15.4: a request of an earlier producer is kept; of several one stays.
func TestAdoption(t *testing.T) {
	s := &server{live: map[types.NamespacedName]*Object{}, most: map[string]int{}}
	k := newKeeper(t, s)
	defer k.Close()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u"}}
	for i, name := range []string{"generated-x", "generated-y"} {
		o := &Object{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), Labels: map[string]string{v1alpha1.LabelOwnedByPod: "u"},
			CreationTimestamp: metav1.Unix(int64(i), 0)}}
		s.live[client.ObjectKeyFromObject(o)] = o
		k.SetObject(o)
	}
	k.SetPod(cached.Of(p))
	if outcome, err := k.reconcile(t.Context(), p.UID); err != nil || outcome != OutcomeUpdated {
		t.Errorf("%s %v", outcome, err)
	}
	if len(s.live) != 1 || s.live[types.NamespacedName{Namespace: "default", Name: "generated-x"}] == nil {
		t.Errorf("left: %v", s.live)
	}
}

// OP-15.3: a request of our name that is another Pod's is an error that says what to do, and is not touched.
func TestForeignName(t *testing.T) {
	s := &server{live: map[types.NamespacedName]*Object{}, most: map[string]int{}}
	k := newKeeper(t, s)
	defer k.Close()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u"}}
	o := &Object{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: Name("a", "u"), UID: "x", Labels: map[string]string{v1alpha1.LabelOwnedByPod: "other"}}}
	s.live[client.ObjectKeyFromObject(o)] = o
	k.SetPod(cached.Of(p))
	var recorded string
	k.Record = func(n events.Event) { recorded = n.Reason + ": " + n.Message }
	if outcome, err := k.reconcile(t.Context(), p.UID); outcome != OutcomeError || err == nil || !strings.Contains(err.Error(), "belongs to another Pod") {
		t.Errorf("%s %v", outcome, err)
	}
	if !strings.HasPrefix(recorded, "CapacityRequestRefused") || !strings.Contains(recorded, "delete it") {
		t.Errorf("the Pod's owner reads %q", recorded)
	}
	if s.live[client.ObjectKeyFromObject(o)] != o {
		t.Error("it was touched")
	}
}

// refusing is an API server whose admission takes no CapacityRequest, as a quota or a policy does.
type refusing struct{ *server }

func (refusing) Create(context.Context, client.Object, ...client.CreateOption) error {
	return apierrors.NewForbidden(requests, "a", errors.New("exceeded quota: team"))
}

func (refusing) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return apierrors.NewForbidden(requests, "a", errors.New("a policy denied the request"))
}

// OP-15.26: the owner of a Pod reads in its events when the API server takes neither a new request nor a change of one.
func TestRefusalIsAnEvent(t *testing.T) {
	for name, want := range map[string]string{"create": "exceeded quota: team", "update": "a policy denied"} {
		s := &server{live: map[types.NamespacedName]*Object{}, most: map[string]int{}}
		k := newKeeper(t, refusing{s})
		defer k.Close()
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u"}}
		if name == "update" {
			k.SetObject(&Object{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: Name("a", "u"), UID: "x", Labels: map[string]string{v1alpha1.LabelOwnedByPod: "u"}}})
		}
		k.SetPod(cached.Of(p))
		var recorded []events.Event
		k.Record = func(n events.Event) { recorded = append(recorded, n) }
		if outcome, err := k.reconcile(t.Context(), p.UID); outcome != OutcomeError || err == nil {
			t.Errorf("%s: %s %v", name, outcome, err)
		}
		if len(recorded) != 1 || !recorded[0].Warning || recorded[0].Regarding.UID != "u" || recorded[0].Reason != "CapacityRequestRefused" || !strings.Contains(recorded[0].Message, want) {
			t.Errorf("%s: the Pod's owner reads %+v", name, recorded)
		}
	}
}

// OP-15.22: a replica without the Lease queues nothing of the Pods that come and go; when it takes over, it looks at all that
// there is, requests without a Pod included.
func TestStandbyKeepsNothing(t *testing.T) {
	s := &server{live: map[types.NamespacedName]*Object{}, most: map[string]int{}}
	k := newKeeper(t, s)
	for i := range 1000 {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: types.UID(fmt.Sprint("u", i))}}
		k.SetPod(cached.Of(p))
		if i != 7 {
			k.DeletePod(cached.Of(p))
		}
	}
	orphan := &Object{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "orphan", UID: "o", Labels: map[string]string{v1alpha1.LabelOwnedByPod: "gone"}}}
	s.live[client.ObjectKeyFromObject(orphan)] = orphan
	k.SetObject(orphan)
	if n := k.queue.Len(); n != 0 {
		t.Fatalf("%d looks are queued on a standby", n)
	}
	synctest.Test(t, func(t *testing.T) {
		k := newKeeper(t, s)
		k.Workers = 1
		k.SetObject(orphan)
		k.SetPod(cached.Of(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u7"}}))
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- k.Run(ctx) }()
		synctest.Wait()
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	k.Close()
	if len(s.live) != 1 || s.live[types.NamespacedName{Namespace: "default", Name: Name("a", "u7")}] == nil {
		t.Errorf("after the take-over there are %v", s.live)
	}
}

// OP-15.24: the answer to a create may come after the watch has shown the request made and deleted again; the periodic look
// believes the cache and makes it again.
func TestThePeriodicLookBelievesTheCache(t *testing.T) {
	s := &server{live: map[types.NamespacedName]*Object{}, most: map[string]int{}}
	k := newKeeper(t, s)
	defer k.Close()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "a", UID: "u"}}
	k.SetPod(cached.Of(p))
	if _, err := k.reconcile(t.Context(), p.UID); err != nil {
		t.Fatal(err)
	}
	clear(s.live) // somebody deleted it, and both events were seen before the answer
	if outcome, err := k.reconcile(t.Context(), p.UID); err != nil || outcome != OutcomeExists {
		t.Fatalf("%s %v", outcome, err)
	}
	k.resyncAll()
	if outcome, err := k.reconcile(t.Context(), p.UID); err != nil || outcome != OutcomeCreated || len(s.live) != 1 {
		t.Errorf("after the periodic look: %s %v, %d requests", outcome, err, len(s.live))
	}
}

// OP-15.10: Pods on nodes that no machine stands behind ask for nothing; the label or an UpcomingNode is enough to be a machine's,
// a young Node changes nothing, and while there are such nodes a pending Pod waits for the scheduler's word, but not forever.
func TestForeignNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{live: map[types.NamespacedName]*Object{}, most: map[string]int{}}
		k := newKeeper(t, s)
		defer k.Close()
		node := func(name, label string, age time.Duration) {
			n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}, CreationTimestamp: metav1.NewTime(time.Now().Add(-age))}}
			if label != "" {
				n.Labels[v1alpha1.LabelMachineID] = label
			}
			k.SetNode(n)
		}
		pod := func(name, on string, unschedulable bool) {
			p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Now()}}
			if old := k.pods[p.UID]; old != nil {
				p.CreationTimestamp = old.CreationTimestamp
			}
			if p.Spec.NodeName = on; unschedulable {
				p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable}}
			}
			k.SetPod(cached.Of(p))
		}
		expect := func(when, name, want string) {
			t.Helper()
			for _, e := range s.events {
				e(k)
			}
			s.events = nil
			if outcome, err := k.reconcile(t.Context(), types.UID(name)); err != nil || outcome != want {
				t.Errorf("%s: %s, %v; want %s", when, outcome, err, want)
			}
		}
		pod("early", "", false)
		expect("a cluster without nodes of its own does not wait", "early", OutcomeCreated)
		node("own", "", time.Second)
		pod("soon", "", false)
		expect("it may fit on a Node that has just joined", "soon", OutcomeWaiting)
		pod("soon", "own", false)
		expect("it fits there", "soon", OutcomeForeign)
		node("own", "", time.Hour)
		node("ours", "m1", time.Hour)
		pod("runs", "own", false)
		expect("on the cluster's own node", "runs", OutcomeForeign)
		pod("works", "ours", false)
		expect("on a machine", "works", OutcomeCreated)
		pod("new", "", false)
		expect("the scheduler has not spoken", "new", OutcomeWaiting)
		pod("new", "", true)
		expect("it fits nowhere", "new", OutcomeCreated)
		pod("fits", "", false)
		expect("the scheduler has not spoken", "fits", OutcomeWaiting)
		pod("fits", "own", false)
		expect("it fits on the cluster's own node", "fits", OutcomeForeign)
		pod("silent", "", false)
		time.Sleep(30 * time.Second)
		expect("a scheduler that says nothing", "silent", OutcomeCreated)
		// The label is lost, and the UpcomingNode still names the Node.
		k.SetUpcoming(&v1alpha1.UpcomingNode{ObjectMeta: metav1.ObjectMeta{Name: "un-m1"}, Status: v1alpha1.UpcomingNodeStatus{NodeRef: &corev1.ObjectReference{Name: "ours"}}})
		node("ours", "", time.Hour)
		expect("labels are lost", "works", OutcomeExists)
		k.DeleteUpcoming(&v1alpha1.UpcomingNode{ObjectMeta: metav1.ObjectMeta{Name: "un-m1"}})
		expect("and the UpcomingNode too", "works", OutcomeDeleted)
		// A young Node changes nothing until it is marked, or old.
		node("young", "", time.Second)
		pod("new", "young", false)
		expect("it had a request", "new", OutcomeExists)
		pod("other", "young", false)
		expect("it had none", "other", OutcomeForeign)
		node("young", "m2", time.Second)
		expect("marked", "other", OutcomeCreated)
		node("young", "", time.Hour)
		expect("or old", "other", OutcomeDeleted)
	})
}
