package explain_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/virtual"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// ending is an outcome label of SHARD-15.11, how an operation comes to it, and what `bigfleet history` must say.
type ending struct {
	outcome   string
	offerings []provider.Offering
	edit      func(*shard.Config)
	by        func(v *virtual.Fleet)
	says      string
}

// silent answers no request for boot data.
func silent(*pb.BootstrapRequest) *pb.BootstrapBlobResponse { return nil }

// pulling waits until a machine waits for its boot data.
func pulling(v *virtual.Fleet, renders func(*pb.BootstrapRequest) *pb.BootstrapBlobResponse) *virtual.Operator {
	v.T.Helper()
	red := v.Operator("red", renders)
	red.Asks(virtual.Need("web", 1, 4, 0))
	v.Until("boot data is requested", func() bool {
		_, out := v.Bigfleet("history")
		return strings.Contains(out, "bootstrap started")
	})
	return red
}

func endings() []ending {
	return []ending{
		{"success", onDemand(1), nil, func(v *virtual.Fleet) { wants(v, 1) }, "It is a Node of cluster red now."},
		{"stale_state", onDemand(1), nil, func(v *virtual.Fleet) { pulling(v, silent); bind(v, "ghost") }, "It failed: the machine had changed meanwhile."},
		{"session_lost", onDemand(1), nil, func(v *virtual.Fleet) { pulling(v, silent).Close() }, "It failed: its cluster's connection was lost."},
		{"blob_error", onDemand(1), nil, func(v *virtual.Fleet) {
			pulling(v, func(r *pb.BootstrapRequest) *pb.BootstrapBlobResponse {
				return &pb.BootstrapBlobResponse{RequestId: r.GetRequestId(), Error: "no template", ErrorClass: pb.BootstrapBlobResponse_ERROR_CLASS_TEMPLATE}
			})
		}, "It failed: the cluster could not render the boot data."},
		{"blob_timeout", onDemand(1), nil, func(v *virtual.Fleet) { pulling(v, silent) }, "It failed: the cluster did not send the boot data in time."},
		{"provider_not_touched", onDemand(1), nil, func(v *virtual.Fleet) { v.StopProvider(); v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0)) },
			"It failed: the provider was not reached, and nothing was changed."},
		{"provider_failed", onDemand(1), nil, func(v *virtual.Fleet) {
			v.Behaves(&pb.Behaviour{Call: "Create", Fault: pb.FaultKind_FAULT_KIND_ERROR, ErrorClass: "permanent"})
			v.Operator("red", nil).Asks(virtual.Need("web", 1, 4, 0))
		}, "It failed: the provider failed."},
		{"cancelled", onDemand(2), nil, func(v *virtual.Fleet) {
			red := wants(v, 2)
			red.Stops.Store(true)
			red.Asks(virtual.Need("web", 1, 4, 0))
		}, "It failed: it was cancelled."},
	}
}

// inTheCore are the outcomes that no fleet here comes to, why, and the test that brings each about in the shard's core.
var inTheCore = map[string]struct{ why, test string }{
	"no_session":       {"an operation starts only with a session; the label is kept in the closed set of a metric", "TestEveryKindProgresses"},
	"blob_expired":     {"Configure waits for longer than its boot data lasts, twice", "TestExpiredBlobIsNeverSent"},
	"provider_unknown": {"a provider answers Get, and never the command", "TestUnknownWithoutEffectIsTriedThreeTimes"},
	"provider_refused": {"a provider that breaks the contract", "TestRefusedDeleteAndRepairedMachine"},
	"fenced":           {"boot data that expires before the attempt that confirms a refusal", "TestConfirmingAttemptNeedsAFreshBlob"},
}

// SHARD-15.11, OPS-4.18: each end of an operation comes about for real, and history says it in words.
func TestEachOutcome(t *testing.T) {
	left := map[string]bool{}
	for _, m := range regexp.MustCompile("`([a-z_]+)`").FindAllStringSubmatch(clauseOf(t, "shard.md", "SHARD-15.11"), -1) {
		left[m[1]] = true
	}
	var core strings.Builder
	files, _ := filepath.Glob("../../../../shard/internal/core/*_test.go")
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		core.Write(raw)
	}
	for name, x := range inTheCore {
		if !left[name] || !strings.Contains(core.String(), "func "+x.test+"(") {
			t.Errorf("the specification knows no %s, or the core has no %s", name, x.test)
		}
		delete(left, name)
	}
	for _, e := range endings() {
		if !left[e.outcome] {
			t.Errorf("the specification knows no %s", e.outcome)
		}
		delete(left, e.outcome)
		t.Run(e.outcome, func(t *testing.T) {
			virtual.Run(t, e.offerings, e.edit, func(v *virtual.Fleet) {
				e.by(v)
				var r struct{ Type, Outcome, Sentence string }
				if !eventually(func() bool {
					for line := range strings.Lines(v.Does("history", "--limit", "1000", "-o", "jsonl")) {
						if json.Unmarshal([]byte(line), &r) == nil && r.Outcome == e.outcome && r.Type == "RECORD_TYPE_ENDED" && strings.Contains(r.Sentence, e.says) {
							return true
						}
					}
					return false
				}) {
					t.Fatalf("nothing ever ends so:\n%s", v.Does("history"))
				}
				time.Sleep(time.Second)
			})
		})
	}
	if len(left) > 0 {
		t.Errorf("nothing ends with %v", left)
	}
}
