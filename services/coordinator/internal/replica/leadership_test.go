package replica

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-6.1.2, 6.2.4, COORD-21.15: each leadership has a higher fencing term and its own soft state.
func TestReigns(t *testing.T) {
	r := three(t)
	term := int64(0)
	for range 4 {
		n := r.leader()
		leadership := n.Leadership()
		if leadership.Term <= term {
			t.Fatalf("fencing term %d after %d", leadership.Term, term)
		}
		term = leadership.Term
		if leadership.Value("soft", func() any { return new(int) }) != leadership.Value("soft", func() any { return nil }) {
			t.Fatal("soft state is not kept within a leadership")
		}
		if err := n.Transfer(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		<-leadership.Context().Done()
		eventually(t, "the old leadership is over", func() bool { return n.Leadership() != leadership })
		if err := r.propose(n, addShard("shard-x")); n.Leadership() == nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatalf("a replica that does not lead proposed: %v", err)
		}
	}
}

// COORD-6.2.3, COORD-21.11, 21.12: a leader that a majority cannot hear confirms nothing and steps down within the lease;
// the others continue; healed, everyone agrees and no election is forced.
func TestPartitionedLeader(t *testing.T) {
	r := three(t)
	old := r.leader()
	var others []string
	for id := range r.nodes {
		if id != old.NodeID() {
			others = append(others, id)
		}
	}
	r.net.Isolate(old.NodeID(), others...)
	delete(r.nodes, old.NodeID())
	next := r.leader()
	if next == old || next.Leadership().Term <= 1 {
		t.Fatal("no new leader")
	}
	if old.Confirm(t.Context()) == nil {
		t.Fatal("a leader without a majority confirmed a read")
	}
	eventually(t, "the old leader steps down", func() bool { return old.Leadership() == nil })
	if err := r.propose(next, addShard("shard-0")); err != nil {
		t.Fatal(err)
	}
	term := next.Term()
	r.net.Heal()
	r.nodes[old.NodeID()] = old
	r.agree()
	if next.Term() != term || next.Leadership() == nil {
		t.Fatal("COORD-6.4.3: a healed replica forced an election")
	}
}

// COORD-4.4, 4.5, COORD-21.21: a replica that does not know a feature level stops and says so; the others continue.
func TestOldReplicaStops(t *testing.T) {
	r := newReplicas(t)
	newer := func(c *Config) { c.Level, c.LevelMax = fleet.Level+1, fleet.Level+1 }
	n := r.start("node-0", newer)
	if !n.tryBootstrap(t.Context(), &Membership{Bootstrap: true, Expect: 1}) {
		t.Fatal("no group")
	}
	r.leader()
	r.start("node-1", newer)
	r.join("node-1")
	r.start("node-2", nil) // an old one; the group's level is above its own
	suffrage, err := r.leader().Join(t.Context(), &v1.JoinRaftClusterRequest{NodeId: "node-2", RaftAddress: "node-2:7791", FeatureLevel: fleet.Level})
	var refusal *fleet.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != "feature-level" {
		t.Fatalf("%s %v", suffrage, err)
	}
	// It claims more than it can: it must stop at what it does not understand, and the group must not.
	if err := r.nodes["node-2"].learn(r.leader().UUID()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := r.leader().Join(t.Context(), &v1.JoinRaftClusterRequest{NodeId: "node-2", RaftAddress: "node-2:7791", FeatureLevel: fleet.Level + 1, AppliedIndex: 1 << 40}); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-r.fatal["node-2"]:
		if err == nil || !slices.Contains([]bool{true}, len(err.Error()) > 0) {
			t.Fatal(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the old replica goes on")
	}
	if err := r.propose(r.leader(), addShard("shard-0")); err != nil {
		t.Fatal(err)
	}
	if r.nodes["node-2"].State().Shard("shard-0") != nil {
		t.Fatal("a replica that stopped applied something")
	}
}

// COORD-4.5: an operation above the group's level is not proposed.
func TestLevelIsHeldBack(t *testing.T) {
	r := newReplicas(t)
	n := r.bootstrap("node-0")
	e := Envelope("test", addShard("a"))
	e.Level = n.State().Meta().GetFeatureLevel() + 1
	if _, err := n.Propose(t.Context(), e, true); err == nil {
		t.Fatal("it was proposed")
	}
}

// COORD-4.9: with OutstandingMax proposals under way a further one is refused at once, or waits.
func TestOutstandingProposals(t *testing.T) {
	r := newReplicas(t)
	n := r.bootstrap("node-0")
	for range OutstandingMax {
		n.slots <- struct{}{}
	}
	if _, err := n.Propose(t.Context(), Envelope("test", addShard("a")), false); !errors.Is(err, ErrBusy) {
		t.Fatalf("got %v", err)
	}
	go func() {
		time.Sleep(20 * time.Millisecond)
		for range OutstandingMax {
			<-n.slots
		}
	}()
	if err := r.propose(n, addShard("a")); err != nil {
		t.Fatal(err)
	}
}

// COORD-6.4.4: a majority with the newest log elects a leader, also while one of its voters does not know yet that the other
// is a voter. The entry that made it one was stored by the old leader and by the new voter, and by no other.
func TestTheNewestVoterIsElected(t *testing.T) {
	r := newReplicas(t)
	slow := func(c *Config) { c.Heartbeat, c.Election, c.Lease = 2*time.Second, 2*time.Second, 2*time.Second }
	r.start("node-0", slow)
	if !r.nodes["node-0"].tryBootstrap(t.Context(), &Membership{Bootstrap: true, Expect: 1}) {
		t.Fatal("no group was begun")
	}
	old := r.leader()
	r.start("node-1", slow)
	r.join("node-1")
	newest := r.start("node-2", slow)
	for range 2 { // a non-voter that has not shown yet that it caught up
		if suffrage, err := old.Join(t.Context(), joinRequest(newest)); err != nil || suffrage != "nonvoter" {
			t.Fatal(suffrage, err)
		}
		if err := newest.learn(old.UUID()); err != nil {
			t.Fatal(err)
		}
		r.agree()
	}
	r.net.Cut("node-0", "node-1")
	if suffrage, err := old.Join(t.Context(), joinRequest(newest)); err != nil || suffrage != "voter" {
		t.Fatal(suffrage, err)
	}
	r.net.Isolate("node-0", "node-1", "node-2")
	delete(r.nodes, "node-0")
	if next := r.leader(); next != newest {
		t.Fatalf("%s leads with an older log", next.NodeID())
	}
	r.net.Heal()
	r.nodes["node-0"] = old
	r.agree()
}

// COORD-6.4.4: the log decides only where it is newer. A removed replica, whose log is older, is refused by its id as before.
func TestAnOlderLogIsNotAdmitted(t *testing.T) {
	r := newReplicas(t)
	n := r.bootstrap("node-0")
	last := n.raft.LastIndex()
	for _, c := range []struct {
		index, term uint64
		want        string
	}{{last, n.Term(), "gone"}, {last + 1, n.Term() - 1, "gone"}, {last + 1, n.Term(), "node-0"}, {1, n.Term() + 1, "node-0"}} {
		vote := &raft.RequestVoteRequest{RPCHeader: raft.RPCHeader{ID: []byte("gone")}, LastLogIndex: c.index, LastLogTerm: c.term}
		pre := &raft.RequestPreVoteRequest{RPCHeader: raft.RPCHeader{ID: []byte("gone")}, LastLogIndex: c.index, LastLogTerm: c.term}
		n.admit(raft.RPC{Command: vote})
		n.admit(raft.RPC{Command: pre})
		if string(vote.ID) != c.want || string(pre.ID) != c.want {
			t.Errorf("last entry %d of term %d: judged as %s and %s, want %s", c.index, c.term, vote.ID, pre.ID, c.want)
		}
	}
}
