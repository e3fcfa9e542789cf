package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

const (
	raftDir      = "raft"
	logDir       = "log"
	stableFile   = "stable"
	snapshotDir  = "snapshots"
	lockFile     = "lock"
	restoreTmp   = "raft.restore-tmp"
	restoreReady = "complete" // in restoreTmp: everything in it is on disk
	// snapshotsKept is how many FSM snapshots stay on disk (COORD-2).
	snapshotsKept = 2
)

// Options of Open.
type Options struct {
	// CheckState reads the state of a snapshot, reports whether it is whole and returns its log index. Required.
	CheckState func(io.Reader) (index uint64, err error)
	// Logger gets the lines of the snapshot store. Required.
	Logger hclog.Logger
	// OnFailure hears of the first write that failed: the replica must stop (COORD-5.2).
	OnFailure func(error)
	// OnSync hears how long each fsync of an append took.
	OnSync func(time.Duration)
	// BeforeSync is called before each fsync of the log and of the votes; may be nil.
	BeforeSync func()
}

// sync is an fsync.
func (o *Options) sync(f *os.File) error {
	if o.BeforeSync != nil {
		o.BeforeSync()
	}
	return datasync(f)
}

// Dir is a replica's data directory, locked for the life of the process.
type Dir struct {
	Path      string
	Log       *Log
	Stable    *Stable
	Snapshots raft.SnapshotStore

	lock *os.File
}

// ErrLocked means that another process runs on the directory.
var ErrLocked = errors.New("another coordinator runs on this data directory")

// Lock takes the lock of a data directory, which it makes if need be. Close the file to release it.
func Lock(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return file, nil
}

// Open locks and opens a data directory. Every file is checked first; damage is an error that names the file and the
// ways out, and never an empty start (COORD-5.3).
func Open(dir string, o Options) (*Dir, error) {
	lock, err := Lock(dir)
	if err != nil {
		return nil, err
	}
	d := &Dir{Path: dir, lock: lock}
	if err := d.open(o); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// waysOut is what a person can do about damage.
const waysOut = "start this replica with an empty data directory so that it joins the others again, or restore a snapshot if there are no others"

// keepIt is what a person can do about a disk that takes nothing: the files are whole, and must not be given up.
const keepIt = "nothing is damaged: keep the data directory, make it writable or make room on its disk, and start the replica again"

// withRemedy adds to why a directory cannot be opened what can be done.
func withRemedy(err error) error {
	for _, refused := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG, syscall.EROFS, syscall.EACCES, syscall.EPERM, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM} {
		if errors.Is(err, refused) {
			return fmt.Errorf("%w; %s", err, keepIt)
		}
	}
	return fmt.Errorf("%w; %s", err, waysOut)
}

func (d *Dir) open(o Options) error {
	if err := finishRestore(d.Path); err != nil {
		return err
	}
	root := filepath.Join(d.Path, raftDir)
	if err := whole(root); err != nil {
		return withRemedy(err)
	}
	if err := os.MkdirAll(filepath.Join(root, snapshotDir), 0o700); err != nil {
		return err
	}
	var err error
	if d.Log, err = OpenLog(filepath.Join(root, logDir), LogOptions{OnFailure: o.OnFailure, OnSync: o.OnSync, sync: o.sync}); err != nil {
		return withRemedy(err)
	}
	if d.Snapshots, err = openSnapshots(root, o.Logger); err != nil {
		return err
	}
	if err := d.checkSnapshots(root, o.CheckState); err != nil {
		return withRemedy(err)
	}
	// Last: its presence says that the other stores were begun.
	if d.Stable, err = OpenStable(filepath.Join(root, stableFile), o.OnFailure); err == nil {
		d.Stable.sync = o.sync
	} else {
		return withRemedy(err)
	}
	return syncDir(d.Path)
}

// whole reports a directory from which a part is missing.
func whole(root string) error {
	has := func(name ...string) bool {
		_, err := os.Stat(filepath.Join(append([]string{root}, name...)...))
		return err == nil
	}
	switch {
	case has(stableFile) && !has(logDir, markFile):
		return fmt.Errorf("%s is missing", filepath.Join(root, logDir, markFile))
	case has(stableFile):
		return nil
	case hasEntries(filepath.Join(root, snapshotDir)), hasSegments(filepath.Join(root, logDir)):
		return fmt.Errorf("%s is missing", filepath.Join(root, stableFile))
	}
	return nil
}

func hasEntries(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err == nil && len(entries) > 0
}

func hasSegments(dir string) bool {
	names, _ := filepath.Glob(filepath.Join(dir, "*.seg"))
	return len(names) > 0
}

// checkSnapshots reads every snapshot. Raft would fall back to an older one without a word, and the entries between
// the two may be compacted away already.
func (d *Dir) checkSnapshots(root string, check func(io.Reader) (uint64, error)) error {
	entries, err := os.ReadDir(filepath.Join(root, snapshotDir))
	if err != nil {
		return err
	}
	newest := uint64(0)
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".tmp") {
			continue // one that a crash cut short; Raft removes it
		}
		index, err := d.checkSnapshot(e.Name(), check)
		if err != nil {
			return fmt.Errorf("snapshot %s: %w", filepath.Join(root, snapshotDir, e.Name()), err)
		}
		newest = max(newest, index)
	}
	first, err := d.Log.FirstIndex()
	if err != nil {
		return err
	}
	if first > newest+1 {
		return fmt.Errorf("the log in %s begins with entry %d and the newest snapshot ends with entry %d", filepath.Join(root, logDir), first, newest)
	}
	return nil
}

// HasState reports whether Raft ever wrote anything here.
func (d *Dir) HasState() (bool, error) { return raft.HasExistingState(d.Log, d.Stable, d.Snapshots) }

// Bytes is the size of everything in the directory.
func (d *Dir) Bytes() int64 {
	var sum int64
	_ = filepath.WalkDir(d.Path, func(_ string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			if info, err := e.Info(); err == nil {
				sum += info.Size()
			}
		}
		return nil // a file that went away meanwhile does not count
	})
	return sum
}

// Close closes the stores and releases the lock.
func (d *Dir) Close() error {
	var errs []error
	if d.Log != nil {
		errs = append(errs, d.Log.Close())
	}
	if d.Stable != nil {
		errs = append(errs, d.Stable.Close())
	}
	return errors.Join(append(errs, d.lock.Close())...)
}
