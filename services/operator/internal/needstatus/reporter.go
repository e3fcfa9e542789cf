package needstatus

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

const (
	stableFor         = 5 * time.Second // how long a reason must hold before it is written (OP-14.2)
	eventStableFor    = 2 * time.Second // the same before its event, so that the owner of a Pod sees it within ten seconds
	perSecond         = 20              // conditions written
	perRowMinute      = 100             // of one row
	unreachable       = time.Minute     // without a session
	checkEvery        = 500 * time.Millisecond
	cacheTrustedAfter = 10 * time.Second // after a write, the cache shows it
	onTheWayAfter     = 3 * time.Second  // a machine that is ready sooner gets no event
	onTheWayPodsMax   = 10               // Pods that get an event for one machine
	rowKept           = time.Hour        // how long the status of a row without requests is kept
	rowsMax           = 50_000           // as many as a roll-up may have
	machinesMax       = 20_000
	writesParallel    = 4
)

// Config is what a StatusReporter needs.
type Config struct {
	Client     client.Client                      // required
	Demand     func(f func(*aggregate.Aggregate)) // required: calls f with the demand as it is now
	PodPending func(uid types.UID) (pending bool) // required: the Pod has no node yet
	Record     func(events.Event)                 // required
	Log        *slog.Logger                       // required
}

// StatusReporter writes conditions and events.
type StatusReporter struct {
	Config

	mu                sync.Mutex
	running           bool // false before Run: a standby replica, which may wait for months, must not collect changes
	rows              map[string]*row
	validity          map[aggregate.Key]struct{} // requests whose condition Valid may have to change
	written           map[aggregate.Key]time.Time
	rollup            needStatus // of the last roll-up, if the shard did not accept it; else empty
	disconnectedSince time.Time  // zero while a session is open
	allRows           bool       // check every row at the next tick
	machines          map[string]machineArrival
}

type row struct {
	current  needStatus // written to the requests
	next     needStatus // the newest; becomes current if it holds
	since    time.Time  // of next
	notified string     // reason of the last events
	minute   time.Time  // in which count is counted
	count    int        // conditions written in this minute
	pending  bool       // some requests may still show another reason
}

type machineArrival struct {
	row   string
	since time.Time
}

// New checks the configuration.
func New(c Config) (*StatusReporter, error) {
	if c.Client == nil || c.Demand == nil || c.PodPending == nil || c.Record == nil || c.Log == nil {
		return nil, errors.New("needstatus: Client, Demand, Waits, Note and Log are required")
	}
	return &StatusReporter{Config: c, rows: map[string]*row{}, validity: map[aggregate.Key]struct{}{},
		written: map[aggregate.Key]time.Time{}, machines: map[string]machineArrival{}, disconnectedSince: time.Now()}, nil
}

// Status records the shard's status of a row.
func (t *StatusReporter) Status(s *pb.NeedStatus) {
	if s.RowId == "" {
		return
	}
	v := translate(s)
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[s.RowId]
	if r == nil {
		if len(t.rows) >= rowsMax {
			return
		}
		r = &row{}
		t.rows[s.RowId] = r
	}
	if r.next.reason != v.reason {
		r.since = time.Now()
	}
	r.next = v
}

// Satisfied reports whether the newest status of a row is satisfied, and by machines that are there: one that was planned and is not
// bought yet has no room for anybody.
func (t *StatusReporter) Satisfied(rowID string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[rowID]
	return r != nil && r.next.satisfied() && r.next.coming == 0
}

// Missing reports whether the newest status of a row says that a provider does not answer: its machines may serve the row and not be known.
func (t *StatusReporter) Missing(rowID string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[rowID]
	return r != nil && r.next.reason == ProviderUnavailable
}

// Rollup records the result of a roll-up.
func (t *StatusReporter) Rollup(result, message string) {
	v := needStatus{}
	switch result {
	case "held":
		v = needStatus{reason: Held, message: defaultMessage[Held]}
	case "rejected", "too_large":
		v = needStatus{reason: Rejected, message: defaultMessage[Rejected]}
	}
	if v.reason != "" && message != "" {
		v.message += ": " + message
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rollup != v {
		t.rollup, t.allRows = v, true
	}
}

// Session records whether a session is open.
func (t *StatusReporter) Session(open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case open && !t.disconnectedSince.IsZero():
		t.disconnectedSince, t.allRows = time.Time{}, true
	case !open && t.disconnectedSince.IsZero():
		t.disconnectedSince = time.Now()
	}
}

// Changed marks a request as new or changed.
func (t *StatusReporter) Changed(key aggregate.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.running {
		t.validity[key] = struct{}{}
	}
}

// begin marks the requests that have a condition or a problem. No other request can need a write.
func (t *StatusReporter) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running = true
	t.Demand(func(a *aggregate.Aggregate) {
		for _, q := range a.Requests() {
			if key := aggregate.KeyOf(q); len(q.Status.Conditions) > 0 || a.Problem(key) != nil {
				t.validity[key] = struct{}{}
			}
		}
	})
	if !t.disconnectedSince.IsZero() {
		t.disconnectedSince = time.Now() // time before this process became leader does not count
	}
}

// Machine records a machine that is in flight for a row; coming false removes it.
func (t *StatusReporter) Machine(id, rowID string, coming bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch _, known := t.machines[id]; {
	case !coming:
		delete(t.machines, id)
	case !known && rowID != "" && len(t.machines) < machinesMax:
		t.machines[id] = machineArrival{rowID, time.Now()}
	}
}

// Run writes what changed until ctx ends, starting with the existing requests.
func (t *StatusReporter) Run(ctx context.Context) error {
	t.begin()
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	budget := 0.0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		budget = min(budget+perSecond*checkEvery.Seconds(), perSecond)
		writes, records := t.due(time.Now(), int(budget))
		budget -= float64(len(writes))
		for _, n := range records {
			t.Record(n)
		}
		t.write(ctx, writes)
	}
}

// write is one condition to write.
type write struct {
	request *request.Request
	status  map[string]any
	row     string
}

func (t *StatusReporter) write(ctx context.Context, writes []write) {
	places := make(chan struct{}, writesParallel)
	var tasks sync.WaitGroup
	for _, w := range writes {
		places <- struct{}{}
		tasks.Go(func() {
			defer func() { <-places }()
			t.patch(ctx, w)
		})
	}
	tasks.Wait()
}

func conditionOf(r *request.Request, kind string) *metav1.Condition {
	for i := range r.Status.Conditions {
		if r.Status.Conditions[i].Type == kind {
			return &r.Status.Conditions[i]
		}
	}
	return nil
}
