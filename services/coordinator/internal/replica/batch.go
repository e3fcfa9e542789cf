package replica

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// batchesMax is how many batches of proposals are under way at a time. What comes meanwhile gathers into the next one, so
// that under load an entry costs a part of a write and a flush on each replica. A proposal that finds one of them free goes
// at once: alone it waits for nothing.
const batchesMax = 2

// batches are the proposals between Propose and Raft.
type batches struct {
	mu      sync.Mutex
	waiting []*proposal
	sending int
}

// inFlightCalls counts what was put into Raft's queue and is not answered. Raft answers everything in it while it runs, and
// nothing once it has shut down: it is shut down when nothing is under way.
type inFlightCalls struct {
	mu     sync.Mutex
	calls  int
	closed bool
	none   chan struct{} // made by close, closed with the last call
}

// enter reports whether a call may be made; leave follows it.
func (u *inFlightCalls) enter() bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !u.closed {
		u.calls++
	}
	return !u.closed
}

func (u *inFlightCalls) leave() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.calls--; u.calls == 0 && u.closed {
		close(u.none)
	}
}

// close refuses further calls and waits for those that are under way.
func (u *inFlightCalls) close() {
	u.mu.Lock()
	u.closed = true
	u.none = make(chan struct{})
	if u.calls == 0 {
		close(u.none)
	}
	u.mu.Unlock()
	<-u.none
}

// proposal is one entry and, once done is closed, what became of it.
type proposal struct {
	data    []byte
	timeout time.Duration
	start   time.Time
	done    chan struct{}
	left    chan struct{} // closed when its caller no longer waits
	got     *Committed
	err     error
}

// submit puts a proposal, which holds a slot, on its way. Its slot is free again when its outcome is known.
func (n *Node) submit(p *proposal) {
	b := &n.batches
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = append(b.waiting, p)
	if b.sending < batchesMax && n.group.Go(n.sendBatches) {
		b.sending++
	}
	if b.sending == 0 { // closed: no sender will start
		n.drop(b.waiting)
		b.waiting = nil
	}
}

// drop answers proposals that were never made.
func (n *Node) drop(all []*proposal) {
	for _, p := range all {
		p.err = ErrNotLeader
		<-n.slots
		close(p.done)
	}
}

// sendBatches carries one batch after the other through Raft while any wait.
func (n *Node) sendBatches() {
	b := &n.batches
	for {
		b.mu.Lock()
		batch := b.waiting
		b.waiting = nil
		if len(batch) == 0 {
			b.sending--
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		n.sendBatch(batch)
	}
}

func (n *Node) sendBatch(batch []*proposal) {
	futures := make([]raft.ApplyFuture, len(batch))
	open := n.inFlight.enter()
	if open {
		defer n.inFlight.leave()
	}
	for i, p := range batch {
		select {
		case <-p.left: // its caller left, and it was not proposed
		default:
			if open {
				futures[i] = n.raft.Apply(p.data, p.timeout)
			}
		}
	}
	for i, p := range batch {
		if p.err = ErrNotLeader; futures[i] != nil {
			p.got, p.err = n.await(futures[i], p.start)
		}
		<-n.slots
		close(p.done)
	}
}
