package up

import (
	"cmp"
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// OPS-5.5: each story of `demo` is a script that can be read, for any clusters.
func TestDemosAreScripts(t *testing.T) {
	w := &World{Clusters: []*Cluster{{id: "red"}, {id: "blue"}}, shards: []*shardRole{{listen: "127.0.0.1:1"}}}
	for _, d := range Demos() {
		if strings.Contains(d.Script, "stock ") || strings.Contains(d.Script, "storm ") {
			continue // they ask for a simulated cloud; the words are those below
		}
		s, about, watch, err := w.demo(d.Name, nil)
		if want := map[string]string{"shift": "red blue", "critical": "red blue", "reset": ""}; err == nil && strings.Join(about, " ") != cmp.Or(want[d.Name], map[bool]string{true: "", false: "red"}[d.Name == "reset"]) {
			t.Errorf("%s is about %v", d.Name, about) // its numbers are those of these clusters
		}
		if err != nil || len(s.Steps) == 0 || watch == "" {
			t.Errorf("%s: %d steps, watch %q: %v", d.Name, len(s.Steps), watch, err)
		}
		for _, step := range s.Steps {
			if strings.Contains(step.Message, " A ") || strings.Contains(step.Message, " B ") {
				t.Errorf("%s names no cluster in %q", d.Name, step.Message)
			}
		}
	}
	if _, _, _, err := w.demo("shift", []string{"blue", "blue"}); err == nil || !strings.Contains(err.Error(), "two clusters") {
		t.Errorf("a shift from blue to blue: %v", err)
	}
}

// OPS-5.7: everything that is wrong with a script is said at once, with its line.
func TestScriptErrors(t *testing.T) {
	_, err := ParseScript("say hello\n\n# nothing\nfly\n+2x rest\ndeploy red web many\ndeploy red web 3 wings=2\nstock gold 3\nstock spot few\nstop moon\nstop operator\nrest now\nstorm soon\n")
	for _, want := range []string{`line 4: there is no step "fly": use one of deploy,`, `line 5: "+2x" is not a delay: write +2s`, `line 6: "deploy red web many": "many" is not a number of Pods`,
		`line 7: "deploy red web 3 wings=2": there is no option "wings=2"`, "line 8:", "line 9:", "line 10:", "line 11:", "line 12:", "line 13:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	s, err := ParseScript("+1500ms deploy red web 3 cpu=500m priority=-1 type=m.8x gang\nsay  so it is \nstorm 2s\nstop operator red\nstock on-demand back")
	if err != nil || len(s.Steps) != 5 || s.Steps[0].After != 1500*time.Millisecond || s.Steps[1].Message != "so it is" {
		t.Errorf("%+v: %v", s.Steps, err)
	}
}

// A line is cut where the terminal ends, and what people copy is not; colours take no column and end with it.
func TestPictureFitsANarrowTerminal(t *testing.T) {
	v := &view{paint: true, title: "BigFleet, simulated clusters on a simulated cloud", start: time.Now(), colour: true, size: func() (int, int) { return 60, 24 }, tries: []string{"status", "get needs", "top", "explain cluster/red"}}
	v.keep("kubectl sees the clusters with:", "export KUBECONFIG=/tmp/a/path/that/is/longer/than/the/whole/terminal/is/wide/kubeconfig")
	for range 30 {
		v.log("the shard is stopped: watch that no Pod and no Node is lost, however long this line is")
	}
	picture := v.picture(frame{Clusters: []clusterFrame{{ID: "red", Running: 30, Waits: 34, Nodes: 1}}, Gone: []string{"shard-0"}})
	lines := 0
	for line := range strings.Lines(picture) {
		plain := strings.NewReplacer("\x1b[32m", "", "\x1b[31m", "", "\x1b[0m", "", "\r\n", "").Replace(line)
		n := len([]rune(plain))
		lines += 1 + max(0, n-1)/60
		if n > 60 && !strings.Contains(plain, "export KUBECONFIG=") {
			t.Errorf("%d columns: %q", n, plain)
		}
	}
	if lines > 23 {
		t.Errorf("%d lines scroll the picture away:\n%s", lines, picture)
	}
	for _, want := range []string{"Pods run", "wide/kubeconfig\r\n", "1 Node,", "no Pod and no Node", "| bigfleet explain cluster/red"} {
		if !strings.Contains(strings.Join(strings.Fields(picture), " "), strings.TrimSpace(want)) {
			t.Errorf("no %q:\n%s", want, picture)
		}
	}
}

// A shard that was stopped is down; one that is slow to answer is not called that.
func TestPictureOfAShardThatIsLate(t *testing.T) {
	v := &view{paint: true, start: time.Now(), size: func() (int, int) { return 100, 24 }}
	if late := v.picture(frame{Late: []string{"shard-1", "shard-2"}}); strings.Contains(late, "down") || !strings.Contains(late, "shard-1, shard-2 do not answer now: the figures are without them") {
		t.Error(late)
	}
	if gone := v.picture(frame{Gone: []string{"shard-0"}}); !strings.Contains(gone, "shard-0 is down: nothing is bought or released for its clusters") {
		t.Error(gone)
	}
}

// OPS-5.5: a story does not end while unneeded machines wait for the reclaim budget: what it would say of the Pods that wait
// for them is not how it ends. What no machine helps is not waited for.
func TestAStoryWaitsForTheReclaimBudget(t *testing.T) {
	for waiting, want := range map[string]bool{"ACTION_KIND_RECLAIM": true, "ACTION_KIND_PROVISION": false} {
		f := frame{Status: &pb.GetStatusResponse{Waiting: map[string]int32{waiting: 2}}}
		if f.restless() != want {
			t.Errorf("%s waits: restless is %v", waiting, !want)
		}
	}
	if f := (frame{Status: &pb.GetStatusResponse{}}); f.restless() || !strings.Contains(summary(f), "machines none |") {
		t.Errorf("nothing waits: %s", summary(f))
	}
	if f := (frame{Clusters: []clusterFrame{{ID: "red"}}, Status: &pb.GetStatusResponse{}}); !f.restless() {
		t.Error("red's operator is about to connect")
	}
}
