package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// tools puts programs into PATH that write down how they were called. systemctl says "active" while a file of the unit is there.
func tools(t *testing.T) (calls func() []string) {
	t.Helper()
	dir := t.TempDir()
	log := filepath.Join(dir, "calls")
	for name, body := range map[string]string{
		"systemctl": `for last; do :; done
case "$1" in
enable) touch "$0.$last" ;;
disable) rm -f "$0.$last" ;;
--quiet) [ -e "$0.$last" ]; exit ;;
esac`,
		"journalctl": "echo from the journal",
	} {
		text := "#!/bin/sh\n[ \"$1\" = --quiet ] || echo \"$(basename $0) $*\" >> " + log + "\n" + body + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() []string {
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(log); err != nil {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSpace(string(text)), "\n")
	}
}

// PROV-32.6, 32.7: with systemd the units of the distribution get the flags of the boot data and log to files that a reset removes; a
// stop leaves them as the distribution has them.
func TestSystemd(t *testing.T) {
	calls := tools(t)
	d := Systemd{Root: t.TempDir()}
	at := func(name string) string { return filepath.Join(d.Root, name) }
	for _, s := range []Service{Runtime, Kubelet} {
		if d.Runs(s) {
			t.Errorf("%s runs before it is started", s)
		}
		if err := d.Start(t.Context(), s, []string{"--node-labels=a=b", `--fixed=50% of $HOME "x"`}); err != nil {
			t.Fatal(err)
		}
		if !d.Runs(s) {
			t.Errorf("%s does not run", s)
		}
		want := []string{"systemctl daemon-reload", "systemctl enable --now " + string(s) + ".service"}
		if got := calls(); !slices.Equal(got, want) {
			t.Errorf("start of %s: %q, want %q", s, got, want)
		}
	}
	for name, want := range map[string]string{
		"/etc/systemd/system/containerd.service.d/99-bigfleet-hostagent.conf": "[Service]\nStandardOutput=append:/var/log/bigfleet-node/containerd.log\n" +
			"StandardError=append:/var/log/bigfleet-node/containerd.log\n",
		"/etc/systemd/system/kubelet.service.d/99-bigfleet-hostagent.conf": "[Service]\nStandardOutput=append:/var/log/bigfleet-node/kubelet.log\n" +
			"StandardError=append:/var/log/bigfleet-node/kubelet.log\n" +
			"ExecStart=\nExecStart=/usr/bin/kubelet --node-labels=a=b \"--fixed=50%% of $$HOME \\\"x\\\"\"\n",
	} {
		if got, err := os.ReadFile(at(name)); err != nil || string(got) != want {
			t.Errorf("%s: %v\n%s\nwant\n%s", name, err, got, want)
		}
	}
	if got := d.LastWords(Kubelet); got != "from the journal" {
		t.Errorf("the last words of a kubelet that wrote nothing: %q", got)
	}
	if err := os.WriteFile(at("/var/log/bigfleet-node/kubelet.log"), []byte("1\n2\n3\nlast\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := d.LastWords(Kubelet); got != "2 | 3 | last" {
		t.Errorf("the last words: %q", got)
	}
	_ = calls()
	for _, s := range []Service{Kubelet, Runtime} {
		if err := d.Stop(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if d.Runs(s) {
			t.Errorf("%s runs after its stop", s)
		}
		if got, want := calls(), []string{"systemctl disable --now " + string(s) + ".service", "systemctl daemon-reload"}; !slices.Equal(got, want) {
			t.Errorf("stop of %s: %q, want %q", s, got, want)
		}
		if _, err := os.Stat(d.dropIn(s)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("the drop-in of %s is left: %v", s, err)
		}
	}
}

// PROV-32.6: the processes of Pods are found where cgroups of version 2 and systemd put them, where version 1 does, and below the
// kubelet's own root; those of anything else are left alone. SIGTERM ends them, SIGKILL what ignores it.
func TestPodProcesses(t *testing.T) {
	for name, c := range map[string]struct{ cgroupRoot, pod, other string }{
		"v2 systemd":  {"", "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-x.scope", "system.slice/sshd.service"},
		"v2 cgroupfs": {"", "kubepods/burstable/pod1/x", "user.slice"},
		"v1":          {"", "memory/kubepods/burstable/pod1/x", "memory/system.slice"},
		"own root":    {"/nodes/a", "unified/nodes/a/kubepods/pod1/x", "unified/nodes/b/kubepods/pod1/x"},
	} {
		t.Run(name, func(t *testing.T) {
			l := &Linux{Root: t.TempDir(), CgroupRoot: c.cgroupRoot, Log: slog.New(slog.DiscardHandler)}
			mine, other := startSleep(t, "trap '' TERM; "), startSleep(t, "")
			for dir, pid := range map[string]int{c.pod: mine.Process.Pid, c.other: other.Process.Pid} {
				dir = filepath.Join(l.Root, "/sys/fs/cgroup", dir)
				if err := os.MkdirAll(dir, 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), fmt.Appendf(nil, "%d\n", pid), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if got := l.podProcesses(); !slices.Equal(got, []int{mine.Process.Pid}) {
				t.Fatalf("processes of Pods: %v, want %d", got, mine.Process.Pid)
			}
			ended := make(chan struct{})
			go func() { // the kernel takes a process that ended out of its cgroup
				_ = mine.Wait()
				_ = os.WriteFile(filepath.Join(l.Root, "/sys/fs/cgroup", c.pod, "cgroup.procs"), nil, 0o644)
				close(ended)
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if err := l.EndContainers(ctx, 50*time.Millisecond); err != nil {
				t.Fatal(err)
			}
			<-ended
			if status, ok := mine.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
				t.Errorf("the process ended with %v", mine.ProcessState)
			}
			if err := other.Process.Signal(syscall.Signal(0)); err != nil {
				t.Errorf("the process of another unit: %v", err)
			}
		})
	}
}

// startSleep starts a process and returns once its shell has read the preparation.
func startSleep(t *testing.T, preparation string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", "-c", preparation+"echo; while :; do sleep 1; done")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	return cmd
}

// PROV-32.6: what a cluster writes is found and removed, and a file beside it stays.
func TestFilesOfACluster(t *testing.T) {
	l := &Linux{Root: t.TempDir(), StateDir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
	if err := l.Write(t.Context(), []File{{Path: "/etc/kubernetes/pki/ca.crt", Mode: 0o600, Content: []byte("key")}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"/var/lib/kubelet/pods/x/secret", "/var/log/pods/p/0.log", logDir + "/kubelet.log", dropInDir + "/90-bigfleet.conf", "/run/netns/cni-1", "/etc/ssh/key"} {
		if err := replaceFile(l.at(name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var left []string
	for _, dir := range tenant {
		if err := l.files(l.at(dir), &left); err != nil {
			t.Fatal(err)
		}
	}
	if len(left) != 5 {
		t.Errorf("found %v", left)
	}
	if err := l.Wipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	var there []string
	_ = filepath.WalkDir(l.Root, func(name string, e os.DirEntry, _ error) error {
		if !e.IsDir() {
			there = append(there, strings.TrimPrefix(name, l.Root))
		}
		return nil
	})
	if !slices.Equal(there, []string{"/etc/ssh/key"}) {
		t.Errorf("after the wipe %v are there", there)
	}
}

// started are services that run once they are started.
type started map[Service]bool

func (s started) Start(_ context.Context, x Service, _ []string) error { s[x] = true; return nil }
func (s started) Stop(_ context.Context, x Service) error              { s[x] = false; return nil }
func (s started) Runs(x Service) bool                                  { return s[x] }
func (s started) LastWords(Service) string                             { return "" }

// PROV-32.7: a containerd that was killed while it wrote its own id starts again: with an empty id it would never answer. An id that is
// whole stays.
func TestKilledRuntimeStartsAgain(t *testing.T) {
	l := &Linux{Root: t.TempDir(), StateDir: t.TempDir(), Services: started{}, Log: slog.New(slog.DiscardHandler), Ctr: filepath.Join(t.TempDir(), "ctr")}
	id := l.at("/var/lib/containerd/io.containerd.grpc.v1.introspection/uuid")
	if err := replaceFile(l.Ctr, []byte("#!/bin/sh\ntest ! -e "+id+" || test -s "+id+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, content := range []string{"", "0a6c8e0e"} {
		if err := replaceFile(id, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := l.Services.Stop(t.Context(), Runtime); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		if err := l.StartRuntime(ctx); err != nil {
			t.Errorf("with the id %q: %v", content, err)
		}
		cancel()
	}
	if got, err := os.ReadFile(id); err != nil || string(got) != "0a6c8e0e" {
		t.Errorf("the whole id became %q, %v", got, err)
	}
}

// A kubelet that says much fills no disk: its log is cut while it continues writing, and the end is kept.
func TestLogIsBounded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "kubelet.log")
	writer, err := os.OpenFile(file, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = writer.Close() }()
	say := func(text string) {
		if _, err := writer.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	const most = 100
	say(strings.Repeat("line\n", 10))
	if err := cutLog(file, most); err != nil {
		t.Fatal(err)
	}
	if got := tail(file); got != "line | line | line" {
		t.Errorf("a small log was cut: %q", got)
	}
	say(strings.Repeat("more\n", 20))
	if err := cutLog(file, most); err != nil {
		t.Fatal(err)
	}
	say("after\n")
	now, err := os.ReadFile(file)
	if err != nil || string(now) != "after\n" {
		t.Errorf("after the cut the log has %q, %v", now, err)
	}
	if kept := tail(file + ".1"); kept != "more | more | more" {
		t.Errorf("kept is %q", kept)
	}
	if text, err := end(file+".1", 10); err != nil || string(text) != "more\nmore\n" {
		t.Errorf("the last ten bytes are %q, %v", text, err)
	}
}
