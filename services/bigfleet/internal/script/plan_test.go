package script_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// command runs one command line against the world and wants it to end well.
func (w *world) command(t *testing.T, args ...string) string {
	t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command("bigfleet", append(args, "--shard", w.env["SHARD"])...)
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("bigfleet %v: %v\n%s%s", args, err, &out, &errs)
	}
	return out.String()
}

func (w *world) cluster(t *testing.T, name string) kubernetes.Interface {
	t.Helper()
	rules := &clientcmd.ClientConfigLoadingRules{ExplicitPath: w.env["WORLD_KUBECONFIG"]}
	cfg, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: name}).ClientConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newWorld(t *testing.T, args ...string) *world {
	t.Helper()
	w := &world{}
	if err := w.start(args); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
	return w
}

// record is the part of a decision record that says what is done to what for whom.
type record struct {
	Type, Kind, MachineID, ClusterID, Cause string
	Sequence                                string
}

func (r record) key() string { return r.Kind + " " + r.MachineID + " " + r.ClusterID }

// predicted are the actions that `bigfleet plan` with these edits shows.
func (w *world) predicted(t *testing.T, edits ...string) []string {
	t.Helper()
	var plan struct{ Actions []record }
	if err := json.Unmarshal([]byte(w.command(t, append([]string{"plan", "-o", "jsonl"}, edits...)...)), &plan); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range plan.Actions {
		out = append(out, a.key())
	}
	slices.Sort(out)
	return out
}

// done are the actions that were started since a sequence number, with the newest number.
func (w *world) done(t *testing.T, since string) (out []string, last string) {
	t.Helper()
	for line := range strings.Lines(w.command(t, "history", "shard/shard-0", "--limit", "1000", "-o", "jsonl")) {
		var r record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			t.Fatal(err)
		}
		if last == "" {
			last = r.Sequence
		}
		if r.Sequence == since {
			break
		}
		if r.Type == "RECORD_TYPE_STARTED" {
			out = append(out, r.key())
		}
	}
	slices.Sort(out)
	return out, last
}

// shows waits until the output of a command holds a text.
func (w *world) shows(t *testing.T, text string, args ...string) {
	t.Helper()
	var out string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if out = w.command(t, args...); strings.Contains(out, text) {
			return
		}
	}
	t.Fatalf("bigfleet %v never shows %q:\n%s", args, text, out)
}

// settled waits until the demand of a cluster has arrived whole, all of it is met, and nothing is in flight. A part of the demand
// may be met before the rest arrives, and a machine that is on its way meets a need.
func (w *world) settled(t *testing.T, cluster, demand string) {
	t.Helper()
	w.shows(t, demand, "get", "needs", "--cluster", cluster)
	w.command(t, "wait", "--for", "satisfied", "cluster/"+cluster)
	w.command(t, "wait", "--for", "idle")
}

// user-asks 3, OPS-4.16: what `plan` predicts for an edit is exactly what happens once the same change is made for real: the
// same actions on the same machines for the same clusters, no more and no fewer. Asking changes nothing.
func TestPlanIsWhatHappens(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--clusters", "2", "--provider-delay", "20ms", "--scenario", "steady")
	w.settled(t, "red", "cpu=6 memory=6Gi")
	w.settled(t, "blue", "cpu=6 memory=6Gi")

	for _, change := range []struct {
		name, cluster string
		edit          []string
		replicas      int32  // of the Deployment web
		wants         string // what the need shows once the demand has arrived whole
	}{
		{"ten times the demand", "red", []string{"--scale", "red=10"}, 60, "cpu=60 memory=60Gi"},
		{"more of another", "blue", []string{"--scale", "blue=12"}, 72, "cpu=72 memory=72Gi"},
	} {
		_, before := w.done(t, "")
		want := w.predicted(t, change.edit...)
		if len(want) < 3 {
			t.Fatalf("%s: the plan holds only %v", change.name, want)
		}
		if again := w.predicted(t, change.edit...); !slices.Equal(again, want) {
			t.Errorf("%s: asked twice, planned differently:\n%v\n%v", change.name, want, again)
		}
		if out, _ := w.done(t, before); len(out) > 0 {
			t.Errorf("%s: asking did something: %v", change.name, out)
		}

		// The change, for real. In dry run the demand arrives whole before anything is done about it.
		w.command(t, "dry-run", "on", "--reason", "let the demand arrive whole", "--yes")
		w.shows(t, "DRY RUN", "status")
		scale := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, change.replicas)
		if _, err := w.cluster(t, change.cluster).AppsV1().Deployments("default").Patch(t.Context(), "web", types.MergePatchType, scale, v1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		w.shows(t, change.wants, "get", "needs", "--cluster", change.cluster)
		if got := w.predicted(t); !slices.Equal(got, want) {
			t.Errorf("%s: a plan without edits in dry run shows what comes next:\n%v\nwant\n%v", change.name, got, want)
		}
		w.command(t, "dry-run", "off", "--reason", "now do it", "--yes")
		w.settled(t, change.cluster, change.wants)
		got, _ := w.done(t, before)
		// A machine that is bought is also joined once it exists; the plan speaks of the purchase.
		got = slices.DeleteFunc(got, func(a string) bool {
			return strings.HasPrefix(a, "ACTION_KIND_BOOTSTRAP") && slices.Contains(want, strings.Replace(a, "BOOTSTRAP", "PROVISION", 1))
		})
		if !slices.Equal(got, want) {
			t.Errorf("%s: done\n%s\npredicted\n%s", change.name, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}
