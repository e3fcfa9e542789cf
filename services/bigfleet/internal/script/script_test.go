package script_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"bigfleet": cli.Program, "kubectl-bigfleet": cli.Program, "bigfleetctl": cli.Program, "kubectl_complete-bigfleet": cli.Program})
}

// patience bounds every wait for something that surely comes, on a machine that does other things too.
const patience = time.Minute

// TestScripts runs the command lines of testdata. Scripts without a world of their own read from one that all share.
func TestScripts(t *testing.T) {
	shared := &world{}
	t.Cleanup(func() {
		if err := shared.stop(); err != nil {
			t.Error(err)
		}
		_ = os.RemoveAll(shared.env["WORLD_DIR"])
	})
	var once sync.Once
	var failed error
	testscript.Run(t, testscript.Params{
		Dir: "testdata", RequireExplicitExec: true, RequireUniqueNames: true,
		Setup: func(e *testscript.Env) error {
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(e.WorkDir, "xdg")) // never the contexts of the user who runs the tests
			e.Setenv("KUBECONFIG", filepath.Join(e.WorkDir, "no-kubeconfig"))
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"shared": func(ts *testscript.TestScript, _ bool, _ []string) {
				once.Do(func() {
					failed = shared.start([]string{"--clusters", "2", "--scenario", "steady", "--provider-delay", "20ms"})
					for _, cluster := range []string{"cluster/red", "cluster/blue"} {
						if failed == nil {
							failed = exec.Command("bigfleet", "wait", "--for", "satisfied", cluster, "--shard", shared.env["SHARD"]).Run()
						}
					}
				})
				ts.Check(failed)
				shared.export(ts)
			},
			"world": startWorld, "endworld": endWorld, "flipbit": flipBit, "samerecords": sameRecords, "exits": exits, "until": until, "take": take, "follow": follow, "scrape": scrapeAll,
		},
	})
}

// world is one `bigfleet up`.
type world struct {
	cmd   *exec.Cmd
	out   lockedBuffer
	ended chan error
	env   map[string]string
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func free() string { return freeRow(1) }

// freeRow is an address whose port and those behind it are free: further shards of `up` take the next ones.
func freeRow(n int) string {
	for range 50 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			break
		}
		row := []net.Listener{first}
		at := first.Addr().(*net.TCPAddr)
		for i := 1; i < n && err == nil; i++ {
			var next net.Listener
			if next, err = net.ListenTCP("tcp", &net.TCPAddr{IP: at.IP, Port: at.Port + i}); err == nil {
				row = append(row, next)
			}
		}
		for _, l := range row {
			_ = l.Close()
		}
		if err == nil {
			return at.String()
		}
	}
	return "127.0.0.1:0"
}

// start runs `bigfleet up` on free ports and waits until it says that it is ready. Another process may take a port meanwhile:
// then it starts again.
func (w *world) start(args []string) error {
	for try := 0; ; try++ {
		err := w.begin(args)
		if err == nil || try == 3 || !strings.Contains(w.out.String(), "address already in use") {
			return err
		}
	}
}

func (w *world) begin(args []string) error {
	dir, err := os.MkdirTemp("", "script-world-")
	if err != nil {
		return err
	}
	w.env = map[string]string{"SHARD": freeRow(3), "PROVIDER": free(), "CONTROL": free(), "COORDINATOR": free(), "RAFT": free(), "DEMO": free(), "WORLD_KUBECONFIG": filepath.Join(dir, "kubeconfig"), "WORLD_DIR": dir}
	w.out, w.ended = lockedBuffer{}, make(chan error, 1)
	all := append([]string{"up", "--shard-listen", w.env["SHARD"], "--provider-listen", w.env["PROVIDER"], "--control-listen", w.env["CONTROL"],
		"--coordinator-listen", w.env["COORDINATOR"], "--raft-bind", w.env["RAFT"], "--demo-listen", w.env["DEMO"],
		"--write-kubeconfig", w.env["WORLD_KUBECONFIG"], "--data-dir", filepath.Join(dir, "data"), "--log-file", filepath.Join(dir, "log")}, args...)
	w.cmd = exec.Command("bigfleet", all...)
	w.cmd.Stdout, w.cmd.Stderr = &w.out, &w.out
	if err := w.cmd.Start(); err != nil {
		return err
	}
	go func() { w.ended <- w.cmd.Wait() }()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		if strings.Contains(w.out.String(), "ready: shard at") {
			return nil
		}
		select {
		case err := <-w.ended:
			w.cmd = nil
			return fmt.Errorf("`bigfleet up` ended: %v\n%s", err, w.out.String())
		default:
		}
	}
	return fmt.Errorf("`bigfleet up` is not ready:\n%s", w.out.String())
}

func (w *world) export(ts *testscript.TestScript) {
	for k, v := range w.env {
		ts.Setenv(k, v)
	}
}

// stop is Ctrl-C: it must end well, and leave nothing (OPS-5.1).
func (w *world) stop() error {
	if w.cmd == nil {
		return nil
	}
	defer func() { w.cmd = nil }()
	if err := w.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case err := <-w.ended:
		if err != nil {
			return fmt.Errorf("`bigfleet up` ended with %v:\n%s", err, w.out.String())
		}
	case <-time.After(patience):
		_ = w.cmd.Process.Kill()
		return fmt.Errorf("`bigfleet up` does not end:\n%s", w.out.String())
	}
	return nil
}

// startWorld is `world ARGS...`: a `bigfleet up` of this script's own. $SHARD, $PROVIDER, $CONTROL, $WORLD_KUBECONFIG lead to it.
func startWorld(ts *testscript.TestScript, neg bool, args []string) {
	if neg {
		ts.Fatalf("! world means nothing")
	}
	w := &world{}
	err := w.start(args)
	worlds.Store(ts, w)
	ts.Defer(func() {
		worlds.Delete(ts)
		if err := w.stop(); err != nil {
			ts.Logf("%v", err)
		}
		_ = os.RemoveAll(w.env["WORLD_DIR"])
	})
	ts.Check(err)
	w.export(ts)
}

var worlds sync.Map // of running scripts, by script

// endWorld is `endworld`: Ctrl-C for the script's `bigfleet up`. Its directory stays until the script ends.
func endWorld(ts *testscript.TestScript, _ bool, _ []string) {
	w, ok := worlds.Load(ts)
	if !ok {
		ts.Fatalf("this script has no world")
	}
	ts.Check(w.(*world).stop())
}

// flipBit is `flipbit FILE`: one bit in the middle of the file changes, or of the only log in a directory.
func flipBit(ts *testscript.TestScript, _ bool, args []string) {
	file := ts.MkAbs(args[0])
	if logs, err := filepath.Glob(filepath.Join(file, "*.log")); err == nil && len(logs) > 0 {
		file = logs[0]
	}
	raw, err := os.ReadFile(file)
	ts.Check(err)
	raw[len(raw)/2] ^= 1
	ts.Check(os.WriteFile(file, raw, 0o600))
}

// sameRecords is `samerecords LIVE REPLAYED`: each line of the first file is in the second, as the same JSON.
func sameRecords(ts *testscript.TestScript, _ bool, args []string) {
	canonical := func(file string) map[string]bool {
		out := map[string]bool{}
		for line := range strings.Lines(ts.ReadFile(file)) {
			if !strings.HasPrefix(line, "{") {
				continue // the summary at the end
			}
			var v map[string]any
			ts.Check(json.Unmarshal([]byte(line), &v))
			delete(v, "at") // the command adds these to what it prints of a running shard
			delete(v, "shard")
			delete(v, "sentence")
			raw, err := json.Marshal(v) // field order and spacing are the only freedom of proto JSON
			ts.Check(err)
			out[string(raw)] = true
		}
		return out
	}
	live, again := canonical(args[0]), canonical(args[1])
	for line := range live {
		if !again[line] {
			ts.Fatalf("of %d records this one does not come out of the replay:\n%s", len(live), line)
		}
	}
	if len(live) == 0 {
		ts.Fatalf("no records to compare")
	}
}

// exits is `exits CODE COMMAND...`: it must end with this code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE COMMAND...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	if got := code(ts.Exec(args[1], args[2:]...)); got != want {
		ts.Fatalf("%v ends with %d, want %d\nstdout: %s\nstderr: %s", args[1:], got, want, ts.ReadFile("stdout"), ts.ReadFile("stderr"))
	}
}

func code(err error) int {
	var e *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.ExitCode()
	}
	return -1
}

// until is `until PATTERN COMMAND...`: again and again, until it succeeds and its output matches.
func until(ts *testscript.TestScript, neg bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: until PATTERN COMMAND...")
	}
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		err := ts.Exec(args[1], args[2:]...)
		if err == nil && pattern.MatchString(ts.ReadFile("stdout")) != neg {
			return
		}
		select {
		case <-ctx.Done():
			ts.Fatalf("%v never prints %q\nstdout: %s\nstderr: %s", args[1:], args[0], ts.ReadFile("stdout"), ts.ReadFile("stderr"))
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// take is `take NAME PATTERN`: the first group of the pattern in the last output becomes an environment variable.
func take(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: take NAME PATTERN")
	}
	m := regexp.MustCompile("(?m)" + args[1]).FindStringSubmatch(ts.ReadFile("stdout"))
	if len(m) < 2 {
		ts.Fatalf("%q is not in\n%s", args[1], ts.ReadFile("stdout"))
	}
	ts.Setenv(args[0], m[1])
}

// scrapeAll is `scrape FILE`: each target of a Prometheus file answers; what all say is the output.
func scrapeAll(ts *testscript.TestScript, neg bool, args []string) {
	var groups []struct{ Targets []string }
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &groups))
	if neg || len(groups) < 5 {
		ts.Fatalf("%d roles have metrics", len(groups))
	}
	for _, g := range groups {
		for _, path := range []string{"/metrics", "/healthz"} {
			answer, err := http.Get("http://" + g.Targets[0] + path)
			ts.Check(err)
			raw, err := io.ReadAll(answer.Body)
			ts.Check(errors.Join(err, answer.Body.Close()))
			if answer.StatusCode != http.StatusOK {
				ts.Fatalf("%s%s: %s", g.Targets[0], path, answer.Status)
			}
			_, err = ts.Stdout().Write(raw)
			ts.Check(err)
		}
	}
}

// follow is `follow PATTERN COMMAND...`: the command continues by itself; once its output matches it gets Ctrl-C, and must end well.
// What it wrote is in the file "followed".
func follow(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: follow PATTERN COMMAND...")
	}
	pattern := regexp.MustCompile("(?m)" + args[0])
	var out, errs lockedBuffer
	cmd := exec.Command(args[1], args[2:]...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &errs, ts.MkAbs(".")
	cmd.Env = append(os.Environ(), "XDG_CONFIG_HOME="+ts.Getenv("XDG_CONFIG_HOME"))
	ts.Check(cmd.Start())
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	deadline := time.After(patience)
	for !pattern.MatchString(out.String()) {
		select {
		case err := <-ended:
			ts.Fatalf("%v ended (%v) before it printed %q\nstdout: %s\nstderr: %s", args[1:], err, args[0], out.String(), errs.String())
		case <-deadline:
			_ = cmd.Process.Kill()
			ts.Fatalf("%v never prints %q\nstdout: %s\nstderr: %s", args[1:], args[0], out.String(), errs.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	ts.Check(cmd.Process.Signal(syscall.SIGINT))
	if err := <-ended; err != nil {
		ts.Fatalf("%v ends with %v after Ctrl-C\nstderr: %s", args[1:], err, errs.String())
	}
	ts.Check(os.WriteFile(ts.MkAbs("followed"), []byte(out.String()), 0o600))
}
