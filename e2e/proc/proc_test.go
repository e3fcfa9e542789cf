package proc_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/bigfleet-dev/bigfleet/e2e/cache"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func child(t *testing.T, args ...string) proc.Config {
	t.Helper()
	return proc.Config{
		Name:    "child",
		Path:    proc.BuildT(t, "e2e/proc/testdata/child"),
		Args:    args,
		LogFile: filepath.Join(t.TempDir(), "logs", "child.log"),
		Ready:   proc.LogContains("up"),
	}
}

// The life of a service in a scenario test: up, killed, up again on the same arguments and port, stopped.
func TestProcessIsStartedKilledRestartedAndStopped(t *testing.T) {
	port, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	c := child(t, "-serve", port.Addr())
	c.Env = []string{"GREETING=hello"}
	c.Ready = proc.All(proc.TCP(port.Addr()), proc.HTTP("http://"+port.Addr()+"/healthz", nil))
	p := proc.StartT(t, c)

	first := p.PID()
	if !p.Running() || !alive(first) {
		t.Fatal("not running after Start")
	}
	if err := p.Start(t.Context()); !errors.Is(err, proc.ErrRunning) {
		t.Fatalf("Start of a running process: %v; want ErrRunning", err)
	}
	if rss, err := p.ResidentBytes(); err == nil && rss < 100<<10 || err != nil && !errors.Is(err, proc.ErrNoMemoryFigure) {
		t.Fatalf("ResidentBytes() = %d, %v", rss, err)
	}

	p.Kill()
	if p.Running() || alive(first) {
		t.Fatal("running after Kill")
	}
	if p.ExitCode() != -1 {
		t.Fatalf("exit code %d after SIGKILL, want -1", p.ExitCode())
	}
	if err := p.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if p.PID() == first {
		t.Fatal("the same process after two restarts")
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	<-p.Exited()
	if p.ExitCode() != 0 {
		t.Fatalf("exit code %d after a graceful end, want 0", p.ExitCode())
	}
	if err := p.Stop(); err != nil {
		t.Fatalf("Stop of a stopped process: %v", err)
	}
	if err := p.Pause(); !errors.Is(err, proc.ErrNotRunning) {
		t.Fatalf("Pause of a stopped process: %v; want ErrNotRunning", err)
	}

	log := p.Tail(100)
	if got := strings.Count(log, "greeting hello"); got != 3 {
		t.Errorf("the log shows %d incarnations, want 3:\n%s", got, log)
	}
	if got := strings.Count(log, "bye"); got != 2 {
		t.Errorf("the log shows %d graceful ends, want 2 (Restart, Stop):\n%s", got, log)
	}
}

// A start that fails names the program, the cause and the end of its log, and leaves nothing running.
func TestFailedStartExplainsItself(t *testing.T) {
	t.Run("exit", func(t *testing.T) {
		c := child(t, "-say", "no such flag: --frobnicate", "-exit", "3")
		_, err := proc.Start(t.Context(), c)
		if !errors.Is(err, proc.ErrExited) {
			t.Fatalf("got %v, want ErrExited", err)
		}
		for _, want := range []string{"child", "exit status 3", "no such flag: --frobnicate", c.LogFile} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not mention %q: %v", want, err)
			}
		}
	})
	t.Run("never ready", func(t *testing.T) {
		c := child(t)
		c.Ready, c.ReadyTimeout = proc.LogContains("never said"), 100*time.Millisecond
		_, err := proc.Start(t.Context(), c)
		if !errors.Is(err, proc.ErrNotReady) || !strings.Contains(err.Error(), "never said") {
			t.Fatalf("got %v; want ErrNotReady with what the probe said", err)
		}
		wantNoChild(t, err)
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		c := child(t)
		c.Ready = func(context.Context, *proc.Process) error {
			cancel(errors.New("enough"))
			return errors.New("not yet")
		}
		_, err := proc.Start(ctx, c)
		if err == nil || !strings.Contains(err.Error(), "enough") {
			t.Fatalf("got %v; want the cause of the cancelled context", err)
		}
		wantNoChild(t, err)
	})
	t.Run("no binary", func(t *testing.T) {
		c := child(t)
		c.Path += "-missing"
		if _, err := proc.Start(t.Context(), c); !errors.Is(err, os.ErrNotExist) {
			t.Fatalf("got %v, want not exist", err)
		}
	})
}

// Stop kills what ignores SIGTERM and says so; children that outlive the program die with it.
func TestStopLeavesNothingBehind(t *testing.T) {
	c := child(t, "-stubborn", "-spawn")
	c.StopTimeout = 100 * time.Millisecond
	p := proc.StartT(t, c)
	if err := p.Stop(); !errors.Is(err, proc.ErrKilled) {
		t.Fatalf("Stop: %v; want ErrKilled", err)
	}
	wantGone(t, p.PID())
	wantGone(t, number(t, p.Tail(10), "grandchild "))

	c = child(t, "-spawn")
	p = proc.StartT(t, c)
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	wantGone(t, number(t, p.Tail(10), "grandchild "))
}

// A paused process keeps its sockets and answers nothing, and it can be killed while paused.
func TestPause(t *testing.T) {
	port, err := loopback.Reserve()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(port.Release)
	c := child(t, "-serve", port.Addr())
	c.Ready = proc.HTTP("http://"+port.Addr(), nil)
	p := proc.StartT(t, c)
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := c.Ready(ctx, p); err == nil {
		t.Fatal("a paused process answered")
	}
	if err := p.Resume(); err != nil {
		t.Fatal(err)
	}
	if err := c.Ready(t.Context(), p); err != nil {
		t.Fatalf("after Resume: %v", err)
	}
	if err := p.Pause(); err != nil {
		t.Fatal(err)
	}
	p.Kill()
	wantGone(t, p.PID())
}

// Pause returns when the process stands still, not when the signal is on its way: after it, no thread runs one more step.
func TestPauseWaitsUntilEveryThreadStopped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "written")
	p := proc.StartT(t, child(t, "-write", file))
	size := func() int64 {
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	for round := range 100 {
		if err := p.Pause(); err != nil {
			t.Fatal(err)
		}
		atPause := size()
		time.Sleep(2 * time.Millisecond)
		if later := size(); later != atPause {
			t.Fatalf("round %d: the paused process wrote %d bytes", round, later-atPause)
		}
		if err := p.Resume(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestConfigNamesWhatIsMissing(t *testing.T) {
	for want, c := range map[string]proc.Config{
		"Name":    {Path: "x", LogFile: "x"},
		"Path":    {Name: "x", LogFile: "x"},
		"LogFile": {Name: "x", Path: "x"},
	} {
		if _, err := proc.New(c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("New without %s: %v", want, err)
		}
	}
}

func TestBuildReportsCompilerErrors(t *testing.T) {
	t.Setenv(cache.Env, t.TempDir())
	if _, err := proc.Build(t.Context(), "e2e/proc/testdata/child", "-no-such-flag"); err == nil || !strings.Contains(err.Error(), "no-such-flag") {
		t.Fatalf("got %v; want what go build printed", err)
	}
	if _, err := proc.Build(t.Context(), "e2e/no/such/package"); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v; want not exist", err)
	}
}

func wantNoChild(t *testing.T, err error) {
	t.Helper()
	start, found := errors.AsType[*proc.StartError](err)
	if !found {
		t.Fatalf("got %T, want *StartError", err)
	}
	wantGone(t, start.PID)
}

// wantGone fails t when pid is still there. An orphan's zombie disappears when init collects it, hence the patience.
func wantGone(t *testing.T, pid int) {
	t.Helper()
	for range 200 {
		if !alive(pid) {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("process %d is still there", pid)
}

// alive tells whether pid runs. A zombie does not.
func alive(pid int) bool {
	if err := syscall.Kill(pid, 0); err != nil {
		return false
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || !strings.Contains(string(stat), ") Z ")
}

// number returns the number that follows label in text.
func number(t *testing.T, text, label string) int {
	t.Helper()
	_, after, found := strings.Cut(text, label)
	var n int
	if _, err := fmt.Sscan(after, &n); !found || err != nil {
		t.Fatalf("no number after %q in:\n%s", label, text)
	}
	return n
}
