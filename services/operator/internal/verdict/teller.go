package verdict

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
	"github.com/bigfleet-dev/bigfleet/services/incluster/notes"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

const (
	holdFor        = 5 * time.Second // before a reason is written (OP-14.2)
	eventHold      = 2 * time.Second // before it is told by event, so that a Pod's owner sees it within ten seconds
	perSecond      = 20              // conditions written
	perRowMinute   = 100             // of one row
	unreachable    = time.Minute     // without a session
	lookEvery      = 500 * time.Millisecond
	settled        = 10 * time.Second // after a write the cache is believed again
	onTheWayAfter  = 3 * time.Second  // a machine that comes sooner is not worth an event
	onTheWayEach   = 10               // Pods told of one machine
	rowKept        = time.Hour        // what the shard said of a row without requests
	rowsMax        = 50_000           // as many as a roll-up may have
	machinesMax    = 20_000
	writesParallel = 4
)

// Config is what a Teller needs.
type Config struct {
	Client client.Client                      // required
	Demand func(f func(*aggregate.Aggregate)) // required: calls f with the demand as it is now
	Waits  func(uid types.UID) (pending bool) // required: the Pod waits for a node
	Note   func(notes.Note)                   // required
	Log    *slog.Logger                       // required
}

// Teller writes conditions and events.
type Teller struct {
	Config

	mu       sync.Mutex
	runs     bool // before Run nothing is noted: a standby replica may wait for months
	rows     map[string]*row
	validity map[aggregate.Key]struct{} // requests whose condition Valid may have to change
	written  map[aggregate.Key]time.Time
	rollup   verdict   // of the last roll-up, when it was not taken; else empty
	away     time.Time // since when there is no session; zero: there is one
	everyRow bool      // something changed for all rows
	machines map[string]machineNews
}

type row struct {
	now     verdict   // in force
	next    verdict   // will be, if it holds
	since   time.Time // of next
	told    string    // reason that events went out for
	minute  time.Time // of count
	count   int       // written in this minute
	pending bool      // requests may still differ
}

type machineNews struct {
	row   string
	since time.Time
}

// New checks the configuration.
func New(c Config) (*Teller, error) {
	if c.Client == nil || c.Demand == nil || c.Waits == nil || c.Note == nil || c.Log == nil {
		return nil, errors.New("verdict: Client, Demand, Waits, Note and Log are required")
	}
	return &Teller{Config: c, rows: map[string]*row{}, validity: map[aggregate.Key]struct{}{},
		written: map[aggregate.Key]time.Time{}, machines: map[string]machineNews{}, away: time.Now()}, nil
}

// Status takes what the shard says of a row.
func (t *Teller) Status(s *pb.NeedStatus) {
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

// Satisfied says whether the shard's last word on a row was that it is satisfied.
func (t *Teller) Satisfied(rowID string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.rows[rowID]
	return r != nil && r.next.satisfied()
}

// Rollup takes what became of a roll-up.
func (t *Teller) Rollup(result, message string) {
	v := verdict{}
	switch result {
	case "held":
		v = verdict{reason: Held, message: says[Held]}
	case "rejected", "too_large":
		v = verdict{reason: Rejected, message: says[Rejected]}
	}
	if v.reason != "" && message != "" {
		v.message += ": " + message
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rollup != v {
		t.rollup, t.everyRow = v, true
	}
}

// Session says whether there is a session.
func (t *Teller) Session(open bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case open && !t.away.IsZero():
		t.away, t.everyRow = time.Time{}, true
	case !open && t.away.IsZero():
		t.away = time.Now()
	}
}

// Changed says that a request is new, or is not what it was.
func (t *Teller) Changed(key aggregate.Key) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runs {
		t.validity[key] = struct{}{}
	}
}

// begin looks at the requests there are: only those with a condition, or one to come, can differ from what they should say.
func (t *Teller) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.runs = true
	t.Demand(func(a *aggregate.Aggregate) {
		for _, q := range a.Requests() {
			if key := aggregate.KeyOf(q); len(q.Status.Conditions) > 0 || a.Problem(key) != nil {
				t.validity[key] = struct{}{}
			}
		}
	})
	if !t.away.IsZero() {
		t.away = time.Now() // what was before this process led does not count
	}
}

// Machine takes a machine that is on its way for a row; coming false takes it back.
func (t *Teller) Machine(id, rowID string, coming bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch _, known := t.machines[id]; {
	case !coming:
		delete(t.machines, id)
	case !known && rowID != "" && len(t.machines) < machinesMax:
		t.machines[id] = machineNews{rowID, time.Now()}
	}
}

// Run writes what changed until ctx ends. It begins with the requests there are.
func (t *Teller) Run(ctx context.Context) error {
	t.begin()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	budget := 0.0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		budget = min(budget+perSecond*lookEvery.Seconds(), perSecond)
		writes, events := t.look(time.Now(), int(budget))
		budget -= float64(len(writes))
		for _, n := range events {
			t.Note(n)
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

func (t *Teller) write(ctx context.Context, writes []write) {
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
