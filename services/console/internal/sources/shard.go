package sources

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

const (
	recordsMax   = 500              // newest records kept of a shard
	retryAfter   = time.Second      // before a lost stream is opened again
	rateOver     = time.Minute      // actions are counted over
	needsEvery   = time.Second      // at most, while somebody looks at needs
	needsShare   = 400              // reading what changed takes at most this part of the time: where much changes it is read less often
	wholeShare   = 20               // the same of reading all, at the beginning and after a shard's start
	needsLatest  = 10 * time.Second // and not later than this
	needsTimeout = 30 * time.Second // of one reading
	callsMax     = 4                // forwarded calls at a time to one shard, below what it allows one caller (SHARD-23.1)
)

// Shard follows one shard.
type Shard struct {
	ID   string
	Read bigfleetv1alpha1connect.ShardReadClient
	// Order carries the orders of people, under a certificate of its own; nil in a console that only reads.
	Order bigfleetv1alpha1connect.ShardAdminClient

	addr   string
	client *rpc.Client
	orders *rpc.Client // nil in a console that only reads
	set    *Set
	say    func(*pb.DecisionRecord) string
	log    *slog.Logger
	stop   context.CancelFunc
	slots  chan struct{}

	mu    sync.Mutex
	state State
	costs Costs

	answers answers
}

// State is the newest that a shard said. What it points to is never changed.
type State struct {
	At      time.Time // of the newest answer; zero: none
	Err     error     // of the newest look
	Status  *pb.GetStatusResponse
	Records []*pb.DecisionRecord // newest last
	started []time.Time          // of actions, within rateOver
	kinds   []pb.ActionKind      // of them
	Needs   *Needs               // nil until they were read once
}

// Needs is one reading of a shard's needs, in precedence order.
type Needs struct {
	At    time.Time
	Cycle int64
	Rows  []*pb.FleetNeed // a row that did not change is the same pointer as before

	revision string // of the shard's view
	clusters map[string][]*pb.FleetNeed
	whole    bool // everything was read
}

// Snapshot is the newest state.
func (s *Shard) Snapshot() State { return s.snapshot() }

func (s *Shard) snapshot() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state
}

func (s *Shard) change(edit func(*State)) {
	s.mu.Lock()
	edit(&s.state)
	s.mu.Unlock()
	s.set.changes.notify()
}

func (s *Shard) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { s.repeat(ctx, lookEvery, s.look) })
	all.Go(func() { s.repeat(ctx, retryAfter, s.follow) })
	all.Go(func() { s.readNeeds(ctx) })
	all.Go(func() { s.notes(ctx) })
	all.Wait()
}

func (s *Shard) close() {
	s.client.CloseIdle()
	if s.orders != nil {
		s.orders.CloseIdle()
	}
}

func (s *Shard) repeat(ctx context.Context, every time.Duration, do func(context.Context)) {
	for ticker := time.NewTicker(every); ; {
		do(ctx)
		select {
		case <-ctx.Done():
			ticker.Stop()
			return
		case <-ticker.C:
		}
	}
}

func (s *Shard) look(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	got, err := s.Read.GetStatus(ctx, connect.NewRequest(&pb.GetStatusRequest{}))
	s.change(func(st *State) {
		if st.Err = err; err == nil {
			st.At, st.Status = time.Now(), got.Msg
		}
	})
}

// follow reads the newest records and then the stream of new ones, until it breaks.
func (s *Shard) follow(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	past, err := s.Read.GetMachineHistory(ctx, connect.NewRequest(&pb.GetMachineHistoryRequest{PageSize: recordsMax / 2}))
	if err != nil {
		return // look says why
	}
	last := int64(0)
	records := past.Msg.GetRecords()
	for i := len(records) - 1; i >= 0; i-- {
		last = max(last, records[i].GetSequence())
	}
	s.change(func(st *State) { st.Records, st.started, st.kinds = nil, nil, nil })
	for i := len(records) - 1; i >= 0; i-- {
		s.add(records[i])
	}
	stream, err := s.Read.WatchDecisions(ctx, connect.NewRequest(&pb.WatchDecisionsRequest{FromSequence: last + 1, Follow: true}))
	if err != nil {
		return
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		if r := stream.Msg().GetRecord(); r != nil {
			s.add(r)
		}
	}
	if err := stream.Err(); err != nil && ctx.Err() == nil && !errors.Is(err, context.Canceled) {
		s.log.Debug("the stream of records ended", "err", err)
	}
}

func (s *Shard) add(r *pb.DecisionRecord) {
	r = s.Worded(r)
	s.change(func(st *State) {
		records := st.Records
		if len(records) >= recordsMax {
			records = append(make([]*pb.DecisionRecord, 0, recordsMax*2), records[len(records)-recordsMax+1:]...)
		}
		st.Records = append(records, r)
		if r.GetType() == pb.RecordType_RECORD_TYPE_STARTED {
			st.started, st.kinds = append(st.started, time.Unix(0, r.GetAtUnixNanos())), append(st.kinds, r.GetKind())
		}
		for len(st.started) > 0 && time.Since(st.started[0]) > rateOver {
			st.started, st.kinds = st.started[1:], st.kinds[1:]
		}
	})
}

// Worded is a copy of a record whose detail is the whole sentence about it.
func (s *Shard) Worded(r *pb.DecisionRecord) *pb.DecisionRecord {
	out, _ := proto.Clone(r).(*pb.DecisionRecord)
	out.Detail, out.ShardId = s.say(r), s.ID
	return out
}

// NeedsAge is for how long the needs have not been read although the shard has planned again.
func (st State) NeedsAge() time.Duration {
	if st.Needs == nil || st.Err != nil || st.Needs.Cycle == st.Status.GetCycle() {
		return 0 // nothing is shown, its source is named as silent, or it is what the shard knows
	}
	return time.Since(st.Needs.At)
}

// PerMinute counts the actions of the last minute by kind.
func (st State) PerMinute(into map[string]float64) {
	for i, at := range st.started {
		if time.Since(at) <= rateOver {
			into[st.kinds[i].String()]++
		}
	}
}

// readNeeds reads the needs after each cycle while somebody looks at them, and else every ten seconds: the first who looks finds them.
func (s *Shard) readNeeds(ctx context.Context) {
	wait := time.Duration(0)
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = needsEvery
		st := s.snapshot()
		if st.Status == nil || s.set.watching.Load() == 0 && st.Needs != nil && time.Since(st.Needs.At) < needsLatest {
			wait = needsEvery / 4 // the first who looks should not wait
			continue
		}
		if st.Needs != nil && st.Needs.Cycle == st.Status.GetCycle() {
			continue
		}
		began := time.Now()
		next, err := s.inspect(ctx, st.Needs)
		if err != nil {
			s.log.Debug("needs could not be read", "err", err)
			continue
		}
		if wait = max(needsEvery, needsShare*time.Since(began)); next.whole {
			wait = max(needsEvery, min(wait, wholeShare*time.Since(began)))
		}
		wait = min(wait, needsLatest)
		s.change(func(st *State) { st.Needs = next })
	}
}

// inspect reads the needs of clusters that changed since before, or of all.
func (s *Shard) inspect(ctx context.Context, before *Needs) (*Needs, error) {
	ctx, cancel := context.WithTimeout(ctx, needsTimeout)
	defer cancel()
	out := &Needs{At: time.Now(), clusters: map[string][]*pb.FleetNeed{}}
	req := &pb.InspectNeedsRequest{}
	if before != nil {
		req.ChangedSince = before.revision
	}
	stream, err := s.Read.InspectNeeds(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	total := 0
	for stream.Receive() {
		if h := stream.Msg().GetHeader(); h != nil {
			out.Cycle, out.revision, out.whole, total = h.GetCycle(), h.GetRevision(), !h.GetChangesOnly(), int(h.GetTotalNeeds())
			continue
		}
		n := stream.Msg().GetNeed()
		n.AgeCyclesUnmet, n.ParkedAgeCycles = 0, 0 // if nothing else changes, they are not sent again
		out.clusters[n.GetClusterId()] = append(out.clusters[n.GetClusterId()], &pb.FleetNeed{Key: key(s.ID, n), ShardId: s.ID, Need: n})
	}
	if err := stream.Err(); err != nil {
		return nil, err
	}
	out.after(before)
	if !out.whole && len(out.Rows) != total { // a cluster's last need went
		return s.inspect(ctx, nil)
	}
	return out, nil
}

// after takes over what did not change.
func (n *Needs) after(before *Needs) {
	if before != nil {
		for cluster, rows := range n.clusters {
			keep(rows, before.clusters[cluster])
		}
		if !n.whole {
			for cluster, rows := range before.clusters {
				if n.clusters[cluster] == nil {
					n.clusters[cluster] = rows
				}
			}
		}
	}
	for _, rows := range n.clusters {
		n.Rows = append(n.Rows, rows...)
	}
	slices.SortFunc(n.Rows, precedes)
}

// keep puts the rows of before in the place of equal ones.
func keep(rows, before []*pb.FleetNeed) {
	known := make(map[string]*pb.FleetNeed, len(before))
	for _, r := range before {
		known[r.GetKey()] = r
	}
	for i, r := range rows {
		if old := known[r.GetKey()]; old != nil && proto.Equal(old, r) {
			rows[i] = old
		}
	}
}

// Slot bounds what is forwarded to one shard at a time. Its error says that there is no room.
func (s *Shard) Slot(ctx context.Context) (release func(), err error) {
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	default:
	}
	timer := time.NewTimer(2 * time.Second)
	defer timer.Stop()
	select {
	case s.slots <- struct{}{}:
		return func() { <-s.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-timer.C:
		return nil, connect.NewError(connect.CodeResourceExhausted, errors.New("too many questions to this shard are under way: try again in a moment"))
	}
}
