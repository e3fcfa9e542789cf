// Package cache is the directory in which the end-to-end harness keeps what is slow to build, and the lock that lets
// several processes share it.
//
// It owns two things: where the directory is (Root) and who may write an entry (Lock). An entry is written elsewhere
// first and renamed into place under its lock, so that a reader that finds it finds it whole. Nothing in here is
// needed for correctness: the directory can be deleted at any time when no test runs.
//
// It never stores state of a test run. The lock is flock(2), so it ends with the process that holds it; Linux and macOS
// are supported.
package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// Env names the environment variable that moves the cache.
const Env = "BIGFLEET_CACHE"

// lockPoll is how often a waiting process looks again. The work behind a lock takes seconds to minutes.
const lockPoll = 100 * time.Millisecond

// Root returns the absolute path of the cache directory: $BIGFLEET_CACHE, else "bigfleet" in the user's cache
// directory. It does not create it.
func Root() (string, error) {
	if dir := os.Getenv(Env); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no cache directory: %w; set %s to one", err, Env)
	}
	return filepath.Join(dir, "bigfleet"), nil
}

// Lock takes the exclusive lock that the file at path stands for, creating it if needed, and waits for it as long as
// ctx allows. Waiting, if not nil, is called once when somebody else holds the lock. The caller must call release.
func Lock(ctx context.Context, path string, waiting func()) (release func(), err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for first := true; ; first = false {
		err := TryLock(f)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, ErrLocked) {
			_ = f.Close()
			return nil, err
		}
		if first && waiting != nil {
			waiting()
		}
		select {
		case <-ctx.Done():
			_ = f.Close()
			return nil, fmt.Errorf("waiting for the lock %s: %w", path, context.Cause(ctx))
		case <-time.After(lockPoll):
		}
	}
}

// ErrLocked says that another process, or another open file of this one, holds the lock.
var ErrLocked = errors.New("locked by another process")

// TryLock takes the exclusive lock on f without waiting. Closing f releases it, as does the end of the process.
func TryLock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EWOULDBLOCK):
			return ErrLocked
		default:
			return &os.PathError{Op: "flock", Path: f.Name(), Err: err}
		}
	}
}
