package events

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server takes events.
type server struct {
	client.Client
	err error

	mu      sync.Mutex
	events  []*corev1.Event
	stored  []*corev1.Event
	patches int
	refuses error // of a patch
}

// taken are the events that came since it was asked last.
func (s *server) taken() []*corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.events
	s.events = nil
	return out
}

// Patch counts an event that is there.
func (s *server) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuses != nil {
		return s.refuses
	}
	body, err := p.Data(o)
	if err != nil || p.Type() != types.MergePatchType {
		return fmt.Errorf("patch %s: %v", p.Type(), err)
	}
	for _, e := range s.stored {
		if e.Namespace == o.GetNamespace() && e.Name == o.GetName() {
			s.patches++
			return json.Unmarshal(body, e)
		}
	}
	return apierrors.NewNotFound(corev1.Resource("events"), o.GetName())
}

func (s *server) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.events = append(s.events, o.(*corev1.Event))
		s.stored = append(s.stored, o.(*corev1.Event))
	}
	return s.err
}

// pause is a while, and until all other goroutines are idle.
func pause(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func about(name string) Subject {
	return Subject{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: name}
}

// run gives a Writer whose Run works until do returns.
func run(t *testing.T, c Config, do func(w *Writer)) {
	synctest.Test(t, func(t *testing.T) {
		c.Component, c.Log = "test", slog.New(slog.DiscardHandler)
		w, err := New(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- w.Run(ctx) }()
		do(w)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// OP-14.3: one event of a reason for an object in 5 min, and 10 a second over all.
func TestBudget(t *testing.T) {
	s := &server{}
	run(t, Config{Client: s}, func(w *Writer) {
		for range 299 {
			w.Record(Event{Regarding: about("web"), Reason: "NoCapacity", Message: "x"})
			pause(time.Second)
		}
		if n := len(s.taken()); n != 1 {
			t.Errorf("%d events of one reason in 5 min", n)
		}
		pause(time.Second)
		w.Record(Event{Regarding: about("web"), Reason: "NoCapacity", Message: "y"})
		w.Record(Event{Regarding: about("web"), Reason: "CapacityOnTheWay", Message: "x"})
		pause(time.Second)
		if n := len(s.taken()); n != 2 {
			t.Errorf("%d events; want another message after 5 min, and another reason at once", n)
		}
		for i := range 100 {
			w.Record(Event{Regarding: about(fmt.Sprint("p", i)), Reason: "NoCapacity", Message: "x"})
		}
		pause(time.Second)
		first := len(s.taken())
		if n := first; n < perSecond || n > perSecond+2 {
			t.Errorf("%d events in a second, want %d, and one or two that quiet time saved", n, perSecond)
		}
		pause(20 * time.Second)
		if n := first + len(s.taken()); n != 100 {
			t.Errorf("%d of 100 events in the end", n)
		}
	})
}

// Nothing waits for an event: what does not fit into the queue, or is refused, is counted.
func TestDropped(t *testing.T) {
	dropped := 0
	w, err := New(Config{Client: &server{}, Component: "test", Log: slog.New(slog.DiscardHandler), Dropped: func() { dropped++ }})
	if err != nil {
		t.Fatal(err)
	}
	for i := range queueMax + 7 { // nothing is written
		w.Record(Event{Regarding: about(fmt.Sprint("p", i)), Reason: "x"})
	}
	if dropped != 7 {
		t.Errorf("%d dropped, want 7", dropped)
	}
	dropped = 0
	run(t, Config{Client: &server{err: errors.New("forbidden")}, Dropped: func() { dropped++ }}, func(w *Writer) {
		w.Record(Event{Regarding: about("a"), Reason: "x"})
		pause(time.Second)
	})
	if dropped != 1 {
		t.Errorf("%d dropped, want the refused one", dropped)
	}
}

// OP-14.3: an event that says the same again is counted on the first one, with those that were not written in between; another message is
// another event, and so is one whose first is gone.
func TestCounted(t *testing.T) {
	s := &server{}
	run(t, Config{Client: s}, func(w *Writer) {
		say := func(message string) {
			w.Record(Event{Regarding: about("web"), Reason: "NoCapacity", Message: message})
			pause(time.Minute)
		}
		for range 11 {
			say("none")
		}
		if len(s.stored) != 1 || s.stored[0].Count != 11 || s.patches != 2 || s.stored[0].LastTimestamp.Sub(s.stored[0].FirstTimestamp.Time) != 10*time.Minute {
			t.Fatalf("%d events, %d patches: %+v", len(s.stored), s.patches, s.stored[0])
		}
		pause(5 * time.Minute)
		say("other")
		if len(s.stored) != 2 || s.stored[1].Count != 1 || s.stored[1].Message != "other" {
			t.Errorf("another message: %+v", s.stored)
		}
		pause(5 * time.Minute)
		s.mu.Lock()
		s.stored = nil // after an hour
		s.mu.Unlock()
		say("other")
		if len(s.stored) != 1 || s.stored[0].Count != 1 {
			t.Errorf("after its first is gone: %+v", s.stored)
		}
		pause(5 * time.Minute)
		s.mu.Lock()
		s.err = errors.New("refused")
		s.mu.Unlock()
		w.Record(Event{Regarding: about("api"), Reason: "NoCapacity", Message: "none"})
		pause(5 * time.Minute)
		s.mu.Lock()
		s.err = nil
		s.mu.Unlock()
		w.Record(Event{Regarding: about("api"), Reason: "NoCapacity", Message: "none"})
		pause(time.Second)
		if len(s.stored) != 2 || s.stored[1].InvolvedObject.Name != "api" {
			t.Errorf("one whose first was refused: %+v", s.stored)
		}
	})
}

// OP-14.3: with a role of an earlier release, which may not patch events, one that says the same again is written again.
func TestRoleWithoutPatch(t *testing.T) {
	s := &server{refuses: apierrors.NewForbidden(corev1.Resource("events"), "x", errors.New("no"))}
	run(t, Config{Client: s}, func(w *Writer) {
		for range 2 {
			w.Record(Event{Regarding: about("web"), Reason: "NoCapacity", Message: "none"})
			pause(6 * time.Minute)
		}
		if n := len(s.taken()); n != 2 {
			t.Errorf("%d events, want both", n)
		}
	})
}

// `kubectl describe` looks for events by uid: a subject named without one gets that of the object, at the time of writing.
func TestUID(t *testing.T) {
	s := &server{}
	run(t, Config{Client: s, UID: func(about Subject) types.UID { return types.UID("uid of " + about.Name) }}, func(w *Writer) {
		w.Record(Event{Regarding: Subject{Kind: "UpcomingNode", Name: "un-1"}, Warning: true, Reason: "x", Message: strings.Repeat("ä", messageMax)})
		w.Record(Event{Regarding: Subject{Kind: "Pod", Namespace: "shop", Name: "web", UID: "own"}, Reason: "x"})
		pause(time.Second)
	})
	events := s.taken()
	if len(events) != 2 || events[0].InvolvedObject.UID != "uid of un-1" || events[1].InvolvedObject.UID != "own" {
		t.Fatalf("%+v", events)
	}
	if e := events[0]; e.Namespace != "default" || e.Type != corev1.EventTypeWarning || len(e.Message) > messageMax || !utf8.ValidString(e.Message) {
		t.Errorf("an event of a cluster's object: namespace %s, %s, %d bytes", e.Namespace, e.Type, len(e.Message))
	}
	if e := events[1]; e.Namespace != "shop" || e.Type != corev1.EventTypeNormal {
		t.Errorf("%+v", e)
	}
}
