package build

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// checkSpace refuses to begin a build that would run out of disk minutes later.
func (b *builder) checkSpace() error {
	for _, dir := range []string{b.cacheDir, b.goCache} {
		free, err := freeBytes(dir)
		if err != nil {
			return err
		}
		if free < b.bytesNeed {
			return fmt.Errorf("not enough disk: %s has %.1f GB free, a build needs %.1f GB there", dir, gigabytes(free), gigabytes(b.bytesNeed))
		}
	}
	return nil
}

// freeBytes returns what an unprivileged user may write at dir, or at its nearest parent that exists.
func freeBytes(dir string) (uint64, error) {
	for {
		var s syscall.Statfs_t
		err := syscall.Statfs(dir, &s)
		if err == nil {
			return uint64(s.Bavail) * uint64(s.Bsize), nil
		}
		parent := filepath.Dir(dir)
		if !errors.Is(err, fs.ErrNotExist) || parent == dir {
			return 0, &fs.PathError{Op: "statfs", Path: dir, Err: err}
		}
		dir = parent
	}
}

func gigabytes(bytes uint64) float64 { return float64(bytes) / (1 << 30) }
