package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
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

// The bucket is no Table: it is private to this package.
var (
	logBucket = []byte("log")
	keyHead   = []byte("head")
	// Builds before the digest kept these two instead of a head.
	keyLogID   = []byte("id")
	keyApplied = []byte("applied")
)

// base is the bbolt file: everything up to a batch of the log.
type base struct {
	head
	db    *bbolt.DB
	file  string
	bytes atomic.Int64
}

// openBase verifies and opens the file, or creates it. fresh is the id that a log gets that has none yet; hadID says whether there
// was one.
func openBase(file string, fresh uint64, fast bool) (_ *base, hadID bool, err error) {
	defer recovered(file, debug.SetPanicOnFault(true), &err)
	b := &base{file: file}
	upToDate, err := b.verify()
	if err != nil {
		return nil, false, explain(file, err)
	}
	// The free list is written with each commit, although that costs a page: rebuilding it at open walks the file in a
	// goroutine of bbolt's own, where a damaged page ends the process instead of giving an error.
	if b.db, err = bbolt.Open(file, 0o600, &bbolt.Options{Timeout: lockWait, FreelistType: bbolt.FreelistMapType, NoSync: fast, NoGrowSync: fast}); err != nil {
		return nil, false, explain(file, err)
	}
	if hadID = b.id != 0; !hadID {
		b.id = fresh
	}
	if !upToDate {
		if err = b.db.Update(b.begin); err == nil {
			err = b.mirror()
		}
	}
	if err != nil {
		_ = b.db.Close() // the first error is the one that matters
		return nil, false, explain(file, err)
	}
	b.measure()
	return b, hadID, nil
}

// verify reads an existing file whole and compares it with its digest (PROV-16.8). upToDate is false for one that is new or of a
// build without a digest.
func (b *base) verify() (upToDate bool, err error) {
	info, err := os.Stat(b.file)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// For its lock: another process must not write meanwhile. Read-only, bbolt reads nothing but the meta pages.
	locked, err := bbolt.Open(b.file, 0o600, &bbolt.Options{Timeout: lockWait, ReadOnly: true})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, locked.Close()) }()
	found, stored := digest{}, (*head)(nil)
	err = verify(b.file, func(bucket string, key, value []byte) error {
		for _, t := range Tables() {
			if t.String() == bucket {
				found.add(t, key, value)
				return nil
			}
		}
		h, ok := decodeHead(value)
		switch {
		case bucket != string(logBucket):
		case bytes.Equal(key, keyHead) && ok:
			stored = &h
			return nil
		case bytes.Equal(key, keyLogID) && len(value) == 8:
			b.id = binary.BigEndian.Uint64(value)
			return nil
		case bytes.Equal(key, keyApplied) && len(value) == 8:
			b.applied = binary.BigEndian.Uint64(value)
			return nil
		}
		return damaged("key %.20q of table %.20q", key, bucket)
	})
	switch {
	case err != nil:
		return false, err
	case stored == nil:
		b.digest = found
		return false, nil
	case stored.digest != found:
		return false, damaged("%d entries with the digest %x instead of %d with %x", found.entries, found.sum, stored.digest.entries, stored.digest.sum)
	}
	b.head = *stored
	return true, nil
}

// begin makes what is missing in a file that is new or of an older build.
func (b *base) begin(tx *bbolt.Tx) error {
	for _, t := range Tables() {
		if _, err := tx.CreateBucketIfNotExists([]byte(t.String())); err != nil {
			return err
		}
	}
	log, err := tx.CreateBucketIfNotExists(logBucket)
	if err != nil {
		return err
	}
	return errors.Join(log.Delete(keyLogID), log.Delete(keyApplied), log.Put(keyHead, b.encode()))
}

// mirror writes the head again. bbolt has two meta pages and takes the older one when the newer is damaged; after this both lead
// to the same content.
func (b *base) mirror() error {
	return b.db.Update(func(tx *bbolt.Tx) error { return tx.Bucket(logBucket).Put(keyHead, b.encode()) })
}

// write applies the writes in one transaction; applied, unless 0, becomes the number of the newest batch in the tables.
func (b *base) write(writes []Write, applied uint64) (err error) {
	defer recovered(b.file, debug.SetPanicOnFault(true), &err)
	var next head
	err = b.db.Update(func(tx *bbolt.Tx) error {
		// Not from memory: a transaction that failed at its very end may be there.
		stored, ok := decodeHead(tx.Bucket(logBucket).Get(keyHead))
		if !ok {
			return damaged("the head")
		}
		next = stored
		for _, w := range writes {
			bucket := tx.Bucket([]byte(w.Table.String()))
			if old := bucket.Get(w.Key); old != nil {
				next.digest.remove(w.Table, w.Key, old)
			}
			var err error
			if w.Value == nil {
				err = bucket.Delete(w.Key)
			} else {
				next.digest.add(w.Table, w.Key, w.Value)
				err = bucket.Put(w.Key, w.Value)
			}
			if err != nil {
				return fmt.Errorf("table %s: %w", w.Table, err)
			}
		}
		if applied != 0 {
			next.applied = applied
		}
		return tx.Bucket(logBucket).Put(keyHead, next.encode())
	})
	if err == nil {
		b.head = next
		if applied != 0 {
			err = b.mirror()
		}
	}
	if err != nil {
		return explain(b.file, err)
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
