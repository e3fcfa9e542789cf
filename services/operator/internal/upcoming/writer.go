package upcoming

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
)

// Config is what a Writer needs.
type Config struct {
	Client      client.Client                               // required
	Machines    *machine.Registry                           // required
	Draining    func(id string) bool                        // required: the operator drains the machine's node now
	Record      func(events.Event)                          // required
	OnReady     func(id string, obj *v1alpha1.UpcomingNode) // may be nil
	Concurrency int                                         // 0 means 32
	// OutOfService says why the node of a machine takes no Pods; ok is false if it takes some. It may be nil.
	OutOfService func(id string) (reason, message string, ok bool)
	JoinTimeout  time.Duration            // 0 means 10 min
	Instruments  *instruments.Instruments // required
	Log          *slog.Logger             // required
}

// Writer writes UpcomingNodes.
type Writer struct {
	Config
	queue workqueue.TypedRateLimitingInterface[string]

	mu       sync.Mutex
	entries  map[string]*entry                 // by machine id
	objects  map[string]*v1alpha1.UpcomingNode // as the cache has them, by object name
	removed  map[types.UID]time.Time           // objects that were deleted here, until the cache has seen it
	session  uint64
	resynced uint64       // the last session whose replay was complete; 0: none ever
	latest   atomic.Int64 // how long a write takes at present, nanoseconds
}

// entry is one machine.
type entry struct {
	id      string
	stage   stage
	frame   *pb.NodeStateUpdate // the newest; nil: known from an object only
	drain   DrainState
	written *v1alpha1.UpcomingNode // what the API server has, as far as we know
	session uint64                 // when it was mentioned last
	arrived time.Time              // of the frame that is not written yet; zero: none
	held    time.Time              // until when its phase waits for the next, or for its Node
	failed  time.Time              // since when it is Failed
	waiters []chan struct{}        // closed after the next write
}

// New checks the configuration.
func New(c Config) (*Writer, error) {
	if c.Client == nil || c.Machines == nil || c.Draining == nil || c.Record == nil || c.Instruments == nil || c.Log == nil {
		return nil, errors.New("upcoming: Client, Machines, Draining, Note, Instruments and Log are required")
	}
	c.Concurrency = cmp.Or(max(c.Concurrency, 0), concurrencyDefault)
	c.JoinTimeout = cmp.Or(c.JoinTimeout, joinTimeoutDefault)
	return &Writer{
		Config: c, entries: map[string]*entry{}, objects: map[string]*v1alpha1.UpcomingNode{}, removed: map[types.UID]time.Time{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](retryMin, retryMax)),
	}, nil
}

// Name is the name of a machine's object.
func Name(id string) string {
	if name := "un-" + id; len(validation.IsDNS1123Subdomain(name)) == 0 {
		return name
	}
	h := sha256.Sum256([]byte(id))
	return "un-" + hex.EncodeToString(h[:16])
}

// Opened says that a session opened: machines that the shard does not mention from now on are pruned when the replay
// ends.
func (w *Writer) Opened() {
	w.mu.Lock()
	w.session++
	w.mu.Unlock()
}

// Update takes a node state from the shard.
func (w *Writer) Update(m *pb.NodeStateUpdate) {
	now := time.Now()
	w.mu.Lock()
	e := w.entry(m.MachineId)
	next, known := fold(e.stage, m)
	if e.drain == DrainRunning && (next.phase == v1alpha1.NodeReady || next.phase == v1alpha1.NodeDraining) && !next.gone {
		next = drained(next, DrainRunning, "") // a replay must not hide a drain that runs (scenario 34)
	}
	wait := time.Duration(0)
	e.held = time.Time{}
	if !next.gone && (e.stage.phase == "" || onTheWay(e.stage.phase)) && w.passes(m.MachineId, next.phase) {
		wait = w.pause(next.phase)
		e.held = now.Add(wait)
	}
	if e.written == nil { // the object itself is shown at once
		wait = 0
	}
	e.become(next, now)
	e.frame, e.session = m, w.session
	if e.arrived.IsZero() {
		e.arrived = now
	}
	w.mu.Unlock()
	if !known {
		w.Instruments.UnknownFrames.WithLabelValues("machine_state").Inc()
	}
	w.queue.AddAfter(m.MachineId, wait)
}

// onTheWay reports whether a phase leads to the next without further action. A machine that passes these quickly is written once, and
// those writes do not compete with the ones that a Pod waits for.
func onTheWay(p v1alpha1.NodePhase) bool {
	return p == v1alpha1.NodeProvisioning || p == v1alpha1.NodeLaunched || p == v1alpha1.NodeRegistered
}

// passes reports whether a phase is worth a short wait: the next phase or the Node follows soon, and one write shows both.
func (w *Writer) passes(id string, p v1alpha1.NodePhase) bool {
	if p != v1alpha1.NodeReady {
		return onTheWay(p)
	}
	node, how := w.Machines.Find(id)
	if node == nil {
		return how != machine.Ambiguous
	}
	ready, _, _ := machine.Ready(node)
	return !ready
}

// passing is how long such a phase waits for the next. It grows with the latency of the API server: an overloaded server
// is spared the writes that are soon outdated.
func (w *Writer) passing() time.Duration {
	return min(max(passingMin, passingWrites*time.Duration(w.latest.Load())), passingMax)
}

// pause is how long a passing phase waits. Ready waits longer for its Node while the API server is slow, because then one write
// instead of two helps most.
func (w *Writer) pause(p v1alpha1.NodePhase) time.Duration {
	if p == v1alpha1.NodeReady && time.Duration(w.latest.Load()) > slow {
		return passingMax
	}
	return w.passing()
}

// spares reports whether to spare a slow API server a write: the Node exists, and no Pod waits for the new text.
func (w *Writer) spares(s stage) bool {
	return s.phase == v1alpha1.NodeReady && !s.gone && !s.leaving && time.Duration(w.latest.Load()) > slow
}

// took averages how long writes take; each write moves the average by an eighth of the difference.
func (w *Writer) took(d time.Duration) {
	old := w.latest.Load()
	w.latest.Store(old + (int64(d)-old)/8) // a concurrent update may be lost, which does not matter
}

func (e *entry) become(s stage, now time.Time) {
	if s.phase == v1alpha1.NodeFailed && e.stage.phase != v1alpha1.NodeFailed {
		e.failed = now
	}
	e.stage = s
}

// entry returns the entry of a machine, made from the object of an earlier process if there is one.
func (w *Writer) entry(id string) *entry {
	e := w.entries[id]
	if e == nil {
		e = &entry{id: id}
		if o := w.objects[Name(id)]; o != nil {
			e.written = o
			e.stage = stage{phase: o.Status.Phase, failure: o.Status.LastError,
				leaving: o.Status.Phase == v1alpha1.NodeDraining || o.Status.Phase == v1alpha1.NodeDrained}
			e.failed = failedSince(o)
		}
		w.entries[id] = e
	}
	return e
}

// SetDrain says what the drain of a machine's node does. The channel is closed once the object shows it.
func (w *Writer) SetDrain(id string, d DrainState, why string) <-chan struct{} {
	done := make(chan struct{})
	w.mu.Lock()
	e := w.entries[id]
	if e == nil && w.objects[Name(id)] != nil {
		e = w.entry(id)
	}
	if e == nil || e.stage.gone {
		w.mu.Unlock()
		close(done)
		return done
	}
	e.drain = d
	e.become(drained(e.stage, d, why), time.Now())
	e.waiters = append(e.waiters, done)
	w.mu.Unlock()
	w.queue.Add(id)
	return done
}

// Touch says that the Nodes of machines changed.
func (w *Writer) Touch(ids []string) {
	for _, id := range ids {
		w.mu.Lock()
		_, known := w.entries[id]
		w.mu.Unlock()
		if known {
			w.queue.AddAfter(id, max(settle, w.pause(v1alpha1.NodeReady)))
		}
	}
}

// SetObject takes the present form of an object from the cache.
func (w *Writer) SetObject(o *v1alpha1.UpcomingNode) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, removed := w.removed[o.UID]; removed {
		return // the cache has not seen its end yet; it would be taken for one of an earlier process, and written again once the cache has
	}
	w.objects[o.Name] = o
	if e := w.entries[o.Spec.MachineID]; e != nil && Name(e.id) == o.Name && newerThan(o, e.written) {
		e.written = o
	}
}

// DeleteObject takes the deletion of an object from the cache. If another client deleted it, it is written again.
func (w *Writer) DeleteObject(o *v1alpha1.UpcomingNode) {
	w.mu.Lock()
	delete(w.objects, o.Name)
	delete(w.removed, o.UID)
	e := w.entries[o.Spec.MachineID]
	again := e != nil && !e.stage.gone && e.written != nil && !newerThan(e.written, o)
	if again {
		e.written = nil
	}
	w.mu.Unlock()
	if again {
		w.queue.Add(e.id)
	}
}

// UID is the uid of an object that the cache knows, else empty.
func (w *Writer) UID(name string) types.UID {
	w.mu.Lock()
	defer w.mu.Unlock()
	if o := w.objects[name]; o != nil {
		return o.UID
	}
	return ""
}

// newerThan compares resource versions, which are numbers on every API server that we know; others count as newer.
func newerThan(a, b *v1alpha1.UpcomingNode) bool {
	if b == nil {
		return true
	}
	x, errX := strconv.ParseUint(a.ResourceVersion, 10, 64)
	y, errY := strconv.ParseUint(b.ResourceVersion, 10, 64)
	return errX != nil || errY != nil || x > y
}

// Close ends a Writer whether or not it ever ran: a replica that never led has a queue too.
func (w *Writer) Close() { w.queue.ShutDown() }

// Run writes until ctx ends.
func (w *Writer) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, w.queue.ShutDown)()
	var workers sync.WaitGroup
	for range w.Concurrency {
		workers.Go(func() {
			for {
				id, stopping := w.queue.Get()
				if stopping {
					return
				}
				w.handle(ctx, id)
				w.queue.Done(id)
			}
		})
	}
	sweep := time.NewTicker(max(time.Second, min(sweepEvery, w.JoinTimeout/4))) // notices a timeout soon after it passed
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			workers.Wait()
			return nil
		case <-sweep.C:
			w.sweep(time.Now())
		}
	}
}

func (w *Writer) handle(ctx context.Context, id string) {
	w.Instruments.DispatchInflight.Inc()
	defer w.Instruments.DispatchInflight.Dec()
	var err error
	for range conflictRetries {
		if err = w.write(ctx, id); !retryable(err) {
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		w.Log.Warn("an UpcomingNode could not be written", "machine", id, "err", err)
		w.queue.AddRateLimited(id)
		return
	}
	w.queue.Forget(id)
}
