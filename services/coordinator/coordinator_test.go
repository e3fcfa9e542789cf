package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	"github.com/bigfleet-dev/bigfleet/services/kit/leader"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replicas is a group of whole coordinators in this process, on loopback ports that stay theirs over restarts.
type replicas struct {
	t     *testing.T
	n     int
	dirs  []string
	rpc   []string
	raft  []string
	tls   func(i int) identity.Files
	tune  func(i int, c *coordinator.Config)
	stops []func()
	errs  []chan error
}

func newReplicas(t *testing.T, n int) *replicas {
	r := &replicas{t: t, n: n, stops: make([]func(), n), errs: make([]chan error, n)}
	for range n {
		r.dirs = append(r.dirs, t.TempDir())
		r.rpc = append(r.rpc, freePort(t))
		r.raft = append(r.raft, freePort(t))
	}
	t.Cleanup(r.stopAll)
	return r
}

// freePort reserves an address and gives it back at once; the replica binds it next.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

func id(i int) string { return fmt.Sprintf("node-%d", i) }

func (r *replicas) start(which ...int) {
	r.t.Helper()
	for _, i := range which {
		log := slog.New(slog.DiscardHandler)
		if testing.Verbose() {
			log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("replica", i)
		}
		tel, err := telemetry.New(context.Background(), telemetry.Config{Component: "coordinator", Log: log})
		if err != nil {
			r.t.Fatal(err)
		}
		ready := make(chan struct{})
		c := coordinator.Config{ID: id(i), DataDir: r.dirs[i], Listen: r.rpc[i], RaftBind: r.raft[i], RaftAdvertise: r.raft[i], Advertise: r.rpc[i],
			Bootstrap: true, BootstrapExpect: r.n, Telemetry: tel, Ready: ready, AdminRate: -1}
		for k := range r.n {
			c.Peers = append(c.Peers, id(k)+"="+r.rpc[k])
		}
		if r.tls != nil {
			c.TLS = r.tls(i)
		}
		if r.tune != nil {
			r.tune(i, &c)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			err := coordinator.Run(ctx, c)
			done <- errors.Join(err, tel.Close(context.Background()))
		}()
		r.errs[i] = done
		r.stops[i] = cancel
		select {
		case <-ready:
		case err := <-done:
			r.t.Fatalf("replica %d: %v", i, err)
		}
	}
}

func (r *replicas) stop(i int) {
	if r.stops[i] == nil {
		return
	}
	r.stops[i]()
	if err := <-r.errs[i]; err != nil {
		r.t.Errorf("replica %d: %v", i, err)
	}
	r.stops[i] = nil
}

func (r *replicas) stopAll() {
	var group sync.WaitGroup
	for i := range r.n {
		group.Go(func() { r.stop(i) })
	}
	group.Wait()
}

func (r *replicas) startAll() *replicas {
	for i := range r.n {
		r.start(i)
	}
	return r
}

// client is one that follows the leader, as the CLI is.
func (r *replicas) client(source *identity.Source) *leader.Client {
	r.t.Helper()
	c, err := leader.New(leader.Config{Addrs: r.rpc, Identity: source})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

// ask makes one call at the leader and returns its answer or the leader's refusal.
func ask[Q, R any](t *testing.T, c *leader.Client, method func(leader.Target) func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), req *Q) (*R, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out *R
	err := c.Do(ctx, func(ctx context.Context, at leader.Target) error {
		got, err := method(at)(ctx, connect.NewRequest(req))
		if err != nil {
			return err
		}
		out = got.Msg
		return nil
	})
	return out, err
}

// must is ask for calls that have to work.
func must[Q, R any](t *testing.T, c *leader.Client, method func(leader.Target) func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), req *Q) *R {
	t.Helper()
	got, err := ask(t, c, method, req)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func report(shard string, cycle int64) *v1.ShardReport {
	return &v1.ShardReport{ShardId: shard, Cycle: cycle, ShardEpoch: 1, ShardAddress: shard + ":7780", Capabilities: []string{"view/1", "moves/1"},
		Summary: &v1.ShardSummary{TotalMachines: 10, ProviderAddress: "sim:9000"}}
}

// register makes shards known by their first report.
func register(t *testing.T, c *leader.Client, shards ...string) {
	t.Helper()
	for _, s := range shards {
		must(t, c, func(at leader.Target) func(context.Context, *connect.Request[v1.ShardReport]) (*connect.Response[v1.ReportAck], error) {
			return at.Coordinator.ReportShard
		}, report(s, 1))
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// COORD-21.1, 13.3 to 13.9: three empty disks become one group of three voters by themselves.
func TestThreeReplicasFormOneGroup(t *testing.T) {
	r := newReplicas(t, 3).startAll()
	c := r.client(nil)
	eventually(t, "three voters", func() bool {
		got, err := ask(t, c, func(at leader.Target) func(context.Context, *connect.Request[v1.GetFleetStatusRequest]) (*connect.Response[v1.GetFleetStatusResponse], error) {
			return at.Admin.GetFleetStatus
		}, &v1.GetFleetStatusRequest{})
		return err == nil && got.GetStatus().GetVoters() == 3 && got.GetStatus().GetHealthyVoters() == 3
	})
	register(t, c, "shard-0", "shard-1")
	got := must(t, c, func(at leader.Target) func(context.Context, *connect.Request[v1.ListShardsRequest]) (*connect.Response[v1.ListShardsResponse], error) {
		return at.Coordinator.ListShards
	}, &v1.ListShardsRequest{})
	if len(got.GetShards()) != 2 || got.GetShards()[0].GetShardId() != "shard-0" || got.GetShards()[0].GetProvider() != "sim:9000" {
		t.Fatalf("%v", got)
	}
	for i := range 3 {
		if _, err := os.Stat(filepath.Join(r.dirs[i], "raft", "log")); err != nil {
			t.Error(err)
		}
	}
}
