package replica

import (
	"fmt"
	"io"
	"sync/atomic"
	"testing"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"

	pb "github.com/bigfleet-dev/bigfleet/services/coordinator/internal/coordinatorlog/v1"
)

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
	eventually(t, "it steps down", func() bool { return n.Leadership() == nil })
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
		t.Fatal("the state is lost, or the new leadership has no new term")
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
