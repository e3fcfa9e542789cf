package proc

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// Isolate gives cmd a process group of its own, out of reach of the signals that a terminal sends to ours, and has the
// kernel send s to it when this process dies (on Linux; elsewhere it then lives on). It ties the calling goroutine to
// its thread until release, because the kernel watches the thread that starts the child: start cmd and wait for it in
// between, on the same goroutine.
func Isolate(cmd *exec.Cmd, s syscall.Signal) (release func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: s}
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}

// runningInGroup describes one thread of the process group that is neither stopped nor at its end; "" means there is none.
func runningInGroup(group int) (string, error) {
	processes, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return "", err
	}
	for _, dir := range processes {
		if s, ok := readStat(dir + "/stat"); !ok || s.group != group {
			continue
		}
		threads, err := filepath.Glob(dir + "/task/[0-9]*/stat")
		if err != nil {
			return "", err
		}
		for _, path := range threads {
			if s, ok := readStat(path); ok && !strings.Contains("TtZX", s.state) {
				return fmt.Sprintf("thread %s of process %s is in state %s",
					filepath.Base(filepath.Dir(path)), filepath.Base(dir), s.state), nil
			}
		}
	}
	return "", nil
}

// processStat is part of a line of /proc/PID/stat.
type processStat struct {
	state string // one letter; T and t are stopped, Z and X have ended
	group int
}

// readStat reads a stat file; !ok means that what it described is gone.
func readStat(path string) (s processStat, ok bool) {
	line, err := os.ReadFile(path)
	if err != nil {
		return s, false
	}
	fields := strings.Fields(string(line[strings.LastIndexByte(string(line), ')')+1:])) // the name before may hold spaces
	if len(fields) < 3 {
		return s, false
	}
	s.state = fields[0]
	s.group, err = strconv.Atoi(fields[2])
	return s, err == nil
}
