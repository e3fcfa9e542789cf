package replica

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
)

// HandingOver reports that this replica leads for the last moment: it takes no proposals, and its successor is about to.
func (n *Node) HandingOver() bool { return n.handingOver.Load() && n.raft.State() == raft.Leader }

// Transfer hands leadership to a voter, or to the most caught-up one, and waits until another leader is known.
func (n *Node) Transfer(ctx context.Context, to string) error {
	n.handingOver.Store(true)
	defer n.handingOver.Store(false)
	if err := n.MayTransfer(to); err != nil {
		return err
	}
	var future raft.Future
	switch s := n.server(to); {
	case to == n.config.NodeID:
		return nil
	case s == nil:
		future = n.raft.LeadershipTransfer()
	default:
		future = n.raft.LeadershipTransferToServer(s.ID, s.Address)
	}
	if err := future.Error(); err != nil {
		if errors.Is(err, raft.ErrNotLeader) {
			return ErrNotLeader
		}
		return refuse(fleet.Refused, "transfer-failed", "try another voter, or retry later", "leadership was not handed over: %v", err)
	}
	return n.awaitOtherLeader(ctx)
}

// MayTransfer says why leadership cannot be handed to a voter; "" is whichever.
func (n *Node) MayTransfer(to string) error {
	if to == "" {
		if n.otherVoters() == 0 {
			return refuse(fleet.Refused, "no-other-voter", "add a replica first", "there is no other voter to lead")
		}
		return nil
	}
	if s := n.server(to); s == nil || s.Suffrage != raft.Voter {
		return refuse(fleet.NotFound, "unknown-voter", "name a voter", "node %q is not a voter", to)
	}
	return nil
}

func (n *Node) otherVoters() int {
	others := 0
	for _, s := range n.Servers() {
		if s.Suffrage == raft.Voter && string(s.ID) != n.config.NodeID {
			others++
		}
	}
	return others
}

func (n *Node) awaitOtherLeader(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		if _, id := n.raft.LeaderWithID(); id != "" && string(id) != n.config.NodeID {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}

// HandOver is the first step of a stop: a leader gives leadership away and waits until another one serves (COORD-6.4.2).
// Until then it continues as a follower: the successor commits its first entries with the faster of two followers instead of
// the only one left. A successor that does not win its election, or still applies its log and does not want to lead, leaves
// this replica leading, and the next try asks another.
func (n *Node) HandOver(ctx context.Context) {
	if n.raft.State() != raft.Leader || n.otherVoters() == 0 {
		return
	}
	previous := n.State().Meta().GetFencingTerm()
	for attempt := 0; ; attempt++ {
		try, cancel := context.WithTimeout(ctx, 2*n.config.Election)
		err := n.Transfer(try, n.successor(attempt))
		if errors.Is(err, ErrNotLeader) {
			err = n.awaitOtherLeader(try)
		}
		cancel()
		switch {
		case err == nil:
			n.awaitLeadership(ctx, previous)
			return
		case ctx.Err() != nil:
			n.config.Log.Warn("leadership was not handed over before the stop", "err", err)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// successor is whom a leader asks to succeed it: first the voter whose log is newest, which Raft knows, then one after the
// other of those that answer.
func (n *Node) successor(attempt int) string {
	if attempt == 0 {
		return ""
	}
	var up []string
	for _, s := range n.Servers() {
		id := string(s.ID)
		if ago, known := n.LastContact(id); s.Suffrage == raft.Voter && id != n.config.NodeID && known && ago < n.config.Heartbeat {
			up = append(up, id)
		}
	}
	if len(up) == 0 {
		return ""
	}
	return up[attempt%len(up)]
}

// awaitLeadership waits until a later leader opened: its higher fencing term arrived here.
func (n *Node) awaitLeadership(ctx context.Context, after int64) {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for n.State().Meta().GetFencingTerm() <= after {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
