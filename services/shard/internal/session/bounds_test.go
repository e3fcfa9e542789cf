package session

import (
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// strays counts what a handler skips.
type strays struct {
	quiet
	mu       sync.Mutex
	kinds    map[string]int
	oversize int
}

func (s *strays) StrayFrame(kind string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kinds[kind]++
}

func (s *strays) FrameOversize() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.oversize++
}

func frameOf(t *testing.T, m *pb.OperatorMessage) *Received {
	t.Helper()
	raw, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return &Received{raw: raw}
}

// SHARD-7.12: no text or list of a frame is longer than its bound. A Hello above it is refused, also a second one; another frame is counted and skipped.
// A text for people is cut, and its frame is heard.
func TestFramesAreBounded(t *testing.T) {
	x := newShell(t, newGate(t))
	seen := &strays{kinds: map[string]int{}}
	x.h.cfg.Observe = seen
	long := strings.Repeat("x", 5000)
	many := make([]string, 257)
	for name, hello := range map[string]*pb.Hello{
		"protocol_version": {ProtocolVersion: long}, "operator_version": {OperatorVersion: long}, "instance_id": {InstanceId: long},
		"features": {Features: many}, "feature": {Features: []string{long}},
	} {
		hello.ClusterId = "red"
		first, err := x.h.firstHello(frameOf(t, &pb.OperatorMessage{Payload: &pb.OperatorMessage_Hello{Hello: hello}}))
		if connect.CodeOf(err) != connect.CodeInvalidArgument || len(err.Error()) > 1000 {
			t.Errorf("%s, first Hello: %v, %.100v", name, first, err)
		}
		if err := x.h.retry(t.Context(), x.l, hello); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s, second Hello: %v", name, err)
		}
	}
	failures := make([]*pb.NodeFailure, 1001)
	for i := range failures {
		failures[i] = &pb.NodeFailure{Node: "n"}
	}
	for _, c := range []struct {
		kind string // of what is skipped; empty: it is heard
		m    *pb.OperatorMessage
	}{
		{"invalid_bootstrap", &pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: &pb.BootstrapBlobResponse{RequestId: long}}}},
		{"", &pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: &pb.BootstrapBlobResponse{RequestId: "r", Error: long}}}},
		{"", &pb.OperatorMessage{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: &pb.BootstrapBlobResponse{RequestId: "r", UserData: make([]byte, 20<<20)}}}},
		{"invalid_reclaim_ack", &pb.OperatorMessage{Payload: &pb.OperatorMessage_ReclaimAck{ReclaimAck: &pb.ReclaimAck{InstructionId: "i", Failures: failures}}}},
		{"invalid_reclaim_ack", &pb.OperatorMessage{Payload: &pb.OperatorMessage_ReclaimAck{ReclaimAck: &pb.ReclaimAck{InstructionId: "i", Failures: []*pb.NodeFailure{{Node: long}}}}}},
		{"", &pb.OperatorMessage{Payload: &pb.OperatorMessage_ReclaimAck{ReclaimAck: &pb.ReclaimAck{InstructionId: "i", Failures: []*pb.NodeFailure{{Message: long}}}}}},
		{"invalid_node_report", &pb.OperatorMessage{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{MachineId: "m", NodeName: long}}}},
		{"", &pb.OperatorMessage{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{MachineId: "m", Reason: long}}}},
		{"invalid_drain_report", &pb.OperatorMessage{Payload: &pb.OperatorMessage_DrainReport{DrainReport: &pb.DrainReport{InstructionId: "i", BlockingBudgets: []string{long}}}}},
		{"", &pb.OperatorMessage{Payload: &pb.OperatorMessage_DrainReport{DrainReport: &pb.DrainReport{InstructionId: "i", Reason: long}}}},
		{"invalid_unplaced_pods", &pb.OperatorMessage{Payload: &pb.OperatorMessage_UnplacedPods{UnplacedPods: &pb.UnplacedPods{Rows: []*pb.UnplacedRow{{RowId: long}}}}}},
	} {
		seen.kinds = map[string]int{}
		if err := x.h.route(t.Context(), x.l, frameOf(t, c.m)); err != nil {
			t.Errorf("%T: %v", c.m.Payload, err)
		}
		skipped := 0
		for kind, n := range seen.kinds {
			if strings.HasPrefix(kind, "invalid_") {
				skipped += n
			}
		}
		if want := map[bool]int{true: 0, false: 1}[c.kind == ""]; skipped != want || seen.kinds[c.kind] != want {
			t.Errorf("%T: skipped %v, want %q", c.m.Payload, seen.kinds, c.kind)
		}
	}
}

// SHARD-7.12: what is too large is refused by its size, before it is decoded: the bytes need not even be a message.
func TestLargeFramesAreNotDecoded(t *testing.T) {
	x := newShell(t, newGate(t))
	seen := &strays{kinds: map[string]int{}}
	x.h.cfg.Observe = seen
	noise := []byte(strings.Repeat("\xff", frameBytesMax+1))
	if err := x.h.sized(&Received{raw: noise}); connect.CodeOf(err) != connect.CodeResourceExhausted || seen.oversize != 1 {
		t.Errorf("a large frame: %v, %d counted", err, seen.oversize)
	}
	if _, err := x.h.firstHello(&Received{raw: noise}); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("a large first frame: %v", err)
	}
	e, err := x.h.gate(t.Context(), x.l, &rawRollup{bytes: append([]byte{2 << 3, 42}, make([]byte, 64<<20)...)})
	if err != nil || e.Reject == nil || e.Reject.Reason != "too_large" || e.Timestamp != 42 || e.Cluster != "red" || e.Session != x.l.number {
		t.Errorf("a large roll-up: %+v, %v", e, err)
	}
}
