// Package store is shard.db: the few things a shard remembers over a restart.
//
// Two kinds of data live here and are treated differently. Control state (pauses, retired clusters, forgotten machines,
// the ownership view, reservations, the term mark, the done set) is written by Put and is on the disk when Put returns;
// the caller answers its client only then. Hints (the journal of open operations, poison hashes) are written by Hint,
// which returns at once; a crash may lose the last moments of them and nothing may depend on them.
//
// The content is small, so it is kept in memory, and the file is a log of what was written: frames of package wal, each with
// checksums. A damaged file is refused with what to do about it (SHARD-3.14).
//
// The package knows keys and bytes, never their meaning. Start at Open.
package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// FileName is the name of the database inside the data directory.
const FileName = "shard.db"

// LockName is the file whose lock makes a second process on one data directory fail to start (SHARD-3.4).
const LockName = "lock"

// hintEvery is how long hints wait to be written together. A hint lost in a crash costs one double purchase at most.
const hintEvery = 100 * time.Millisecond

// hintsMax bounds the hints waiting for the disk; above it the newest value per key is still kept, since hints coalesce
// by key, so only the number of distinct keys is bounded.
const hintsMax = 100_000

// Store is an open shard.db. Put and Load may be called from any goroutine; Run writes the hints.
type Store struct {
	// write is held over an append and over what its end does to the waiting hints. Otherwise a Put could come in between and
	// find no hint to forget, and the hint would then come back over it.
	write sync.Mutex
	file  file

	mu      sync.Mutex
	content content
	hints   map[place][]byte // nil value: delete
	dropped int64
	wake    chan struct{}
}

// place is where a value lies.
type place struct{ bucket, key string }

// content is all that is stored, by bucket and key.
type content map[string]map[string][]byte

func (c content) set(at place, value []byte) {
	if value == nil {
		delete(c[at.bucket], at.key)
		return
	}
	if c[at.bucket] == nil {
		c[at.bucket] = map[string][]byte{}
	}
	c[at.bucket][at.key] = bytes.Clone(value)
}

// Open opens or makes the database in dir. The caller holds the lock of the directory. The error of a damaged file is ErrDamaged.
func Open(dir string) (*Store, error) {
	s := &Store{hints: map[place][]byte{}, wake: make(chan struct{}, 1)}
	path := filepath.Join(dir, FileName)
	c, err := s.file.open(path)
	if errors.Is(err, ErrDamaged) {
		return nil, fmt.Errorf("%s: %w; %s", path, err, remedy)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s.content = c
	return s, nil
}

// Close writes the waiting hints and closes the database.
func (s *Store) Close() error {
	err := s.flush()
	return errors.Join(err, s.file.close())
}

// Put stores a value, or deletes the key when value is nil, and returns when that is on the disk. A hint of the key that
// waits is older, and is forgotten.
func (s *Store) Put(bucket, key string, value []byte) error {
	s.write.Lock()
	defer s.write.Unlock()
	at := place{bucket, key}
	older := s.take(at)
	err := s.commit(map[place][]byte{at: value})
	if err != nil {
		s.giveBack(older)
	}
	return err
}

// commit makes a batch durable and then part of the content. The caller holds write.
func (s *Store) commit(batch map[place][]byte) error {
	if err := s.file.append(batch, s.content); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for at, value := range batch {
		s.content.set(at, value)
	}
	return nil
}

// Load reads a whole bucket. A bucket that does not exist is empty.
func (s *Store) Load(bucket string) map[string][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string][]byte{}
	for k, v := range s.content[bucket] {
		out[k] = bytes.Clone(v)
	}
	return out
}

// Hint queues a value to be stored soon, or a delete when value is nil. It never blocks.
func (s *Store) Hint(bucket, key string, value []byte) {
	s.mu.Lock()
	k := place{bucket, key}
	if _, known := s.hints[k]; !known && len(s.hints) >= hintsMax {
		s.dropped++
	} else {
		s.hints[k] = value
	}
	s.mu.Unlock()
	s.wakeUp()
}

// Run writes hints until ctx ends. An error of the disk is returned; the caller starts Run again after a pause, and the
// hints that could not be written are tried again then.
func (s *Store) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.wake:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(hintEvery):
		}
		if err := s.flush(); err != nil {
			return err
		}
	}
}

// Flush writes the hints that wait.
func (s *Store) Flush() error { return s.flush() }

func (s *Store) flush() error {
	s.write.Lock()
	defer s.write.Unlock()
	batch := s.takeAll()
	if len(batch) == 0 {
		return nil
	}
	err := s.commit(batch)
	if err == nil {
		return nil
	}
	s.giveBack(batch)
	return fmt.Errorf("write hints to %s: %w", s.file.path, err)
}

// take takes the hint of one key out of those that wait.
func (s *Store) take(k place) map[place][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, waits := s.hints[k]
	if !waits {
		return nil
	}
	delete(s.hints, k)
	return map[place][]byte{k: v}
}

func (s *Store) takeAll() map[place][]byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.hints) == 0 {
		return nil
	}
	batch := s.hints
	s.hints = map[place][]byte{}
	return batch
}

// giveBack lets hints wait again that were not written. One that came meanwhile is newer and stays.
func (s *Store) giveBack(batch map[place][]byte) {
	if len(batch) == 0 {
		return
	}
	s.mu.Lock()
	for k, v := range batch {
		if _, newer := s.hints[k]; !newer {
			s.hints[k] = v
		}
	}
	s.mu.Unlock()
	s.wakeUp()
}

func (s *Store) wakeUp() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// EnsureDir makes the data directory and checks that it can be written, so that a read-only volume is one clear error
// at the start.
func EnsureDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("data directory: %w", err)
	}
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return fmt.Errorf("data directory %s cannot be written: %w", dir, err)
	}
	defer os.Remove(probe.Name())
	return probe.Close()
}
