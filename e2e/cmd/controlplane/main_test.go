package main

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
	"github.com/bigfleet-dev/bigfleet/e2e/proc"
)

// "up" prints what a user needs, ends cleanly on SIGINT, and even when it is killed nothing keeps running; the next
// control plane on the machine then removes the files.
func TestUp(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	up := proc.StartT(t, proc.Config{
		Name:         "controlplane",
		Path:         proc.BuildT(t, "e2e/cmd/controlplane"),
		Args:         []string{"up", "--clusters=2", "--name=demo"},
		LogFile:      filepath.Join(t.TempDir(), "up.log"), // not in tmp, which must be empty in the end
		Ready:        proc.LogContains("interrupt to stop"),
		ReadyTimeout: 2 * time.Minute,
	})
	endpoints := parse(t, up.Tail(10))
	if err := up.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	<-up.Exited()
	if up.ExitCode() != 0 || !strings.Contains(up.Tail(3), "stopping") {
		t.Fatalf("exit code %d after SIGINT, want 0:\n%s", up.ExitCode(), up.Tail(10))
	}
	wantNoProcess(t, tmp)
	wantEntries(t, tmp, 0)
	for _, e := range endpoints {
		if c, err := net.Dial("tcp", e); err == nil {
			_ = c.Close()
			t.Errorf("something still listens on %s", e)
		}
	}
	if runtime.GOOS != "linux" {
		return // no other system ends the children of a process that is killed
	}

	if err := up.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	up.Kill()
	wantNoProcess(t, tmp)
	wantEntries(t, tmp, 2)
	if err := startAndStop(t); err != nil {
		t.Fatal(err)
	}
	wantEntries(t, tmp, 0)
}

// A component that dies ends "up" with exit code 1 and its name.
func TestUpReportsADeadComponent(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	up := proc.StartT(t, proc.Config{
		Name:         "controlplane",
		Path:         proc.BuildT(t, "e2e/cmd/controlplane"),
		Args:         []string{"up", "--dir", filepath.Join(t.TempDir(), "kept")},
		Ready:        proc.LogContains("interrupt to stop"),
		ReadyTimeout: 2 * time.Minute,
	})
	kubeconfig := strings.Fields(lastTableLine(t, up.Tail(10)))[2]
	pids, err := exec.CommandContext(t.Context(), "pgrep", "-f", "kube-scheduler.*"+filepath.Dir(kubeconfig)).Output()
	if err != nil {
		t.Fatalf("pgrep: %v", err)
	}
	if err := exec.CommandContext(t.Context(), "kill", "-KILL", strings.TrimSpace(string(pids))).Run(); err != nil {
		t.Fatal(err)
	}
	<-up.Exited()
	if up.ExitCode() != 1 || !strings.Contains(up.Tail(40), "kube-scheduler of cluster-1") {
		t.Fatalf("exit code %d; want 1 and the name of the component:\n%s", up.ExitCode(), up.Tail(40))
	}
	if _, err := os.Stat(kubeconfig); err != nil {
		t.Errorf("--dir was not kept: %v", err)
	}
	wantNoProcess(t, filepath.Dir(kubeconfig))
}

// startAndStop runs the smallest control plane.
func startAndStop(t *testing.T) error {
	t.Helper()
	cp, err := controlplane.Start(t.Context(), controlplane.Config{
		Omit: []controlplane.Component{controlplane.ControllerManager, controlplane.Scheduler, controlplane.Kwok},
	})
	if err != nil {
		return err
	}
	return cp.Stop()
}

// parse checks the lines "name endpoint kubeconfig" and returns the addresses.
func parse(t *testing.T, output string) (addresses []string) {
	t.Helper()
	for _, name := range []string{"demo-1", "demo-2"} {
		_, line, found := strings.Cut(output, name+" ")
		fields := strings.Fields(line)
		if !found || len(fields) < 2 {
			t.Fatalf("no line for %s in:\n%s", name, output)
		}
		address, found := strings.CutPrefix(fields[0], "https://127.0.0.1:")
		if !found {
			t.Fatalf("%s is not an address on loopback", fields[0])
		}
		addresses = append(addresses, "127.0.0.1:"+address)
		if _, err := os.Stat(fields[1]); err != nil {
			t.Fatal(err)
		}
	}
	return addresses
}

func lastTableLine(t *testing.T, output string) string {
	t.Helper()
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "cluster-1 ") {
			return line
		}
	}
	t.Fatalf("no line for cluster-1 in:\n%s", output)
	return ""
}

// wantNoProcess waits for the end of every process with text on its command line: the kernel ends the children of a
// killed process a moment after it.
func wantNoProcess(t *testing.T, text string) {
	t.Helper()
	var left []byte
	for range 100 {
		var err error
		left, err = exec.CommandContext(t.Context(), "ps", "-Aww", "-o", "pid=,args=").Output()
		if err != nil {
			t.Fatalf("ps: %v", err)
		}
		if !strings.Contains(string(left), text) {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Errorf("processes with %s left behind:\n%s", text, left)
}

// wantEntries checks how many directories of control planes are in dir.
func wantEntries(t *testing.T, dir string, want int) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != want {
		t.Errorf("%d entries in the temporary directory, want %d: %v", len(entries), want, entries)
	}
}
