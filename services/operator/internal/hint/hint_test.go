package hint

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server holds the objects as an API server would, and tells the Writer of each change at once.
type server struct {
	client.Client
	w *Writer

	mu      sync.Mutex
	objects map[string]*v1alpha1.AvailableCapacity
	writes  int // creates and changes of specs
	fail    int // so many creates fail
}

// have says how many objects there are, by how many writes, and what is said of a shape; empty: nothing.
func (s *server) have(key string) (objects, writes int, says v1alpha1.Availability) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[Name(key)]; o != nil {
		says = o.Spec.Availability
	}
	return len(s.objects), s.writes, says
}

func (s *server) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail > 0 {
		s.fail--
		return apierrors.NewInternalError(fmt.Errorf("busy"))
	}
	s.writes++
	s.put(o)
	return nil
}

func (s *server) put(o client.Object) {
	stored := o.DeepCopyObject().(*v1alpha1.AvailableCapacity)
	s.objects[stored.Name] = stored
	s.w.SetObject(stored)
}

func (s *server) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	s.put(o)
	return nil
}

func (s *server) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.objects[o.GetName()] == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "availablecapacities"}, o.GetName())
	}
	delete(s.objects, o.GetName())
	s.w.DeleteObject(o.GetName())
	return nil
}

func (s *server) Status() client.SubResourceWriter { return status{s: s} }

type status struct {
	client.SubResourceWriter
	s *server
}

func (p status) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.put(o)
	return nil
}

// run gives a Writer that works until do returns.
func run(t *testing.T, do func(t *testing.T, w *Writer, s *server)) {
	synctest.Test(t, func(t *testing.T) {
		none := func() float64 { return 0 }
		i, err := instruments.New(prometheus.NewRegistry(), instruments.Reads{CacheAge: none, AcceptedAge: none, EvictionsStopped: func() bool { return false }})
		if err != nil {
			t.Fatal(err)
		}
		s := &server{objects: map[string]*v1alpha1.AvailableCapacity{}}
		if s.w, err = New(Config{Client: s, Instruments: i, Log: slog.New(slog.DiscardHandler)}); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.w.Run(ctx) }()
		do(t, s.w, s)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// pause is a while, and until the Writer is done with it.
func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func hinted(key string, c pb.AvailableCapacityUpdate_Confidence) *pb.AvailableCapacityUpdate {
	return &pb.AvailableCapacityUpdate{SupersedesKey: key, Confidence: c, AvailableCount: 3}
}

const (
	high = pb.AvailableCapacityUpdate_CONFIDENCE_HIGH
	none = pb.AvailableCapacityUpdate_CONFIDENCE_UNSPECIFIED
)

// OP-13.1, OP-13.2: at most ten objects a second, the newest form of each, and none without a key; what is the same is not written.
func TestPace(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		w.Opened()
		w.Update(hinted("", high))
		for i := range 50 {
			w.Update(hinted(fmt.Sprint("shape-", i), none))
			w.Update(hinted(fmt.Sprint("shape-", i), high))
		}
		pause(time.Second)
		if n, _, _ := s.have(""); n < perSecond || n > perSecond+2 {
			t.Errorf("%d objects in a second, want %d, and one or two that quiet time saved", n, perSecond)
		}
		pause(10 * time.Second)
		if n, writes, says := s.have("shape-7"); n != 50 || writes != 50 || says != v1alpha1.AvailabilityHigh {
			t.Errorf("%d objects by %d writes", n, writes)
		}
		for i := range 50 {
			w.Update(hinted(fmt.Sprint("shape-", i), high))
		}
		pause(10 * time.Second)
		if _, writes, _ := s.have(""); writes != 50 {
			t.Errorf("%d writes for what was there already", writes-50)
		}
	})
}

// OP-13.4: what a session does not mention goes five minutes after it opened, what has nothing ten minutes after that was said; neither
// before, and what has something again stays.
func TestExpiry(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		there := func(key string) bool {
			_, _, says := s.have(key)
			return says != ""
		}
		w.Opened()
		for _, key := range []string{"kept", "unheard", "gone", "back"} {
			w.Update(hinted(key, high))
		}
		pause(time.Minute)
		w.Opened()
		for _, key := range []string{"kept", "gone", "back"} {
			w.Update(hinted(key, high))
		}
		pause(unheardExpiry - time.Second)
		if !there("unheard") {
			t.Error("a shape went before its five minutes")
		}
		pause(sweepEvery + time.Second)
		if there("unheard") || !there("kept") {
			t.Errorf("after five minutes: unheard %v, mentioned %v", there("unheard"), there("kept"))
		}
		w.Update(hinted("gone", none))
		w.Update(hinted("back", none))
		pause(5 * time.Minute)
		w.Update(hinted("gone", none)) // said again: the time goes on
		w.Update(hinted("back", high))
		pause(noneExpiry - 5*time.Minute - time.Second)
		if _, _, says := s.have("gone"); says != v1alpha1.AvailabilityNone {
			t.Error("a shape with nothing went before its ten minutes, or does not say so")
		}
		pause(sweepEvery + time.Second)
		if there("gone") || !there("back") || !there("kept") {
			t.Errorf("after ten minutes: nothing %v, something again %v, kept %v", there("gone"), there("back"), there("kept"))
		}
		w.Update(hinted("gone", high))
		pause(time.Second)
		if !there("gone") {
			t.Error("a shape that comes again is not written")
		}
	})
}

// A write that fails is tried again, and an object that somebody deleted is written again.
func TestFailedWrites(t *testing.T) {
	run(t, func(t *testing.T, w *Writer, s *server) {
		s.fail = 3
		w.Update(hinted("a", high))
		pause(5 * time.Second)
		if _, _, says := s.have("a"); says == "" {
			t.Fatal("not written after three failures")
		}
		_ = s.Delete(t.Context(), &v1alpha1.AvailableCapacity{ObjectMeta: metav1.ObjectMeta{Name: Name("a")}})
		pause(time.Second)
		if _, _, says := s.have("a"); says == "" {
			t.Error("an object that a person deleted is not written again")
		}
	})
}

// The number of shapes is bounded: one past the limit is not kept.
func TestShapesMax(t *testing.T) {
	none := func() float64 { return 0 }
	i, err := instruments.New(prometheus.NewRegistry(), instruments.Reads{CacheAge: none, AcceptedAge: none, EvictionsStopped: func() bool { return false }})
	if err != nil {
		t.Fatal(err)
	}
	w, err := New(Config{Client: &server{}, Instruments: i, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for i := range shapesMax + 1 {
		w.Update(hinted(fmt.Sprint("shape-", i), high))
	}
	if len(w.shapes) != shapesMax || len(w.dirty) != shapesMax {
		t.Errorf("%d shapes and %d to write, want %d", len(w.shapes), len(w.dirty), shapesMax)
	}
}
