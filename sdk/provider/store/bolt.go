package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// lockWait is how long Open waits for another process to let go of the file: long enough for a predecessor that is just
// exiting, short enough that a person sees the sentence.
const lockWait = 2 * time.Second

// Open opens or creates the bbolt file. Every Commit is on disk when it returns.
func Open(file string) (_ Store, err error) {
	defer recovered(file, debug.SetPanicOnFault(true), &err)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("state file %s: make its directory: %w", file, err)
	}
	// The free list is written with each commit, although that costs a page: rebuilding it at open walks the file in a
	// goroutine of bbolt's own, where a damaged page ends the process instead of giving an error.
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType})
	if err != nil {
		return nil, explain(file, err)
	}
	s := &bolt{db: db, file: file}
	if err := db.Update(func(tx *bbolt.Tx) error {
		for _, t := range Tables() {
			if _, err := tx.CreateBucketIfNotExists([]byte(t.String())); err != nil {
				return err
			}
		}
		s.bytes.Store(tx.Size())
		return nil
	}); err != nil {
		_ = db.Close() // the first error is the one that matters
		return nil, explain(file, err)
	}
	return s, nil
}

type bolt struct {
	db    *bbolt.DB
	file  string
	bytes atomic.Int64
}

func (s *bolt) Load(visit func(t Table, key, value []byte) error) (err error) {
	defer recovered(s.file, debug.SetPanicOnFault(true), &err)
	return s.db.View(func(tx *bbolt.Tx) error {
		for _, t := range Tables() {
			bucket := tx.Bucket([]byte(t.String()))
			if bucket == nil {
				return explain(s.file, fmt.Errorf("table %s is missing", t))
			}
			if err := bucket.ForEach(func(k, v []byte) error { return visit(t, k, v) }); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *bolt) Commit(batch []Write) (err error) {
	defer recovered(s.file, debug.SetPanicOnFault(true), &err)
	return s.db.Update(func(tx *bbolt.Tx) error {
		for _, w := range batch {
			bucket := tx.Bucket([]byte(w.Table.String()))
			var err error
			if w.Value == nil {
				err = bucket.Delete(w.Key)
			} else {
				err = bucket.Put(w.Key, w.Value)
			}
			if err != nil {
				return fmt.Errorf("table %s: %w", w.Table, err)
			}
		}
		s.bytes.Store(tx.Size())
		return nil
	})
}

func (s *bolt) Bytes() int64     { return s.bytes.Load() }
func (s *bolt) Describe() string { return s.file }
func (s *bolt) Durable() bool    { return true }
func (s *bolt) Close() error     { return s.db.Close() }

// explain turns what bbolt says into a sentence with the file and the way out (PROV-12.8).
func explain(file string, err error) error {
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return fmt.Errorf("state file %s is locked by another process: stop that provider, or give this one its own --state: %w", file, err)
	case errors.Is(err, berrors.ErrInvalid), errors.Is(err, berrors.ErrChecksum), errors.Is(err, berrors.ErrVersionMismatch):
		return fmt.Errorf("state file %s is damaged or not a state file: restore a copy, or move it away and start with "+
			"--adopt-store to take the hosts over (bindings come back from the hosts' marks): %w", file, err)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("state file %s cannot be opened: give this user read and write access: %w", file, err)
	}
	return fmt.Errorf("state file %s: %w", file, err)
}

// recovered turns a panic into an error: bbolt panics on pages it cannot make sense of, and reading the map of a file that
// was cut short faults, which SetPanicOnFault turns into a panic. before is the setting to go back to.
func recovered(file string, before bool, err *error) {
	debug.SetPanicOnFault(before)
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", explain(file, berrors.ErrInvalid), p)
	}
}
