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

// Reign is one leadership of this replica, from the moment it opened. Its context ends when leadership is lost.
type Reign struct {
	Term   int64 // fencing term it opened with; proposals of its own may raise it
	Opened time.Time

	ctx context.Context
	end context.CancelFunc

	mu    sync.Mutex
	state map[any]any
}

// Context ends with the reign.
func (r *Reign) Context() context.Context { return r.ctx }

// Value returns what belongs to this reign under a key, made at the first call: soft state, timers, limits. It is
// forgotten with the reign (COORD-6.2.4).
func (r *Reign) Value(key any, make func() any) any {
	r.mu.Lock()
	defer r.mu.Unlock()
	v, ok := r.state[key]
	if !ok {
		v = make()
		r.state[key] = v
	}
	return v
}

// Reign returns the reign of this replica, or nil while it does not lead or has not opened. Raft ends a leadership before it
// writes the vote for the next one, and tells of it behind that write: clients should not wait for a disk to hear of it.
func (n *Node) Reign() *Reign {
	if n.raft.State() != raft.Leader {
		return nil
	}
	return n.reign.Load()
}

// Opening reports that this replica won an election and is about to open.
func (n *Node) Opening() bool { return n.reign.Load() == nil && n.raft.State() == raft.Leader }

// watchLeadership opens a reign at each election won and ends it when leadership is lost.
func (n *Node) watchLeadership(leads <-chan bool) {
	end := func() {}
	defer func() { end() }()
	for {
		select {
		case <-n.ctx.Done():
			return
		case lead := <-leads:
			end()
			if r := n.reign.Swap(nil); r != nil {
				n.config.Log.Info("leadership is lost", "fencing-term", r.Term)
			}
			if lead {
				n.config.Metrics.Elections.Inc()
				end = n.beginReign()
			}
		}
	}
}

// beginReign opens a reign in the background; the function it returns ends it.
func (n *Node) beginReign() func() {
	ctx, cancel := context.WithCancel(n.ctx)
	n.group.Go(func() { n.openReign(ctx) })
	return cancel
}

// openReign runs before anything is served: a higher fencing term is committed, so that no shard listens to an earlier
// leader any more (COORD-6.1.2). It is an entry of this reign, so everything committed before is applied behind it.
func (n *Node) openReign(ctx context.Context) {
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
	r := &Reign{Term: term, Opened: time.Now(), state: map[any]any{}}
	r.ctx, r.end = context.WithCancel(ctx)
	if ctx.Err() != nil {
		r.end()
		return ErrNotLeader
	}
	n.reign.Store(r)
	context.AfterFunc(ctx, func() {
		r.end()
		n.reign.CompareAndSwap(r, nil)
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
