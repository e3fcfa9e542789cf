package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// COORD-13.5, 13.8, 3.7: one replica begins a group, others become non-voters, then voters, and hold the same state.
func TestFormation(t *testing.T) {
	r := three(t)
	r.commit(addShard("shard-0"))
	r.agree()
	uuid := r.leader().UUID()
	for id, n := range r.nodes {
		if n.UUID() != uuid || uuid == "" || !n.isVoter() || len(n.Servers()) != 3 {
			t.Errorf("%s: group %q, %d servers", id, n.UUID(), len(n.Servers()))
		}
		if n.State().Peer(id).GetRpcAddress() != id+":7790" {
			t.Errorf("%s is not in the table of peers: %v", id, n.State().Peer(id))
		}
	}
}

// COORD-13.1, COORD-21.3, 21.4: replicas come back elsewhere under their names, one by one and all at once; nothing is
// written about it.
func TestNewAddresses(t *testing.T) {
	r := three(t)
	if err := r.propose(r.leader(), addShard("shard-0")); err != nil {
		t.Fatal(err)
	}
	configuration := func() uint64 { return r.leader().machine.configured.Load() }
	before := configuration()
	for _, id := range []string{"node-0", "node-1", "node-2"} {
		r.stop(id)
		r.start(id, nil)
		r.agree()
	}
	for _, id := range []string{"node-0", "node-1", "node-2"} {
		r.stop(id)
	}
	for _, id := range []string{"node-0", "node-1", "node-2"} {
		r.start(id, nil)
	}
	r.agree()
	if r.leader().State().Shard("shard-0") == nil {
		t.Fatal("a committed shard is lost")
	}
	if after := configuration(); after != before {
		t.Fatalf("the configuration was written again: index %d after %d", after, before)
	}
}

// COORD-13.7, 13.8, COORD-21.6, 21.7: who may not join, and why; commits continue meanwhile.
func TestWhoMayNotJoin(t *testing.T) {
	r := three(t)
	stranger := newReplicas(t)
	stranger.bootstrap("node-9")
	other := r.start("node-3", nil)
	leader := r.leader()
	request := func(change func(*v1.JoinRaftClusterRequest)) *v1.JoinRaftClusterRequest {
		req := &v1.JoinRaftClusterRequest{NodeId: "node-3", RaftAddress: "node-3:7791", RpcAddress: "node-3:7790", FeatureLevel: 1}
		change(req)
		return req
	}
	for reason, req := range map[string]*v1.JoinRaftClusterRequest{
		"other-group":      request(func(q *v1.JoinRaftClusterRequest) { q.ClusterUuid = stranger.nodes["node-9"].UUID() }),
		"no-feature-level": request(func(q *v1.JoinRaftClusterRequest) { q.FeatureLevel = 0 }),
		"address-in-use":   request(func(q *v1.JoinRaftClusterRequest) { q.RaftAddress = "node-1:7791" }),
		"id-in-use":        request(func(q *v1.JoinRaftClusterRequest) { q.NodeId = "node-1" }),
	} {
		_, err := leader.Join(t.Context(), req)
		var refusal *fleet.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != reason {
			t.Errorf("%s: got %v", reason, err)
		}
	}
	r.net.Isolate("node-3", "node-0", "node-1", "node-2")
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	var unreachable *ErrUnreachable
	if _, err := leader.Join(ctx, request(func(*v1.JoinRaftClusterRequest) {})); !errors.As(err, &unreachable) {
		t.Fatalf("an unreachable joiner: %v", err)
	}
	if err := r.propose(r.leader(), addShard("shard-0")); err != nil || len(other.Servers()) != 0 || len(r.leader().Servers()) != 3 {
		t.Fatalf("%v; the group has %d servers", err, len(r.leader().Servers()))
	}
	r.net.Heal()
	r.join("node-3")
	r.agree()
}

// COORD-13.12, COORD-21.8: three to five and back to three, with the leader and a dead replica among the removed; a quorum
// holds throughout, and a removed replica needs to be readmitted.
func TestResize(t *testing.T) {
	r := three(t)
	audit := &pb.Operation{Kind: &pb.Operation_AppendAudit{AppendAudit: &pb.AppendAudit{Method: "RemoveRaftPeer"}}}
	for _, id := range []string{"node-3", "node-4"} {
		r.start(id, nil)
		r.join(id)
		r.commit(addShard("shard-" + id))
	}
	dead := "node-4"
	if r.leader().NodeID() == dead {
		dead = "node-3"
	}
	r.stop(dead)
	if err := r.leader().Remove(t.Context(), dead, false, audit); err != nil {
		t.Fatal(err)
	}
	old := r.leader()
	if err := old.Remove(t.Context(), old.NodeID(), false, audit); !errors.Is(err, ErrNotLeader) {
		t.Fatalf("the leader did not hand over first: %v", err)
	}
	eventually(t, "another leader", func() bool { return r.leader() != old })
	if err := r.leader().Remove(t.Context(), old.NodeID(), false, audit); err != nil {
		t.Fatal(err)
	}
	r.stop(old.NodeID())
	if n := len(r.leader().Servers()); n != 3 {
		t.Fatalf("%d servers are left", n)
	}
	_, err := r.leader().Join(t.Context(), &v1.JoinRaftClusterRequest{NodeId: old.NodeID(), RaftAddress: old.NodeID() + ":7791", FeatureLevel: 1})
	var refusal *fleet.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != "peer-removed" {
		t.Fatalf("a removed replica came back by itself: %v", err)
	}
	// Two of three are gone: the third may not be removed from under the last one.
	var alive []string
	for id := range r.nodes {
		if id != r.leader().NodeID() {
			alive = append(alive, id)
		}
	}
	r.stop(alive[0])
	if err := r.leader().CheckRemoval(t.Context(), alive[1], false); !errors.As(err, &refusal) || refusal.Reason != "quorum" || !refusal.Force {
		t.Fatalf("got %v", err)
	}
	r.commit(addShard("shard-last"))
}
