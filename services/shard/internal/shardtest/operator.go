package shardtest

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// AllFeatures is what our own operator lists.
var AllFeatures = []string{"rollup-ack", "node-report", "drain-report", "unplaced-pods", "need-status", "reclaim-cancel", "released"}

// Operator is one cluster's end of a session.
type Operator struct {
	Cluster string
	stream  *connect.BidiStreamForClient[pb.OperatorMessage, pb.ShardMessage]
	cancel  context.CancelFunc
	done    chan struct{}
	idle    func() // closes the connection of its own

	mu     sync.Mutex
	frames []*pb.ShardMessage
	err    error
	news   chan struct{}

	// Bootstrap answers requests; nil gives "blob for <machine>". A nil answer is silence.
	Bootstrap func(*pb.BootstrapRequest) *pb.BootstrapBlobResponse
	// Reclaim answers instructions; nil acks with one node. A nil answer is silence.
	Reclaim func(*pb.ReclaimInstruction) *pb.ReclaimAck
}

// Dial opens a stream without sending anything.
func Dial(t testing.TB, addr, cluster string) *Operator {
	t.Helper()
	c, err := rpc.NewClient(rpc.ClientConfig{Addr: addr, Log: slog.New(slog.DiscardHandler), Limits: rpc.Limits{ReadMaxBytes: 64 << 20, SendMaxBytes: 128 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	o := open(c, cluster)
	t.Cleanup(func() { o.Close(); c.CloseIdle() })
	return o
}

// ConnectOver is Connect over connections of the caller, for tests without a network. The caller closes it.
func ConnectOver(t testing.TB, dial func(ctx context.Context, network, addr string) (net.Conn, error), cluster string, features ...string) *Operator {
	t.Helper()
	c, err := rpc.NewClient(rpc.ClientConfig{Addr: "shard:1", Dial: dial, Log: slog.New(slog.DiscardHandler), Limits: rpc.Limits{ReadMaxBytes: 64 << 20, SendMaxBytes: 128 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	o := open(c, cluster)
	o.idle = c.CloseIdle
	o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: cluster, ProtocolVersion: "v1alpha1", Features: features}}})
	o.Start()
	return o
}

// OpenOn is Connect on a client of the caller, until the test ends.
func OpenOn(t testing.TB, c *rpc.Client, cluster string, features ...string) *Operator {
	t.Helper()
	o := open(c, cluster)
	o.idle = c.CloseIdle
	t.Cleanup(o.Close)
	o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: cluster, ProtocolVersion: "v1alpha1", Features: features}}})
	o.Start()
	return o
}

func open(c *rpc.Client, cluster string) *Operator {
	ctx, cancel := context.WithCancel(context.Background())
	o := &Operator{Cluster: cluster, cancel: cancel, done: make(chan struct{}), news: make(chan struct{}, 1)}
	o.stream = rpc.Stub(c, bigfleetv1alpha1connect.NewShardClient).Session(ctx)
	return o
}

// Connect dials and says Hello with the given features.
func Connect(t testing.TB, addr, cluster string, features ...string) *Operator {
	t.Helper()
	o := Dial(t, addr, cluster)
	o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: cluster, ProtocolVersion: "v1alpha1", Features: features}}})
	o.Start()
	return o
}

// Start begins to receive and to answer.
func (o *Operator) Start() { go o.receive() }

// Send sends one frame. Its error shows in Err later.
func (o *Operator) Send(m *pb.OperatorMessage) { _ = o.stream.Send(m) }

// Rollup sends demand.
func (o *Operator) Rollup(needs ...*pb.CapacityNeed) {
	o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: &pb.ClusterCapacityNeeds{ClusterId: o.Cluster,
		TimestampUnixNanos: time.Now().UnixNano(), Needs: needs}}})
}

func (o *Operator) receive() {
	defer close(o.done)
	for {
		m, err := o.stream.Receive()
		o.mu.Lock()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				o.err = err
			}
			o.mu.Unlock()
			o.notify()
			return
		}
		o.frames = append(o.frames, m)
		bootstrap, reclaim := o.Bootstrap, o.Reclaim
		o.mu.Unlock()
		o.notify()
		o.answer(m, bootstrap, reclaim)
	}
}

func (o *Operator) answer(m *pb.ShardMessage, bootstrap func(*pb.BootstrapRequest) *pb.BootstrapBlobResponse, reclaim func(*pb.ReclaimInstruction) *pb.ReclaimAck) {
	switch p := m.Payload.(type) {
	case *pb.ShardMessage_BootstrapRequest:
		r := p.BootstrapRequest
		a := &pb.BootstrapBlobResponse{RequestId: r.RequestId, UserData: []byte("blob for " + r.GetMachine().GetMachineId())}
		if bootstrap != nil {
			a = bootstrap(r)
		}
		if a != nil {
			o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: a}})
		}
	case *pb.ShardMessage_ReclaimInstruction:
		r := p.ReclaimInstruction
		a := &pb.ReclaimAck{InstructionId: r.InstructionId, NodesStarted: int32(len(r.Nodes))}
		if reclaim != nil {
			a = reclaim(r)
		}
		if a != nil {
			o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_ReclaimAck{ReclaimAck: a}})
			o.Send(&pb.OperatorMessage{Payload: &pb.OperatorMessage_DrainReport{DrainReport: &pb.DrainReport{InstructionId: r.InstructionId, State: pb.DrainState_DRAIN_STATE_DONE}}})
		}
	}
}

func (o *Operator) notify() {
	select {
	case o.news <- struct{}{}:
	default:
	}
}

// Set changes how the operator answers.
func (o *Operator) Set(f func(*Operator)) {
	o.mu.Lock()
	defer o.mu.Unlock()
	f(o)
}

// Frames returns what came so far.
func (o *Operator) Frames() []*pb.ShardMessage {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]*pb.ShardMessage(nil), o.frames...)
}

// Err is how the stream ended, nil while it lives or after a clean end.
func (o *Operator) Err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// Ended waits for the end of the stream and returns its error.
func (o *Operator) Ended(t testing.TB) error {
	t.Helper()
	select {
	case <-o.done:
	case <-time.After(30 * time.Second):
		t.Fatal("the stream did not end")
	}
	return o.Err()
}

// Await waits until some frame satisfies f and returns it.
func Await[T any](t testing.TB, o *Operator, what string, f func(*pb.ShardMessage) (T, bool)) T {
	t.Helper()
	deadline := time.After(30 * time.Second)
	for {
		for _, m := range o.Frames() {
			if v, ok := f(m); ok {
				return v
			}
		}
		select {
		case <-o.news:
		case <-deadline:
			t.Fatalf("no frame: %s; got %d frames, err %v", what, len(o.Frames()), o.Err())
		}
	}
}

// Close ends the stream.
func (o *Operator) Close() {
	o.cancel()
	_ = o.stream.CloseRequest()
	_ = o.stream.CloseResponse()
	if o.idle != nil {
		o.idle()
	}
}

// Eventually waits until f is true.
func Eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if f() {
			return
		}
	}
	t.Fatalf("never: %s", what)
}

// Need is a plain row of demand.
func Need(cpu string, priority int32) *pb.CapacityNeed {
	return &pb.CapacityNeed{AggregateResources: map[string]string{"cpu": cpu}, MinUnit: map[string]string{"cpu": "1"}, Priority: priority, RowId: "row-" + cpu}
}
