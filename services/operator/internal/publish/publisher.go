package publish

import (
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/outofservice"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/peers"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/request"
)

// FeatureAck is the feature of shards that say what became of each roll-up.
const FeatureAck = "rollup-ack"

// Link is what a Publisher needs of an open session.
type Link interface {
	Rollup(needs *pb.ClusterCapacityNeeds)
	Has(feature string) bool
	// RollupBytesMax is the largest roll-up that the shard accepts; 0: it has not said.
	RollupBytesMax() int64
}

// Config is what a Publisher needs.
type Config struct {
	ClusterID   string                     // required
	Acknowledge func(keys []aggregate.Key) // required: the shard has these requests
	Overhead    func() map[string]string   // what DaemonSets take of a fresh node; nil means not known
	Rooms       func() []*pb.NodeRoom      // what was learnt of Nodes, for shards with its feature; may be nil
	// OutOfService lists machines whose nodes take no Pods, and the Pods on them, for shards with its feature; may be nil.
	OutOfService func() (machines []*pb.MachineOutOfService, left []types.UID)
	OnOutcome    func(Outcome)           // hears what became of roll-ups; may be nil
	OnProblem    func(key aggregate.Key) // hears of requests whose validity may have changed; may be nil
	OnKeys       func(keys []string)     // hears by which label keys the rows of a roll-up select, sorted; may be nil
	// Pod returns a Pod of the cluster, nil if it is not known; nil means that no demand is held.
	Pod         func(uid types.UID) *pods.Pod
	Order       func(uid types.UID) (born, ended uint64) // of changes of Pods; nil: not known
	Peers       *peers.Index                             // where Pods run; nil: rows say nothing of it
	Unbound     func() []*pods.Pod                       // Pods without a node; required with Peers
	Hold        time.Duration                            // of the demand of deleted Pods beyond their grace; 0 means 3 min
	Debounce    time.Duration                            // 0 means 250 ms
	Heartbeat   time.Duration                            // 0 means 10 s
	Instruments *instruments.Instruments                 // required
	Log         *slog.Logger                             // required
}

// Outcome is what became of a roll-up.
type Outcome struct {
	At            time.Time
	Result        string // accepted, unchanged, held, rejected, unknown, too_large
	Rows, Bytes   int
	Reason, Text  string
	FieldPath     string
	HeldCount     int32
	HeldNeeded    int32
	SoftExceeded  bool
	OfTimestampNs int64
	Change        uint64 // number of the last change of demand that the roll-up holds; 0: not known which roll-up
}

// Publisher sends the demand.
type Publisher struct {
	Config
	wake chan struct{}
	turn atomic.Int64 // when Run last began or ended a turn, in nanoseconds; 0: it does not run

	mu          sync.Mutex
	demand      *aggregate.Aggregate
	byPod       map[types.UID]podRequest // requests by the Pod that controls them
	ahead       map[aggregate.Key]bool   // requests that no Pod controls
	holds       holds
	templates   templates
	unclear     map[aggregate.Key]unclear   // requests whose Pods are not known yet
	over        map[aggregate.Key]types.UID // existing requests whose demand is already held or replaced
	suspended   map[aggregate.Key]bool      // requests of Pods on nodes out of service
	near        near
	change      uint64    // changes of demand so far, from 1
	synced      bool      // the cache was complete once
	changed     time.Time // first change that was not sent; zero: none
	link        Link      // nil: no session
	greeted     bool      // the shard answered Hello, so its features are known
	urgent      bool      // send at once: a session opened
	last        time.Time // last roll-up
	rests       time.Time // earliest next roll-up after a large one
	nextAllowed time.Time // earliest next roll-up without the burst: one per spacing on average
	timestamp   int64     // of the roll-up that was sent last
	built       time.Time // last rebuild
	tracker     tracker
	oversized   bool
	unreported  *Outcome        // of a roll-up that was not sent; reported after unlocking
	turned      []aggregate.Key // requests that a roll-up began or ceased to leave out; reported after unlocking
	accepted    time.Time
}

// New checks the configuration.
func New(c Config) (*Publisher, error) {
	if c.ClusterID == "" || c.Acknowledge == nil || c.Instruments == nil || c.Log == nil {
		return nil, errors.New("publish: ClusterID, Acknowledge, Instruments and Log are required")
	}
	if c.Debounce <= 0 {
		c.Debounce = debounceDefault
	}
	if c.Heartbeat <= 0 {
		c.Heartbeat = heartbeatEvery
	}
	if c.Hold <= 0 {
		c.Hold = holdDefault
	}
	if c.OnOutcome == nil {
		c.OnOutcome = func(Outcome) {}
	}
	if c.OnProblem == nil {
		c.OnProblem = func(aggregate.Key) {}
	}
	return &Publisher{Config: c, wake: make(chan struct{}, 1), demand: aggregate.New(0), byPod: map[types.UID]podRequest{}, ahead: map[aggregate.Key]bool{}, holds: newHolds(), templates: newTemplates(),
		unclear: map[aggregate.Key]unclear{}, over: map[aggregate.Key]types.UID{}, suspended: map[aggregate.Key]bool{}, change: 1,
		near: near{rows: map[string]*confined{}, changed: make(chan struct{}, 1)}, tracker: newTracker()}, nil
}

// Set takes the present form of a request from the cache.
func (p *Publisher) Set(r *request.Request) {
	key := aggregate.KeyOf(r)
	p.mu.Lock()
	if p.demand.Request(key) == nil {
		p.Log.Debug("a request is seen", "namespace", key.Namespace, "name", key.Name)
	}
	if !r.Pending() || r.DeletionTimestamp != nil {
		p.tracker.forget(key)
	}
	p.set(r, key)
	p.mu.Unlock()
	p.OnProblem(key)
}

func (p *Publisher) set(r *request.Request, key aggregate.Key) {
	_, uid, ok := r.Pod()
	switch {
	case !ok:
		p.ahead[key] = true
		p.touch(p.demand.Set(r))
	case p.byPod[uid].over && p.byPod[uid].key == key || p.waits(r, key, uid):
	default:
		p.add(r, key, uid)
	}
}

// Delete takes the end of a request from the cache.
func (p *Publisher) Delete(key aggregate.Key) {
	p.mu.Lock()
	p.tracker.forget(key)
	delete(p.ahead, key)
	if uid, over := p.over[key]; over {
		delete(p.over, key)
		delete(p.byPod, uid)
	}
	if u, waits := p.unclear[key]; waits {
		delete(p.unclear, key)
		delete(p.byPod, u.pod)
	}
	if x := p.holds.extras[key]; x != nil {
		p.holds.drop(x)
		delete(p.byPod, x.pod.uid)
	}
	if r := p.demand.Request(key); r != nil {
		if _, uid, ok := r.Pod(); ok && p.byPod[uid].key == key {
			p.hold(r, key, uid)
			delete(p.byPod, uid)
		}
	}
	p.touch(p.demand.Delete(key))
	p.mu.Unlock()
	p.OnProblem(key)
}

// Touch makes a roll-up due although no request changed, for example because the node overhead did.
func (p *Publisher) Touch() {
	p.mu.Lock()
	p.touch(true)
	p.mu.Unlock()
}

func (p *Publisher) touch(changed bool) {
	if !changed {
		return
	}
	p.change++
	if p.changed.IsZero() {
		p.changed = time.Now()
		p.signal()
	}
}

// Synced says that the cache is complete: from now on roll-ups may be sent (OP-1.3).
func (p *Publisher) Synced() {
	p.mu.Lock()
	p.synced = true
	p.mu.Unlock()
	p.signal()
}

// Opened makes a roll-up due at once.
func (p *Publisher) Opened(l Link) {
	p.mu.Lock()
	p.link, p.urgent, p.greeted = l, true, false
	p.tracker.opened(time.Now())
	p.mu.Unlock()
	p.signal()
}

// Greeted says that the shard answered Hello. A shard that does not report the result of a roll-up counts as having what was handed to
// it (OP-6.1).
func (p *Publisher) Greeted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.greeted = true
	if p.link != nil && p.demand.SetLimits(p.link.Has(aggregate.FeatureLimits)) {
		p.touch(true)
	}
	if p.OutOfService != nil && p.link != nil && p.link.Has(outofservice.Feature) {
		p.touch(true) // what was sent before the answer named no machine
	}
	p.settle(time.Now())
}

// settle acknowledges what need not wait for an answer: everything if the shard does not report results, and what waited too long if
// it has not answered (OP-6.2).
func (p *Publisher) settle(now time.Time) {
	switch {
	case p.link == nil || !p.greeted:
	case !p.link.Has(FeatureAck):
		p.release(p.tracker.all())
	default:
		p.release(p.tracker.silent(now, 2*p.Heartbeat))
	}
}

// Closed says that the session has ended.
func (p *Publisher) Closed() {
	p.mu.Lock()
	p.link = nil
	p.mu.Unlock()
}

func (p *Publisher) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// AcceptedAge is the age of the last accepted roll-up in seconds, -1 before the first.
func (p *Publisher) AcceptedAge() float64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.accepted.IsZero() {
		return -1
	}
	return time.Since(p.accepted).Seconds()
}

// OfPod returns the request of a Pod and the row that it is counted in.
func (p *Publisher) OfPod(pod *pods.Pod) (q *request.Request, row string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.byPod[pod.UID]
	if !ok {
		return nil, ""
	}
	return p.demand.Request(r.key), p.demand.Row(r.key)
}

// HasPod says that the shard has the request of a Pod: it acknowledged a roll-up with it, and the request may say so already.
func (p *Publisher) HasPod(pod *pods.Pod) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	r, ok := p.byPod[pod.UID]
	if !ok {
		return false
	}
	q := p.demand.Request(r.key)
	return q != nil && (!q.Pending() || p.tracker.handed[r.key])
}

// RowsAhead calls f with the row of each request that no Pod controls, such as one of a queue that starts its Pods later.
func (p *Publisher) RowsAhead(f func(row string)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key := range p.ahead {
		if row := p.demand.Row(key); row != "" {
			f(row)
		}
	}
}

// Read calls f with the demand as it is now. f must not keep it.
func (p *Publisher) Read(f func(*aggregate.Aggregate)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(p.demand)
}
