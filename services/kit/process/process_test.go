package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/bigfleet-dev/bigfleet/services/kit/process"
)

func TestMain(m *testing.M) {
	if os.Getenv("KIT_PROCESS_CHILD") != "" {
		os.Exit(child())
	}
	goleak.VerifyTestMain(m)
}

// story collects what happened in order.
type story struct {
	mu    sync.Mutex
	lines []string
}

func (s *story) say(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, fmt.Sprintf(format, args...))
}

func (s *story) get() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lines)
}

func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

func untilDone(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// OPS-2.5, SHARD-3.9: a stop by context is clean; parts stop in the reverse order of Add, each after the one before.
func TestOrderedStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s story
		g := process.New(process.Config{Log: quiet(), OnStop: func() { s.say("not ready") }})
		part := func(name string, takes time.Duration) process.Component {
			return process.Component{Name: name, Run: func(ctx context.Context) error {
				s.say("%s runs", name)
				<-ctx.Done()
				time.Sleep(takes)
				s.say("%s ended", name)
				return ctx.Err()
			}}
		}
		g.Add(part("store", time.Second))
		loop := part("loop", 0)
		loop.Drain = func(context.Context) {
			time.Sleep(3 * time.Second)
			s.say("loop drained")
		}
		g.Add(loop)
		g.Add(part("server", 2*time.Second))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		if len(s.get()) != 3 {
			t.Fatalf("%v", s.get())
		}
		start := time.Now()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got, want := s.get()[3:], []string{"not ready", "server ended", "loop drained", "loop ended", "store ended"}; !slices.Equal(got, want) {
			t.Errorf("stopped as %v, want %v", got, want)
		}
		if got := time.Since(start); got != 6*time.Second {
			t.Errorf("the stop took %s of fake time", got)
		}
	})
}

// SHARD-3.6: a fatal part that is lost ends the group with its error; the others are stopped.
func TestFatalPart(t *testing.T) {
	for name, test := range map[string]struct {
		run  func(context.Context) error
		want string
	}{
		"error":  {func(context.Context) error { return errors.New("disk is gone") }, "loop: disk is gone"},
		"end":    {func(context.Context) error { return nil }, "loop: ended unexpectedly"},
		"panic":  {func(context.Context) error { panic("index 7") }, "loop: panic: index 7"},
		"cancel": {func(context.Context) error { return context.Canceled }, "loop: context canceled"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				stopped := false
				g := process.New(process.Config{Log: quiet()})
				g.Add(process.Component{Name: "other", Run: func(ctx context.Context) error {
					<-ctx.Done()
					stopped = true
					return nil
				}})
				g.Add(process.Component{Name: "loop", Run: func(ctx context.Context) error {
					time.Sleep(time.Second)
					return test.run(ctx)
				}})
				err := g.Run(t.Context())
				if err == nil || !strings.HasPrefix(err.Error(), test.want) || !stopped {
					t.Errorf("%v (other stopped: %v), want %q", err, stopped, test.want)
				}
				if process.ExitCode(err) != 1 {
					t.Errorf("exit code %d", process.ExitCode(err))
				}
			})
		})
	}
}

// SHARD-3.6: other parts are started again after 1 s, 2 s, ... 30 s with jitter, counted; after a long good run the
// backoff starts over.
func TestRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var starts []time.Time
		restarts := 0
		g := process.New(process.Config{Log: quiet(), OnRestart: func(name string) {
			if name != "metrics" {
				t.Errorf("restart of %q", name)
			}
			restarts++
		}})
		g.Add(process.Component{Name: "metrics", Kind: process.Restarts, Run: func(ctx context.Context) error {
			starts = append(starts, time.Now())
			switch len(starts) {
			case 9:
				time.Sleep(time.Minute) // a long good run
				return errors.New("later")
			case 2:
				panic("also restarted")
			case 3:
				return nil // an end is a failure too
			case 11:
				return untilDone(ctx)
			}
			return errors.New("port in use")
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if restarts != 10 || len(starts) != 11 {
			t.Fatalf("%d restarts, %d starts", restarts, len(starts))
		}
		for i, full := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
			full *= time.Second
			if gap := starts[i+1].Sub(starts[i]); gap < full/2 || gap > full {
				t.Errorf("wait %d was %s, want between %s and %s", i, gap, full/2, full)
			}
		}
		if gap := starts[9].Sub(starts[8]) - time.Minute; gap > time.Second {
			t.Errorf("after a good run the wait was %s, want at most 1 s", gap)
		}
	})
}

// A Task may end; its error is fatal.
func TestTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := process.New(process.Config{Log: quiet()})
		g.Add(process.Component{Name: "import", Kind: process.Task, Run: func(context.Context) error { return nil }})
		g.Add(process.Component{Name: "loop", Run: untilDone})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		start := time.Now()
		if err := g.Run(ctx); err != nil || time.Since(start) != time.Hour {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		g = process.New(process.Config{Log: quiet()})
		g.Add(process.Component{Name: "import", Kind: process.Task, Run: func(context.Context) error { return errors.New("bad file") }})
		if err := g.Run(t.Context()); err == nil || err.Error() != "import: bad file" {
			t.Error(err)
		}
	})
}

// SHARD-3.9: the whole stop ends within its time; what is late is named, and every other component was cancelled by then.
func TestStopTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var others sync.WaitGroup
		others.Add(1)
		g := process.New(process.Config{Log: quiet(), StopTimeout: 25 * time.Second})
		g.Add(process.Component{Name: "first", Run: func(ctx context.Context) error {
			defer others.Done()
			return untilDone(ctx)
		}})
		g.Add(process.Component{Name: "stubborn", Run: func(context.Context) error {
			<-release
			return nil
		}})
		g.Add(process.Component{Name: "slow drain", Run: untilDone, Drain: func(ctx context.Context) { <-ctx.Done() }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- g.Run(ctx) }()
		synctest.Wait()
		start := time.Now()
		cancel()
		err := <-done
		if got := time.Since(start); got != 25*time.Second {
			t.Errorf("the stop took %s", got)
		}
		if err == nil || !strings.Contains(err.Error(), "not stopped within 25s") || !strings.Contains(err.Error(), "stubborn") {
			t.Error(err)
		}
		others.Wait() // cancelled although it was not its turn
		close(release)
	})
}

// A part that fails while it stops is an error of a fatal part only.
func TestErrorWhileStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for kind, want := range map[process.Kind]bool{process.Fatal: true, process.Restarts: false} {
			g := process.New(process.Config{Log: quiet()})
			g.Add(process.Component{Name: "store", Kind: kind, Run: func(ctx context.Context) error {
				<-ctx.Done()
				return errors.New("flush failed")
			}})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			err := g.Run(ctx)
			cancel()
			if (err != nil) != want {
				t.Errorf("kind %d: %v", kind, err)
			}
		}
	})
}

// Wrong groups are start errors.
func TestComponentsAreChecked(t *testing.T) {
	for _, wrong := range [][]process.Component{
		{{Run: untilDone}}, {{Name: "a"}}, {{Name: "a", Run: untilDone}, {Name: "a", Run: untilDone}},
	} {
		g := process.New(process.Config{})
		for _, c := range wrong {
			g.Add(c)
		}
		if g.Run(t.Context()) == nil {
			t.Errorf("%+v ran", wrong)
		}
	}
}

type coded int

func (c coded) Error() string { return "coded" }
func (c coded) ExitCode() int { return int(c) }

// OPS-2.5: 0, 1, 2, and what an error says of itself.
func TestExitCode(t *testing.T) {
	for want, err := range map[int]error{0: nil, 1: errors.New("x"), 2: fmt.Errorf("outer: %w", coded(2)), 5: errors.Join(errors.New("a"), coded(5))} {
		if got := process.ExitCode(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

// command is a small role for Execute.
func command(run func(ctx context.Context) error) *cobra.Command {
	cmd := &cobra.Command{Use: "bigfleet-test", Args: cobra.NoArgs, RunE: func(c *cobra.Command, _ []string) error { return run(c.Context()) }}
	cmd.Flags().Int("n", 0, "a number")
	return cmd
}

// OPS-2.3: what is wrong before the role runs is exit code 2 with the way to help; what the role returns is its own.
func TestExecute(t *testing.T) {
	for name, test := range map[string]struct {
		args []string
		err  error
		code int
		say  string
	}{
		"clean":        {nil, nil, 0, ""},
		"failed":       {nil, errors.New("disk is gone"), 1, "bigfleet-test: disk is gone\n"},
		"own code":     {nil, coded(7), 7, "bigfleet-test: coded\n"},
		"unknown flag": {[]string{"--nonsense"}, nil, 2, "unknown flag: --nonsense"},
		"bad value":    {[]string{"--n", "x"}, nil, 2, "invalid argument"},
		"argument":     {[]string{"extra"}, nil, 2, "Run 'bigfleet-test --help' for usage"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			cmd := command(func(context.Context) error { return test.err })
			cmd.SetErr(&stderr)
			cmd.SetOut(io.Discard)
			if code := process.Execute(cmd, test.args); code != test.code || !strings.Contains(stderr.String(), test.say) || test.code == 0 && stderr.Len() > 0 {
				t.Errorf("exit %d, stderr %q, want %d and %q", code, stderr.String(), test.code, test.say)
			}
		})
	}
}

// child is this test binary as a role: it prints a line when it runs, and stops when asked, or never.
func child() int {
	cmd := command(func(ctx context.Context) error {
		fmt.Println("running")
		<-ctx.Done()
		fmt.Println("stopping")
		if os.Getenv("KIT_PROCESS_CHILD") == "stubborn" {
			time.Sleep(time.Hour)
		}
		return ctx.Err()
	})
	return process.Execute(cmd, []string{})
}

// SIGTERM is a clean stop with exit code 0; a second signal kills a process that does not stop.
func TestSignals(t *testing.T) {
	run := func(mode string) (*exec.Cmd, io.Reader) {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "KIT_PROCESS_CHILD="+mode)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd, out
	}
	expect := func(out io.Reader, line string) {
		t.Helper()
		got := make([]byte, len(line)+1)
		if _, err := io.ReadFull(out, got); err != nil || string(got) != line+"\n" {
			t.Fatalf("child says %q, %v", got, err)
		}
	}
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		cmd, out := run("polite")
		expect(out, "running")
		if err := cmd.Process.Signal(signal); err != nil {
			t.Fatal(err)
		}
		expect(out, "stopping")
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v, want exit code 0", signal, err)
		}
	}
	cmd, out := run("stubborn")
	expect(out, "running")
	_ = cmd.Process.Signal(syscall.SIGTERM)
	expect(out, "stopping")
	waited := make(chan error, 1)
	go func() { waited <- cmd.Wait() }()
	// The child gives the signal back to the system right after its first; repeat until that has happened.
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	var err error
	for ended := false; !ended; {
		select {
		case err = <-waited:
			ended = true
		case <-again.C:
			_ = cmd.Process.Signal(syscall.SIGTERM)
		}
	}
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGTERM {
		t.Errorf("the second signal: %v", err)
	}
}
