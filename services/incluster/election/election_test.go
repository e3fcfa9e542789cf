package election

import (
	"context"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server keeps one Lease with optimistic concurrency, and can be cut off.
type server struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
	down    map[string]bool // by holder that asks
}

type view struct {
	*server
	who string
}

var resource = schema.GroupResource{Resource: "leases"}

func (v view) check() error {
	if v.down[v.who] {
		return errors.New("no route")
	}
	return nil
}

func (v view) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.check(); err != nil {
		return nil, err
	}
	if v.lease == nil {
		return nil, apierrors.NewNotFound(resource, name)
	}
	return v.lease.DeepCopy(), nil
}

func (v view) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.check(); err != nil {
		return nil, err
	}
	if v.lease != nil {
		return nil, apierrors.NewAlreadyExists(resource, l.Name)
	}
	return v.store(l), nil
}

func (v view) Update(_ context.Context, l *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := v.check(); err != nil {
		return nil, err
	}
	if v.lease.ResourceVersion != l.ResourceVersion {
		return nil, apierrors.NewConflict(resource, l.Name, errors.New("older"))
	}
	return v.store(l), nil
}

func (v view) store(l *coordinationv1.Lease) *coordinationv1.Lease {
	v.version++
	v.lease = l.DeepCopy()
	v.lease.ResourceVersion = strconv.Itoa(v.version)
	return v.lease.DeepCopy()
}

func (s *server) cut(who string, down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down[who] = down
}

// candidate runs one elector and reports when it starts to work.
func candidate(ctx context.Context, s *server, who string) (leads, done chan error) {
	leads, done = make(chan error, 1), make(chan error, 1)
	go func() {
		done <- Run(ctx, Config{Leases: view{s, who}, Namespace: "ns", Name: "lease", Identity: who, Log: slog.New(slog.DiscardHandler)},
			func(ctx context.Context) error {
				leads <- nil
				<-ctx.Done()
				return nil
			})
	}()
	return leads, done
}

// OP-3.3, scenario 8: one holder; a proper stop hands over within one retry, a killed holder within 17 s.
func TestHandOver(t *testing.T) {
	for name, c := range map[string]struct {
		graceful bool
		within   time.Duration
	}{"graceful stop": {true, Look}, "killed": {false, Duration + 2*Look}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{down: map[string]bool{}}
				ctx, stop := context.WithCancel(t.Context())
				leads, done := candidate(ctx, s, "a")
				<-leads
				other, stopOther := context.WithCancel(t.Context())
				leadsB, doneB := candidate(other, s, "b")
				time.Sleep(time.Hour)
				synctest.Wait()
				if len(leadsB) != 0 {
					t.Fatal("two holders")
				}
				start := time.Now()
				if !c.graceful {
					s.cut("a", true) // no replica hears of it again
				} else {
					stop()
				}
				<-leadsB
				if took := time.Since(start); took > c.within {
					t.Errorf("handed over after %v, want at most %v", took, c.within)
				}
				if err := <-done; c.graceful && err != nil || !c.graceful && !errors.Is(err, ErrLost) {
					t.Errorf("the first holder ended with %v", err)
				}
				stop()
				stopOther()
				if err := <-doneB; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A holder that is cut off stops before anyone else may start.
func TestHolderStopsBeforeTheNextStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{down: map[string]bool{}}
		leads, done := candidate(t.Context(), s, "a")
		<-leads
		other, stop := context.WithCancel(t.Context())
		leadsB, doneB := candidate(other, s, "b")
		time.Sleep(time.Minute)
		s.cut("a", true)
		<-done
		if len(leadsB) != 0 {
			t.Error("the next holder started first")
		}
		<-leadsB
		stop()
		<-doneB
	})
}

// A short outage of the API server costs nothing.
func TestOutageShorterThanTheRenewDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &server{down: map[string]bool{}}
		ctx, stop := context.WithCancel(t.Context())
		leads, done := candidate(ctx, s, "a")
		<-leads
		for range 10 {
			time.Sleep(time.Minute)
			s.cut("a", true)
			time.Sleep(Renew - Retry - time.Second)
			s.cut("a", false)
		}
		select {
		case err := <-done:
			t.Fatalf("it stopped: %v", err)
		default:
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
