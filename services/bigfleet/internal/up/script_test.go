package up

import (
	"strings"
	"testing"
	"time"
)

// OPS-5.5: each story of `demo` is a script that can be read, for any clusters.
func TestDemosAreScripts(t *testing.T) {
	w := &World{Clusters: []*Cluster{{id: "red"}, {id: "blue"}}, shards: []*shardRole{{listen: "127.0.0.1:1"}}}
	for _, d := range Demos() {
		if strings.Contains(d.Script, "stock ") || strings.Contains(d.Script, "storm ") {
			continue // they ask for a simulated cloud; the words are those below
		}
		s, watch, err := w.demo(d.Name, nil)
		if err != nil || len(s.Steps) == 0 || watch == "" {
			t.Errorf("%s: %d steps, watch %q: %v", d.Name, len(s.Steps), watch, err)
		}
		for _, step := range s.Steps {
			if strings.Contains(step.Say, " A ") || strings.Contains(step.Say, " B ") {
				t.Errorf("%s names no cluster in %q", d.Name, step.Say)
			}
		}
	}
	if _, _, err := w.demo("shift", []string{"blue", "blue"}); err == nil || !strings.Contains(err.Error(), "two clusters") {
		t.Errorf("a shift from blue to blue: %v", err)
	}
}

// OPS-5.7: everything that is wrong with a script is said at once, with its line.
func TestScriptErrors(t *testing.T) {
	_, err := ParseScript("say hello\n\n# nothing\nfly\n+2x rest\ndeploy red web many\ndeploy red web 3 wings=2\nstock gold 3\nstock spot few\nstop moon\nstop operator\nrest now\nstorm soon\n")
	for _, want := range []string{`line 4: there is no order "fly": use one of deploy,`, `line 5: "+2x" is no pause`, `line 6: "deploy red web many": "many" is no number of Pods`,
		`line 7: "deploy red web 3 wings=2": there is no option "wings=2"`, "line 8:", "line 9:", "line 10:", "line 11:", "line 12:", "line 13:"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in: %v", want, err)
		}
	}
	s, err := ParseScript("+1500ms deploy red web 3 cpu=500m priority=-1 type=m.8x gang\nsay  so it is \nstorm 2s\nstop operator red\nstock on-demand back")
	if err != nil || len(s.Steps) != 5 || s.Steps[0].After != 1500*time.Millisecond || s.Steps[1].Say != "so it is" {
		t.Errorf("%+v: %v", s.Steps, err)
	}
}

// A line is cut where the terminal ends; colours take no column and end with it.
func TestPictureFitsANarrowTerminal(t *testing.T) {
	v := &view{title: "BigFleet, simulated clusters on a simulated cloud", start: time.Now(), colour: true, width: func() int { return 60 }, tries: []string{"status", "get needs", "top", "explain cluster/red"}}
	picture := fit(v.picture(frame{Clusters: []clusterFrame{{ID: "red", Running: 30, Waits: 34, Nodes: 7}}, Gone: []string{"shard-0"}}), v.columns())
	for line := range strings.Lines(picture) {
		plain := strings.NewReplacer("\x1b[32m", "", "\x1b[31m", "", "\x1b[0m", "", "\r\n", "").Replace(line)
		if n := len([]rune(plain)); n > 60 {
			t.Errorf("%d columns: %q", n, plain)
		}
	}
	if !strings.Contains(picture, "Pods run") {
		t.Errorf("the numbers do not fit beside the bar:\n%s", picture)
	}
}
