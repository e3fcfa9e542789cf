package proc

import (
	"runtime"
	"syscall"
)

// childAttributes gives the child a process group of its own and lets the kernel kill it when we die.
func childAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// lockThread ties the calling goroutine to its thread until unlock.
func lockThread() (unlock func()) {
	runtime.LockOSThread()
	return runtime.UnlockOSThread
}
