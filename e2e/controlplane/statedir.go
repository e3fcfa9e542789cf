package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/bigfleet-dev/bigfleet/e2e/cache"
)

const (
	tempPrefix = "bigfleet-e2e-"
	ownerFile  = "owner.lock" // held by the process that owns the directory
)

// stateDir is the directory of one control plane.
type stateDir struct {
	path  string
	owner *os.File // locked; nil for a directory that the caller named
}

func newStateDir(c Config) (*stateDir, error) {
	if c.Dir != "" {
		return namedDir(c.Dir)
	}
	base := os.TempDir()
	if err := sweep(base); err != nil {
		return nil, err
	}
	return tempDir(base, c.Name)
}

func namedDir(dir string) (*stateDir, error) {
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(path, 0o755); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	if len(entries) > 0 {
		return nil, fmt.Errorf("%s is not empty; a control plane starts from nothing", path)
	}
	return &stateDir{path: path}, nil
}

// tempDir makes a directory that belongs to this process. It takes the lock before the directory gets the name that
// sweep looks for, so that no other process can mistake it for an abandoned one.
func tempDir(base, name string) (*stateDir, error) {
	unnamed, err := os.MkdirTemp(base, "."+tempPrefix)
	if err != nil {
		return nil, err
	}
	owner, err := os.OpenFile(filepath.Join(unnamed, ownerFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(unnamed))
	}
	suffix := strings.TrimPrefix(filepath.Base(unnamed), "."+tempPrefix)
	path := filepath.Join(base, tempPrefix+name+"-"+suffix)
	if err := errors.Join(cache.TryLock(owner), os.Rename(unnamed, path)); err != nil {
		return nil, errors.Join(err, owner.Close(), os.RemoveAll(unnamed))
	}
	return &stateDir{path: path, owner: owner}, nil
}

// sweep removes the directories of processes that died without Stop, such as a test that ran into its time limit.
func sweep(base string) error {
	locks, err := filepath.Glob(filepath.Join(base, tempPrefix+"*", ownerFile))
	if err != nil {
		return err
	}
	for _, lock := range locks {
		f, err := os.OpenFile(lock, os.O_RDWR, 0)
		if err != nil {
			continue // another user's, or gone by now
		}
		if cache.TryLock(f) == nil {
			err = os.RemoveAll(filepath.Dir(lock))
		}
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}

// close removes a temporary directory and keeps one that the caller named.
func (d *stateDir) close() error {
	if d.owner == nil {
		return nil
	}
	return errors.Join(os.RemoveAll(d.path), d.owner.Close())
}
