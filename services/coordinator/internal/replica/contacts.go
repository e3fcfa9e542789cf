package replica

import (
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// contacts remembers which followers do not answer the leader's heartbeats, and since when.
type contacts struct {
	mu     sync.Mutex
	failed map[string]time.Time
}

// watchContacts follows the library's observations.
func (n *Node) watchContacts() {
	seen := make(chan raft.Observation, 64)
	observer := raft.NewObserver(seen, false, func(o *raft.Observation) bool {
		switch o.Data.(type) {
		case raft.FailedHeartbeatObservation, raft.ResumedHeartbeatObservation, raft.PeerObservation, raft.RaftState:
			return true
		}
		return false
	})
	n.raft.RegisterObserver(observer)
	defer n.raft.DeregisterObserver(observer)
	for {
		select {
		case <-n.ctx.Done():
			return
		case o := <-seen:
			n.contacts.observe(o)
		}
	}
}

func (c *contacts) observe(o raft.Observation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.failed == nil {
		c.failed = map[string]time.Time{}
	}
	switch d := o.Data.(type) {
	case raft.FailedHeartbeatObservation:
		c.failed[string(d.PeerID)] = d.LastContact
	case raft.ResumedHeartbeatObservation:
		delete(c.failed, string(d.PeerID))
	case raft.PeerObservation:
		if d.Removed {
			delete(c.failed, string(d.Peer.ID))
		}
	case raft.RaftState:
		clear(c.failed) // the next leader measures for itself
	}
}

// LastContact is how long ago the leader heard from a follower; 0 while its heartbeats are answered. On a replica that
// does not lead it is unknown.
func (n *Node) LastContact(node string) (ago time.Duration, known bool) {
	if n.raft.State() != raft.Leader {
		return 0, false
	}
	n.contacts.mu.Lock()
	defer n.contacts.mu.Unlock()
	last, failing := n.contacts.failed[node]
	switch {
	case !failing:
		return 0, true
	case last.IsZero():
		return 0, false
	}
	return time.Since(last), true
}
