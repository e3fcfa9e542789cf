package hostile

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"

	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// forged begins with what moves a terminal's cursor and colours it, reorders a line, ends it, and then looks like a line of ours.
const forged = "\x1b[2J\x1b[31m\u202e\u2066\r\n\u2028\x00FORGED level=INFO msg=\"all is well\"\nFORGED  0  Ready\t"

// upTo is forged text of a length in bytes.
func upTo(n int) string {
	s := forged + strings.Repeat("é", n)
	return strings.ToValidUTF8(s[:n], "")
}

// obeyed is what a terminal would obey in a text, or a line that another party has begun.
func obeyed(text string) string {
	for line := range strings.SplitSeq(text, "\n") {
		if strings.HasPrefix(strings.TrimSpace(line), "FORGED") {
			return fmt.Sprintf("a forged line: %.200q", line)
		}
		for _, r := range line {
			if r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029') {
				return fmt.Sprintf("%U in %.200q", r, line)
			}
		}
	}
	return ""
}

// SHARD-7.12, OPS-5: a cluster puts the most and the worst bytes that rules allow into every text that it may choose: its Hello, the names and groups of its
// rows, its node reports, errors and reasons. Log, records, metrics and what the command prints show them in part and on one line, and nothing obeys them.
func TestForgedTextsAreShownAndNotObeyed(t *testing.T) {
	s := newStageOf(t, []string{"--log-level", "info"}, slots("0.1", 5))
	var features []string
	for len(features) < 256 {
		features = append(features, upTo(64))
	}
	red := s.sessionOf(&pb.Hello{ClusterId: "red", ProtocolVersion: upTo(64), Features: append(features[:250], "need-status", "node-report"), OperatorVersion: upTo(256), InstanceId: upTo(256)})
	unit := map[string]string{"cpu": "1"}
	odd := &pb.CapacityNeed{AggregateResources: map[string]string{"cpu": "1", upTo(300): "1"}, MinUnit: map[string]string{"cpu": "1"}, RowId: upTo(128), Group: upTo(4096),
		Requirements: []*pb.NodeSelectorRequirement{{Key: upTo(317), Operator: pb.NodeSelectorRequirement_OPERATOR_IN, Values: []string{upTo(253)}}},
		Spread:       []*pb.TopologySpread{{TopologyKey: upTo(317), WhenUnsatisfiable: pb.TopologySpread_WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE}},
		Tolerations:  []*pb.Toleration{{Key: upTo(317), Operator: upTo(16), Value: upTo(253), Effect: upTo(32)}}, TolerationsStated: true}
	served := &pb.CapacityNeed{AggregateResources: unit, MinUnit: unit, RowId: upTo(120) + "2", Group: upTo(4000)}
	ack, _, err := red.rollup(t.Context(), []*pb.CapacityNeed{odd, served})
	if err != nil || !accepts(ack) {
		t.Fatalf("the roll-up: %v, %v", ack, err)
	}
	l := s.look()
	l.eventually("a machine serves", func() bool { return l.bound("red")["provider"] == 1 })
	for _, m := range []*pb.OperatorMessage{
		{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{MachineId: "provider-m-0", NodeName: upTo(4096), Present: true, Ready: true, KubeletVersion: upTo(4096), Reason: upTo(1 << 20),
			Contents: &pb.NodeContents{Labels: map[string]string{upTo(317): upTo(253)}}}}},
		{Payload: &pb.OperatorMessage_DrainReport{DrainReport: &pb.DrainReport{InstructionId: upTo(4096), Reason: upTo(1 << 20), BlockingBudgets: []string{upTo(512)}}}},
		{Payload: &pb.OperatorMessage_ReclaimAck{ReclaimAck: &pb.ReclaimAck{InstructionId: upTo(4096), Failures: []*pb.NodeFailure{{Node: upTo(4096), Message: upTo(1 << 20)}}}}},
		{Payload: &pb.OperatorMessage_BootstrapResponse{BootstrapResponse: &pb.BootstrapBlobResponse{RequestId: upTo(4096), Error: upTo(1 << 20)}}},
		{Payload: &pb.OperatorMessage_NodeReport{NodeReport: &pb.NodeReport{MachineId: "m", NodeName: upTo(1 << 20)}}}, // above its bound
	} {
		if err := red.send(m); err != nil {
			t.Fatal(err)
		}
	}
	bad := &pb.CapacityNeed{AggregateResources: map[string]string{upTo(317): upTo(4096)}, RowId: upTo(128)} // refused, with its reason
	if ack, _, err = red.rollup(t.Context(), []*pb.CapacityNeed{bad}); err != nil || accepts(ack) {
		t.Fatalf("a quantity that is none: %v, %v", ack, err)
	}
	if n := len(ack.String()); n > 4096 {
		t.Errorf("the answer to it has %d bytes", n)
	}

	log, err := os.ReadFile(s.procs["shard"].LogFile())
	if err != nil {
		t.Fatal(err)
	}
	if what := obeyed(string(log)); what != "" {
		t.Errorf("the log: %s", what)
	}
	for _, text := range []string{"session opened", "the operator speaks another protocol version", "a frame was skipped", "roll-up rejected"} {
		n := 0
		for line := range strings.SplitSeq(string(log), "\n") {
			if strings.Contains(line, text) {
				if n++; len(line) > 16<<10 {
					t.Errorf("a line of the log has %d bytes: %.200s", len(line), line)
				}
			}
		}
		if n == 0 {
			t.Errorf("the log does not say %q", text)
		}
	}

	answer, err := http.Get("http://" + s.addrs["shard-ops"] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	metrics, err := io.ReadAll(answer.Body)
	_ = answer.Body.Close()
	if err != nil || strings.Contains(string(metrics), "FORGED") || !strings.Contains(string(metrics), "bigfleet_shard_") {
		t.Errorf("%d bytes of metrics, %v: a label holds what a cluster chose", len(metrics), err)
	}

	files, program := s.files(identity.ID{Kind: identity.Admin}), proc.BuildT(t, "services/bigfleet")
	for _, verb := range []string{"status", "get clusters -o wide", "get needs -o wide", "get machines -o wide", "explain cluster/red", "history cluster/red", "history shard/shard-0", "get needs -o csv"} {
		args := append(strings.Fields(verb), "--shard", s.addrs["shard"], "--coordinator", s.addrs["coordinator"], "--tls-cert", files.Cert, "--tls-key", files.Key, "--tls-ca", files.CA)
		command := exec.CommandContext(t.Context(), program, args...)
		command.Env = append(os.Environ(), "HOME="+t.TempDir(), "NO_COLOR=1")
		text, err := command.CombinedOutput()
		if err != nil && command.ProcessState.ExitCode() > 5 || len(text) == 0 {
			t.Errorf("bigfleet %s: %v, %.500s", verb, err, text)
		}
		if what := obeyed(string(text)); what != "" {
			t.Errorf("bigfleet %s: %s", verb, what)
		}
		if strings.Contains(verb, "history cluster") && !strings.Contains(string(text), "FORGED") {
			t.Errorf("bigfleet %s shows no part of what the cluster said: nothing is tested: %.1000s", verb, text)
		}
	}
	for _, r := range l.records() {
		if n := len(r.String()); n > 16<<10 {
			t.Errorf("a record has %d bytes: %.200s", n, r)
		}
	}
	s.unharmed()
}
