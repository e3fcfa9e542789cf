package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/faultnet"
	"github.com/bigfleet-dev/bigfleet/services/kit/coordclient"
	kitrpc "github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// replicas is a group of whole coordinators in this process. They know each other by names that stand for another
// address after each start, as Pods do.
type replicas struct {
	t     *testing.T
	n     int
	net   *faultnet.Net
	dirs  []string
	tls   func(i int) identity.Files
	tune  func(i int, c *coordinator.Config)
	tel   []*telemetry.Telemetry
	stops []func()
	errs  []chan error
}

func newReplicas(t *testing.T, n int) *replicas {
	r := &replicas{t: t, n: n, net: faultnet.New(), stops: make([]func(), n), errs: make([]chan error, n), tel: make([]*telemetry.Telemetry, n)}
	for range n {
		r.dirs = append(r.dirs, t.TempDir())
	}
	t.Cleanup(r.stopAll)
	return r
}

func id(i int) string  { return fmt.Sprintf("node-%d", i) }
func rpc(i int) string { return id(i) + ":7790" }

func (r *replicas) listen(name string) net.Listener {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	r.net.Set(name, l.Addr().String())
	return l
}

// config of replica i, with fresh listeners.
func (r *replicas) config(i int) coordinator.Config {
	r.t.Helper()
	log := slog.New(slog.DiscardHandler)
	if testing.Verbose() {
		log = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("replica", i)
	}
	var err error
	if r.tel[i], err = telemetry.New(context.Background(), telemetry.Config{Component: "coordinator", Log: log}); err != nil {
		r.t.Fatal(err)
	}
	c := coordinator.Config{ID: id(i), DataDir: r.dirs[i], Listener: r.listen(rpc(i)), RaftListener: r.listen(id(i) + ":7791"), Dial: r.net.Dialer(id(i)),
		RaftAdvertise: id(i) + ":7791", Advertise: rpc(i), Bootstrap: true, BootstrapExpect: r.n, Telemetry: r.tel[i], AdminRate: -1}
	for k := range r.n {
		c.Peers = append(c.Peers, rpc(k))
	}
	if r.tls != nil {
		c.TLS = r.tls(i)
	}
	if r.tune != nil {
		r.tune(i, &c)
	}
	return c
}

func (r *replicas) start(which ...int) {
	r.t.Helper()
	for _, i := range which {
		ready := make(chan struct{})
		c := r.config(i)
		c.Ready = ready
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() {
			err := coordinator.Run(ctx, c)
			done <- errors.Join(err, c.Telemetry.Close(context.Background()))
		}()
		r.errs[i], r.stops[i] = done, cancel
		select {
		case <-ready:
		case err := <-done:
			r.stops[i] = nil
			cancel()
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

// client is one that follows the leader, as the CLI is. from names it in the network.
func (r *replicas) client(source *identity.Source) *coordclient.Client {
	r.t.Helper()
	c := coordclient.Config{Identity: source, Dial: r.net.Dialer("client"),
		Resolve: func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }}
	for i := range r.n {
		c.Addrs = append(c.Addrs, rpc(i))
	}
	out, err := coordclient.New(c)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(out.Close)
	return out
}

// core and admin name the services of a replica, for ask.
type (
	core  = bigfleetv1alpha1connect.CoordinatorClient
	admin = bigfleetv1alpha1connect.CoordinatorAdminClient
)

func at[S any](t coordclient.Target) S {
	var s S
	switch p := any(&s).(type) {
	case *core:
		*p = t.Coordinator
	case *admin:
		*p = t.Admin
	}
	return s
}

// ask makes one call at the leader, with a method expression such as core.ListShards, and returns its answer or the
// leader's refusal.
func ask[S, Q, R any](t *testing.T, c *coordclient.Client, method func(S, context.Context, *connect.Request[Q]) (*connect.Response[R], error), req *Q, headers ...string) (*R, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var out *R
	err := c.Do(ctx, func(ctx context.Context, target coordclient.Target) error {
		r := connect.NewRequest(req)
		for i := 0; i < len(headers); i += 2 {
			r.Header().Set(headers[i], headers[i+1])
		}
		got, err := method(at[S](target), ctx, r)
		if err != nil {
			return err
		}
		out = got.Msg
		return nil
	})
	return out, err
}

// must is ask for calls that have to work.
func must[S, Q, R any](t *testing.T, c *coordclient.Client, method func(S, context.Context, *connect.Request[Q]) (*connect.Response[R], error), req *Q, headers ...string) *R {
	t.Helper()
	got, err := ask(t, c, method, req, headers...)
	if err != nil {
		t.Fatalf("%T: %v", req, err)
	}
	return got
}

// refused makes a call that has to be refused with a code, and returns the error.
func refused[S, Q, R any](t *testing.T, c *coordclient.Client, want connect.Code, method func(S, context.Context, *connect.Request[Q]) (*connect.Response[R], error), req *Q) error {
	t.Helper()
	_, err := ask(t, c, method, req)
	if connect.CodeOf(err) != want || err == nil {
		t.Fatalf("%T: %v, want %s", req, err, want)
	}
	return err
}

// group waits for a leader and so many voters.
func (r *replicas) group(c *coordclient.Client, voters int32) *v1.FleetStatus {
	r.t.Helper()
	var status *v1.FleetStatus
	eventually(r.t, fmt.Sprintf("%d voters", voters), func() bool {
		got, err := ask(r.t, c, admin.GetFleetStatus, &v1.GetFleetStatusRequest{})
		status = got.GetStatus()
		return err == nil && status.GetVoters() == voters && status.GetHealthyVoters() == voters
	})
	return status
}

func report(shard string, cycle int64) *v1.ShardReport {
	return &v1.ShardReport{ShardId: shard, Cycle: cycle, ShardEpoch: 1, ShardAddress: shard + ":7780", Capabilities: []string{"view/1", "moves/1"},
		Summary: &v1.ShardSummary{TotalMachines: 10, ProviderAddress: "sim:9000"}}
}

// register makes shards known by their first report.
func register(t *testing.T, c *coordclient.Client, shards ...string) {
	t.Helper()
	for _, s := range shards {
		must(t, c, core.ReportShard, report(s, 1))
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}

// COORD-21.1, 13.3 to 13.9: three empty disks become one group of three voters by themselves, with one identity.
func TestThreeReplicasFormOneGroup(t *testing.T) {
	r := newReplicas(t, 3).startAll()
	c := r.client(nil)
	r.group(c, 3)
	register(t, c, "shard-0", "shard-1")
	got := must(t, c, core.ListShards, &v1.ListShardsRequest{})
	if len(got.GetShards()) != 2 || got.GetShards()[0].GetShardId() != "shard-0" || got.GetShards()[0].GetProvider() != "sim:9000" {
		t.Fatalf("%v", got)
	}
	uuids := map[string]bool{}
	for i := range 3 {
		uuids[r.status(i).GetClusterUuid()] = true
	}
	if len(uuids) != 1 || uuids[""] {
		t.Fatalf("groups: %v", uuids)
	}
}

// status asks one replica about itself.
func (r *replicas) status(i int) *v1.GetCoordinatorStatusResponse {
	r.t.Helper()
	got, err := r.tryStatus(i)
	if err != nil {
		r.t.Fatal(err)
	}
	return got
}

func (r *replicas) tryStatus(i int) (*v1.GetCoordinatorStatusResponse, error) {
	client, err := kitrpc.NewClient(kitrpc.ClientConfig{Addr: rpc(i), Limits: kitrpc.ReadClientLimits(), Dial: r.net.Dialer("client")})
	if err != nil {
		return nil, err
	}
	defer client.CloseIdle()
	ctx, cancel := context.WithTimeout(r.t.Context(), 5*time.Second)
	defer cancel()
	got, err := kitrpc.Stub(client, bigfleetv1alpha1connect.NewCoordinatorAdminClient).GetCoordinatorStatus(ctx, connect.NewRequest(&v1.GetCoordinatorStatusRequest{}))
	if err != nil {
		return nil, err
	}
	return got.Msg, nil
}

// leads waits for the replica that leads.
func (r *replicas) leads() int {
	r.t.Helper()
	leads := -1
	eventually(r.t, "a leader", func() bool {
		for i := range r.n {
			if r.stops[i] == nil {
				continue
			}
			if got, err := r.tryStatus(i); err == nil && got.GetRole() == "leader" {
				leads = i
				return true
			}
		}
		return false
	})
	return leads
}

// value is a metric of one replica, over all its labels.
func (r *replicas) value(i int, name string) (sum float64) {
	r.t.Helper()
	families, err := r.tel[i].Registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// opsPort is a metrics port of a replica.
func opsPort(t *testing.T, tel *telemetry.Telemetry) *telemetry.OpsPort {
	t.Helper()
	ops, err := telemetry.NewOps(telemetry.OpsConfig{Gatherer: tel.Registry, Health: tel.Health, Log: tel.Log})
	if err != nil {
		t.Fatal(err)
	}
	port, err := ops.Listen("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return port
}
