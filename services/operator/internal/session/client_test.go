package session

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"connectrpc.com/connect"
	"go.uber.org/goleak"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type conversation func(ctx context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error

type handler struct {
	bigfleetv1alpha1connect.UnimplementedShardHandler
	talk conversation
}

func (h handler) Session(ctx context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
	return h.talk(ctx, s)
}

// recorder is a Receiver that keeps what it receives.
type recorder struct {
	mu     sync.Mutex
	opened []*Link
	closed []error
	frames []*pb.ShardMessage
}

func (r *recorder) Opened(l *Link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.opened = append(r.opened, l)
}

func (r *recorder) Receive(_ *Link, m *pb.ShardMessage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.frames = append(r.frames, m)
}

func (r *recorder) Closed(_ *Link, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = append(r.closed, err)
}

func (r *recorder) sessions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.opened)
}

func (r *recorder) link() *Link {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opened[len(r.opened)-1]
}

// start runs a client against a shard that talks as given, within a bubble of synctest.
func start(t *testing.T, talk conversation, more ...func(*Config)) (*Client, *recorder, func()) {
	t.Helper()
	ln := rpc.NewMemListener("shard")
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewShardHandler(handler{talk: talk}))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: mux, Protocols: protocols}
	go func() { _ = server.Serve(ln) }()
	conn, err := rpc.NewClient(rpc.ClientConfig{Addr: "shard:1", Limits: rpc.Limits{ReadMaxBytes: FrameBytesMax, SendMaxBytes: FrameBytesMax}, Dial: ln.DialContext,
		Keepalive: rpc.Keepalive{Interval: KeepaliveInterval, Timeout: KeepaliveTimeout}})
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{}
	config := Config{Shard: rpc.Stub(conn, bigfleetv1alpha1connect.NewShardClient), CloseIdle: conn.CloseIdle, Hello: &pb.Hello{ClusterId: "red", ProtocolVersion: ProtocolVersion},
		Receiver: r, Log: slog.New(slog.DiscardHandler)}
	for _, f := range more {
		f(&config)
	}
	c, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	return c, r, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = server.Close()
		conn.CloseIdle()
	}
}

func greet(s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage], features ...string) error {
	if _, err := s.Receive(); err != nil {
		return err
	}
	return s.Send(&pb.ShardMessage{Payload: &pb.ShardMessage_Ack{Ack: &pb.Acknowledgement{Echo: "hello:x", Features: features, ShardId: "shard-0"}}})
}

// drain reads frames until the stream ends.
func drain(s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage], each func(*pb.OperatorMessage)) error {
	for {
		m, err := s.Receive()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		each(m)
	}
}

// Scenario 1: the shard closes the stream at each step; pauses are random below a bound that doubles up to a maximum.
func TestReconnectsWithBackoff(t *testing.T) {
	for name, talk := range map[string]conversation{
		"before Hello": func(context.Context, *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error { return nil },
		"after Hello": func(_ context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			_, err := s.Receive()
			return err
		},
		"with an error": func(_ context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			_, _ = s.Receive()
			return connect.NewError(connect.CodeUnavailable, errors.New("stopping"))
		},
		"after the acknowledgement": func(_ context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			return greet(s)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var at []time.Time
				_, _, stop := start(t, func(ctx context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
					mu.Lock()
					at = append(at, time.Now())
					mu.Unlock()
					return talk(ctx, s)
				})
				time.Sleep(10 * time.Minute)
				stop()
				if len(at) < 20 || len(at) > 200 {
					t.Fatalf("%d sessions in ten minutes, want about 40", len(at))
				}
				for i := 1; i < len(at); i++ {
					limit := min(backoffMin<<min(i-1, 10), backoffMax) + 2*time.Second
					if pause := at[i].Sub(at[i-1]); pause > limit {
						t.Errorf("pause %d is %v, more than %v", i, pause, limit)
					}
				}
			})
		})
	}
}

// Scenario 1: the backoff starts again after a session that was healthy for a minute.
func TestBackoffResetsAfterAHealthySession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var ended, begun []time.Time
		_, _, stop := start(t, func(ctx context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			mu.Lock()
			begun = append(begun, time.Now())
			n := len(begun)
			mu.Unlock()
			if err := greet(s); err != nil || n < 10 {
				return err
			}
			select {
			case <-time.After(healthyAfter + time.Second):
			case <-ctx.Done():
				return nil
			}
			mu.Lock()
			ended = append(ended, time.Now())
			mu.Unlock()
			return nil
		})
		time.Sleep(20 * time.Minute)
		stop()
		if len(ended) < 3 {
			t.Fatalf("%d healthy sessions", len(ended))
		}
		for i := range ended[:2] {
			if pause := begun[10+i].Sub(ended[i]); pause > backoffMin+time.Second {
				t.Errorf("after a healthy session the pause was %v", pause)
			}
		}
	})
}

// OP-3.7, OP-4.6: a refused session is tried again at the maximum pause, with the shard's words kept.
func TestRefusedSessionsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, r, stop := start(t, func(_ context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			_, _ = s.Receive()
			return connect.NewError(connect.CodePermissionDenied, errors.New("you are bigfleet://cluster/blue"))
		})
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if n := r.sessions(); n < 19 || n > 21 {
			t.Errorf("%d attempts in ten minutes, want one each 30 s", n)
		}
		if s := c.State(); !s.Refused || s.Connected || s.LastError == "" {
			t.Errorf("state %+v", s)
		}
		stop()
	})
}

// Scenario 3, OP-4.7, OP-4.10: a shard that stops reading gets exactly the newest roll-up when it reads again, and no caller waits for it.
func TestOnlyTheNewestRollupIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan struct{})
		var mu sync.Mutex
		var got []int64
		_, r, stop := start(t, func(_ context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			if err := greet(s); err != nil {
				return err
			}
			<-read
			return drain(s, func(m *pb.OperatorMessage) {
				mu.Lock()
				defer mu.Unlock()
				got = append(got, m.GetRollup().GetTimestampUnixNanos())
			})
		})
		synctest.Wait()
		link := r.link()
		big := make([]*pb.CapacityNeed, 1) // larger than what the connection buffers
		big[0] = &pb.CapacityNeed{Group: string(make([]byte, 8<<20))}
		link.Rollup(&pb.ClusterCapacityNeeds{ClusterId: "red", TimestampUnixNanos: 1, Needs: big})
		synctest.Wait()
		for i := range int64(1000) {
			link.Rollup(&pb.ClusterCapacityNeeds{ClusterId: "red", TimestampUnixNanos: 2 + i})
		}
		close(read)
		time.Sleep(time.Second)
		synctest.Wait()
		mu.Lock()
		if len(got) != 2 || got[0] != 1 || got[1] != 1001 {
			t.Errorf("roll-ups %v arrived, want 1 and 1001", got)
		}
		mu.Unlock()
		stop()
	})
}

// Scenario 4, OP-4.8: a full outbox drops the newest response; the roll-up and the reports are unaffected.
func TestFullOutbox(t *testing.T) {
	drops := 0
	l := newLink(func() { drops++ })
	for i := range ResponsesMax + 10 {
		ok := l.Respond(&pb.OperatorMessage{})
		if ok != (i < ResponsesMax) {
			t.Fatalf("response %d: accepted %v", i, ok)
		}
	}
	l.Rollup(&pb.ClusterCapacityNeeds{TimestampUnixNanos: 7})
	l.Report("node:a", &pb.OperatorMessage{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{MachineId: "old"}}})
	l.Report("node:a", &pb.OperatorMessage{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{MachineId: "new"}}})
	if drops != 10 {
		t.Errorf("%d drops, want 10", drops)
	}
	var kinds []string
	for m := l.next(); m != nil; m = l.next() {
		switch {
		case m.GetRollup() != nil:
			kinds = append(kinds, "rollup")
		case m.GetNodeReport() != nil:
			kinds = append(kinds, m.GetNodeReport().MachineId)
		}
	}
	if len(kinds) != 2 || kinds[0] != "new" || kinds[1] != "rollup" {
		t.Errorf("order %v, want the newest report, then the roll-up", kinds)
	}
}

// OP-4.9: a roll-up waits at most 100 ms behind other frames.
func TestRollupOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLink(func() {})
		l.Rollup(&pb.ClusterCapacityNeeds{})
		l.Respond(&pb.OperatorMessage{})
		l.Respond(&pb.OperatorMessage{})
		if l.next().GetRollup() != nil {
			t.Error("the roll-up went before a response")
		}
		time.Sleep(rollupWaitMax)
		if l.next().GetRollup() == nil {
			t.Error("the roll-up still waits")
		}
	})
}

// OP-3.4: a stop flushes the responses that wait and ends the stream cleanly.
func TestStopFlushesResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		got, clean := 0, false
		_, r, stop := start(t, func(_ context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			if err := greet(s); err != nil {
				return err
			}
			err := drain(s, func(m *pb.OperatorMessage) {
				mu.Lock()
				defer mu.Unlock()
				got++
			})
			mu.Lock()
			clean = err == nil
			mu.Unlock()
			return err
		})
		synctest.Wait()
		for range 50 {
			r.link().Respond(&pb.OperatorMessage{Payload: &pb.OperatorMessage_ReclaimAck{ReclaimAck: &pb.ReclaimAck{}}})
		}
		stop()
		mu.Lock()
		defer mu.Unlock()
		if got != 50 || !clean {
			t.Errorf("%d of 50 responses arrived, clean end %v", got, clean)
		}
	})
}

// OP-4.6: features are those of the shard's answer, with and without a version.
func TestFeatures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r, stop := start(t, func(_ context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			if err := greet(s, "rollup-ack", "node-report/1", "future/7"); err != nil {
				return err
			}
			return drain(s, func(*pb.OperatorMessage) {})
		})
		time.Sleep(time.Second)
		l := r.link()
		if !l.Has("rollup-ack") || !l.Has("node-report") || l.Has("future") || l.Has("drain-report") {
			t.Error("features of the shard are misread")
		}
		stop()
	})
}

// OP-4.1, OP-4.5: the first frame says who calls and in which version; terms and epochs that run backwards change nothing.
func TestTheFirstFrameIsHello(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := make(chan *pb.OperatorMessage, 1)
		_, r, stop := start(t, func(_ context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			m, err := s.Receive()
			if err != nil {
				return err
			}
			first <- m
			for _, epoch := range []int64{9, 3, 0, 7} {
				if err := s.Send(&pb.ShardMessage{Payload: &pb.ShardMessage_Ack{Ack: &pb.Acknowledgement{Echo: "hello", ShardEpoch: epoch, CoordinatorTerm: epoch}}}); err != nil {
					return err
				}
			}
			return drain(s, func(*pb.OperatorMessage) {})
		}, func(c *Config) {
			c.Hello = &pb.Hello{ClusterId: "red", ProtocolVersion: ProtocolVersion, OperatorVersion: "1.2.3", InstanceId: "x", Features: []string{"rollup-ack"}}
		})
		time.Sleep(10 * time.Minute)
		if h := (<-first).GetHello(); h.GetClusterId() != "red" || h.GetProtocolVersion() != "v1alpha1" || h.GetOperatorVersion() != "1.2.3" || h.GetInstanceId() != "x" || len(h.GetFeatures()) != 1 {
			t.Errorf("the first frame is %v", h)
		}
		r.mu.Lock()
		if len(r.frames) != 4 || len(r.opened) != 1 {
			t.Errorf("%d frames in %d sessions, want all four in one", len(r.frames), len(r.opened))
		}
		r.mu.Unlock()
		stop()
	})
}

// OP-4.2: a stream is over before the next is opened, also when the operator gives it up because the shard does not answer.
func TestOneStreamAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		open, most, all := 0, 0, 0
		_, r, stop := start(t, func(ctx context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			mu.Lock()
			open, all = open+1, all+1
			most = max(most, open)
			mu.Unlock()
			<-ctx.Done() // it never answers Hello
			mu.Lock()
			open--
			mu.Unlock()
			return ctx.Err()
		})
		time.Sleep(10 * time.Minute)
		stop()
		synctest.Wait()
		if most != 1 || all < 10 || open != 0 {
			t.Errorf("%d streams at a time, %d in all, %d left", most, all, open)
		}
		if len(r.closed) != all {
			t.Errorf("%d of %d ends were reported", len(r.closed), all)
		}
	})
}

// OP-4.15: frames far larger than what libraries allow by default pass, both ways, in one session.
func TestLargeFrames(t *testing.T) {
	const size = 40 << 20
	synctest.Test(t, func(t *testing.T) {
		got := make(chan int, 1)
		_, r, stop := start(t, func(_ context.Context, s *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
			if err := greet(s); err != nil {
				return err
			}
			if err := s.Send(&pb.ShardMessage{Payload: &pb.ShardMessage_NeedStatus{NeedStatus: &pb.NeedStatus{RowId: string(make([]byte, size))}}}); err != nil {
				return err
			}
			return drain(s, func(m *pb.OperatorMessage) { got <- len(m.GetRollup().GetNeeds()[0].GetGroup()) })
		})
		synctest.Wait()
		r.link().Rollup(&pb.ClusterCapacityNeeds{ClusterId: "red", Needs: []*pb.CapacityNeed{{Group: string(make([]byte, size))}}})
		if n := <-got; n != size {
			t.Errorf("%d bytes arrived at the shard", n)
		}
		synctest.Wait()
		r.mu.Lock()
		if len(r.frames) != 2 || len(r.frames[1].GetNeedStatus().GetRowId()) != size || len(r.opened) != 1 {
			t.Errorf("%d frames in %d sessions", len(r.frames), len(r.opened))
		}
		r.mu.Unlock()
		stop()
	})
}
