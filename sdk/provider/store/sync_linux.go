package store

import (
	"os"
	"syscall"
)

// datasync flushes what was written, and of what the file system knows about the file only what reading needs.
func datasync(f *os.File) error {
	for {
		if err := syscall.Fdatasync(int(f.Fd())); err != syscall.EINTR { //nolint:errorlint // a system call returns the number itself
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
