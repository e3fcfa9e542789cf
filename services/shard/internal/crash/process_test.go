package crash

import (
	"bufio"
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
)

// shard is one process under test.
type shard struct {
	cmd  *exec.Cmd
	addr chan string // its port, once; closed at its end
	done chan struct{}

	mu  sync.Mutex
	log strings.Builder
}

var (
	listens = regexp.MustCompile(`msg="shard started".* listen=(\S+)`)
	epochs  = regexp.MustCompile(`msg="shard started".* epoch=(\d+)`)
)

// run starts the program on a data directory.
func run(t *testing.T, program, dir, provider string, edit func(*exec.Cmd), args ...string) *shard {
	t.Helper()
	s := &shard{addr: make(chan string, 1), done: make(chan struct{})}
	s.cmd = exec.Command(program, append([]string{"--data-dir", dir, "--provider-addr", provider, "--listen", "127.0.0.1:0", "--release-delay", "0", "--release-delay-empty", "0", "--session-handover-wait", "0", "--metrics-addr", "0",
		"--reconcile-interval", "200ms", "--inflight-poll-interval", "20ms", "--cycle-interval", "1s", "--cycle-min-spacing", "10ms"}, args...)...)
	s.cmd.Dir = filepath.Dir(program)
	if edit != nil {
		edit(s.cmd)
	}
	out, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.done)
		defer close(s.addr)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			s.mu.Lock()
			s.log.WriteString(lines.Text() + "\n")
			s.mu.Unlock()
			if m := listens.FindStringSubmatch(lines.Text()); m != nil {
				s.addr <- m[1]
			}
		}
		_ = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.done
		if t.Failed() {
			t.Logf("%s:\n%s", strings.Join(s.cmd.Args, " "), s.Log())
		}
	})
	return s
}

// Log is what the process said.
func (s *shard) Log() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.log.String()
}

// epoch is the one that the process took, or 0.
func (s *shard) epoch() int64 {
	if m := epochs.FindStringSubmatch(s.Log()); m != nil {
		n, _ := strconv.ParseInt(m[1], 10, 64)
		return n
	}
	return 0
}

// serving waits for the port of a process that must come up.
func (s *shard) serving(t *testing.T) string {
	t.Helper()
	select {
	case addr, ok := <-s.addr:
		if ok {
			return addr
		}
	case <-time.After(time.Minute):
	}
	t.Fatalf("the shard did not start:\n%s", s.Log())
	return ""
}

// ended waits for the end of the process and returns its exit code, -1 after a signal.
func (s *shard) ended(t *testing.T) int {
	t.Helper()
	select {
	case <-s.done:
	case <-time.After(time.Minute):
		t.Fatalf("the shard did not end:\n%s", s.Log())
	}
	return s.cmd.ProcessState.ExitCode()
}

// stop is SIGTERM.
func (s *shard) stop() { _ = s.cmd.Process.Signal(syscall.SIGTERM) }

// dataDir is an empty data directory whose last life had a clock far ahead, so that no epoch hides behind the time.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "epoch"), []byte(strconv.FormatInt(aheadEpoch, 10)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

const aheadEpoch = 4_000_000_000
