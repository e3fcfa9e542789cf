package script_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// terminal is a tmux session in which one command runs, as a person sees it.
type terminal struct {
	t      *testing.T
	socket string
}

func newTerminal(t *testing.T, command string) *terminal {
	t.Helper()
	if _, err := exec.LookPath("tmux"); err != nil {
		t.Skip("tmux is not installed: what a terminal shows cannot be captured here")
	}
	dir, err := os.MkdirTemp("", "tmux") // short: a socket's path is limited to about 100 bytes
	if err != nil {
		t.Fatal(err)
	}
	s := &terminal{t, filepath.Join(dir, "s")}
	t.Cleanup(func() { _ = s.tmux("kill-server").Run(); _ = os.RemoveAll(dir) })
	if out, err := s.tmux("new-session", "-d", "-x", "160", "-y", "40", command+"; echo ended $?; sleep 600").CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	return s
}

func (s *terminal) tmux(args ...string) *exec.Cmd {
	return exec.Command("tmux", append([]string{"-S", s.socket, "-f", "/dev/null"}, args...)...)
}

// screen is what is visible now; with colours as escape sequences.
func (s *terminal) screen() string {
	out, err := s.tmux("capture-pane", "-p", "-e").Output()
	if err != nil {
		s.t.Fatalf("tmux capture-pane: %v", err)
	}
	return string(out)
}

var sequences = regexp.MustCompile("\x1b\\[[0-9;]*m")

// shows waits until the screen matches every pattern at once, and returns it without colours.
func (s *terminal) shows(patterns ...string) string {
	s.t.Helper()
	var plain string
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		plain = sequences.ReplaceAllString(s.screen(), "")
		all := true
		for _, p := range patterns {
			all = all && regexp.MustCompile("(?m)"+p).MatchString(plain)
		}
		if all {
			return plain
		}
	}
	s.t.Fatalf("the terminal never shows %q:\n%s", patterns, plain)
	return ""
}

// anyPorts lets `up` choose each port itself, and hold it from then on: one that only was free may be taken before `up` listens.
const anyPorts = " --shard-listen 127.0.0.1:0 --provider-listen 127.0.0.1:0 --control-listen 127.0.0.1:0 --coordinator-listen 127.0.0.1:0 --raft-bind 127.0.0.1:0"

// The live view on a terminal: a bar for each cluster that fills, machines by state, spend, the story; Ctrl-C ends it, and the
// answer of the shell is there again. Live tables repaint in place.
func TestTerminalView(t *testing.T) {
	t.Parallel()
	up := newTerminal(t, "bigfleet up --scenario burst --clusters 2"+anyPorts)
	screen := up.shows(`^BigFleet, simulated clusters on a simulated cloud +\d+s  \(Ctrl-C stops\)`, `^red +█+`, `^spend +\$\d+\.\d\d/h   cycle \d+ took`, `ready: shard at [\d.:]+, `,
		`the first machine is placed \d+\.\d s after the start`)
	if strings.Count(screen, "BigFleet, ") != 1 {
		t.Errorf("the picture is not repainted in place:\n%s", screen)
	}
	up.shows(`^red +█{40} +64 of +64 Pods run, 0 wait, [1-9]\d* Nodes`, `^blue +█{40} +4 of +4 Pods run`, `^machines +.*configured.*speculative`, `cluster red gets a burst of 60 Pods`)
	if !strings.Contains(up.screen(), "\x1b[32m") {
		t.Error("the bars have no colour on a terminal")
	}

	top := newTerminal(t, "bigfleet top --shard "+regexp.MustCompile(`ready: shard at ([\d.:]+),`).FindStringSubmatch(screen)[1])
	screen = top.shows(`^shard-0  cycle \d+, `, `^red/r1-[0-9a-f]+ +0 +met +100% `, `^q quit `)
	if strings.Count(screen, "shard-0  cycle") != 1 {
		t.Errorf("top does not repaint in place:\n%s", screen)
	}
	// Keys work at once: a filter that fits nothing, none again, another order, and the end. The terminal echoes again after it.
	for _, step := range []struct {
		keys  []string
		shows string
	}{
		{[]string{"/", "zzz", "Enter"}, `/ filter \(zzz\)`}, {[]string{"Escape"}, `^red/r1-[0-9a-f]+ `}, {[]string{"s", "s"}, `s sort \(priority\)`}, {[]string{"q"}, `ended 0$`}, {[]string{"echoed"}, `echoed$`},
	} {
		if out, err := top.tmux(append([]string{"send-keys"}, step.keys...)...).CombinedOutput(); err != nil {
			t.Fatalf("tmux: %v: %s", err, out)
		}
		top.shows(step.shows)
	}

	if out, err := up.tmux("send-keys", "C-c").CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	up.shows(`ended 0$`)
}

// OPS-5.1: a terminal that is closed leaves as little behind as Ctrl-C.
func TestATerminalThatCloses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	up := newTerminal(t, "TMPDIR="+dir+" bigfleet up --scenario steady --clusters 1"+anyPorts)
	up.shows(`ready: shard at `)
	left := func() []string {
		found, err := filepath.Glob(filepath.Join(dir, "bigfleet-*"))
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if len(left()) == 0 {
		t.Fatal("`bigfleet up` keeps nothing in TMPDIR: this test sees nothing")
	}
	if out, err := up.tmux("kill-server").CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	for deadline := time.Now().Add(patience); len(left()) > 0; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("left behind: %v", left())
		}
	}
}

// NO_COLOR is obeyed on a terminal (OPS-4.1), and an order asks there and takes no for an answer (OPS-4.8, exit code 8).
func TestTerminalManners(t *testing.T) {
	t.Parallel()
	w := &world{}
	if err := w.start([]string{"--clusters", "1", "--scenario", "steady", "--provider-delay", "20ms"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.stop(); err != nil {
			t.Error(err)
		}
	})
	plain := newTerminal(t, "NO_COLOR=1 bigfleet up --scenario steady --clusters 1"+anyPorts)
	plain.shows(`^red +█{40} `)
	if strings.Contains(plain.screen(), "\x1b[3") {
		t.Error("NO_COLOR is not obeyed")
	}
	asks := newTerminal(t, "bigfleet pause --kind reclaim --reason trial --shard "+w.env["SHARD"])
	asks.shows(`^Pauses reclaim`, `^Continue\? \[y/N\]`)
	if out, err := asks.tmux("send-keys", "n", "Enter").CombinedOutput(); err != nil {
		t.Fatalf("tmux: %v: %s", err, out)
	}
	asks.shows(`nothing was changed`, `ended 8$`)
}
