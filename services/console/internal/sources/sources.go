package sources

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

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/coordclient"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

const (
	lookEvery   = time.Second     // at the coordinator and at each shard's status
	lookTimeout = 3 * time.Second // of one look
	shardsMax   = 1000            // followed at a time
	rebuildMax  = time.Minute     // after a change of the leader, in which its rebuilding is worth a word
)

// Config of a Set.
type Config struct {
	Log          *slog.Logger      // required
	Coordinators []string          // addresses; empty means none
	Shards       map[string]string // address by id, beside those that the coordinator lists
	Identity     *identity.Source  // nil means plaintext
	Sentence     func(*pb.DecisionRecord) string
	Orders       bool             // people give orders
	OrderAs      *identity.Source // nil means plaintext
}

// Set is every source of a fleet.
type Set struct {
	cfg     Config
	coord   *coordclient.Client // nil without a coordinator
	changes broadcast

	watching atomic.Int64 // viewers that want needs

	mu     sync.Mutex
	shards map[string]*Shard
	fleet  Fleet
}

// Fleet is the newest state of the coordinator.
type Fleet struct {
	At          time.Time // of the newest answer; zero: none
	Err         error     // of the newest look
	Status      *pb.FleetStatus
	Moves       []*pb.Move
	DomainMoves []*pb.DomainMove
	term        int64     // of the leader that answered last
	changed     time.Time // when another one began to answer; zero: never since the console runs
}

// New checks the configuration. It dials nothing.
func New(c Config) (*Set, error) {
	s := &Set{cfg: c, shards: map[string]*Shard{}}
	if len(c.Coordinators) > 0 {
		var err error
		if s.coord, err = coordclient.New(coordclient.Config{Addrs: c.Coordinators, Identity: c.Identity, Log: c.Log}); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Run follows the sources until ctx ends.
func (s *Set) Run(ctx context.Context) error {
	var all sync.WaitGroup
	defer func() {
		all.Wait()
		if s.coord != nil {
			s.coord.Close()
		}
	}()
	follow := func(id, addr string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		old := s.shards[id]
		if old != nil && old.addr == addr || addr == "" || old == nil && len(s.shards) >= shardsMax {
			return
		}
		next, err := s.newShard(id, addr)
		if err != nil {
			s.cfg.Log.Warn("a shard cannot be followed", "shard", id, "address", addr, "err", err)
			return
		}
		if old != nil { // it moved: what was seen of it stays until it answers
			old.stop()
			next.state = old.snapshot()
			next.costs.notes = old.costs.taken()
		}
		s.shards[id] = next
		ctx, stop := context.WithCancel(ctx)
		next.stop = stop
		all.Go(func() {
			defer next.close()
			next.run(ctx)
		})
	}
	for id, addr := range s.cfg.Shards {
		follow(id, addr)
	}
	for ticker := time.NewTicker(lookEvery); ; {
		if s.coord != nil {
			s.lookAtFleet(ctx, follow)
		}
		select {
		case <-ctx.Done():
			ticker.Stop()
			return nil
		case <-ticker.C:
		}
	}
}

// lookAtFleet asks the leader for what it knows, and follows the shards it lists.
func (s *Set) lookAtFleet(ctx context.Context, follow func(id, addr string)) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	next := s.Fleet()
	next.Err = s.Leader(ctx, func(ctx context.Context, t coordclient.Target) error {
		status, err := t.Admin.GetFleetStatus(ctx, connect.NewRequest(&pb.GetFleetStatusRequest{}))
		if err != nil {
			return err
		}
		moves, err := t.Admin.ListMoves(ctx, connect.NewRequest(&pb.ListMovesRequest{}))
		if err != nil {
			return err
		}
		domains, err := t.Admin.ListDomainMoves(ctx, connect.NewRequest(&pb.ListDomainMovesRequest{}))
		if err != nil {
			return err
		}
		leader, err := t.Admin.GetCoordinatorStatus(ctx, connect.NewRequest(&pb.GetCoordinatorStatusRequest{}))
		if err != nil {
			return err
		}
		next.Status, next.Moves, next.DomainMoves = status.Msg.GetStatus(), moves.Msg.GetMoves(), domains.Msg.GetMoves()
		if term := leader.Msg.GetRaftTerm(); next.term != term {
			if next.term != 0 {
				next.changed = time.Now()
			}
			next.term = term
		}
		// A coordinator that has just started for the first time has lost nothing.
		if next.Status != nil && time.Since(next.changed) > rebuildMax {
			next.Status.Rebuilding = false
		}
		return nil
	})
	if next.Err == nil {
		next.At = time.Now()
	}
	s.mu.Lock()
	s.fleet = next
	s.mu.Unlock()
	for _, e := range next.Status.GetShards() {
		if e.GetState() != pb.ShardState_SHARD_STATE_TOMBSTONED {
			follow(e.GetShardId(), e.GetAddress())
		}
	}
	s.changes.notify()
}

// ErrNoCoordinator says that a console was started without one.
var ErrNoCoordinator = connect.NewError(connect.CodeFailedPrecondition, errors.New("this console knows no coordinator: start it with --coordinator"))

// Leader calls the coordinator's leader.
func (s *Set) Leader(ctx context.Context, call func(context.Context, coordclient.Target) error) error {
	if s.coord == nil {
		return ErrNoCoordinator
	}
	err := s.coord.Do(ctx, call)
	var none *coordclient.NoLeaderError
	if errors.As(err, &none) {
		return connect.NewError(connect.CodeUnavailable, err)
	}
	return err
}

// Fleet is the newest state of the coordinator.
func (s *Set) Fleet() Fleet {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fleet
}

// Shards are all that are followed, by id.
func (s *Set) Shards() []*Shard {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*Shard, 0, len(s.shards))
	for _, id := range slices.Sorted(maps.Keys(s.shards)) {
		out = append(out, s.shards[id])
	}
	return out
}

// Shard finds one. An empty id means the only one there is.
func (s *Set) Shard(id string) (*Shard, error) {
	all := s.Shards()
	var ids []string
	for _, x := range all {
		if x.ID == id {
			return x, nil
		}
		ids = append(ids, x.ID)
	}
	switch {
	case id == "" && len(all) == 1:
		return all[0], nil
	case len(all) == 0:
		return nil, connect.NewError(connect.CodeUnavailable, errors.New("no shard is known yet: a new shard registers with the coordinator within seconds"))
	case id == "":
		return nil, connect.NewError(connect.CodeInvalidArgument, fmt.Errorf("which shard? name one of %d in the header %s", len(all), TargetHeader))
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("shard %q is not known; known are %v", id, ids[:min(len(ids), 10)]))
}

// TargetHeader names the shard behind the gateway (WIRE-9.7).
const TargetHeader = "bigfleet-target"

// Changed is closed at the next change of any source.
func (s *Set) Changed() <-chan struct{} { return s.changes.next() }

// Statuses says how fresh each source is.
func (s *Set) Statuses() []*pb.SourceStatus {
	fleet := s.Fleet()
	out := []*pb.SourceStatus{{Source: "coordinator", Configured: s.coord != nil, LastDataAtUnixNanos: nanos(fleet.At), Error: text(fleet.Err), Flag: "--coordinator"}}
	for _, x := range s.Shards() {
		st := x.Snapshot()
		out = append(out, &pb.SourceStatus{Source: "shard/" + x.ID, Configured: true, LastDataAtUnixNanos: nanos(st.At), Error: text(st.Err), Flag: "--shard"})
	}
	return out
}

func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

const textMax = 500 // of a source's error; the rest is noise on a page

func text(err error) string {
	if err == nil {
		return ""
	}
	s := err.Error()
	if len(s) > textMax {
		s = s[:textMax]
	}
	return s
}

func (s *Set) newShard(id, addr string) (*Shard, error) {
	client, err := rpc.NewClient(rpc.ClientConfig{Addr: addr, Limits: rpc.ReadClientLimits(), Identity: s.cfg.Identity})
	if err != nil {
		return nil, err
	}
	var orders *rpc.Client
	var order bigfleetv1alpha1connect.ShardAdminClient
	if s.cfg.Orders {
		if orders, err = rpc.NewClient(rpc.ClientConfig{Addr: addr, Limits: rpc.ReadClientLimits(), Identity: s.cfg.OrderAs}); err != nil {
			return nil, err
		}
		order = rpc.Stub(orders, bigfleetv1alpha1connect.NewShardAdminClient)
	}
	sentence := s.cfg.Sentence
	if sentence == nil {
		sentence = (*pb.DecisionRecord).GetDetail
	}
	return &Shard{ID: id, addr: addr, client: client, orders: orders, Order: order, Read: rpc.Stub(client, bigfleetv1alpha1connect.NewShardReadClient), set: s, say: sentence,
		log: s.cfg.Log.With("shard", id), slots: make(chan struct{}, callsMax)}, nil
}
