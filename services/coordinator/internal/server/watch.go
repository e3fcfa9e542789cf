package server

import (
	"context"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// pendingMax bounds the rows that changed since a watcher last looked. A watcher behind it must start over.
const pendingMax = 50_000

// gatherFor is how long changes are gathered before they are sent: a row that changes often is sent once.
const gatherFor = 100 * time.Millisecond

// reports is the pseudo table of soft state.
const reports fleet.Table = 0

// broadcaster tells watchers which rows changed. It keeps keys and no rows: a watcher reads the newest row when it gets there,
// so a slow one costs a set of keys and nothing waits for it.
type broadcaster struct {
	mu       sync.Mutex
	watchers map[*watcher]struct{}
}

type watcher struct {
	mu      sync.Mutex
	pending map[fleet.Change]struct{}
	order   []fleet.Change
	lost    bool
	wake    chan struct{}
}

func newBroadcaster() *broadcaster { return &broadcaster{watchers: map[*watcher]struct{}{}} }

// join adds a watcher, or returns nil at the limit.
func (b *broadcaster) join() *watcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.watchers) >= watchersMax {
		return nil
	}
	w := &watcher{pending: map[fleet.Change]struct{}{}, wake: make(chan struct{}, 1)}
	b.watchers[w] = struct{}{}
	return w
}

func (b *broadcaster) leave(w *watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.watchers, w)
}

func (b *broadcaster) changed(changes []fleet.Change) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.watchers {
		w.add(changes...)
	}
}

func (b *broadcaster) reported(shard string) { b.changed([]fleet.Change{{Table: reports, Key: shard}}) }

func (b *broadcaster) reset() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for w := range b.watchers {
		w.lose()
	}
}

func (w *watcher) add(changes ...fleet.Change) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range changes {
		if _, known := w.pending[c]; !known {
			w.pending[c] = struct{}{}
			w.order = append(w.order, c)
		}
	}
	if len(w.order) > pendingMax {
		w.lost = true
		clear(w.pending)
		w.order = nil
	}
	w.poke()
}

func (w *watcher) lose() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lost = true
	w.poke()
}

func (w *watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// take returns what changed, in the order of the first change.
func (w *watcher) take() (changes []fleet.Change, lost bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	changes, lost = w.order, w.lost
	w.order = nil
	clear(w.pending)
	return changes, lost
}

// WatchFleet streams the status, then changes (COORD-16.1). Reports come without their lists unless one shard is
// selected: the lists of thousands of shards every ten seconds would be megabytes a second.
func (s *Server) WatchFleet(ctx context.Context, req *connect.Request[v1.WatchFleetRequest], stream *connect.ServerStream[v1.WatchFleetResponse]) error {
	only := req.Msg.GetShardId()
	w := s.broadcaster.join()
	if w == nil {
		return rpc.NewError(connect.CodeResourceExhausted, "too many watchers: close one first", &v1.Problem{Reason: "watchers", Message: "too many watchers", Hint: "close one first"})
	}
	defer s.broadcaster.leave(w)
	st, err := s.confirmed(ctx)
	if err != nil {
		return err
	}
	status := s.fleetStatus(st, leadOf(ctx).registry)
	if only != "" {
		if st.Shard(only) == nil {
			return notFound("shard", only)
		}
		status.Shards = []*v1.ShardRegistryEntry{shardEntry(st, leadOf(ctx).registry, st.Shard(only))}
	}
	if err := stream.Send(&v1.WatchFleetResponse{Event: &v1.WatchFleetResponse_Status{Status: status}}); err != nil {
		return err
	}
	beat := time.NewTicker(heartbeatEvery)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-beat.C:
			if err := stream.Send(&v1.WatchFleetResponse{}); err != nil {
				return err
			}
		case <-w.wake:
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(gatherFor):
			}
			changes, lost := w.take()
			if lost {
				return rpc.NewError(connect.CodeUnavailable, "too much changed at once: watch again")
			}
			if err := s.send(ctx, stream, changes, only); err != nil {
				return err
			}
		}
	}
}

func (s *Server) send(ctx context.Context, stream *connect.ServerStream[v1.WatchFleetResponse], changes []fleet.Change, only string) error {
	st := s.node.State()
	l := leadOf(ctx)
	conflicts := l.registry.Conflicts()
	for _, c := range changes {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if event := s.event(st, l, conflicts, c, only); event != nil {
			if err := stream.Send(event); err != nil {
				return err
			}
		}
	}
	return nil
}

// event is the newest row behind a change, or nil if the watcher did not ask for it.
func (s *Server) event(st *fleet.State, l lead, conflicts map[string]string, c fleet.Change, only string) *v1.WatchFleetResponse {
	out := &v1.WatchFleetResponse{}
	about := func(shards ...string) bool {
		if only == "" {
			return true
		}
		for _, id := range shards {
			if id == only {
				return true
			}
		}
		return false
	}
	switch c.Table {
	case reports:
		r := reportSnapshot(l.registry, c.Key, only != "")
		if r == nil || !about(c.Key) {
			return nil
		}
		out.Event = &v1.WatchFleetResponse_Report{Report: r}
	case fleet.Shards:
		row := st.Shard(c.Key)
		if !about(c.Key) {
			return nil
		}
		entry := &v1.ShardRegistryEntry{ShardId: c.Key}
		if row != nil {
			entry = shardEntry(st, l.registry, row)
		}
		out.Event, out.Removed = &v1.WatchFleetResponse_Shard{Shard: entry}, !fleet.Live(row)
	case fleet.Clusters:
		row := st.Cluster(c.Key)
		if row.GetShardId() == "" {
			out.Event, out.Removed = &v1.WatchFleetResponse_Binding{Binding: &v1.ClusterBinding{ClusterId: c.Key}}, true
			return out
		}
		if !about(row.GetShardId()) {
			return nil
		}
		out.Event = &v1.WatchFleetResponse_Binding{Binding: clusterBinding(l.registry, conflicts, row, time.Now())}
	case fleet.Domains:
		row := st.Domain(c.Key, c.Rest)
		if row == nil {
			out.Event, out.Removed = &v1.WatchFleetResponse_Domain{Domain: &v1.DomainAssignment{TopologyKey: c.Key, TopologyValue: c.Rest}}, true
			return out
		}
		if !about(row.GetOwner(), row.GetNext()) {
			return nil
		}
		out.Event = &v1.WatchFleetResponse_Domain{Domain: domainAssignment(row)}
	case fleet.Moves:
		row := st.Move(c.Key)
		if row == nil {
			out.Event, out.Removed = &v1.WatchFleetResponse_Move{Move: &v1.Move{MoveId: c.Key}}, true
			return out
		}
		if !about(row.GetFrom(), row.GetTo()) {
			return nil
		}
		out.Event = &v1.WatchFleetResponse_Move{Move: wireMove(row)}
	case fleet.AuditRecords:
		row := st.Audit(c.Key)
		if row == nil || only != "" {
			return nil
		}
		out.Event = &v1.WatchFleetResponse_Audit{Audit: row.GetRecord()}
	default:
		return nil
	}
	return out
}
