package explain_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/providers/sim"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// fleet is a shard and a simulated cloud in the virtual time of a synctest bubble: real RPC over connections in memory, so that
// the quarter of an hour after which a Node counts as lost takes no time. The command asks it as it asks any other.
type fleet struct {
	t       *testing.T
	shard   *rpc.MemListener
	cloud   *substrate.Cloud
	control bigfleetv1alpha1connect.SubstrateControlClient
	ends    []func()

	stopProvider func()
}

// run runs f in a bubble.
func run(t *testing.T, offerings []provider.Offering, edit func(*shard.Config), f func(*fleet)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		v := &fleet{t: t, shard: rpc.NewMemListener("shard")}
		quiet := slog.New(slog.DiscardHandler)
		machines := rpc.NewMemListener("provider")
		p, cloud, err := sim.New(sim.Config{Name: "cloud", Offerings: offerings, Log: quiet, World: sim.World{Preset: "calm", Seed: 1, TimeScale: 1,
			Latency: map[string]substrate.Latency{substrate.CallCreate: {Min: time.Second, Max: time.Second}, substrate.CallConfigure: {Min: time.Second, Max: time.Second}}},
			Options: []provider.Option{provider.WithListener(machines), provider.WithStateFile(filepath.Join(dir, "provider.db"))}})
		if err != nil {
			t.Fatal(err)
		}
		v.cloud = cloud
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 3)
		providing, stop := context.WithCancel(ctx)
		v.stopProvider = stop
		go func() { ended <- p.Run(providing) }()
		controls := rpc.NewMemListener("control")
		go func() { ended <- cloud.Control(ctx, here{controls}, nil) }()
		controlClient := v.client(controls)
		v.control = rpc.Stub(controlClient, bigfleetv1alpha1connect.NewSubstrateControlClient)

		tel, err := telemetry.New(ctx, telemetry.Config{Component: "shard", LogWriter: io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		ready := make(chan struct{})
		c := shard.Config{ID: "shard-0", DataDir: filepath.Join(dir, "shard"), Listener: v.shard, Telemetry: tel, Ready: ready,
			Providers: []shard.Provider{{Name: "cloud", Addr: "provider:1", Dial: machines.DialContext}}}
		if edit != nil {
			edit(&c)
		}
		go func() { ended <- shard.Run(ctx, c) }()
		<-ready
		defer func() {
			slices.Reverse(v.ends)
			for _, end := range v.ends {
				end()
			}
			controlClient.CloseIdle()
			cancel()
			for range 3 {
				if err := <-ended; err != nil {
					t.Errorf("a part ended with %v", err)
				}
			}
			_ = tel.Close(context.Background())
		}()
		v.until("the machines are known", func() bool {
			_, out := v.bigfleet("status")
			return strings.Contains(out, "machines read") || strings.Contains(out, "speculative")
		})
		f(v)
	})
}

// here makes connections in memory look like those of this machine, to which alone SubstrateControl listens.
type here struct{ *rpc.MemListener }

type hereConn struct{ net.Conn }

func (l here) Accept() (net.Conn, error) {
	c, err := l.MemListener.Accept()
	return hereConn{c}, err
}

func (hereConn) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (v *fleet) client(l *rpc.MemListener) *rpc.Client {
	v.t.Helper()
	c, err := rpc.NewClient(rpc.ClientConfig{Addr: "peer:1", Dial: l.DialContext, Limits: rpc.Limits{ReadMaxBytes: 16 << 20, SendMaxBytes: 16 << 20}})
	if err != nil {
		v.t.Fatal(err)
	}
	return c
}

// bigfleet runs one command line in this process.
func (v *fleet) bigfleet(args ...string) (exit.Code, string) {
	var out bytes.Buffer
	code := cli.Main(context.Background(), env.Env{
		In: strings.NewReader(""), Out: &out, Err: &out, Getenv: func(string) string { return "" }, Now: time.Now, Dial: v.shard.DialContext,
	}, append(args, "--shard", "shard:1"))
	return code, out.String()
}

// does runs a command line that must end well.
func (v *fleet) does(args ...string) string {
	v.t.Helper()
	code, out := v.bigfleet(args...)
	if code != exit.OK {
		v.t.Fatalf("bigfleet %v ends with %d:\n%s", args, code, out)
	}
	return out
}

// patience is virtual.
const patience = 2 * time.Hour

// explains waits until the need of a cluster's row has the detail, and returns what the command says about it.
func (v *fleet) explains(cluster, row string, detail pb.NeedDetail) string {
	v.t.Helper()
	subject, out := "need/"+cluster+"/"+row, ""
	pause := 250 * time.Millisecond
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(pause) {
		var seen struct {
			Need struct{ Detail, DetailText string }
		}
		var code exit.Code
		if code, out = v.bigfleet("explain", subject, "-o", "json"); code == exit.OK && json.Unmarshal([]byte(out), &seen) == nil && seen.Need.Detail == detail.String() {
			if out = v.does("explain", subject); strings.Contains(out, seen.Need.DetailText) { // else a cycle came between the two
				return out
			}
		}
		pause = min(pause+pause/8, 10*time.Second)
	}
	_, out = v.bigfleet("explain", subject)
	v.t.Fatalf("%s is never %s; last:\n%s", subject, detail, out)
	return ""
}

// until waits in virtual time.
func (v *fleet) until(what string, seen func() bool) {
	v.t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(200 * time.Millisecond) {
		if seen() {
			return
		}
	}
	v.t.Fatalf("never: %s", what)
}

// configured waits until the cluster has this many machines in use, and returns their names.
func (v *fleet) configured(cluster string, n int) (names []string) {
	v.t.Helper()
	v.until(fmt.Sprintf("%d machines serve %s", n, cluster), func() bool {
		_, out := v.bigfleet("get", "machines", "--state", "configured", "--cluster", cluster, "-o", "name")
		names = strings.Fields(strings.ReplaceAll(out, "machine/", ""))
		return len(names) == n
	})
	return names
}

func (v *fleet) behaves(b *pb.Behaviour) {
	v.t.Helper()
	if _, err := v.control.SetBehaviour(context.Background(), connect.NewRequest(&pb.SetBehaviourRequest{Behaviour: b})); err != nil {
		v.t.Fatal(err)
	}
}

func (v *fleet) stock(s *pb.MachineSelector, n int32) {
	v.t.Helper()
	if _, err := v.control.SetStock(context.Background(), connect.NewRequest(&pb.SetStockRequest{Selector: s, Stock: n})); err != nil {
		v.t.Fatal(err)
	}
}

// operator is one cluster's end of a session, which says what a test wants.
type operator struct {
	v       *fleet
	cluster string
	stream  *connect.BidiStreamForClient[pb.OperatorMessage, pb.ShardMessage]
	close   func()

	renders func(*pb.BootstrapRequest) *pb.BootstrapBlobResponse // nil: some text
}

// operator opens a session for a cluster.
func (v *fleet) operator(cluster string, renders func(*pb.BootstrapRequest) *pb.BootstrapBlobResponse) *operator {
	v.t.Helper()
	client := v.client(v.shard)
	ctx, cancel := context.WithCancel(context.Background())
	o := &operator{v: v, cluster: cluster, renders: renders, stream: rpc.Stub(client, bigfleetv1alpha1connect.NewShardClient).Session(ctx)}
	o.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: cluster, ProtocolVersion: "v1alpha1",
		Features: []string{"rollup-ack", "node-report", "drain-report", "unplaced-pods", "need-status", "reclaim-cancel", "released"}}}})
	done := make(chan struct{})
	go func() { defer close(done); o.receive() }()
	closed := false
	o.close = func() {
		if closed {
			return
		}
		closed = true
		_ = o.stream.CloseRequest()
		cancel()
		<-done
		client.CloseIdle()
	}
	v.ends = append(v.ends, o.close)
	return o
}

func (o *operator) send(m *pb.OperatorMessage) { _ = o.stream.Send(m) } // a lost session shows in what is explained

func (o *operator) receive() {
	for {
		m, err := o.stream.Receive()
		if err != nil {
			return
		}
		switch p := m.GetPayload().(type) {
		case *pb.ShardMessage_BootstrapRequest:
			r := p.BootstrapRequest
			a := &pb.BootstrapBlobResponse{RequestId: r.GetRequestId(), UserData: []byte("boot data of " + r.GetMachine().GetMachineId())}
			if o.renders != nil {
				a = o.renders(r)
			}
			if a != nil {
				o.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: a}})
			}
		case *pb.ShardMessage_ReclaimInstruction:
			r := p.ReclaimInstruction
			o.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_ReclaimAck{ReclaimAck: &pb.ReclaimAck{InstructionId: r.GetInstructionId(), NodesStarted: int32(len(r.GetNodes()))}}})
		}
	}
}

// asks sends a roll-up: the cluster's whole demand.
func (o *operator) asks(needs ...*pb.CapacityNeed) {
	o.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: &pb.ClusterCapacityNeeds{ClusterId: o.cluster, TimestampUnixNanos: time.Now().UnixNano(), Needs: needs}}})
}

// beats repeats something every 10 s, as a session's heartbeat does, until the test ends.
func (o *operator) beats(f func()) {
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			f()
			select {
			case <-stop:
				return
			case <-time.After(10 * time.Second):
			}
		}
	}()
	o.v.ends = append(o.v.ends, func() { close(stop); <-done })
}

// reports says how Nodes are; ready nil means that there is none.
func (o *operator) reports(last bool, nodes map[string]bool) {
	for name, ready := range nodes {
		o.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{MachineId: name, NodeName: name, Present: true, Ready: ready, SinceUnixNanos: time.Now().UnixNano()}}})
	}
	if last {
		o.send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{LastOfFullSet: true}}})
	}
}

// need is a row that wants units of whole cpus.
func need(row string, units, cpu int, priority int32, edit ...func(*pb.CapacityNeed)) *pb.CapacityNeed {
	n := &pb.CapacityNeed{RowId: row, Priority: priority, AggregateResources: map[string]string{"cpu": fmt.Sprint(units * cpu)}, MinUnit: map[string]string{"cpu": fmt.Sprint(cpu)}}
	for _, e := range edit {
		e(n)
	}
	return n
}

func in(key string, values ...string) func(*pb.CapacityNeed) {
	return func(n *pb.CapacityNeed) {
		n.Requirements = append(n.Requirements, &pb.NodeSelectorRequirement{Key: key, Operator: pb.NodeSelectorRequirement_OPERATOR_IN, Values: values})
	}
}

func same(key string) func(*pb.CapacityNeed) {
	return func(n *pb.CapacityNeed) {
		n.Group = n.GetRowId()
		n.Requirements = append(n.Requirements, &pb.NodeSelectorRequirement{Key: key, Operator: pb.NodeSelectorRequirement_OPERATOR_SAME})
	}
}

func spread(key string) func(*pb.CapacityNeed) {
	return func(n *pb.CapacityNeed) {
		n.Spread = append(n.Spread, &pb.TopologySpread{TopologyKey: key, MaxSkew: 1, WhenUnsatisfiable: pb.TopologySpread_WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE})
	}
}

func wants(resource, amount string) func(*pb.CapacityNeed) {
	return func(n *pb.CapacityNeed) {
		n.AggregateResources[resource], n.MinUnit[resource] = amount, amount
	}
}

const (
	zoneKey = "topology.kubernetes.io/zone"
	rackKey = "example.com/rack"
)

// slots are machines of 4 cpu.
func slots(name, zone string, count int, edit ...func(*provider.Offering)) provider.Offering {
	o := provider.Offering{Name: name, Count: count, Attributes: provider.Attributes{
		InstanceType: "c.4x", Zone: zone, CapacityType: provider.OnDemand, PricePerHour: 0.2, Resources: map[string]string{"cpu": "4"}, Labels: map[string]string{rackKey: name},
	}}
	for _, e := range edit {
		e(&o)
	}
	return o
}
