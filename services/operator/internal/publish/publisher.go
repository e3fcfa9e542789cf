package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/outofservice"
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
	// OutOfService lists machines whose nodes take no Pods, and the Pods on them, for shards with its feature; may be nil.
	OutOfService func() (machines []*pb.MachineOutOfService, left []types.UID)
	OnOutcome    func(Outcome)           // hears what became of roll-ups; may be nil
	OnProblem    func(key aggregate.Key) // hears of requests whose validity may have changed; may be nil
	OnKeys       func(keys []string)     // hears by which label keys the rows of a roll-up select, sorted; may be nil
	// Pod returns a Pod of the cluster, nil if it is not known; nil means that no demand is held.
	Pod         func(uid types.UID) *pods.Pod
	Order       func(uid types.UID) (born, ended uint64) // of changes of Pods; nil: not known
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

	mu        sync.Mutex
	demand    *aggregate.Aggregate
	byPod     map[types.UID]podRequest // requests by the Pod that controls them
	ahead     map[aggregate.Key]bool   // requests that no Pod controls
	holds     holds
	unclear   map[aggregate.Key]unclear   // requests whose Pods are not known yet
	over      map[aggregate.Key]types.UID // requests that are there, and whose demand is held or replaced already
	suspended map[aggregate.Key]bool      // requests of Pods on nodes out of service
	change    uint64                      // changes of demand so far, from 1
	synced    bool                        // the cache was complete once
	changed   time.Time                   // first change that was not sent; zero: none
	link      Link                        // nil: no session
	greeted   bool                        // the shard answered Hello, so its features are known
	urgent    bool                        // send at once: a session opened
	last      time.Time                   // last roll-up
	rests     time.Time                   // before which nothing follows a large roll-up
	paid      time.Time                   // until when roll-ups used up one spacing each
	stamp     int64                       // its timestamp
	built     time.Time                   // last rebuild
	tracker   tracker
	oversized bool
	outcome   *Outcome // of a roll-up that was not sent, to be told without the lock
	accepted  time.Time
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
	return &Publisher{Config: c, wake: make(chan struct{}, 1), demand: aggregate.New(0), byPod: map[types.UID]podRequest{}, ahead: map[aggregate.Key]bool{}, holds: newHolds(),
		unclear: map[aggregate.Key]unclear{}, over: map[aggregate.Key]types.UID{}, suspended: map[aggregate.Key]bool{}, change: 1, tracker: newTracker()}, nil
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

// Greeted says that the shard answered Hello. One that does not tell what becomes of a roll-up has what was handed to
// it (OP-6.1).
func (p *Publisher) Greeted() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.greeted = true
	if p.OutOfService != nil && p.link != nil && p.link.Has(outofservice.Feature) {
		p.touch(true) // what was sent before the answer named no machine
	}
	p.settle(time.Now())
}

// settle hands on what need not wait for an answer: everything, to a shard that gives none; what waited too long, to
// one that does not give it (OP-6.2).
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

// Run sends roll-ups when they are due, until ctx ends.
func (p *Publisher) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	defer p.turn.Store(0)
	for {
		p.turn.Store(time.Now().UnixNano())
		timer.Reset(min(p.step(time.Now()), p.Heartbeat)) // a turn at each heartbeat, whether or not there is a session
		p.tell()
		p.turn.Store(time.Now().UnixNano())
		select {
		case <-ctx.Done():
			return nil
		case <-p.wake:
		case <-timer.C:
		}
	}
}

// Alive is nil unless Run stands still: it turns at each heartbeat, so a turn that does not end waits for a lock that nobody
// gives back, or for somebody who was told of a roll-up. Only a restart helps then (OP-3.5).
func (p *Publisher) Alive() error {
	began := p.turn.Load()
	if still := time.Since(time.Unix(0, began)); began != 0 && still > p.Heartbeat+stuckAfter {
		return fmt.Errorf("the demand has not been checked for %s", still.Round(time.Second))
	}
	return nil
}

// tell tells what became of a roll-up that was not sent.
func (p *Publisher) tell() {
	p.mu.Lock()
	o := p.outcome
	p.outcome = nil
	p.mu.Unlock()
	if o != nil {
		p.OnOutcome(*o)
	}
}

// step sends a roll-up if one is due, and returns the time until the next may be.
func (p *Publisher) step(now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.link == nil || !p.synced {
		return time.Hour // the wake channel says when that changes
	}
	p.expireHolds(now)
	next := p.countUnclear(now)
	if p.due().After(now) {
		return p.nextTurn(now, next)
	}
	p.send(now)
	return p.nextTurn(now, next)
}

// nextTurn is how long it is until a roll-up is due, or a request has waited long enough for its Pod.
func (p *Publisher) nextTurn(now, unclear time.Time) time.Duration {
	wait := p.due().Sub(now)
	if !unclear.IsZero() {
		wait = min(wait, unclear.Sub(now))
	}
	return max(0, wait)
}

func (p *Publisher) due() time.Time {
	if p.urgent {
		return time.Time{}
	}
	due := p.last.Add(p.Heartbeat)
	if due.Before(p.rests) {
		due = p.rests
	}
	if !p.changed.IsZero() {
		at := p.changed.Add(p.Debounce)
		if earliest := p.paid.Add(-saved * spacing); at.Before(earliest) {
			at = earliest
		}
		if at.Before(p.rests) {
			at = p.rests
		}
		if at.Before(due) {
			due = at
		}
	}
	return due
}

// send builds a roll-up and hands it to the session.
func (p *Publisher) send(now time.Time) {
	start := time.Now()
	if p.urgent || now.Sub(p.built) >= rebuildEvery {
		p.rebuild()
		p.built = now
	}
	listed := time.Now()
	out := p.suspend()
	needs := p.build(now)
	needs.OutOfService = out
	if p.OnKeys != nil {
		p.OnKeys(labelKeys(needs.Needs))
	}
	size := proto.Size(needs)
	built := time.Now()
	p.last, p.changed, p.urgent = now, time.Time{}, false
	if p.paid.Before(now) {
		p.paid = now
	}
	p.paid = p.paid.Add(spacing)
	p.Instruments.RollupBytes.Set(float64(size))
	p.Instruments.RollupRows.Set(float64(len(needs.Needs)))
	p.gauge()
	p.rests = now.Add(restAfter(size))
	if limit := p.limit(); size > limit {
		p.tooLarge(now, size, limit, len(needs.Needs))
		return
	}
	p.oversized = false
	p.Log.Debug("a roll-up is sent", "stamp", needs.TimestampUnixNanos, "rows", len(needs.Needs), "bytes", size)
	p.link.Rollup(needs)
	p.tracker.sent(needs.TimestampUnixNanos, now, p.demand.TakeWaiting(), outcomeOf(needs, size, p.change))
	p.settle(now)
	done := time.Now()
	p.Instruments.RollupPhase.WithLabelValues("list").Observe(listed.Sub(start).Seconds())
	p.Instruments.RollupPhase.WithLabelValues("build").Observe(built.Sub(listed).Seconds())
	p.Instruments.RollupPhase.WithLabelValues("enqueue").Observe(done.Sub(built).Seconds())
	p.Instruments.RollupDuration.Observe(done.Sub(start).Seconds())
}

// suspend lists the machines out of service and leaves the demand of the Pods on them out, so that supply and demand change in
// one frame. A shard without the feature gets neither.
func (p *Publisher) suspend() (machines []*pb.MachineOutOfService) {
	if p.OutOfService == nil {
		return nil
	}
	var left []types.UID
	if p.greeted && p.link.Has(outofservice.Feature) {
		machines, left = p.OutOfService()
	}
	now := make(map[aggregate.Key]bool, len(left))
	for _, uid := range left {
		if r, ok := p.byPod[uid]; ok {
			now[r.key] = true
			p.demand.Suspend(r.key)
		}
	}
	for key := range p.suspended {
		if !now[key] {
			p.demand.Resume(key)
		}
	}
	p.suspended = now
	return machines
}

// labelKeys are the keys of node labels that rows select, or spread and gather by, sorted.
func labelKeys(needs []*pb.CapacityNeed) []string {
	keys := map[string]bool{}
	for _, n := range needs {
		for _, r := range n.Requirements {
			keys[r.Key] = true
		}
		for _, s := range n.Spread {
			keys[s.TopologyKey] = true
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

func (p *Publisher) build(now time.Time) *pb.ClusterCapacityNeeds {
	p.stamp = max(now.UnixNano(), p.stamp+1) // strictly grows, so that an acknowledgement names one roll-up (OP-5.4)
	needs := &pb.ClusterCapacityNeeds{ClusterId: p.ClusterID, TimestampUnixNanos: p.stamp, Needs: p.demand.Needs()}
	if p.Overhead != nil {
		needs.NodeOverhead = p.Overhead()
	}
	return needs
}

// rebuild computes the demand again from the requests. A difference is a bug of ours; the rebuild wins (OP-5.9).
func (p *Publisher) rebuild() {
	fresh, equal := p.demand.Rebuild(p.demand.Requests())
	if !equal {
		p.Instruments.AggregationMismatch.Inc()
		p.Log.Error("the incremental demand differed from a rebuild; the rebuild is used")
	}
	p.demand = fresh
}

// limit is the size of the largest roll-up that is sent.
func (p *Publisher) limit() int {
	if stated := p.link.RollupBytesMax(); stated > 0 {
		return int(min(stated, hardBytesMost))
	}
	return hardBytes
}

// restAfter is how much longer the next roll-up waits behind one of this size: large ones slow down, so that a cluster with very many
// shapes costs its shard a bounded part of a processor.
func restAfter(size int) time.Duration {
	return time.Duration(max(0, size-BytesSoft)) * time.Second / bytesPerSecond
}

func (p *Publisher) tooLarge(now time.Time, size, limit, rows int) {
	p.Instruments.Rollups.WithLabelValues("too_large").Inc()
	if !p.oversized {
		p.Log.Error("the roll-up is too large to send; the shard keeps the last demand", "bytes", size, "limit", limit, "rows", rows)
	}
	p.oversized = true
	p.outcome = &Outcome{At: now, Result: "too_large", Rows: rows, Bytes: size, Reason: "too_large",
		Text: "the demand has more distinct shapes than a roll-up can hold; requests with equal constraints aggregate"}
}

func (p *Publisher) gauge() {
	acknowledged, pending := p.demand.Phases()
	p.Instruments.Requests.WithLabelValues("Acknowledged").Set(float64(acknowledged))
	p.Instruments.Requests.WithLabelValues("Pending").Set(float64(pending))
	p.Instruments.RequestsInvalid.Set(float64(p.demand.Invalid()))
}

// release hands requests to the Acknowledger, those that still wait.
func (p *Publisher) release(keys []aggregate.Key) {
	out := keys[:0]
	for _, k := range keys {
		if p.demand.Waits(k) {
			out = append(out, k)
		}
	}
	if len(out) > 0 {
		p.Acknowledge(out)
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
