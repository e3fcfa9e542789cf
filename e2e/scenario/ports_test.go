package scenario

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"connectrpc.com/grpcreflect"

	"github.com/bigfleet-dev/bigfleet/e2e/fixture"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

// One fixture serves all tests of the ports: they only read, or are refused.
func TestPorts(t *testing.T) {
	s := fixture.StartT(t, fixture.Config{Offerings: spot(4)})
	t.Run("README", func(t *testing.T) { readmeCommands(t, s) })
	t.Run("reflection", func(t *testing.T) { reflection(t, s) })
	t.Run("bad input", func(t *testing.T) { badInput(t, s) })
}

var curl = regexp.MustCompile(`^curl -H '([^:]+): ([^']+)' -d '([^']*)' http://\$(PROVIDER|SHARD)(/\S+)$`)

// readmeCommands runs every curl line of the README: what is shown is what works. WIRE-12, OPS-3.1.
func readmeCommands(t *testing.T, s *fixture.Fixture) {
	root, err := proc.Root()
	if err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	machines, err := s.Machines(t.Context())
	if err != nil || len(machines) == 0 {
		t.Fatalf("machines: %v, %v", machines, err)
	}
	addresses := map[string]string{"PROVIDER": s.ProviderAddr, "SHARD": s.ShardAddr}
	ran := 0
	for lines := bufio.NewScanner(file); lines.Scan(); {
		line := lines.Text()
		if !strings.HasPrefix(line, "curl ") {
			continue
		}
		m := curl.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("this line of the README is not understood: %s", line)
			continue
		}
		ran++
		body := strings.ReplaceAll(m[3], "kwok-small-0", machines[0].GetId())
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+addresses[m[4]]+m[5], strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(m[1], m[2])
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		var v map[string]any
		if err := json.Unmarshal(text, &v); err != nil || answer.StatusCode != http.StatusOK || len(v) == 0 {
			t.Errorf("%s\nanswers %s: %s", line, answer.Status, text)
		}
	}
	if ran < 4 {
		t.Errorf("the README shows %d curl lines, want at least 4", ran)
	}
}

// reflection and health answer on every RPC port, over gRPC. WIRE-2.3.
func reflection(t *testing.T, s *fixture.Fixture) {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	client := &http.Client{Transport: &http.Transport{Protocols: protocols}}
	for address, service := range map[string]string{
		s.ProviderAddr: bigfleetv1alpha1connect.CapacityProviderName, s.ShardAddr: bigfleetv1alpha1connect.ShardName,
	} {
		stream := grpcreflect.NewClient(client, "http://"+address, connect.WithGRPC()).NewStream(t.Context())
		names, err := stream.ListServices()
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
		found := false
		for _, n := range names {
			found = found || string(n) == service
		}
		if !found {
			t.Errorf("%s lists %v, which lacks %s", address, names, service)
		}
		if _, err := stream.FileContainingSymbol("bigfleet.v1alpha1.Machine"); err != nil {
			t.Errorf("%s: the file of Machine: %v", address, err)
		}
		_, _ = stream.Close()

		body := bytes.NewReader([]byte(`{"service":"` + service + `"}`))
		answer, err := http.Post("http://"+address+"/"+grpchealth.HealthV1ServiceName+"/Check", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		if !strings.Contains(string(text), "SERVING") || strings.Contains(string(text), "NOT_SERVING") {
			t.Errorf("health of %s at %s: %s", service, address, text)
		}
	}
}

// badInput is refused with the codes of wire.md and counted, and the last good state stays. WIRE-3.8, WIRE-3.9, WIRE-6.1, WIRE-6.12.
func badInput(t *testing.T, s *fixture.Fixture) {
	good := &bigfleetv1alpha1.CapacityNeed{AggregateResources: map[string]string{"cpu": "2"}, MinUnit: map[string]string{"cpu": "1"}}
	open := func() *connect.BidiStreamForClient[bigfleetv1alpha1.OperatorMessage, bigfleetv1alpha1.ShardMessage] {
		return s.Session(t.Context())
	}
	t.Run("first frame is not Hello", func(t *testing.T) {
		stream := open()
		_ = stream.Send(rollup("ghost", good))
		_, err := stream.Receive()
		if connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("answered %v, want INVALID_ARGUMENT", err)
		}
	})
	stream := open()
	if err := stream.Send(&bigfleetv1alpha1.OperatorMessage{Payload: &bigfleetv1alpha1.OperatorMessage_Hello{Hello: &bigfleetv1alpha1.Hello{
		ClusterId: "ghost", ProtocolVersion: "v1alpha1", Features: []string{"rollup-ack"},
	}}}); err != nil {
		t.Fatal(err)
	}
	verdict := func(m *bigfleetv1alpha1.OperatorMessage) *bigfleetv1alpha1.RollupResult {
		t.Helper()
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
		for {
			got, err := stream.Receive()
			if err != nil {
				t.Fatal(err)
			}
			if r := got.GetAck().GetRollup(); r != nil {
				return r
			}
		}
	}
	if r := verdict(rollup("ghost", good)); r.GetDisposition() != bigfleetv1alpha1.RollupDisposition_ROLLUP_DISPOSITION_ACCEPTED {
		t.Fatalf("the good roll-up: %v", r)
	}
	badBucket := &bigfleetv1alpha1.CapacityNeed{AggregateResources: map[string]string{"cpu": "1"}, InterruptionPenaltyBucket: 28}
	badQuantity := &bigfleetv1alpha1.CapacityNeed{AggregateResources: map[string]string{"cpu": "twelve"}}
	for reason, m := range map[string]*bigfleetv1alpha1.OperatorMessage{
		"invalid": rollup("ghost", good, badBucket), "quantity": rollup("ghost", good, badQuantity), "foreign_cluster": rollup("red", good),
	} {
		before := metric(t, s.ShardMetrics, "bigfleet_shard_rollups_rejected_total", `reason="`+reason+`"`)
		r := verdict(m)
		if r.GetDisposition() != bigfleetv1alpha1.RollupDisposition_ROLLUP_DISPOSITION_REJECTED || r.GetReason() != reason || r.GetMessage() == "" {
			t.Errorf("%s: answered %v", reason, r)
		}
		if reason != "foreign_cluster" && (r.GetNeedIndex() != 1 || r.GetFieldPath() == "") {
			t.Errorf("%s: the answer names need %d and field %q, want need 1 and its field", reason, r.GetNeedIndex(), r.GetFieldPath())
		}
		if after := metric(t, s.ShardMetrics, "bigfleet_shard_rollups_rejected_total", `reason="`+reason+`"`); after != before+1 {
			t.Errorf("%s was counted %v times, want once", reason, after-before)
		}
	}
	// The last good demand is still in force.
	deadline := time.Now().Add(20 * time.Second)
	for {
		needs, err := s.Needs(t.Context(), "ghost")
		if err == nil && len(needs) == 1 && needs[0].GetNeed().GetAggregateResources()["cpu"] == "2" {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("needs of ghost: %v, %v; want the one good row", needs, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	_ = stream.CloseRequest()
}

func rollup(cluster string, needs ...*bigfleetv1alpha1.CapacityNeed) *bigfleetv1alpha1.OperatorMessage {
	return &bigfleetv1alpha1.OperatorMessage{Payload: &bigfleetv1alpha1.OperatorMessage_Rollup{Rollup: &bigfleetv1alpha1.ClusterCapacityNeeds{
		ClusterId: cluster, TimestampUnixNanos: time.Now().UnixNano(), Needs: needs,
	}}}
}
