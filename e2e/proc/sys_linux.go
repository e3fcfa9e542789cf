package proc

import (
	"os/exec"
	"runtime"
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
