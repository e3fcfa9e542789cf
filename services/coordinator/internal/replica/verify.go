package replica

import (
	"context"
	"sync"
	"time"
)

// verifier lets all who wait share one confirmation of leadership (COORD-6.2.3).
type verifier struct {
	mu      sync.Mutex
	next    *confirmation // begins after everyone who holds it asked
	running bool
}

type confirmation struct {
	done chan struct{}
	err  error
}

// Confirm returns nil when a quorum said, after the call began, that this replica still leads. What it reads from State
// afterwards is not older than any write that was acknowledged before the call.
func (n *Node) Confirm(ctx context.Context) error {
	c := n.joinConfirmation()
	timer := time.NewTimer(ConfirmTimeout)
	defer timer.Stop()
	select {
	case <-c.done:
		return c.err
	case <-timer.C:
		return ErrOutcomeUnknown
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (n *Node) joinConfirmation() *confirmation {
	v := &n.verifier
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.next == nil {
		v.next = &confirmation{done: make(chan struct{})}
	}
	c := v.next
	if !v.running {
		if v.running = n.group.Go(n.runConfirmations); !v.running { // closed
			v.next, c.err = nil, ErrNotLeader
			close(c.done)
		}
	}
	return c
}

func (n *Node) runConfirmations() {
	v := &n.verifier
	for {
		v.mu.Lock()
		c := v.next
		v.next = nil
		if c == nil {
			v.running = false
			v.mu.Unlock()
			return
		}
		v.mu.Unlock()
		c.err = n.confirm()
		close(c.done)
	}
}

// confirm asks a quorum. After a standstill of this process only an entry that a quorum stores is an answer to the question.
func (n *Node) confirm() error {
	if n.raft.VerifyLeader().Error() != nil {
		return ErrNotLeader
	}
	if n.stalls.doubtful(time.Now()) && n.barrier(n.ctx) != nil {
		return ErrNotLeader
	}
	return nil
}
