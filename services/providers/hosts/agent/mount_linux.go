package agent

import (
	"errors"

	"golang.org/x/sys/unix"
)

// unmount takes a mount away also while it is in use. One that is gone is not an error.
func unmount(point string) error {
	if err := unix.Unmount(point, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
