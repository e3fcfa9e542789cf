package replica

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
)

// patient starts a voter whose heartbeats would not notice anything for an hour.
func (r *replicas) patient(ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		r.start(id, func(c *Config) { c.Heartbeat, c.Election, c.Lease = time.Hour, time.Hour, time.Hour })
		r.join(id)
	}
}

// COORD-6.4.1: when the process of the leader ends, its connections close, and the others elect a leader at once instead
// of waiting for heartbeats.
func TestTheEndOfTheLeadersProcessIsNoticedAtOnce(t *testing.T) {
	r := newReplicas(t)
	r.bootstrap("node-0")
	r.patient("node-1", "node-2")
	r.commit(addShard("shard-0"))
	r.agree()
	r.stop("node-0")
	if n := r.leader(); n.State().Shard("shard-0") == nil {
		t.Fatal("a committed shard is lost")
	}
	if err := r.propose(r.leader(), addShard("shard-1")); err != nil {
		t.Fatal(err)
	}
}

// COORD-6.4.3: a replica that reaches no majority, and one whose leader lives, stand for no election.
func TestWhoStandsForNoElection(t *testing.T) {
	r := newReplicas(t)
	leader := r.bootstrap("node-0")
	r.patient("node-1", "node-2")
	n := r.nodes["node-1"]
	eventually(t, "node-1 follows", func() bool { return n.follows("node-0") })
	term := n.Term()
	n.succeed(departure{"node-0", leader.layer.Instance()}, term)
	if n.Term() != term {
		t.Fatal("an election was forced on a leader that lives")
	}
	r.stop("node-2")
	r.stop("node-0")
	n.succeed(departure{"node-0", leader.layer.Instance()}, term)
	if n.Term() != term {
		t.Fatal("a replica that reaches no other stood for an election")
	}
}

// COORD-6.4.2: a leader that hands over leaves when its successor serves, and not before.
func TestHandOverEndsWhenTheSuccessorServes(t *testing.T) {
	r := three(t)
	old := r.leader()
	previous := old.Leadership().Term
	old.HandOver(t.Context())
	if term := old.State().Meta().GetFencingTerm(); term <= previous || old.Leadership() != nil {
		t.Fatalf("fencing term %d after %d: the successor has not opened yet", term, previous)
	}
	if next := r.leader(); next == old {
		t.Fatal("it leads again")
	}
}

// COORD-6.4.2: a replica that still applies its log takes no leadership: the leader continues, and hands over to another.
func TestLeadershipIsNotHandedToAReplicaThatIsBehind(t *testing.T) {
	r := three(t)
	n := r.leader()
	var others []string
	for id := range r.nodes {
		if id != n.NodeID() {
			others = append(others, id)
		}
	}
	r.nodes[others[0]].network.behind = func() bool { return true }
	var refusal *fleet.Refusal
	if err := n.Transfer(t.Context(), others[0]); !errors.As(err, &refusal) || refusal.Reason != "transfer-failed" {
		t.Fatalf("got %v", err)
	}
	r.commit(addShard("shard-after"))
	if n.Leadership() == nil {
		t.Fatal("the leader does not go on")
	}
	n.HandOver(t.Context())
	if next := r.leader(); next.NodeID() != others[1] {
		t.Fatalf("%s leads", next.NodeID())
	}
}

// COORD-17.5: a replica closes its stores after the last heartbeat, which may write a term.
func TestCloseWaitsForAHeartbeat(t *testing.T) {
	r := newReplicas(t)
	n := r.start("node-0", nil)
	began, release := make(chan struct{}), make(chan struct{})
	n.network.handle = func(raft.RPC) {
		close(began)
		<-release
	}
	go n.network.heartbeat(raft.RPC{})
	<-began
	closed := make(chan struct{})
	go func() {
		r.stop("node-0")
		close(closed)
	}()
	select {
	case <-closed:
		t.Error("its stores are closed while a heartbeat is handled")
	case <-time.After(300 * time.Millisecond):
	}
	close(release)
	<-closed
}
