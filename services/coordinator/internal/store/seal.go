package store

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/bigfleet-dev/bigfleet/sdk/wal"
)

// The snapshot store of package raft protects the state of a snapshot with a checksum, but not the metadata beside it: index, term
// and configuration. A seal is a file in the directory of the snapshot: one frame of package wal that repeats meta.json.
const (
	metaFile = "meta.json"
	sealFile = "meta.seal"
)

var sealFormat = wal.Format{BodyMax: 16 << 20}

// sealed is a raft.SnapshotStore whose snapshots have a seal.
type sealed struct {
	raft.SnapshotStore
	dir string // of the snapshots
}

func openSnapshots(root string, logger hclog.Logger) (raft.SnapshotStore, error) {
	files, err := raft.NewFileSnapshotStoreWithLogger(root, snapshotsKept, logger)
	if err != nil {
		return nil, err
	}
	return &sealed{files, filepath.Join(root, snapshotDir)}, nil
}

// Create implements raft.SnapshotStore.
func (s *sealed) Create(version raft.SnapshotVersion, index, term uint64, c raft.Configuration, configurationIndex uint64, t raft.Transport) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, c, configurationIndex, t)
	if err != nil {
		return nil, err
	}
	return &sealingSink{sink, filepath.Join(s.dir, sink.ID())}, nil
}

type sealingSink struct {
	raft.SnapshotSink
	path string
}

// Close implements io.Closer. A crash before the seal leaves a snapshot without one, which the next start seals.
func (s *sealingSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	return seal(s.path)
}

// seal writes the seal of a snapshot, whole or not at all.
func seal(path string) error {
	meta, err := os.ReadFile(filepath.Join(path, metaFile))
	if err != nil {
		return err
	}
	frame, err := sealFormat.Append(nil, nil, meta)
	if err != nil {
		return err
	}
	name := filepath.Join(path, sealFile)
	file, err := os.OpenFile(name+".tmp", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(frame)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	return errors.Join(os.Rename(name+".tmp", name), syncDir(path))
}

// checkMeta reads the metadata of a snapshot and compares it with its seal. It reports whether there is one.
func checkMeta(path string) (meta *raft.SnapshotMeta, isSealed bool, err error) {
	data, err := os.ReadFile(filepath.Join(path, metaFile))
	if err != nil {
		return nil, false, err
	}
	frame, err := os.ReadFile(filepath.Join(path, sealFile))
	switch {
	case err == nil:
		f, err := sealFormat.Parse(frame)
		if err != nil || f.Size != len(frame) {
			return nil, false, fmt.Errorf("%s is damaged", filepath.Join(path, sealFile))
		}
		if !bytes.Equal(f.Body, data) {
			return nil, false, fmt.Errorf("%s is damaged: it is not what %s says", filepath.Join(path, metaFile), sealFile)
		}
		isSealed = true
	case !errors.Is(err, os.ErrNotExist):
		return nil, false, err
	}
	meta = &raft.SnapshotMeta{}
	if err := json.Unmarshal(data, meta); err != nil {
		return nil, false, fmt.Errorf("%s: %w", filepath.Join(path, metaFile), err)
	}
	return meta, isSealed, nil
}

// checkSnapshot verifies one snapshot: its metadata against its seal, its name, its state and the log. A snapshot of an earlier
// build, and one that a crash left without a seal, gets one.
func (d *Dir) checkSnapshot(id string, check func(io.Reader) (uint64, error)) (uint64, error) {
	path := filepath.Join(d.Path, raftDir, snapshotDir, id)
	meta, isSealed, err := checkMeta(path)
	if err != nil {
		return 0, err
	}
	var term, index, at uint64
	if _, err := fmt.Sscanf(id, "%d-%d-%d", &term, &index, &at); err != nil || meta.ID != id || meta.Index != index || meta.Term != term {
		return 0, fmt.Errorf("%s is damaged: it names snapshot %s at index %d and term %d", filepath.Join(path, metaFile), meta.ID, meta.Index, meta.Term)
	}
	opened, state, err := d.Snapshots.Open(id) // verifies the CRC of the state file
	if err != nil {
		return 0, err
	}
	defer func() { _ = state.Close() }()
	within, err := check(state)
	if err != nil {
		return 0, err
	}
	if within > opened.Index {
		return 0, fmt.Errorf("the state is that of entry %d, but the metadata name entry %d", within, opened.Index)
	}
	var entry raft.Log
	if err := d.Log.GetLog(opened.Index, &entry); err == nil && entry.Term != opened.Term {
		return 0, fmt.Errorf("the metadata name term %d, but entry %d of the log has term %d", opened.Term, opened.Index, entry.Term)
	} else if err != nil && !errors.Is(err, raft.ErrLogNotFound) {
		return 0, err
	}
	if !isSealed {
		if err := seal(path); err != nil {
			return 0, err
		}
	}
	return opened.Index, nil
}
