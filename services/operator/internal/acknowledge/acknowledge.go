// Package acknowledge marks CapacityRequests as Acknowledged: one patch of the status for the life of a request.
//
// The patch carries no resource version and is preceded by no read. Requests are handled newest first, in parallel and
// paced, so that a cluster that starts with thousands of them delays no other work; while the API server is slow they give way to
// writes that a caller waits for. One that is gone is forgotten; one whose patch fails is tried again with a growing pause.
//
// Start at Acknowledger.Add and Run. Tests cite the operator specification as OP-n.n.
package acknowledge

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

const (
	concurrencyDefault = 4 // enough for the pace on an API server with time to spare, and one that has none has better things to do
	perSecondDefault   = 400
	ahead              = 100 // patches that may go at once after a pause: a burst of Pods is seen at once
	retryMin           = time.Second
	retryMax           = time.Minute
)

// Config is what an Acknowledger needs.
type Config struct {
	Client      client.Client            // required
	Concurrency int                      // 0 means 4
	PerSecond   float64                  // 0 means 400
	Instruments *instruments.Instruments // required
	Log         *slog.Logger             // required
}

// Acknowledger patches requests.
type Acknowledger struct {
	Config
	mu    sync.Mutex
	stack []job // the newest is last
	more  *sync.Cond
	done  bool
	pace  *pace
	burst burst
}

type job struct {
	key   aggregate.Key
	tries int
}

// New checks the configuration.
func New(c Config) (*Acknowledger, error) {
	if c.Client == nil || c.Instruments == nil || c.Log == nil {
		return nil, errors.New("acknowledge: Client, Instruments and Log are required")
	}
	if c.Concurrency <= 0 {
		c.Concurrency = concurrencyDefault
	}
	if c.PerSecond <= 0 {
		c.PerSecond = perSecondDefault
	}
	a := &Acknowledger{Config: c, pace: newPace(c.PerSecond, ahead)}
	a.more = sync.NewCond(&a.mu)
	return a, nil
}

// Add queues requests. It never blocks.
func (a *Acknowledger) Add(keys []aggregate.Key) {
	a.mu.Lock()
	a.burst.more(time.Now())
	for _, k := range keys {
		a.stack = append(a.stack, job{key: k})
	}
	a.mu.Unlock()
	a.more.Broadcast()
}

// Run patches until ctx ends.
func (a *Acknowledger) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() {
		a.mu.Lock()
		a.done = true
		a.mu.Unlock()
		a.more.Broadcast()
	})
	defer stop()
	var workers sync.WaitGroup
	for range a.Concurrency {
		workers.Go(func() {
			for {
				j, ok := a.take()
				if !ok || !a.pace.wait(ctx) {
					return
				}
				began := time.Now()
				a.patch(ctx, j)
				if !sleep(ctx, a.giveWay(time.Since(began))) {
					return
				}
			}
		})
	}
	workers.Wait()
	return nil
}

// giveWay is how long a worker pauses after a patch that took so long (OP-6.3).
func (a *Acknowledger) giveWay(took time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if took <= slow || !a.burst.on(time.Now()) {
		return 0
	}
	return min(pauses*took, pauseMax)
}

func (a *Acknowledger) take() (job, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for len(a.stack) == 0 && !a.done {
		a.more.Wait()
	}
	if a.done {
		return job{}, false
	}
	end := len(a.stack) - 1
	j := a.stack[end]
	a.stack = a.stack[:end]
	return j, true
}

func (a *Acknowledger) patch(ctx context.Context, j job) {
	start := time.Now()
	body, err := json.Marshal(map[string]any{"status": map[string]any{
		"phase": v1alpha1.RequestAcknowledged, "acknowledgedAt": metav1.NewTime(start.UTC()),
	}})
	if err != nil {
		panic(err) // constants and a time
	}
	r := &request.Request{ObjectMeta: metav1.ObjectMeta{Namespace: j.key.Namespace, Name: j.key.Name}}
	err = a.Client.Status().Patch(ctx, r, client.RawPatch(types.MergePatchType, body))
	a.Instruments.AcknowledgeDuration.Observe(time.Since(start).Seconds())
	switch {
	case err == nil:
		a.Instruments.Acknowledged.Inc()
	case apierrors.IsNotFound(err) || ctx.Err() != nil:
	default:
		pause := min(retryMin<<min(j.tries, 10), retryMax)
		a.Log.Warn("a request could not be acknowledged", "namespace", j.key.Namespace, "name", j.key.Name, "err", err, "retry_in", pause)
		time.AfterFunc(pause, func() {
			a.mu.Lock()
			a.stack = append(a.stack, job{j.key, j.tries + 1})
			a.mu.Unlock()
			a.more.Signal()
		})
	}
}
