package store

import (
	"encoding/binary"
	"fmt"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
)

// Earlier builds kept the content in a file of bbolt, which has checksums on its first two pages only. Such a file is read once
// and replaced.

// legacyMagic stands behind the 16 bytes of the head of a bbolt file's first page.
const legacyMagic = 0xED0CDAED

func isLegacy(raw []byte) bool {
	return len(raw) >= 20 && binary.NativeEndian.Uint32(raw[16:]) == legacyMagic
}

// readLegacy reads a file of bbolt. Damage that makes bbolt panic or fault is an error.
func readLegacy(path string) (c content, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a file of an earlier build cannot be read: %v", p)
		}
	}()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, Timeout: 500 * time.Millisecond})
	if err != nil {
		return nil, err
	}
	defer func() { _ = db.Close() }()
	c = content{}
	err = db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(bucket []byte, b *bolt.Bucket) error {
			return b.ForEach(func(k, v []byte) error {
				c.set(place{string(bucket), string(k)}, append([]byte{}, v...))
				return nil
			})
		})
	})
	return c, err
}
