package coordinator

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

const zoneKey = "topology.kubernetes.io/zone"

// fleet is one provider, one coordinator and two shards, each a process of its own with its own disk.
type fleet struct {
	t           *testing.T
	coordinator *proc.Process
	shards      []*proc.Process
	provider    *proc.Process
	addrs       map[string]string
	admin       api.CoordinatorAdminClient
	core        api.CoordinatorClient
	reads       []api.ShardReadClient
	every       time.Duration // a shard reports
}

// reportEvery is the report interval of the shards; the product's default, ten seconds, is measured with
// BIGFLEET_COORDINATOR_REPORT_MS=10000.
const reportEvery = 300 * time.Millisecond

func newFleet(t *testing.T, offerings string, shardFlags ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, addrs: map[string]string{}, every: time.Duration(number(t, "BIGFLEET_COORDINATOR_REPORT_MS", int(reportEvery.Milliseconds()))) * time.Millisecond}
	ports, err := loopback.ReserveN(9)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for _, p := range ports {
			p.Release()
		}
	})
	for i, name := range []string{"provider", "provider-ops", "coordinator", "coordinator-ops", "raft", "shard-0", "shard-0-ops", "shard-1", "shard-1-ops"} {
		f.addrs[name] = ports[i].Addr()
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/offerings.yaml", []byte("offerings:\n"+offerings), 0o600); err != nil {
		t.Fatal(err)
	}
	f.provider = f.run("provider", "services/providers/sim/cmd/bigfleet-provider-sim", "--addr", f.addrs["provider"], "--data-dir", dir+"/provider", "--offerings", dir+"/offerings.yaml",
		"--sim-control-addr", "off", "--time-scale", "10000", "--metrics-addr", f.addrs["provider-ops"])
	f.coordinator = f.run("coordinator", program, "--id", "node-0", "--data-dir", dir+"/coordinator", "--listen", f.addrs["coordinator"], "--raft-bind", f.addrs["raft"],
		"--metrics-addr", f.addrs["coordinator-ops"], "--bootstrap", "--rebalance-interval", "300ms", "--admin-rate", "-1", "--log-level", "warn")
	f.admin = stub(t, f.addrs["coordinator"], api.NewCoordinatorAdminClient)
	f.core = stub(t, f.addrs["coordinator"], api.NewCoordinatorClient)
	for i := range 2 {
		name := fmt.Sprintf("shard-%d", i)
		f.shards = append(f.shards, f.run(name, "services/shard/cmd/bigfleet-shard", append([]string{"--id", name, "--data-dir", dir + "/" + name, "--listen", f.addrs[name],
			"--provider-addr", f.addrs["provider"], "--coordinator-addr", f.addrs["coordinator"], "--release-delay", "0", "--release-delay-empty", "0", "--coordinator-heartbeat-interval", f.every.String(),
			"--reconcile-interval", "300ms", "--cycle-interval", "1s", "--metrics-addr", f.addrs[name+"-ops"], "--log-level", "warn"}, shardFlags...)...))
		f.reads = append(f.reads, stub(t, f.addrs[name], api.NewShardReadClient))
	}
	return f
}

func stub[T any](t *testing.T, addr string, construct func(connect.HTTPClient, string, ...connect.ClientOption) T) T {
	t.Helper()
	c, err := rpc.NewClient(rpc.ClientConfig{Addr: addr, Limits: rpc.ReadClientLimits(), DialTimeout: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.CloseIdle)
	return rpc.Stub(c, construct)
}

func (f *fleet) run(name, dir string, args ...string) *proc.Process {
	f.t.Helper()
	return proc.StartT(f.t, proc.Config{Name: name, Path: proc.BuildT(f.t, dir), Args: args, Ready: proc.HTTP("http://"+f.addrs[name+"-ops"]+"/healthz", nil)})
}

// retry makes a call until it works: processes come and go.
func retry[Q, R any](f *fleet, method func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), req *Q) *R {
	f.t.Helper()
	var out *R
	var last error
	f.eventually(fmt.Sprintf("%T", req), func() bool {
		ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
		defer cancel()
		got, err := method(ctx, connect.NewRequest(req))
		if last = err; err != nil {
			return false
		}
		out = got.Msg
		return true
	})
	if out == nil {
		f.t.Fatal(last)
	}
	return out
}

func (f *fleet) eventually(what string, ok func() bool) {
	f.t.Helper()
	for end := time.Now().Add(90 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			f.t.Fatalf("not within 90 s: %s\nmoves: %v", what, f.moves())
		}
	}
}

func (f *fleet) moves() []*v1.Move {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	got, err := f.admin.ListMoves(ctx, connect.NewRequest(&v1.ListMovesRequest{}))
	if err != nil {
		return nil
	}
	return got.Msg.GetMoves()
}

// owned are the machines that a shard says are its own, by id, reserved ones included.
func (f *fleet) owned(shard int) map[string]*v1.MachineView {
	out := map[string]*v1.MachineView{}
	ctx, cancel := context.WithTimeout(f.t.Context(), 5*time.Second)
	defer cancel()
	got, err := f.reads[shard].ListMachines(ctx, connect.NewRequest(&v1.ListMachinesRequest{PageSize: 5000}))
	if err != nil {
		return nil
	}
	for _, m := range got.Msg.GetMachines() {
		if !slices.Contains(m.GetFlags(), v1.MachineFlag_MACHINE_FLAG_FOREIGN) {
			out[m.GetMachine().GetId()] = m
		}
	}
	return out
}

// single fails when a machine is owned by both shards at one moment: a machine that the first names before and after the
// second does was its own all the time.
func (f *fleet) single() {
	before, other, after := f.owned(0), f.owned(1), f.owned(0)
	for id, m := range other {
		if before[id] == nil || after[id] == nil {
			continue
		}
		reserved := func(m *v1.MachineView) bool {
			return slices.Contains(m.GetFlags(), v1.MachineFlag_MACHINE_FLAG_RESERVED)
		}
		if reserved(m) || reserved(before[id]) || reserved(after[id]) {
			continue // spoken for: its donor acts on it no more (COORD-12.16)
		}
		f.t.Errorf("both shards own machine %s", id)
	}
}

// whole waits until every machine of the provider is owned by exactly one shard and nothing is on its way.
func (f *fleet) whole(machines int) {
	f.t.Helper()
	f.eventually("every machine has one owner", func() bool {
		a, b := f.owned(0), f.owned(1)
		if a == nil || b == nil || len(a)+len(b) != machines {
			return false
		}
		for id := range a {
			if b[id] != nil {
				return false
			}
		}
		return !slices.ContainsFunc(f.moves(), open)
	})
}

func open(m *v1.Move) bool {
	return m.GetState() != v1.Move_STATE_DONE && m.GetState() != v1.Move_STATE_ABORTED && m.GetState() != v1.Move_STATE_PROPOSED
}

// cluster is an operator that states a demand over one session after the other, and answers what a shard asks.
type cluster struct {
	f     *fleet
	name  string
	shard int

	mu    sync.Mutex
	needs []*v1.CapacityNeed
	stop  context.CancelFunc
	done  chan struct{}
}

func (f *fleet) cluster(name string, shard int, needs ...*v1.CapacityNeed) *cluster {
	ctx, cancel := context.WithCancel(context.Background())
	c := &cluster{f: f, name: name, shard: shard, needs: needs, stop: cancel, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		for ctx.Err() == nil {
			c.session(ctx)
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	f.t.Cleanup(c.end)
	return c
}

func (c *cluster) end() {
	c.stop()
	<-c.done
}

// want replaces the demand.
func (c *cluster) want(needs ...*v1.CapacityNeed) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.needs = needs
}

func (c *cluster) session(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	client, err := rpc.NewClient(rpc.ClientConfig{Addr: c.f.addrs[fmt.Sprintf("shard-%d", c.shard)], Limits: rpc.Limits{ReadMaxBytes: 64 << 20, SendMaxBytes: 64 << 20}, DialTimeout: time.Second})
	if err != nil {
		return
	}
	defer client.CloseIdle()
	stream := rpc.Stub(client, api.NewShardClient).Session(ctx)
	defer context.AfterFunc(ctx, func() { // the end of its context alone does not wake a Receive
		_ = stream.CloseRequest()
		_ = stream.CloseResponse()
	})()
	var sending sync.Mutex
	send := func(m *v1.OperatorMessage) error {
		sending.Lock()
		defer sending.Unlock()
		return stream.Send(m)
	}
	if send(&v1.OperatorMessage{Payload: &v1.OperatorMessage_Hello{Hello: &v1.Hello{ClusterId: c.name, ProtocolVersion: "v1alpha1"}}}) != nil {
		return
	}
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	all.Go(func() {
		for {
			c.mu.Lock()
			needs := c.needs
			c.mu.Unlock()
			if send(&v1.OperatorMessage{Payload: &v1.OperatorMessage_Rollup{Rollup: &v1.ClusterCapacityNeeds{ClusterId: c.name,
				TimestampUnixNanos: time.Now().UnixNano(), Needs: needs}}}) != nil {
				cancel()
				return
			}
			select {
			case <-ctx.Done():
				return
			case <-time.After(300 * time.Millisecond):
			}
		}
	})
	for {
		m, err := stream.Receive()
		if err != nil {
			return
		}
		switch p := m.GetPayload().(type) {
		case *v1.ShardMessage_BootstrapRequest:
			err = send(&v1.OperatorMessage{Payload: &v1.OperatorMessage_BootstrapResponse{BootstrapResponse: &v1.BootstrapBlobResponse{
				RequestId: p.BootstrapRequest.GetRequestId(), UserData: []byte("join")}}})
		case *v1.ShardMessage_ReclaimInstruction:
			err = send(&v1.OperatorMessage{Payload: &v1.OperatorMessage_ReclaimAck{ReclaimAck: &v1.ReclaimAck{
				InstructionId: p.ReclaimInstruction.GetInstructionId(), NodesStarted: int32(len(p.ReclaimInstruction.GetNodes()))}}})
		}
		if err != nil {
			return
		}
	}
}

func need(row, cpu string, reqs ...*v1.NodeSelectorRequirement) *v1.CapacityNeed {
	return &v1.CapacityNeed{AggregateResources: map[string]string{"cpu": cpu}, MinUnit: map[string]string{"cpu": "1"}, Priority: 100, RowId: row, Requirements: reqs}
}

// quick makes the rebalancer act at once, up to a tier: a test cannot wait for minutes.
func (f *fleet) quick(highest v1.MoveTier) {
	f.t.Helper()
	retry(f, f.admin.SetRebalance, &v1.SetRebalanceRequest{Policy: &v1.RebalancePolicy{Mode: v1.RebalanceMode_REBALANCE_MODE_ON,
		MaxTier: highest, AgeGatesSeconds: []int64{1, 1, 1}, FlowCooldownSeconds: 1, MachineCooldownSeconds: 1, DonorMargin: 0.001, DonorCap: 1}})
}

// assign gives zones to shards and waits until both obey.
func (f *fleet) assign(zones map[string]string, machines int) {
	f.t.Helper()
	for _, i := range []string{"shard-0", "shard-1"} {
		f.eventually(i+" is registered", func() bool {
			got := retry(f, f.core.ListShards, &v1.ListShardsRequest{})
			return slices.ContainsFunc(got.GetShards(), func(s *v1.ShardRegistryEntry) bool { return s.GetShardId() == i && s.GetProvider() != "" })
		})
	}
	for zone, shard := range zones {
		retry(f, f.core.AssignDomain, &v1.AssignDomainRequest{TopologyKey: zoneKey, TopologyValue: zone, ShardId: shard})
	}
	f.eventually("the zones changed hands", func() bool {
		return len(retry(f, f.admin.ListDomainMoves, &v1.ListDomainMovesRequest{}).GetMoves()) == 0
	})
	f.whole(machines)
}
