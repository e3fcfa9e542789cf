package agent

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Service is one of the two programs that make a host a node.
type Service string

// The services.
const (
	Kubelet Service = "kubelet"
	Runtime Service = "containerd"
)

// Services starts and stops the programs so that they outlive the agent. Every call may be repeated.
type Services interface {
	Start(ctx context.Context, s Service, args []string) error
	Stop(ctx context.Context, s Service) error
	Runs(s Service) bool
	// LastWords is the end of the program's log.
	LastWords(s Service) string
}

const stopPatience = 10 * time.Second // from SIGTERM to SIGKILL

// Direct runs the programs without a service manager, each in a session of its own.
type Direct struct {
	Programs map[Service]string   // paths
	Args     map[Service][]string // before those of Start
}

// Start implements Services.
func (d Direct) Start(_ context.Context, s Service, args []string) error {
	if d.Runs(s) {
		return nil
	}
	if err := os.MkdirAll(logDir, 0o750); err != nil {
		return err
	}
	log, err := os.OpenFile(d.log(s), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(d.Programs[s], slices.Concat(d.Args[s], args)...) // outlives the caller's context
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start %s: %w", s, err)
	}
	go func() { _ = cmd.Wait() }() // takes its exit code, so that it does not stay as a zombie
	return nil
}

func (d Direct) log(s Service) string { return filepath.Join(logDir, string(s)+".log") }

// Stop implements Services.
func (d Direct) Stop(ctx context.Context, s Service) error {
	return endProcesses(ctx, stopPatience, func() []int { return processesOf(d.Programs[s]) })
}

// Runs implements Services.
func (d Direct) Runs(s Service) bool { return len(processesOf(d.Programs[s])) > 0 }

// LastWords implements Services.
func (d Direct) LastWords(s Service) string { return tail(d.log(s)) }

func tail(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "none"
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-3):], []byte(" | ")))
}

// Systemd uses the units of the distribution. The kubelet's flags go into a drop-in that sorts last.
type Systemd struct{ Kubelet string } // path of the program; empty: /usr/bin/kubelet

const ownDropIn = dropInDir + "/99-bigfleet-hostagent.conf"

// Start implements Services.
func (d Systemd) Start(ctx context.Context, s Service, args []string) error {
	if s == Kubelet {
		program := d.Kubelet
		if program == "" {
			program = "/usr/bin/kubelet"
		}
		unit := "[Service]\nExecStart=\nExecStart=" + strings.Join(append([]string{program}, args...), " ") + "\n"
		if err := replaceFile(ownDropIn, []byte(unit), 0o644); err != nil {
			return err
		}
	}
	if err := run(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	return run(ctx, "systemctl", "enable", "--now", string(s)+".service")
}

// Stop implements Services. Containers outlive the units, so the unit's other processes are not ended here.
func (Systemd) Stop(ctx context.Context, s Service) error {
	return run(ctx, "systemctl", "disable", "--now", string(s)+".service")
}

// Runs implements Services.
func (Systemd) Runs(s Service) bool {
	return exec.Command("systemctl", "--quiet", "is-active", string(s)+".service").Run() == nil
}

// LastWords implements Services.
func (Systemd) LastWords(s Service) string {
	out, err := exec.Command("journalctl", "--unit", string(s)+".service", "--lines", "3", "--output", "cat", "--no-pager").Output()
	if err != nil {
		return "none"
	}
	return strings.Join(strings.Split(strings.TrimSpace(string(out)), "\n"), " | ")
}

// processesOf lists the processes of a program in this host's mount namespace.
func processesOf(program string) []int {
	return processes(func(exe string) bool { return exe == program })
}

// shims are the processes that stand between containerd and its containers.
func shims() []int {
	return processes(func(exe string) bool { return strings.HasPrefix(filepath.Base(exe), "containerd-shim") })
}

func processes(mine func(exe string) bool) (out []int) {
	here, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		exe, err := os.Readlink("/proc/" + e.Name() + "/exe") // empty for a zombie
		if err != nil || !mine(strings.TrimSuffix(exe, " (deleted)")) {
			continue
		}
		if there, err := os.Readlink("/proc/" + e.Name() + "/ns/mnt"); err == nil && there == here {
			out = append(out, pid)
		}
	}
	return out
}

// podCgroups lists the directories of the kubelet's Pods in every hierarchy, parents first.
func (l *Linux) podCgroups() (dirs []string) {
	const root = "/sys/fs/cgroup"
	places := []string{root} // of version 2
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		places = append(places, filepath.Join(root, e.Name()))
	}
	for _, place := range places {
		found, err := filepath.Glob(filepath.Join(place, l.CgroupRoot, "kubepods*"))
		if err != nil {
			continue
		}
		for _, top := range found {
			_ = filepath.WalkDir(top, func(name string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					dirs = append(dirs, name)
				}
				return nil // a cgroup may go while it is looked at
			})
		}
	}
	return dirs
}

// podProcesses lists the processes of Pods.
func (l *Linux) podProcesses() (out []int) {
	for _, dir := range l.podCgroups() {
		text, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if err != nil {
			continue
		}
		for word := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(word); err == nil && pid > 0 {
				out = append(out, pid)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// endProcesses sends SIGTERM, waits, sends SIGKILL, and returns when find finds none.
func endProcesses(ctx context.Context, patience time.Duration, find func() []int) error {
	signal, began := syscall.SIGTERM, time.Now()
	sent := map[int]syscall.Signal{}
	for {
		pids := find()
		if len(pids) == 0 {
			return nil
		}
		if time.Since(began) >= patience {
			signal = syscall.SIGKILL
		}
		for _, pid := range pids {
			if sent[pid] == signal {
				continue
			}
			sent[pid] = signal
			if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("end process %d: %w", pid, err)
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d processes do not end, such as %d", len(pids), pids[0])
		case <-time.After(20 * time.Millisecond):
		}
	}
}
