package store

import (
	"errors"
	"os"
	"syscall"

	berrors "go.etcd.io/bbolt/errors"
)

// ErrDamaged is what Open and Load return for a file that holds something else than what was written to it.
var ErrDamaged = errors.New("the checksum or the order of the stored data is wrong")

// ErrFull is what Commit returns when nothing but room is missing. The batch is not stored, and Commit may be called again.
var ErrFull = errors.New("there is not enough space")

// noRoom adds ErrFull to an error that says so.
func noRoom(err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return errors.Join(err, ErrFull)
	}
	return err
}

const afterDamage = "restore a copy, or move it and its logs away and start with --adopt-store to take the hosts over " +
	"(bindings come back from the hosts' marks)"

// known is what can be said about a cause. The causes stay within reach: errors.Is(err, syscall.ENOSPC) is true of a full disk.
var known = []struct {
	cause error
	says  string
}{
	{berrors.ErrTimeout, "is locked by another process: stop that provider, or give this one its own --state"},
	{ErrDamaged, "is damaged: " + afterDamage},
	{berrors.ErrInvalid, "is damaged or not a state file: " + afterDamage},
	{berrors.ErrChecksum, "is damaged or not a state file: " + afterDamage},
	{berrors.ErrVersionMismatch, "is damaged or not a state file: " + afterDamage},
	{syscall.ENOSPC, "cannot grow: the disk is full: free some space; a running provider then continues"},
	{syscall.EDQUOT, "cannot grow: the quota of the disk is used up: free some space; a running provider then continues"},
	{syscall.EROFS, "cannot be written: the file system is read-only: mount it writable, then start the provider again"},
	{syscall.EIO, "cannot be written or read: the disk reports an error: check the kernel's log, replace the disk, restore a copy"},
	{os.ErrPermission, "cannot be opened: give this user read and write access to it and its directory"},
}
