package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

// Leadership is one period in which this replica leads, from the moment it opened. Its context ends when leadership is lost.
type Leadership struct {
	Term   int64 // fencing term it opened with; proposals of its own may raise it
	Opened time.Time

	ctx context.Context
	end context.CancelFunc

	mu    sync.Mutex
	state map[any]any
}

// Context ends with the leadership.
func (r *Leadership) Context() context.Context { return r.ctx }

// Value returns what belongs to this leadership under a key, made at the first call: soft state, timers, limits. It is
// forgotten with the leadership (COORD-6.2.4).
func (r *Leadership) Value(key any, make func() any) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.state[key]
	if !ok {
		v = make()
		r.state[key] = v
	}
	return v
}

// Leadership returns the current leadership, or nil while this replica does not lead or has not opened. Raft steps down before it
// writes the next vote and reports the loss after that write. Asking for its state spares clients the wait for the disk.
func (n *Node) Leadership() *Leadership {
	if n.raft.State() != raft.Leader {
		return nil
	}
	return n.leadership.Load()
}

// Opening reports that this replica won an election and is about to open.
func (n *Node) Opening() bool { return n.leadership.Load() == nil && n.raft.State() == raft.Leader }

// watchLeadership opens a Leadership after each election won and ends it when leadership is lost.
func (n *Node) watchLeadership(leads <-chan bool) {
	end := func() {}
	defer func() { end() }()
	for {
		select {
		case <-n.ctx.Done():
			return
		case lead := <-leads:
			end()
			if r := n.leadership.Swap(nil); r != nil {
				n.config.Log.Info("leadership is lost", "fencing-term", r.Term)
			}
			if lead {
				n.config.Metrics.Elections.Inc()
				end = n.beginLeadership()
			}
		}
	}
}

// beginLeadership opens a leadership in the background; the function it returns ends it.
func (n *Node) beginLeadership() func() {
	ctx, cancel := context.WithCancel(n.ctx)
	n.group.Go(func() { n.openLeadership(ctx) })
	return cancel
}

// openLeadership runs before anything is served: a higher fencing term is committed, so that no shard listens to an earlier
// leader any more (COORD-6.1.2). It is an entry of this leadership, so everything committed before is applied behind it.
func (n *Node) openLeadership(ctx context.Context) {
	for ctx.Err() == nil {
		err := n.tryOpen(ctx)
		if err == nil || errors.Is(err, ErrNotLeader) {
			return
		}
		n.config.Log.Warn("leadership cannot open yet", "err", err)
		select {
		case <-ctx.Done():
		case <-time.After(openRetry):
		}
	}
}

func (n *Node) tryOpen(ctx context.Context) error {
	if n.State().Meta().GetClusterUuid() == "" {
		// It may be founded in entries that are not applied yet, and only then is it known whether to found it.
		if err := n.barrier(ctx); err != nil {
			return err
		}
	}
	ops := append(n.foundingOperations(), &pb.Operation{Kind: &pb.Operation_BumpFence{BumpFence: &pb.BumpFence{RaftTerm: int64(n.raft.CurrentTerm())}}})
	got, err := n.commit(ctx, ops...)
	if err != nil {
		return err
	}
	term := got.State.Meta().GetFencingTerm()
	if old, own := got.State.Peer(n.config.NodeID), n.ownPeer(); !old.GetRemoved() && !proto.Equal(old, own) {
		if _, err := n.commit(ctx, &pb.Operation{Kind: &pb.Operation_UpsertPeer{UpsertPeer: &pb.UpsertPeer{Peer: own}}}); err != nil {
			return err
		}
	}
	r := &Leadership{Term: term, Opened: time.Now(), state: map[any]any{}}
	r.ctx, r.end = context.WithCancel(ctx)
	if ctx.Err() != nil {
		r.end()
		return ErrNotLeader
	}
	n.leadership.Store(r)
	context.AfterFunc(ctx, func() {
		r.end()
		n.leadership.CompareAndSwap(r, nil)
	})
	n.config.Log.Info("leading", "fencing-term", r.Term, "term", n.raft.CurrentTerm())
	return nil
}

// commit is one entry of the replica itself, whose every operation has to succeed.
func (n *Node) commit(ctx context.Context, ops ...*pb.Operation) (*Committed, error) {
	got, err := n.Propose(ctx, Envelope(n.Actor(), ops...), true)
	if err != nil {
		return nil, err
	}
	if refusal := got.Err(); refusal != nil {
		return nil, refusal
	}
	return got, nil
}
