package script_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const (
	root     = "../../../../"
	tutorial = root + "docs/command-tutorial.md"
)

// block is one fenced block of a page.
type block struct{ info, text string }

func blocks(t *testing.T, page string) (out []block) {
	t.Helper()
	raw, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	var in *block
	for line := range strings.Lines(string(raw)) {
		switch fence, is := strings.CutPrefix(line, "```"); {
		case is && in == nil:
			in = &block{info: strings.TrimSpace(fence)}
		case is:
			out = append(out, *in)
			in = nil
		case in != nil:
			in.text += line
		}
	}
	return out
}

// OPS-5.8, 14.2: every command of the tutorial runs, in order, against the `up` that it begins with. Only the addresses differ:
// the ports of the page may be taken here, so a context leads to others.
func TestTutorial(t *testing.T) {
	t.Parallel()
	all := blocks(t, tutorial)
	up, ok := strings.CutPrefix(strings.TrimSpace(all[0].text), "go run ./services/bigfleet up ")
	if all[0].info != "sh up" || !ok {
		t.Fatalf("the tutorial does not begin with `up`: %+v", all[0])
	}
	w := newWorld(t, strings.Fields(up)...)
	dir := t.TempDir()
	env := append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Join(dir, "xdg"), "KUBECONFIG="+w.env["WORLD_KUBECONFIG"])
	set := exec.Command("bigfleet", "config", "set", "tutorial", "--coordinator", w.env["COORDINATOR"])
	set.Env = env
	if out, err := set.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	// Six machines in red: only then is there something to look at, as for a person who reads the page meanwhile.
	w.shows(t, "64", "get", "needs", "--cluster", "red")
	ran := 0
	for _, b := range all[1:] {
		switch b.info {
		case "sh build": // what `go test` has done; the path must exist
			if _, err := os.Stat(root + "services/bigfleet/main.go"); err != nil || !strings.Contains(b.text, "./services/bigfleet") {
				t.Errorf("the page builds something else: %q", b.text)
			}
			continue
		case "sh":
		default:
			t.Errorf("a block of the tutorial is tagged %q: no test runs it", b.info)
			continue
		}
		for line := range strings.Lines(b.text) {
			cmd := exec.Command("bash", "-eu", "-o", "pipefail", "-c", line)
			cmd.Dir, cmd.Env = dir, env
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", strings.TrimSpace(line), err, out)
			}
			ran++
		}
	}
	if ran < 20 {
		t.Errorf("only %d commands ran", ran)
	}
}

// README's first screen begins with a command that this package's tests run.
func TestReadmeBegins(t *testing.T) {
	first := blocks(t, root+"README.md")[0]
	if !strings.HasPrefix(first.text, "go run ./services/bigfleet up") {
		t.Errorf("the first command of the README is %q", first.text)
	}
}

// OPS-2.4, 14.2: the commands of the upgrade guide, in order, on a fleet that is well.
func TestUpgradeGuide(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "--clusters", "1", "--provider-delay", "20ms")
	dir := t.TempDir()
	env := append(os.Environ(), "XDG_CONFIG_HOME="+filepath.Join(dir, "xdg"))
	set := exec.Command("bigfleet", "config", "set", "guide", "--coordinator", w.env["COORDINATOR"])
	set.Env = env
	if out, err := set.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	w.shows(t, "red", "get", "clusters") // its operator is connected
	for deadline := time.Now().Add(patience); ; time.Sleep(100 * time.Millisecond) {
		cmd := exec.Command("bigfleet", "get", "shards", "-o", "name")
		cmd.Env = env
		if out, _ := cmd.CombinedOutput(); strings.Contains(string(out), "shard/shard-0") {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("the coordinator never hears of the shard: %s", out)
		}
	}
	said := ""
	for _, b := range blocks(t, root+"docs/upgrade.md") {
		if b.info != "sh" {
			t.Errorf("a block of the guide is tagged %q: no test runs it", b.info)
			continue
		}
		for line := range strings.Lines(b.text) {
			cmd := exec.Command("bash", "-eu", "-c", line)
			cmd.Dir, cmd.Env = dir, env
			out, err := cmd.CombinedOutput()
			if err != nil {
				t.Errorf("%s: %v\n%s", strings.TrimSpace(line), err, out)
			}
			said += string(out)
		}
	}
	for _, want := range []string{"client  ", "verified", "execute-concurrency: 128 # default", "raft-leader-lease: 200ms # default", "feature level"} {
		if !strings.Contains(said, want) {
			t.Errorf("the commands of the guide do not show %q", want)
		}
	}
}
