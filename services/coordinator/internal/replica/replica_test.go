package replica

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/faultnet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/metrics"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replicas is a group in one process. Join calls go straight to the leader's Node; the RPC way is tested with the
// servers around it.
type replicas struct {
	t     testing.TB
	net   *faultnet.Net
	nodes map[string]*Node
	dirs  map[string]string
	fatal map[string]chan error
	disks string // outlives the nodes: they write until they are closed
}

func newReplicas(t testing.TB) *replicas {
	r := &replicas{t: t, disks: t.TempDir(), net: faultnet.New(), nodes: map[string]*Node{}, dirs: map[string]string{}, fatal: map[string]chan error{}}
	t.Cleanup(func() {
		r.net.Heal()
		for id := range r.nodes {
			r.stop(id)
		}
	})
	return r
}

func (r *replicas) start(id string, change func(*Config)) *Node {
	r.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	set, err := metrics.New(telemetry.NewMetrics(prometheus.NewRegistry(), metrics.Prefix))
	if err != nil {
		r.t.Fatal(err)
	}
	if r.dirs[id] == "" {
		if r.dirs[id], err = os.MkdirTemp(r.disks, id); err != nil {
			r.t.Fatal(err)
		}
	}
	r.fatal[id] = make(chan error, 1)
	name := id + ":7791"
	r.net.Set(name, ln.Addr().String())
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelInfo})).With("node", id)
	}
	c := Config{NodeID: id, DataDir: r.dirs[id], RaftListener: ln, RaftAdvertise: name, RPCAdvertise: id + ":7790",
		Dial: r.net.Dialer(id), Log: log, Metrics: set, Build: "test",
		OnFatal: func(err error) { r.fatal[id] <- err }}
	if change != nil {
		change(&c)
	}
	n, err := Open(c)
	if err != nil {
		r.t.Fatal(err)
	}
	r.nodes[id] = n
	return n
}

func (r *replicas) stop(id string) {
	if n := r.nodes[id]; n != nil {
		if err := n.Close(); err != nil {
			r.t.Errorf("closing %s: %v", id, err)
		}
		delete(r.nodes, id)
	}
}

func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within two minutes: %s", what)
		}
	}
}

// leader waits for a node with an open reign.
func (r *replicas) leader() *Node {
	r.t.Helper()
	var found *Node
	eventually(r.t, "a leader", func() bool {
		for _, n := range r.nodes {
			if n.Reign() != nil && n.Confirm(r.t.Context()) == nil {
				found = n
				return true
			}
		}
		return false
	})
	return found
}

func (r *replicas) bootstrap(id string) *Node {
	n := r.start(id, nil)
	if !n.tryBootstrap(r.t.Context(), &Membership{Bootstrap: true, Expect: 1}) {
		r.t.Fatal("no group was begun")
	}
	return r.leader()
}

// join repeats a node's join call until it is a voter.
func (r *replicas) join(id string) {
	r.t.Helper()
	n := r.nodes[id]
	eventually(r.t, id+" is a voter", func() bool {
		suffrage, err := r.leader().Join(r.t.Context(), joinRequest(n))
		if err == nil {
			err = n.learn(r.leader().UUID()) // as the answer of the RPC does
		}
		return err == nil && suffrage == "voter"
	})
}

// joinRequest is what a node sends when it asks to join.
func joinRequest(n *Node) *v1.JoinRaftClusterRequest {
	return &v1.JoinRaftClusterRequest{NodeId: n.NodeID(), RaftAddress: n.config.RaftAdvertise, RpcAddress: n.config.RPCAdvertise,
		ClusterUuid: n.UUID(), FeatureLevel: n.config.Level, AppliedIndex: n.AppliedIndex(), Build: n.config.Build}
}

// three forms a group of node-0, node-1 and node-2.
func three(t testing.TB) *replicas {
	r := newReplicas(t)
	r.bootstrap("node-0")
	for _, id := range []string{"node-1", "node-2"} {
		r.start(id, nil)
		r.join(id)
	}
	return r
}

func (r *replicas) propose(n *Node, ops ...*pb.Operation) error {
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	got, err := n.Propose(ctx, Envelope("test", ops...), true)
	if err != nil {
		return err
	}
	if refusal := got.Err(); refusal != nil {
		return refusal
	}
	return nil
}

// commit proposes to whoever leads until it is committed, as a client would.
func (r *replicas) commit(ops ...*pb.Operation) {
	r.t.Helper()
	eventually(r.t, "the entry is committed", func() bool {
		err := r.propose(r.leader(), ops...)
		var refusal *fleet.Refusal
		if errors.As(err, &refusal) {
			r.t.Fatal(err)
		}
		return err == nil
	})
}

func addShard(id string) *pb.Operation {
	return &pb.Operation{Kind: &pb.Operation_AddShard{AddShard: &pb.AddShard{ShardId: id, ProviderAddress: "sim"}}}
}

// agree waits until all nodes hold the same state.
func (r *replicas) agree() {
	r.t.Helper()
	eventually(r.t, "all replicas agree", func() bool {
		want := r.leader().State()
		for _, n := range r.nodes {
			if n.State().Index() != want.Index() || n.State().Hash() != want.Hash() {
				return false
			}
		}
		return true
	})
}

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

// COORD-6.1.2, 6.2.4, COORD-21.15: each reign has a higher fencing term and its own soft state.
func TestReigns(t *testing.T) {
	r := three(t)
	term := int64(0)
	for range 4 {
		n := r.leader()
		reign := n.Reign()
		if reign.Term <= term {
			t.Fatalf("fencing term %d after %d", reign.Term, term)
		}
		term = reign.Term
		if reign.Value("soft", func() any { return new(int) }) != reign.Value("soft", func() any { return nil }) {
			t.Fatal("soft state is not kept within a reign")
		}
		if err := n.Transfer(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		<-reign.Context().Done()
		eventually(t, "the old reign is over", func() bool { return n.Reign() != reign })
		if err := r.propose(n, addShard("shard-x")); n.Reign() == nil && !errors.Is(err, ErrNotLeader) && !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatalf("a replica that does not lead proposed: %v", err)
		}
	}
}

// COORD-6.2.3, COORD-21.11, 21.12: a leader that a majority cannot hear confirms nothing and steps down within the lease;
// the others go on; healed, everyone agrees and no election is forced.
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
	if next == old || next.Reign().Term <= 1 {
		t.Fatal("no new leader")
	}
	if old.Confirm(t.Context()) == nil {
		t.Fatal("a leader without a majority confirmed a read")
	}
	eventually(t, "the old leader steps down", func() bool { return old.Reign() == nil })
	if err := r.propose(next, addShard("shard-0")); err != nil {
		t.Fatal(err)
	}
	term := next.Term()
	r.net.Heal()
	r.nodes[old.NodeID()] = old
	r.agree()
	if next.Term() != term || next.Reign() == nil {
		t.Fatal("COORD-6.4.3: a healed replica forced an election")
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

// COORD-13.7, 13.8, COORD-21.6, 21.7: who may not join, and why; commits go on meanwhile.
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

// COORD-5.7, 5.8, COORD-21.19: a snapshot can be saved of a fresh group and right behind a membership change.
func TestSnapshots(t *testing.T) {
	r := newReplicas(t)
	n := r.bootstrap("node-0")
	read := func() (*raft.SnapshotMeta, *fleet.State) {
		t.Helper()
		meta, from, err := n.Snapshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = from.Close() }()
		s, err := fleet.ReadSnapshot(from)
		if err != nil {
			t.Fatal(err)
		}
		return meta, s
	}
	if meta, s := read(); meta.Index == 0 || s.Meta().GetClusterUuid() != n.UUID() {
		t.Fatalf("a fresh group: %+v", meta)
	}
	r.start("node-1", nil)
	r.join("node-1")
	if meta, _ := read(); len(meta.Configuration.Servers) != 2 {
		t.Fatalf("behind a membership change: %+v", meta)
	}
	first, _ := read()
	second, _ := read()
	if first.ID != second.ID {
		t.Fatal("nothing happened, and another snapshot was written")
	}
}

// COORD-5.5, 5.6, COORD-21.20: a follower far behind gets a snapshot while readers run.
func TestFollowerFarBehind(t *testing.T) {
	r := three(t)
	behind := "node-2"
	if r.leader().NodeID() == behind {
		if err := r.leader().Transfer(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
	}
	r.stop(behind)
	for i := range 30 {
		ops := make([]*pb.Operation, 200)
		for j := range ops {
			ops[j] = addShard(fmt.Sprintf("shard-%d-%d", i, j))
		}
		r.commit(ops...)
	}
	for _, id := range []string{"node-0", "node-1"} {
		c := r.nodes[id].raft.ReloadableConfig()
		c.TrailingLogs = 1
		if err := r.nodes[id].raft.ReloadConfig(c); err != nil {
			t.Fatal(err)
		}
	}
	_, from, err := r.leader().Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_ = from.Close()
	var reset atomic.Bool
	follower := r.start(behind, func(c *Config) { c.OnReset = func(*fleet.State) { reset.Store(true) } })
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				s := follower.State()
				if s.ShardCount() > 0 && s.View("shard-0-0") == nil {
					t.Error("a reader saw half a state")
				}
			}
		}
	}()
	r.agree()
	close(stop)
	<-done
	if !reset.Load() {
		t.Fatal("the follower caught up without a snapshot: the test tests nothing")
	}
}

// COORD-4.4, 4.5, COORD-21.21: a replica that does not know a feature level stops and says so; the others go on.
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

// COORD-5.2, COORD-21.17: a replica whose disk fails acknowledges nothing and stops.
func TestDiskFailureStopsTheReplica(t *testing.T) {
	r := newReplicas(t)
	n := r.bootstrap("node-0")
	if err := r.propose(n, addShard("a")); err != nil {
		t.Fatal(err)
	}
	if err := n.dir.Log.Close(); err != nil { // writes fail from now on
		t.Fatal(err)
	}
	if err := r.propose(n, addShard("b")); err == nil {
		t.Fatal("a write that is on no disk was acknowledged")
	}
	eventually(t, "it steps down", func() bool { return n.Reign() == nil })
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

// COORD-5.3, 5.9, 13.2: a second process on a directory, and the same data after a restart.
func TestRestartKeepsState(t *testing.T) {
	r := newReplicas(t)
	n := r.bootstrap("node-0")
	if err := r.propose(n, addShard("a")); err != nil {
		t.Fatal(err)
	}
	hash, uuid := n.State().Hash(), n.UUID()
	r.stop("node-0")
	n = r.start("node-0", nil)
	if n.UUID() != uuid {
		t.Fatal("the identity of the group is not known before Raft runs")
	}
	if n.tryBootstrap(t.Context(), &Membership{Bootstrap: true, Force: true, Expect: 1}) {
		t.Fatal("COORD-13.3: a replica with state began a second group")
	}
	r.leader()
	if n.State().Shard("a") == nil || n.State().Hash() == hash {
		t.Fatal("the state is lost, or the new reign has no new term")
	}
	meta := proto.CloneOf(n.State().Meta())
	if meta.GetClusterUuid() != uuid {
		t.Fatal("another group")
	}
	_, from, err := n.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, from); err != nil {
		t.Fatal(err)
	}
	_ = from.Close()
}
