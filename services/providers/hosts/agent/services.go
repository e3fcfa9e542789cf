package agent

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
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

// Both kinds of services write what the programs say to files of logDir, so that a reset removes it with the cluster.
const (
	logBytesMax  = 64 << 20 // of one file; it is cut then, and its end is kept in a second one
	logBytesKept = 16 << 20
	wordsBytes   = 16 << 10 // that are read for LastWords
)

func logOf(root string, s Service) string { return filepath.Join("/", root, logDir, string(s)+".log") }

// end reads at most the last n bytes of a file.
func end(file string, n int64) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if _, err := f.Seek(max(0, info.Size()-n), io.SeekStart); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, n))
}

// cutLog keeps a log from filling the disk. The program continues writing to the same file, which it opened to append.
func cutLog(file string, most int64) error {
	info, err := os.Stat(file)
	if err != nil || info.Size() <= most {
		return nil // none yet, or small
	}
	text, err := end(file, logBytesKept)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(file+".1", text, 0o640), os.Truncate(file, 0))
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
	log, err := os.OpenFile(logOf("", s), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
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

// Stop implements Services.
func (d Direct) Stop(ctx context.Context, s Service) error {
	return endProcesses(ctx, stopPatience, func() []int { return processesOf(d.Programs[s]) })
}

// Runs implements Services.
func (d Direct) Runs(s Service) bool { return len(processesOf(d.Programs[s])) > 0 }

// LastWords implements Services.
func (d Direct) LastWords(s Service) string { return tail(logOf("", s)) }

func tail(file string) string {
	text, err := end(file, wordsBytes)
	if err != nil {
		return "none"
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-3):], []byte(" | ")))
}

// Systemd uses the units of the distribution, with drop-ins of its own that sort last.
type Systemd struct {
	Kubelet string // path of the program; empty: /usr/bin/kubelet
	Root    string // where the machine's files are; empty: /
}

const (
	runtimeDropInDir = "/etc/systemd/system/containerd.service.d"
	ownDropIn        = "99-bigfleet-hostagent.conf"
)

func (d Systemd) dropIn(s Service) string {
	if s == Kubelet {
		return filepath.Join("/", d.Root, dropInDir, ownDropIn)
	}
	return filepath.Join("/", d.Root, runtimeDropInDir, ownDropIn)
}

// Start implements Services. What the programs say goes to files: a journal would keep it for the next cluster to read.
func (d Systemd) Start(ctx context.Context, s Service, args []string) error {
	log := filepath.Join(logDir, string(s)+".log")
	unit := "[Service]\nStandardOutput=append:" + log + "\nStandardError=append:" + log + "\n"
	if s == Kubelet {
		words := []string{unitWord(cmp.Or(d.Kubelet, "/usr/bin/kubelet"))}
		for _, arg := range args {
			words = append(words, unitWord(arg))
		}
		unit += "ExecStart=\nExecStart=" + strings.Join(words, " ") + "\n"
	}
	if err := os.MkdirAll(filepath.Dir(logOf(d.Root, s)), 0o750); err != nil { // systemd does not make it
		return err
	}
	if err := replaceFile(d.dropIn(s), []byte(unit), 0o644); err != nil {
		return err
	}
	if err := run(ctx, "systemctl", "daemon-reload"); err != nil {
		return err
	}
	return run(ctx, "systemctl", "enable", "--now", string(s)+".service")
}

// unitWord is a word of ExecStart: systemd expands % and $, and splits at blanks.
func unitWord(word string) string {
	word = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "$", "$$", "\n", `\n`).Replace(word)
	if word == "" || strings.ContainsAny(word, " \t'\"\\;") {
		return `"` + word + `"`
	}
	return word
}

// Stop implements Services. Containers outlive the units, so the unit's other processes are not ended here.
func (d Systemd) Stop(ctx context.Context, s Service) error {
	if err := run(ctx, "systemctl", "disable", "--now", string(s)+".service"); err != nil {
		return err
	}
	if err := os.Remove(d.dropIn(s)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return run(ctx, "systemctl", "daemon-reload")
}

// Runs implements Services.
func (Systemd) Runs(s Service) bool {
	return exec.Command("systemctl", "--quiet", "is-active", string(s)+".service").Run() == nil
}

// LastWords implements Services. A unit that systemd could not start at all has said nothing to its file.
func (d Systemd) LastWords(s Service) string {
	if words := tail(logOf(d.Root, s)); words != "" && words != "none" {
		return words
	}
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
	root := l.at("/sys/fs/cgroup")
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
			return fmt.Errorf("%d processes do not stop, such as %d", len(pids), pids[0])
		case <-time.After(20 * time.Millisecond):
		}
	}
}
