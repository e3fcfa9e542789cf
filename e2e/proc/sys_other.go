//go:build unix && !linux

package proc

import (
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// Isolate gives cmd a process group of its own, out of reach of the signals that a terminal sends to ours. There is no
// parent-death signal on this system: when this process is killed, cmd lives on. Start cmd and wait for it before
// release, on the same goroutine.
func Isolate(cmd *exec.Cmd, _ syscall.Signal) (release func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func() {}
}

// runningInGroup describes one process of the process group that is neither stopped nor at its end; "" means there is none.
// ps is what macOS and the BSDs have in place of /proc: it tells of whole processes.
func runningInGroup(group int) (string, error) {
	out, err := exec.Command("ps", "-A", "-o", "pgid=,pid=,state=").Output()
	if err != nil {
		return "", fmt.Errorf("ps: %w", err)
	}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) == 3 && f[0] == strconv.Itoa(group) && !strings.ContainsAny(f[2][:1], "TZ") {
			return fmt.Sprintf("process %s is in state %s", f[1], f[2]), nil
		}
	}
	return "", nil
}
