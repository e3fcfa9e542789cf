package crash

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"connectrpc.com/connect"
	"golang.org/x/sys/unix"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// full makes every write to a file fail from here on, as on a full disk, or ends that. The kernel does it: the largest
// file that the process may write has no byte.
func (s *shard) full(t *testing.T, on bool) {
	t.Helper()
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if on {
		limit.Cur = 0
	}
	if err := unix.Prlimit(s.cmd.Process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		t.Fatal(err)
	}
}

// Scenario 70, SHARD-28.4, 5.4: while the disk takes nothing, machines are still bought and configured; an order that must
// survive is refused, a pause holds and says that it will not survive; when there is room again the log continues with a
// checkpoint behind a marked gap, and replays.
func TestDiskFullWhileRunning(t *testing.T) {
	dir := dataDir(t)
	p := NewProvider(Slot("m1", 1, "4", "16Gi"), Slot("m2", 1, "4", "16Gi"), Slot("m3", 1, "4", "16Gi")).Serve(t)
	s := run(t, program(t, false), dir, p.Addr, nil)
	addr := s.serving(t)
	o := Connect(t, addr, "red", AllFeatures...)
	o.Rollup(Need("4", 5))
	Eventually(t, "one machine serves", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 1 })
	client, err := rpc.NewClient(rpc.ClientConfig{Addr: addr, Limits: rpc.ReadClientLimits()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdle)
	admin, read := rpc.Stub(client, bigfleetv1alpha1connect.NewShardAdminClient), rpc.Stub(client, bigfleetv1alpha1connect.NewShardReadClient)

	s.full(t, true)
	o.Rollup(Need("8", 5))
	Eventually(t, "a second machine serves although the disk is full", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 2 })
	if _, err := admin.SetDryRun(t.Context(), connect.NewRequest(&pb.SetDryRunRequest{DryRun: true, Reason: "test"})); err == nil {
		t.Error("an order that cannot be stored was taken")
	}
	pause, err := admin.PauseActuation(t.Context(), connect.NewRequest(&pb.PauseActuationRequest{Reason: "test"}))
	if err != nil {
		t.Fatalf("the pause was refused: %v", err)
	}
	if text := pause.Msg.Pause.Reason; !strings.Contains(text, "lost at a restart") {
		t.Errorf("the pause does not say that it will not survive a restart: %v", pause.Msg)
	}
	o.Rollup(Need("12", 5))
	Eventually(t, "the third machine is planned and held back", func() bool {
		st, err := read.GetStatus(t.Context(), connect.NewRequest(&pb.GetStatusRequest{}))
		return err == nil && len(st.Msg.Pauses) == 1
	})
	Eventually(t, "the log says what is wrong", func() bool { return strings.Contains(s.Log(), "decision log: write") })
	if n := p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED); n != 2 {
		t.Errorf("%d machines serve while paused", n)
	}

	s.full(t, false)
	if _, err := admin.ResumeActuation(t.Context(), connect.NewRequest(&pb.ResumeActuationRequest{PauseId: pause.Msg.Pause.PauseId, Reason: "test"})); err != nil {
		t.Error(err)
	}
	Eventually(t, "the third machine serves", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 3 })
	Eventually(t, "the log goes on in a new segment", func() bool {
		list, _ := filepath.Glob(filepath.Join(dir, "decisions", "*.log"))
		return len(list) >= 2
	})
	time.Sleep(1200 * time.Millisecond) // a flush behind the checkpoint
	s.stop()
	if code := s.ended(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	checkLog(t, dir, s.epoch(), true)
	if got := highestEpoch(p); got != s.epoch() || got != aheadEpoch+1 {
		t.Errorf("commands carried epoch %d, the process had %d", got, s.epoch())
	}
}

// SHARD-20.2, 3.2: a start that cannot write its epoch ends with exit code 1 and one clear line, before any command; with
// room again the next start takes a higher epoch than any before.
func TestDiskFullAtTheStart(t *testing.T) {
	p := NewProvider(Host("serves", pb.MachineState_MACHINE_STATE_CONFIGURED, "red")).Serve(t)
	dir := dataDir(t)
	// A shell lowers the limit before it becomes the shard.
	bin := program(t, false)
	s := run(t, bin, dir, p.Addr, func(c *exec.Cmd) {
		c.Path, c.Args = "/bin/sh", append([]string{"sh", "-c", `ulimit -f 0; exec "$@"`, "sh", bin}, c.Args[1:]...)
	})
	if code := s.ended(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if log := s.Log(); !strings.Contains(log, dir) || !strings.Contains(log, "file too large") {
		t.Errorf("the error does not name the place and the cause:\n%s", log)
	}
	if n := len(p.Calls()); n != 0 {
		t.Errorf("%d commands were sent without an epoch", n)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "epoch")); err != nil || strings.TrimSpace(string(raw)) != strconv.Itoa(aheadEpoch) {
		t.Errorf("the epoch file holds %q, %v", raw, err)
	}
	next := run(t, bin, dir, p.Addr, nil)
	next.serving(t)
	if got := next.epoch(); got != aheadEpoch+1 {
		t.Errorf("epoch %d", got)
	}
}

// SHARD-3.2, 20.2: a data directory that cannot be written is a start error that names it, and changes nothing.
func TestReadOnlyDirectory(t *testing.T) {
	p := NewProvider(Host("serves", pb.MachineState_MACHINE_STATE_CONFIGURED, "red")).Serve(t)
	dir := dataDir(t)
	if err := os.Chmod(filepath.Join(dir, "epoch"), 0o444); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	open(t, dir)
	s := run(t, program(t, false), dir, p.Addr, func(c *exec.Cmd) {
		if os.Getuid() == 0 { // root may write everywhere
			c.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
	})
	if code := s.ended(t); code != 1 {
		t.Errorf("exit code %d", code)
	}
	if log := s.Log(); !strings.Contains(log, dir) || !strings.Contains(log, "permission denied") {
		t.Errorf("the error does not name the place and the cause:\n%s", log)
	}
	if n := len(p.Calls()); n != 0 {
		t.Errorf("%d commands were sent", n)
	}
	if raw, err := os.ReadFile(filepath.Join(dir, "epoch")); err != nil || strings.TrimSpace(string(raw)) != strconv.Itoa(aheadEpoch) {
		t.Errorf("the epoch file holds %q, %v", raw, err)
	}
}

// open lets other users reach a directory.
func open(t *testing.T, dir string) {
	t.Helper()
	for up := filepath.Dir(dir); up != filepath.Dir(os.TempDir()) && up != "/"; up = filepath.Dir(up) {
		info, err := os.Stat(up)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm()&0o005 != 0o005 {
			if err := os.Chmod(up, info.Mode().Perm()|0o055); err != nil {
				t.Fatal(err)
			}
		}
	}
}
