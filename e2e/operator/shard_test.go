package operator

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// shard is a shard played by the test: it answers as the contract says, records what arrives, and sends what the test gives it.
type shard struct {
	bigfleetv1alpha1connect.UnimplementedShardHandler
	addr     string
	server   *http.Server
	features []string
	answer   func(r *pb.ClusterCapacityNeeds) *pb.RollupResult // nil: accept

	mu       sync.Mutex
	stall    context.Context // until its end nothing but Hello is read; nil: no stall
	live     *shardSession   // the newest
	sessions int
	frames   []frame
	changed  chan struct{} // closed and replaced at each change
}

type frame struct {
	at      time.Time
	session int
	m       *pb.OperatorMessage
}

type shardSession struct {
	number int
	hello  *pb.Hello
	out    chan *pb.ShardMessage
	end    context.CancelCauseFunc
}

// allFeatures are those of a shard that knows everything.
var allFeatures = []string{"rollup-ack", "node-report", "drain-report", "unplaced-pods"}

func startShard(t testing.TB, features ...string) *shard {
	t.Helper()
	s := &shard{features: features, changed: make(chan struct{})}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.addr = ln.Addr().String()
	s.serve(ln)
	t.Cleanup(s.stop)
	return s
}

func (s *shard) serve(ln net.Listener) {
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewShardHandler(s))
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s.server = &http.Server{Handler: mux, Protocols: protocols}
	go func() { _ = s.server.Serve(ln) }()
}

// stop ends the process of the shard, so to speak: connections die.
func (s *shard) stop() { _ = s.server.Close() }

// Session implements the service.
func (s *shard) Session(ctx context.Context, stream *connect.BidiStream[pb.OperatorMessage, pb.ShardMessage]) error {
	first, err := stream.Receive()
	if err != nil {
		return err
	}
	hello := first.GetHello()
	if hello == nil {
		return connect.NewError(connect.CodeInvalidArgument, errors.New("the first frame must be Hello"))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	live := s.open(hello, cancel)
	s.record(live.number, first)
	s.mu.Lock()
	stall := s.stall
	s.mu.Unlock()
	go func() {
		if stall != nil {
			<-stall.Done()
		}
		for {
			m, err := stream.Receive()
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				cancel(errors.Join(errEnded, err))
				return
			}
			s.record(live.number, m)
			if r := m.GetRollup(); r != nil {
				s.acknowledge(live, r)
			}
		}
	}()
	for {
		select {
		case <-ctx.Done():
			if cause := context.Cause(ctx); !errors.Is(cause, errEnded) {
				return cause
			}
			return nil
		case m := <-live.out:
			if err := stream.Send(m); err != nil {
				return err
			}
		}
	}
}

var errEnded = errors.New("the operator ended the stream")

func (s *shard) open(hello *pb.Hello, end context.CancelCauseFunc) *shardSession {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live != nil {
		s.live.end(connect.NewError(connect.CodeAborted, errors.New("replaced")))
	}
	s.sessions++
	s.live = &shardSession{number: s.sessions, hello: hello, out: make(chan *pb.ShardMessage, 100_000), end: end}
	s.live.out <- &pb.ShardMessage{Payload: &pb.ShardMessage_Ack{Ack: &pb.Acknowledgement{
		Echo: "hello", Features: s.features, ShardId: "shard-0", ShardVersion: "test", ShardEpoch: 1,
	}}}
	return s.live
}

func (s *shard) acknowledge(live *shardSession, r *pb.ClusterCapacityNeeds) {
	s.mu.Lock()
	answer := s.answer
	s.mu.Unlock()
	ack := &pb.Acknowledgement{Echo: "rollup"}
	result := &pb.RollupResult{Disposition: pb.RollupDisposition_ROLLUP_DISPOSITION_ACCEPTED, NeedIndex: -1}
	if answer != nil {
		result = answer(r)
	}
	if result == nil {
		return
	}
	switch result.Disposition {
	case pb.RollupDisposition_ROLLUP_DISPOSITION_HELD:
		ack.Echo = "rollup-held"
	case pb.RollupDisposition_ROLLUP_DISPOSITION_REJECTED:
		ack.Echo = "rollup-rejected"
	}
	for _, f := range s.features {
		if f == "rollup-ack" {
			result.TimestampUnixNanos = r.TimestampUnixNanos
			ack.Rollup = result
		}
	}
	live.out <- &pb.ShardMessage{Payload: &pb.ShardMessage_Ack{Ack: ack}}
}

func (s *shard) record(session int, m *pb.OperatorMessage) {
	s.mu.Lock()
	s.frames = append(s.frames, frame{time.Now(), session, m})
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()
}

// send puts a frame on the live session.
func (s *shard) send(t testing.TB, m *pb.ShardMessage) {
	t.Helper()
	s.until(t, "a session is open", func([]frame) bool { return s.live != nil })
	s.mu.Lock()
	live := s.live
	s.mu.Unlock()
	live.out <- m
}

// cut ends the live session with an error.
func (s *shard) cut(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live != nil {
		s.live.end(err)
	}
}

// until waits for a condition on everything that arrived so far, under the lock.
func (s *shard) until(t testing.TB, what string, ok func(frames []frame) bool) {
	t.Helper()
	s.within(t, 30*time.Second, what, ok)
}

func (s *shard) within(t testing.TB, limit time.Duration, what string, ok func(frames []frame) bool) {
	t.Helper()
	deadline := time.After(limit)
	for {
		s.mu.Lock()
		done, changed := ok(s.frames), s.changed
		s.mu.Unlock()
		if done {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			s.mu.Lock()
			defer s.mu.Unlock()
			last := ""
			if n := len(s.frames); n > 0 {
				last = s.frames[n-1].m.String()
			}
			t.Fatalf("after %v still not: %s; %d sessions, %d frames, the last: %.2000s", limit, what, s.sessions, len(s.frames), last)
		case <-t.Context().Done():
			t.Fatalf("the test ended while waiting for: %s", what)
		}
	}
}

// count is how many frames arrived.
func (s *shard) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.frames)
}

// since returns the frames after the first n.
func (s *shard) since(n int) []frame {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]frame(nil), s.frames[n:]...)
}

// lastRollup is the newest roll-up, or nil.
func lastRollup(frames []frame) *pb.ClusterCapacityNeeds {
	for i := len(frames) - 1; i >= 0; i-- {
		if r := frames[i].m.GetRollup(); r != nil {
			return r
		}
	}
	return nil
}

// needs waits until the newest roll-up is as wanted.
func (s *shard) needs(t testing.TB, what string, ok func(needs []*pb.CapacityNeed) bool) []*pb.CapacityNeed {
	t.Helper()
	var out []*pb.CapacityNeed
	s.until(t, what, func(frames []frame) bool {
		r := lastRollup(frames)
		if r == nil || !ok(r.Needs) {
			return false
		}
		out = r.Needs
		return true
	})
	return out
}

func node(machine string, state pb.MachineState, more ...func(*pb.NodeStateUpdate)) *pb.ShardMessage {
	u := &pb.NodeStateUpdate{
		SupersedesKey: "node:" + machine, MachineId: machine, ClusterId: clusterID, State: state, ProviderId: "test://" + machine,
		Labels:    map[string]string{"node.kubernetes.io/instance-type": "test.large", "topology.kubernetes.io/zone": "z1"},
		Resources: &pb.Resources{Resources: map[string]string{"cpu": "4", "memory": "16Gi"}},
	}
	for _, f := range more {
		f(u)
	}
	return &pb.ShardMessage{Payload: &pb.ShardMessage_NodeStateUpdate{NodeStateUpdate: u}}
}

func released(u *pb.NodeStateUpdate) { u.Released = true }

func failed(why string) func(*pb.NodeStateUpdate) {
	return func(u *pb.NodeStateUpdate) { u.LastError = why }
}

func resynced() *pb.ShardMessage {
	return &pb.ShardMessage{Payload: &pb.ShardMessage_Ack{Ack: &pb.Acknowledgement{Echo: "node-state-resync-complete"}}}
}

func reclaim(id string, grace int64, nodes ...string) *pb.ShardMessage {
	return &pb.ShardMessage{Payload: &pb.ShardMessage_ReclaimInstruction{ReclaimInstruction: &pb.ReclaimInstruction{
		InstructionId: id, Nodes: nodes, MachineIds: nodes, GracePeriodSeconds: grace,
	}}}
}

// ack waits for the answer to a reclaim.
func (s *shard) ack(t testing.TB, id string, after int) *pb.ReclaimAck {
	t.Helper()
	var out *pb.ReclaimAck
	s.until(t, "the reclaim "+id+" is answered", func(frames []frame) bool {
		for _, f := range frames[after:] {
			if a := f.m.GetReclaimAck(); a != nil && a.InstructionId == id {
				out = a
				return true
			}
		}
		return false
	})
	return proto.CloneOf(out)
}
