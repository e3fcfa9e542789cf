package upcoming

import (
	"strings"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/kube/v1alpha1"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// OP-12.1, OP-12.2, WIRE-10.8: the phases that a history of frames shows. "+" marks released, "!" the end of the object.
func TestFold(t *testing.T) {
	states := map[string]pb.MachineState{
		"speculative": 1, "creating": 2, "idle": 3, "configuring": 4, "configured": 5, "draining": 6, "deleting": 7, "failed": 8, "new": 42,
	}
	for history, want := range map[string]string{
		"speculative creating idle configuring configured": "Provisioning Provisioning Launched Registered Ready",
		"configured draining idle":                         "Ready Draining Drained!",
		"configured draining deleting":                     "Ready Draining Draining",
		"configured drained draining idle":                 "Ready Drained Drained Drained!",
		"configured deadline draining idle":                "Ready Failed Failed Drained!",
		"configured deadline configured":                   "Ready Failed Ready",
		"configured draining configuring configured idle":  "Ready Draining Registered Ready Launched",
		"idle+":                                 "Launched!",
		"configured idle+":                      "Ready Launched!",
		"configured draining idle+":             "Ready Draining Drained!",
		"configured configured+":                "Ready Ready!",
		"failed+":                               "Failed",
		"failed idle":                           "Failed Launched",
		"new":                                   "Provisioning",
		"configured draining failed drained":    "Ready Draining Failed Failed",
		"configured draining failed running":    "Ready Draining Failed Failed",
		"configured draining failed deadline":   "Ready Draining Failed Failed",
		"configured draining failed draining":   "Ready Draining Failed Draining",
		"configured failed stopped configured":  "Ready Failed Failed Ready",
		"configured running stopped configured": "Ready Draining Ready Ready",
	} {
		s := stage{}
		var got []string
		for _, step := range strings.Fields(history) {
			name, release := strings.CutSuffix(step, "+")
			switch name {
			case "drained":
				s = drained(s, DrainDone, "")
			case "deadline":
				s = drained(s, DrainFailed, "2 Pods left")
			case "running":
				s = drained(s, DrainRunning, "")
			case "stopped":
				s = drained(s, DrainNone, "")
			default:
				s, _ = fold(s, &pb.NodeStateUpdate{State: states[name], Released: release, LastError: "broken"})
			}
			text := string(s.phase)
			if s.gone {
				text += "!"
			}
			got = append(got, text)
			if (s.phase == v1alpha1.NodeFailed) != (s.failure != "") {
				t.Errorf("%s: phase %s with failure %q", history, s.phase, s.failure)
			}
		}
		if g := strings.Join(got, " "); g != want {
			t.Errorf("%s:\n got %s\nwant %s", history, g, want)
		}
	}
}

// OP-12.1: object names.
func TestName(t *testing.T) {
	for id, want := range map[string]string{"m6i-eu-1a-17": "un-m6i-eu-1a-17", "eu/1a": "", "M1": "", strings.Repeat("x", 251): ""} {
		got := Name(id)
		if want != "" && got != want || want == "" && len(got) != 3+32 {
			t.Errorf("%s: %s", id, got)
		}
	}
}
