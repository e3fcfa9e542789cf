package explain_test

import (
	"context"
	"strings"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/virtual"
)

// user-asks 2, ENG-19.8: a machine whose host is lost has no cost and asks for nothing, and no other sentence of the answer says the
// opposite. What is shown of it says that it has no host.
func TestALostHostIsExplained(t *testing.T) {
	virtual.Run(t, onDemand(1), nil, func(v *virtual.Fleet) {
		wants(v, 1)
		lost, err := v.Control.LoseHosts(context.Background(), connect.NewRequest(&pb.LoseHostsRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		if len(lost.Msg.GetMachineIds()) != 1 {
			t.Fatalf("lost %v", lost.Msg.GetMachineIds())
		}
		out := v.Kept(pb.KeepReason_KEEP_REASON_FAILED, "Its host is lost, and it costs nothing now.")
		about, _, _ := strings.Cut(out, "Message from its provider: ")
		if strings.Contains(about, "$") {
			t.Errorf("names a price of what costs nothing:\n%s", about)
		}
		for _, want := range []string{lost.Msg.GetMachineIds()[0] + " has been failed for ", "No action is needed.", "Message from its provider: "} {
			if !strings.Contains(out, want) {
				t.Errorf("lacks %q:\n%s", want, out)
			}
		}
		for _, other := range []string{"must be repaired", "machines retry", "machines forget"} {
			if strings.Contains(out, other) {
				t.Errorf("says %q of a machine that asks for nothing:\n%s", other, out)
			}
		}
		if out := v.Does("get", "machines", "--state", "failed", "-o", "jsonl"); !strings.Contains(out, `"hasHost":false`) {
			t.Errorf("a lost host is shown as one that costs its price:\n%s", out)
		}
	})
}
