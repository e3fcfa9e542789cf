package replica

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

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

// leader waits for a node with an open leadership.
func (r *replicas) leader() *Node {
	r.t.Helper()
	var found *Node
	eventually(r.t, "a leader", func() bool {
		for _, n := range r.nodes {
			if n.Leadership() != nil && n.Confirm(r.t.Context()) == nil {
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

// commit proposes to the leader of the moment until it is committed, as a client would.
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
