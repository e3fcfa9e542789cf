//go:build unix && !linux

package proc

import "syscall"

// childAttributes gives the child a process group of its own. There is no parent-death signal on this system: a test
// that is killed leaves its children behind.
func childAttributes() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

func lockThread() (unlock func()) { return func() {} }
