//go:build unix && !linux

package proc

import (
	"os/exec"
	"syscall"
)

// Isolate gives cmd a process group of its own, out of reach of the signals that a terminal sends to ours. There is no
// parent-death signal on this system: when this process is killed, cmd lives on. Start cmd and wait for it before
// release, on the same goroutine.
func Isolate(cmd *exec.Cmd, _ syscall.Signal) (release func()) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return func() {}
}
