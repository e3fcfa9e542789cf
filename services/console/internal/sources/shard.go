package sources

import (
	"context"
	"errors"
	"log/slog"
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
	needsShare   = 20               // reading needs takes at most this part of the time: a large shard is read less often
	needsTimeout = 30 * time.Second // of one reading
	callsMax     = 16               // forwarded calls at a time to one shard
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
	index Index
	costs Costs
}

// State is the newest that a shard said. What it points to is never changed.
type State struct {
	At      time.Time // of the newest answer; zero: none
	Err     error     // of the newest look
	Status  *pb.GetStatusResponse
	Records []*pb.DecisionRecord // newest last
	started []time.Time          // of actions, within rateOver
	kinds   []pb.ActionKind      // of them
	Needs   *Needs               // nil while nobody looks
}

// Needs is one reading of a shard's needs, in precedence order.
type Needs struct {
	At    time.Time
	Cycle int64
	Rows  []*pb.FleetNeed // a row that did not change is the same pointer as before
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
	s.set.pulse.beat()
}

func (s *Shard) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { s.repeat(ctx, lookEvery, s.look) })
	all.Go(func() { s.repeat(ctx, retryAfter, s.follow) })
	all.Go(func() { s.readNeeds(ctx) })
	all.Go(func() { s.repeat(ctx, costEvery, s.note) })
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
	r = s.Told(r)
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

// Told is a copy of a record whose detail is the whole sentence about it.
func (s *Shard) Told(r *pb.DecisionRecord) *pb.DecisionRecord {
	out, _ := proto.Clone(r).(*pb.DecisionRecord)
	out.Detail, out.ShardId = s.say(r), s.ID
	return out
}

// PerMinute counts the actions of the last minute by kind.
func (st State) PerMinute(into map[string]float64) {
	for i, at := range st.started {
		if time.Since(at) <= rateOver {
			into[st.kinds[i].String()]++
		}
	}
}

// readNeeds reads the needs after each cycle while somebody looks at them.
func (s *Shard) readNeeds(ctx context.Context) {
	wait := needsEvery
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		wait = needsEvery
		st := s.snapshot()
		if s.set.watching.Load() == 0 {
			if st.Needs != nil {
				s.change(func(st *State) { st.Needs = nil })
			}
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
		wait = max(needsEvery, needsShare*time.Since(began))
		s.change(func(st *State) { st.Needs = next })
	}
}

func (s *Shard) inspect(ctx context.Context, before *Needs) (*Needs, error) {
	ctx, cancel := context.WithTimeout(ctx, needsTimeout)
	defer cancel()
	stream, err := s.Read.InspectNeeds(ctx, connect.NewRequest(&pb.InspectNeedsRequest{}))
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	known := map[string]*pb.FleetNeed{}
	if before != nil {
		for _, r := range before.Rows {
			known[r.GetKey()] = r
		}
	}
	out := &Needs{At: time.Now()}
	for stream.Receive() {
		if h := stream.Msg().GetHeader(); h != nil {
			out.Cycle = h.GetCycle()
			continue
		}
		row := &pb.FleetNeed{Key: key(s.ID, stream.Msg().GetNeed()), ShardId: s.ID, Need: stream.Msg().GetNeed()}
		if old := known[row.Key]; old != nil && proto.Equal(old, row) {
			row = old
		}
		out.Rows = append(out.Rows, row)
	}
	return out, stream.Err()
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
