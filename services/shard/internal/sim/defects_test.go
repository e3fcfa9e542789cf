package sim

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// defect is one planted bug: a patch of the core that only the build of this test sees (plant).
type defect struct {
	profile string
	rules   []string // any of them catches it
	edits   []edit
}

type edit struct{ file, from, to string }

// parseDefect reads testdata/defects/*.txt: a sentence, then "key: value" lines; "- " and "+ " hold the text that is
// replaced (its first occurrence) and the text that replaces it.
func parseDefect(t *testing.T, text string) defect {
	t.Helper()
	var d defect
	for line := range strings.SplitSeq(text, "\n") {
		key, value, _ := strings.Cut(line, ": ")
		switch {
		case key == "profile":
			d.profile = value
		case key == "rules":
			d.rules = strings.Fields(value)
		case key == "file":
			d.edits = append(d.edits, edit{file: value})
		case strings.HasPrefix(line, "- "):
			d.edits[len(d.edits)-1].from = line[2:]
		case strings.HasPrefix(line, "+ "):
			d.edits[len(d.edits)-1].to = line[2:]
		}
	}
	if d.profile == "" || len(d.rules) == 0 || len(d.edits) == 0 {
		t.Fatal("not a defect")
	}
	return d
}

// A simulator that catches nothing proves nothing: every planted bug is caught by some seed, under a rule that fits it.
func TestPlantedBugsAreCaught(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the core with all bugs")
	}
	files, err := filepath.Glob("testdata/defects/*.txt")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d defects, %v; at least ten are needed", len(files), err)
	}
	defects := map[string]defect{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		defects[strings.TrimSuffix(filepath.Base(file), ".txt")] = parseDefect(t, string(text))
	}
	bin := plant(t, defects)
	for name, d := range defects {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(bin, "-seeds", "300", "-profile", d.profile, "-shrink", "0", "-twice", "0", "-lines", "0", "-workers", "1")
			cmd.Env = append(os.Environ(), plantedEnv+"="+name)
			var out, errs bytes.Buffer
			cmd.Stdout, cmd.Stderr = &out, &errs
			_ = cmd.Run()
			if cmd.ProcessState.ExitCode() != 1 {
				t.Fatalf("not caught in 300 seeds of %s: exit code %d, %s", d.profile, cmd.ProcessState.ExitCode(), out.String())
			}
			for _, rule := range d.rules {
				if strings.Contains(errs.String(), ": "+rule+" (") {
					t.Log(strings.TrimSpace(out.String()))
					return
				}
			}
			t.Fatalf("caught, but under none of the rules %v:\n%s", d.rules, errs.String())
		})
	}
}

// SHARD-33.8: a failure is made smaller, and the command that is printed repeats it.
func TestFailureIsShrunkAndReproduced(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("builds the core with a planted bug")
	}
	text, err := os.ReadFile("testdata/defects/believe-every-rollup.txt")
	if err != nil {
		t.Fatal(err)
	}
	d := parseDefect(t, string(text))
	bin := plant(t, map[string]defect{"believed": d})
	run := func(args ...string) (broken, faults, command string) {
		cmd := exec.Command(bin, args...)
		cmd.Env = append(os.Environ(), plantedEnv+"=believed")
		var errs bytes.Buffer
		cmd.Stderr = &errs
		_ = cmd.Run()
		for line := range strings.SplitSeq(errs.String(), "\n") {
			for prefix, into := range map[string]*string{"broken: ": &broken, "faults that were on: ": &faults, "reproduce: ": &command} {
				if rest, ok := strings.CutPrefix(line, prefix); ok {
					*into = rest
				}
			}
		}
		return broken, faults, command
	}
	first, firstFaults, _ := run("-seeds", "200", "-profile", d.profile, "-shrink", "0", "-twice", "0", "-lines", "0", "-workers", "1")
	if !strings.Contains(first, d.rules[0]) {
		t.Fatalf("the roll-up guard that believes everything is not caught: %q", first)
	}
	small, smallFaults, command := run("-seeds", "200", "-profile", d.profile, "-shrink", "30s", "-twice", "0", "-lines", "0", "-workers", "1")
	if !strings.Contains(small, d.rules[0]) {
		t.Fatalf("the smaller run breaks %q instead of %q", small, first)
	}
	if n := len(strings.Split(smallFaults, ",")); n > len(strings.Split(firstFaults, ",")) {
		t.Errorf("%s is not smaller than %s", smallFaults, firstFaults)
	}
	args, ok := strings.CutPrefix(command, "go run ./internal/sim/cmd/sim ")
	if !ok || !strings.Contains(args, "-first") {
		t.Fatalf("%q does not repeat a run", command)
	}
	if again, _, _ := run(append(strings.Fields(args), "-twice", "0", "-lines", "0")...); again != small {
		t.Fatalf("the smaller run is not repeatable: %q, then %q", small, again)
	}
}
