package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Restored is what an offline restore puts on disk.
type Restored struct {
	Index, Term   uint64
	Configuration raft.Configuration
	// ClusterUUID is the new identity of the group.
	ClusterUUID string
	// State writes the state.
	State func(io.Writer) error
	// At names the old directory.
	At time.Time
}

// ClusterUUIDKey is where the stable store keeps the identity of the group: outside of the replicated state, because a
// replica must know whom it may talk to before it has applied anything (COORD-13.10).
const ClusterUUIDKey = "BigfleetClusterUUID"

// Restore replaces the stores of a data directory that the caller has locked (COORD-15.8). New stores are built beside
// the old ones and renamed in; the old ones stay under raft.before-restore-<time>. A crash at any point leaves either
// the old or the new stores whole: the next start finishes what was begun.
func Restore(dir string, r Restored, logger hclog.Logger) (old string, err error) {
	if r.Index == 0 {
		return "", errors.New("a snapshot at index 0 holds nothing to restore")
	}
	if err := finishRestore(dir); err != nil {
		return "", err
	}
	tmp := filepath.Join(dir, restoreTmp)
	if err := os.RemoveAll(tmp); err != nil {
		return "", err
	}
	if err := build(tmp, r, logger); err != nil {
		return "", fmt.Errorf("building the new stores in %s: %w", tmp, err)
	}
	root := filepath.Join(dir, raftDir)
	if _, err := os.Stat(root); err == nil {
		old = filepath.Join(dir, raftDir+".before-restore-"+r.At.UTC().Format("20060102-150405"))
		for n := 2; exists(old); n++ {
			old = filepath.Join(dir, raftDir+".before-restore-"+r.At.UTC().Format("20060102-150405")+"-"+strconv.Itoa(n))
		}
		if err := errors.Join(os.Rename(root, old), syncDir(dir)); err != nil {
			return "", err
		}
	}
	return old, finishRestore(dir)
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// finishRestore renames complete new stores in, if there are no others. Stores that were not completed are of no use.
func finishRestore(dir string) error {
	tmp, root := filepath.Join(dir, restoreTmp), filepath.Join(dir, raftDir)
	if exists(root) || !exists(filepath.Join(tmp, restoreReady)) {
		return nil
	}
	return errors.Join(os.Rename(tmp, root), syncDir(dir), os.Remove(filepath.Join(root, restoreReady)))
}

// build writes the stores of one replica: no log, the term and identity, one snapshot.
func build(tmp string, r Restored, logger hclog.Logger) error {
	if err := os.MkdirAll(filepath.Join(tmp, snapshotDir), 0o700); err != nil {
		return err
	}
	log, err := OpenLog(filepath.Join(tmp, logDir), LogOptions{})
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	stable, err := OpenStable(filepath.Join(tmp, stableFile), nil)
	if err != nil {
		return err
	}
	if err := errors.Join(stable.SetUint64([]byte("CurrentTerm"), r.Term), stable.Set([]byte(ClusterUUIDKey), []byte(r.ClusterUUID)), stable.Close()); err != nil {
		return err
	}
	snapshots, err := openSnapshots(tmp, logger)
	if err != nil {
		return err
	}
	sink, err := snapshots.Create(raft.SnapshotVersionMax, r.Index, r.Term, r.Configuration, r.Index, nameCodec{})
	if err != nil {
		return err
	}
	if err := r.State(sink); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	if err := sink.Close(); err != nil {
		return err
	}
	ready, err := os.OpenFile(filepath.Join(tmp, restoreReady), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(ready.Sync(), ready.Close(), syncDir(tmp))
}

// nameCodec is the part of a raft.Transport that the snapshot store needs: names stand as they are.
type nameCodec struct{ raft.Transport }

func (nameCodec) EncodePeer(_ raft.ServerID, addr raft.ServerAddress) []byte { return []byte(addr) }
