package shard_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// virtual is a whole shard in the virtual time of a synctest bubble: real HTTP/2 over connections in memory, so that
// minutes of silence take no time.
type virtual struct {
	t      *testing.T
	ln     *rpc.MemListener
	log    *logBuffer
	tel    *telemetry.Telemetry
	client *rpc.Client
	read   bigfleetv1alpha1connect.ShardReadClient
	ends   []func()
}

// inVirtualTime runs a test with a shard and a provider.
func inVirtualTime(t *testing.T, p *Provider, edit func(*shard.Config), f func(v *virtual)) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		v := &virtual{t: t, ln: rpc.NewMemListener("shard"), log: &logBuffer{}}
		var err error
		if v.tel, err = telemetry.New(context.Background(), telemetry.Config{Component: "shard", LogWriter: v.log}); err != nil {
			t.Fatal(err)
		}
		provider := rpc.NewMemListener("provider")
		stopProvider := p.ServeOn(t, provider, nil)
		ready := make(chan struct{})
		c := shard.Config{ID: "shard-0", DataDir: dir, Listener: v.ln, Telemetry: v.tel, Ready: ready, DecisionLogRetention: -1,
			ReleaseDelay: -1, ReleaseDelayEmpty: -1, SessionHandoverWait: -1,
			Providers: []shard.Provider{{Name: "test", Addr: "provider:1", Dial: provider.DialContext}}}
		if edit != nil {
			edit(&c)
		}
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- shard.Run(ctx, c) }()
		<-ready
		if v.client, err = rpc.NewClient(rpc.ClientConfig{Addr: "shard:1", Dial: v.ln.DialContext, Log: slog.New(slog.DiscardHandler), Limits: rpc.ReadClientLimits()}); err != nil {
			t.Fatal(err)
		}
		v.read = rpc.Stub(v.client, bigfleetv1alpha1connect.NewShardReadClient)
		f(v)
		slices.Reverse(v.ends)
		for _, end := range v.ends {
			end()
		}
		v.client.CloseIdle()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the shard ended with %v", err)
		}
		stopProvider()
		_ = v.tel.Close(context.Background())
		time.Sleep(time.Minute) // dials under way end by their own timeout, and no time passes once this goroutine has ended
		if t.Failed() {
			t.Log(v.log.String())
		}
	})
}

// operator is a well-behaved one, in virtual time.
func (v *virtual) operator(cluster string) *Operator {
	o := ConnectOver(v.t, v.ln.DialContext, cluster, AllFeatures...)
	v.ends = append(v.ends, o.Close)
	return o
}

func (v *virtual) status() *pb.GetStatusResponse {
	v.t.Helper()
	s, err := v.read.GetStatus(context.Background(), connect.NewRequest(&pb.GetStatusRequest{}))
	if err != nil {
		v.t.Fatal(err)
	}
	return s.Msg
}

// wire is a peer that speaks HTTP/2 frame by frame.
type wire struct {
	v      *virtual
	conn   net.Conn
	framer *http2.Framer
	mu     sync.Mutex // of writes

	got     sync.Mutex
	data    bytes.Buffer // of stream 1
	silent  atomic.Bool  // pings are not answered
	stopped chan struct{}
}

// dial opens a connection with the given window for what the shard sends on a stream, and a session on it.
func (v *virtual) dial(cluster string, window uint32) *wire {
	v.t.Helper()
	conn, err := v.ln.DialContext(context.Background(), "", "")
	if err != nil {
		v.t.Fatal(err)
	}
	w := &wire{v: v, conn: conn, framer: http2.NewFramer(conn, conn), stopped: make(chan struct{})}
	w.framer.AllowIllegalWrites = true
	v.ends = append(v.ends, func() { _ = conn.Close(); <-w.stopped })
	go w.receive()
	w.send(func() error {
		if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
			return err
		}
		return w.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window})
	})
	w.open(1)
	w.message(1, &pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: &pb.Hello{ClusterId: cluster, ProtocolVersion: "v1alpha1", Features: AllFeatures}}})
	return w
}

func (w *wire) send(f func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = f() // a connection that the shard has closed is what some tests want
}

// open sends the headers of a session.
func (w *wire) open(stream uint32) {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", bigfleetv1alpha1connect.ShardSessionProcedure}, {":authority", "shard:1"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	w.send(func() error {
		return w.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: b.Bytes(), EndHeaders: true})
	})
}

// message sends one frame of the session.
func (w *wire) message(stream uint32, m *pb.OperatorMessage) {
	raw, err := proto.Marshal(m)
	if err != nil {
		w.v.t.Fatal(err)
	}
	body := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(raw))), raw...)
	w.send(func() error { return w.framer.WriteData(stream, false, body) })
}

func (w *wire) rollup(cluster string, needs ...*pb.CapacityNeed) {
	w.message(1, &pb.OperatorMessage{Payload: &pb.OperatorMessage_Rollup{Rollup: &pb.ClusterCapacityNeeds{ClusterId: cluster, Needs: needs}}})
}

// credit opens the windows by so many bytes.
func (w *wire) credit(n uint32) {
	w.send(func() error {
		if err := w.framer.WriteWindowUpdate(0, n); err != nil {
			return err
		}
		return w.framer.WriteWindowUpdate(1, n)
	})
}

func (w *wire) receive() {
	defer close(w.stopped)
	for {
		f, err := w.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				go w.send(w.framer.WriteSettingsAck)
			}
		case *http2.PingFrame:
			if !f.IsAck() && !w.silent.Load() {
				go w.send(func() error { return w.framer.WritePing(true, f.Data) })
			}
		case *http2.DataFrame:
			w.got.Lock()
			w.data.Write(f.Data())
			w.got.Unlock()
		}
	}
}

// messages decodes what came whole.
func (w *wire) messages() (out []*pb.ShardMessage) {
	w.got.Lock()
	defer w.got.Unlock()
	b := w.data.Bytes()
	for len(b) >= 5 {
		n := int(binary.BigEndian.Uint32(b[1:]))
		if len(b) < 5+n {
			break
		}
		m := &pb.ShardMessage{}
		if proto.Unmarshal(b[5:5+n], m) == nil {
			out = append(out, m)
		}
		b = b[5+n:]
	}
	return out
}

// wait lets time pass and the shard come to rest.
func wait(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Scenario 17, SHARD-9.1, 9.2, 9.6: an operator whose window stays shut for minutes stops no other: the others are served in
// the meantime, and it is closed as a slow consumer after one write has taken longer than allowed.
func TestZeroWindowForMinutes(t *testing.T) {
	p := NewProvider(slots(4)...)
	inVirtualTime(t, p, nil, func(v *virtual) {
		w := v.dial("red", 0)
		w.rollup("red", Need("4", 0))
		wait(20 * time.Second)
		if got := len(w.messages()); got != 0 {
			t.Errorf("%d messages through a window of nothing", got)
		}
		if n := v.status().Sessions; n != 1 {
			t.Errorf("%d sessions while the first write waits", n)
		}
		o := v.operator("blue")
		o.Rollup(Need("4", 0))
		wait(2 * time.Second)
		if n := p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED); n != 1 {
			t.Errorf("%d machines serve the other cluster, which should not wait", n)
		}
		wait(5 * time.Minute)
		st := v.status()
		if st.Sessions != 1 {
			t.Errorf("%d sessions: the slow one should be gone", st.Sessions)
		}
		if !strings.Contains(v.log.String(), "slow consumer") {
			t.Error("no frame says why the session ended")
		}
		if n := p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED); n != 1 {
			t.Errorf("%d machines", n)
		}
	})
}

// Scenario 17, SHARD-9.2, 9.3: a window that opens again before that delivers every essential frame in order, and of
// each machine the latest state.
func TestWindowOpensAgain(t *testing.T) {
	p := NewProvider(slots(3)...)
	inVirtualTime(t, p, nil, func(v *virtual) {
		w := v.dial("red", 0)
		w.rollup("red", Need("4", 0))
		wait(25 * time.Second)
		w.credit(1 << 20)
		wait(time.Second)
		var kinds []string
		for _, m := range w.messages() {
			switch {
			case m.GetAck().GetEcho() == "hello":
				kinds = append(kinds, "hello")
			case m.GetBootstrapRequest() != nil:
				kinds = append(kinds, "pull")
				w.message(1, &pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: &pb.BootstrapBlobResponse{
					RequestId: m.GetBootstrapRequest().RequestId, UserData: []byte("blob")}}})
			}
		}
		if len(kinds) < 2 || kinds[0] != "hello" || kinds[1] != "pull" {
			t.Errorf("essential frames came as %v", kinds)
		}
		wait(10 * time.Second)
		if n := p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED); n != 1 {
			t.Errorf("%d machines serve after the window opened", n)
		}
	})
}

// Scenario 19, SHARD-7.7: a peer that vanished without a word, as behind a dead link, is found out by the ping within 40 s.
func TestHalfOpenConnection(t *testing.T) {
	inVirtualTime(t, NewProvider(slots(1)...), nil, func(v *virtual) {
		w := v.dial("red", 1<<20)
		wait(5 * time.Second)
		if n := v.status().Sessions; n != 1 {
			t.Fatalf("%d sessions", n)
		}
		w.silent.Store(true) // from here on nothing comes back
		wait(45 * time.Second)
		if n := v.status().Sessions; n != 0 {
			t.Errorf("a dead connection still holds its session after 45 s (%d)", n)
		}
		o := v.operator("red") // and its cluster comes back
		o.Rollup(Need("1", 0))
		wait(3 * time.Second)
		if n := v.status().Sessions; n != 1 {
			t.Errorf("%d sessions after the redial", n)
		}
	})
}

// SHARD-7.6, 8.4, 17.7: messages that come twice, in another order or for no known machine change nothing; frames that break the
// protocol end their connection and no other.
func TestReorderedAndDuplicatedFrames(t *testing.T) {
	p := NewProvider(slots(4)...)
	inVirtualTime(t, p, nil, func(v *virtual) {
		good := v.operator("blue")
		good.Rollup(Need("4", 0))
		w := v.dial("red", 1<<20)
		w.credit(1 << 20)
		ack := &pb.OperatorMessage{Payload: &pb.OperatorMessage_ReclaimAck{ReclaimAck: &pb.ReclaimAck{InstructionId: "0123456789abcdef", NodesStarted: 1}}}
		answer := &pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: &pb.BootstrapBlobResponse{RequestId: "0123456789abcdef", UserData: []byte("x")}}}
		for range 3 { // answers before any question, and again
			w.message(1, ack)
			w.message(1, answer)
			w.message(1, &pb.OperatorMessage{})
		}
		w.rollup("red", Need("4", 0))
		w.rollup("red", Need("4", 0)) // the same again
		wait(2 * time.Second)
		var pull *pb.BootstrapRequest
		for _, m := range w.messages() {
			if r := m.GetBootstrapRequest(); r != nil {
				pull = r
			}
		}
		if pull == nil {
			t.Fatal("no pull")
		}
		for range 3 {
			w.message(1, &pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: &pb.BootstrapBlobResponse{RequestId: pull.RequestId, UserData: []byte("blob")}}})
		}
		wait(5 * time.Second)
		if n := len(p.Calls("Configure")); n != 2 || p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) != 2 {
			t.Errorf("%d Configures for two machines", n)
		}
		// Frames that HTTP/2 forbids: headers and data of a stream that is half closed, and one that was never opened.
		w.send(func() error { return w.framer.WriteData(1, true, nil) })
		w.message(1, ack)
		w.message(7, ack)
		w.open(1)
		wait(2 * time.Second)
		if n := v.status().Sessions; n != 1 {
			t.Errorf("%d sessions: the one that broke the protocol should be gone, the other not", n)
		}
		good.Rollup(Need("8", 0))
		wait(5 * time.Second)
		if n := p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED); n != 3 {
			t.Errorf("%d machines: the cluster that did nothing wrong is not served", n)
		}
	})
}
