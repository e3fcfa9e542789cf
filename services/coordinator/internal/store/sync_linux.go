package store

import (
	"os"
	"syscall"
)

// datasync waits until what was written is on the disk. Without fsync's update of times, a write inside the file needs no
// commit of the file system's journal.
func datasync(f *os.File) error {
	for {
		err := syscall.Fdatasync(int(f.Fd()))
		if err != syscall.EINTR {
			return os.NewSyscallError("fdatasync", err)
		}
	}
}
