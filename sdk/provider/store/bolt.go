package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// lockWait is how long Open waits for another process to let go of the file: long enough for a predecessor that is just
// exiting, short enough that a person sees the sentence.
const lockWait = 2 * time.Second

// What the base says about its log. The bucket is no Table: nobody above this package sees it.
var (
	logBucket  = []byte("log")
	keyLogID   = []byte("id")      // 8 bytes, drawn when the file is first opened; every frame carries it
	keyApplied = []byte("applied") // number of the newest batch that is wholly in the tables
)

// base is the bbolt file: everything up to a batch of the log.
type base struct {
	db      *bbolt.DB
	file    string
	id      uint64
	applied uint64
	bytes   atomic.Int64
}

// openBase opens or creates the file. fresh is the id that a log gets that has none yet; hadID says whether there was one.
func openBase(file string, fresh uint64, fast bool) (_ *base, hadID bool, err error) {
	defer recovered(file, debug.SetPanicOnFault(true), &err)
	// The free list is written with each commit, although that costs a page: rebuilding it at open walks the file in a
	// goroutine of bbolt's own, where a damaged page ends the process instead of giving an error.
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType, NoSync: fast, NoGrowSync: fast})
	if err != nil {
		return nil, false, explain(file, err)
	}
	b := &base{db: db, file: file}
	err = db.View(func(tx *bbolt.Tx) error { hadID, err = b.about(tx); return err })
	if err == nil && !hadID {
		b.id = fresh
		err = db.Update(b.begin)
	}
	if err != nil {
		_ = db.Close() // the first error is the one that matters
		return nil, false, explain(file, err)
	}
	b.measure()
	return b, hadID, nil
}

// about reads what the base says about its log.
func (b *base) about(tx *bbolt.Tx) (bool, error) {
	log := tx.Bucket(logBucket)
	if log == nil {
		return false, nil
	}
	id, applied := log.Get(keyLogID), log.Get(keyApplied)
	if len(id) != 8 || len(applied) != 8 {
		return false, berrors.ErrInvalid
	}
	b.id, b.applied = binary.BigEndian.Uint64(id), binary.BigEndian.Uint64(applied)
	return true, nil
}

// begin makes what is missing in a file that is new or of a build without logs.
func (b *base) begin(tx *bbolt.Tx) error {
	for _, t := range Tables() {
		if _, err := tx.CreateBucketIfNotExists([]byte(t.String())); err != nil {
			return err
		}
	}
	log, err := tx.CreateBucket(logBucket)
	if err != nil {
		return err
	}
	if err := log.Put(keyLogID, binary.BigEndian.AppendUint64(nil, b.id)); err != nil {
		return err
	}
	return log.Put(keyApplied, make([]byte, 8))
}

// write applies the writes in one transaction; applied, unless 0, becomes the number of the newest batch in the tables.
func (b *base) write(writes []Write, applied uint64) (err error) {
	defer recovered(b.file, debug.SetPanicOnFault(true), &err)
	err = b.db.Update(func(tx *bbolt.Tx) error {
		for _, w := range writes {
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
		if applied == 0 {
			return nil
		}
		return tx.Bucket(logBucket).Put(keyApplied, binary.BigEndian.AppendUint64(nil, applied))
	})
	if err != nil {
		return explain(b.file, err)
	}
	if applied != 0 {
		b.applied = applied
	}
	b.measure()
	return nil
}

func (b *base) load(visit func(t Table, key, value []byte) error) (err error) {
	defer recovered(b.file, debug.SetPanicOnFault(true), &err)
	return b.db.View(func(tx *bbolt.Tx) error {
		for _, t := range Tables() {
			bucket := tx.Bucket([]byte(t.String()))
			if bucket == nil {
				return explain(b.file, fmt.Errorf("table %s is missing", t))
			}
			if err := bucket.ForEach(func(k, v []byte) error { return visit(t, k, v) }); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *base) measure() {
	if info, err := os.Stat(b.file); err == nil {
		b.bytes.Store(info.Size())
	}
}

// recovered turns a panic into an error: bbolt panics on pages it cannot make sense of, and reading the map of a file that
// was cut short faults, which SetPanicOnFault turns into a panic. before is the setting to go back to.
func recovered(file string, before bool, err *error) {
	debug.SetPanicOnFault(before)
	if p := recover(); p != nil {
		*err = fmt.Errorf("%w: %v", explain(file, berrors.ErrInvalid), p)
	}
}

// explain turns what the disk and bbolt say into a sentence with the file and the way out (PROV-12.8). What it wraps stays
// within reach of errors.Is.
func explain(file string, err error) error {
	for _, k := range known {
		if errors.Is(err, k.cause) {
			return fmt.Errorf("state file %s %s: %w", file, k.says, err)
		}
	}
	return fmt.Errorf("state file %s: %w", file, err)
}
