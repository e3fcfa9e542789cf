package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"github.com/bigfleet-dev/bigfleet/sdk/wal"
)

// The file is a magic line and frames of package wal. Metadata: kind 1, number 8, big endian. A batch has the number after the one
// before it, and a body of writes: length of the bucket, bucket, length of the key, key, 0 for a deletion or 1 + length of the
// value, value. Behind each batch stands a seal with its number, which says that the batch was acknowledged: damage of the
// newest batch is so distinguished from a batch that a crash cut off.
const (
	magic     = "bigfleet shard state 1\n"
	kindBatch = 1
	kindSeal  = 2
	metaBytes = 1 + 8

	// batchBytes is about how much one frame of a rewritten file holds.
	batchBytes = 1 << 20
	// slackBytes is what a file may hold beside its content before it is rewritten.
	slackBytes = 4 << 20
)

var format = wal.Format{BodyMax: 256 << 20}

// ErrDamaged is the error of a file that is not what was written.
var ErrDamaged = errors.New("the file is damaged")

const remedy = "restore a copy of it, or move it away. Without it the shard forgets pauses, dry run, retired clusters, forgotten machines and what the coordinator " +
	"assigned, so set --actuation-paused if a pause was in force; machines and bindings are read from the providers again"

// file is shard.db on the disk.
type file struct {
	path   string
	f      *os.File
	end    int64  // bytes of whole frames
	base   int64  // end when the file was rewritten last
	number uint64 // of the newest batch
	broken bool   // what stands in the file is not certain; it is rewritten before the next batch
}

// open reads the file, or makes an empty one.
func (f *file) open(path string) (content, error) {
	f.path = path
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return content{}, f.rewrite(content{})
	}
	if err != nil {
		return nil, err
	}
	if isLegacy(raw) {
		c, err := readLegacy(path)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		return c, f.rewrite(c)
	}
	c, err := f.parse(raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if f.f, err = os.OpenFile(path, os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	f.base = f.end
	return c, f.f.Truncate(f.end)
}

// parse reads whole frames up to the end, or up to a batch that a crash cut off.
func (f *file) parse(b []byte) (content, error) {
	if !bytes.HasPrefix(b, []byte(magic)) {
		return nil, errors.New("the file does not begin as the state of a shard of this build")
	}
	c, at, sealed := content{}, len(magic), uint64(0)
	for at < len(b) {
		frame, err := format.Parse(b[at:])
		if err != nil {
			if next := frameBehind(b[at+1:]); next >= 0 {
				return nil, fmt.Errorf("at byte %d: %w, and complete data follows it", at, err)
			}
			break
		}
		if len(frame.Meta) != metaBytes {
			return nil, fmt.Errorf("at byte %d: a frame cannot have %d bytes of metadata", at, len(frame.Meta))
		}
		number := binary.BigEndian.Uint64(frame.Meta[1:])
		switch {
		case frame.Meta[0] == kindSeal && number == f.number:
			sealed = number
		case frame.Meta[0] == kindBatch && number == f.number+1:
			if err := readWrites(frame.Body, c); err != nil {
				return nil, fmt.Errorf("at byte %d: %w", at, err)
			}
			f.number = number
		default:
			return nil, fmt.Errorf("at byte %d: frame %d of kind %d follows batch %d", at, number, frame.Meta[0], f.number)
		}
		at += frame.Size
	}
	if sealed == 0 {
		return nil, errors.New("the file has no acknowledged content")
	}
	f.end = int64(at)
	return c, nil
}

// frameBehind is where the next readable frame begins, or -1.
func frameBehind(b []byte) int {
	mark := []byte{0xBF, 0x01}
	for at := 0; ; at++ {
		next := bytes.Index(b[at:], mark)
		if next < 0 {
			return -1
		}
		at += next
		if f, err := format.Parse(b[at:]); err == nil && len(f.Meta) == metaBytes {
			return at
		}
	}
}

// append makes a batch durable. all is the content before it.
func (f *file) append(batch map[place][]byte, all content) error {
	if f.broken || f.end > 2*f.base+slackBytes {
		if err := f.rewrite(all); err != nil {
			return err
		}
	}
	body, err := encodeWrites(batch)
	if err != nil {
		return err
	}
	b, err := appendFrame(nil, kindBatch, f.number+1, body)
	if err != nil {
		return fmt.Errorf("%w: it cannot be stored in %s", err, f.path)
	}
	if _, err := f.f.WriteAt(b, f.end); err != nil {
		f.broken = f.f.Truncate(f.end) != nil
		return err
	}
	if err := f.f.Sync(); err != nil { // what of it is on the disk is unknown
		f.broken = true
		return err
	}
	f.number++
	f.end += int64(len(b))
	f.seal()
	return nil
}

// seal says behind the newest batch that it was acknowledged. It needs no flush of its own: without it, a damaged newest batch is
// taken for one that was cut off.
func (f *file) seal() {
	b, err := appendFrame(nil, kindSeal, f.number, nil)
	if err == nil {
		_, err = f.f.WriteAt(b, f.end)
	}
	if err != nil {
		_ = f.f.Truncate(f.end)
		return
	}
	f.end += int64(len(b))
}

// rewrite replaces the file by one that holds the content and nothing else, as a whole or not at all.
func (f *file) rewrite(c content) error {
	b, number, err := encodeContent(c)
	if err != nil {
		return err
	}
	tmp, err := os.OpenFile(f.path+".tmp", os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if err == nil {
		err = tmp.Sync()
	}
	if err == nil {
		err = os.Rename(f.path+".tmp", f.path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(f.path))
	}
	if err != nil {
		_ = tmp.Close()
		_ = os.Remove(f.path + ".tmp")
		return err
	}
	if f.f != nil {
		_ = f.f.Close()
	}
	f.f, f.end, f.base, f.number, f.broken = tmp, int64(len(b)), int64(len(b)), number, false
	return nil
}

func (f *file) close() error {
	if f.f == nil {
		return nil
	}
	return f.f.Close()
}

// encodeContent is a whole file with a content, and the number of its newest batch.
func encodeContent(c content) (b []byte, number uint64, err error) {
	b = []byte(magic)
	batch, size := map[place][]byte{}, 0
	end := func() error {
		body, err := encodeWrites(batch)
		if err == nil {
			number++
			b, err = appendFrame(b, kindBatch, number, body)
		}
		clear(batch)
		size = 0
		return err
	}
	for _, bucket := range slices.Sorted(maps.Keys(c)) {
		for _, key := range slices.Sorted(maps.Keys(c[bucket])) {
			batch[place{bucket, key}] = c[bucket][key]
			if size += len(bucket) + len(key) + len(c[bucket][key]); size < batchBytes {
				continue
			}
			if err := end(); err != nil {
				return nil, 0, err
			}
		}
	}
	if err := end(); err != nil {
		return nil, 0, err
	}
	b, err = appendFrame(b, kindSeal, number, nil)
	return b, number, err
}

func appendFrame(b []byte, kind byte, number uint64, body []byte) ([]byte, error) {
	return format.Append(b, binary.BigEndian.AppendUint64([]byte{kind}, number), body)
}

// encodeWrites is the body of a batch.
func encodeWrites(batch map[place][]byte) (b []byte, err error) {
	text := func(s string) {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	for at, value := range batch {
		if at.bucket == "" || at.key == "" {
			return nil, errors.New("a value without bucket or key cannot be stored")
		}
		text(at.bucket)
		text(at.key)
		if value == nil {
			b = append(b, 0)
			continue
		}
		b = append(binary.AppendUvarint(b, uint64(len(value))+1), value...)
	}
	return b, nil
}

// readWrites applies the body of a batch.
func readWrites(b []byte, to content) error {
	ok := true
	number := func() uint64 {
		n, size := binary.Uvarint(b)
		if size <= 0 {
			ok = false
			return 0
		}
		b = b[size:]
		return n
	}
	part := func(n uint64) []byte {
		if ok = ok && n <= uint64(len(b)); !ok {
			return nil
		}
		out := b[:n:n]
		b = b[n:]
		return out
	}
	for len(b) > 0 {
		at := place{bucket: string(part(number())), key: string(part(number()))}
		var value []byte
		if n := number(); n > 0 {
			value = part(n - 1)
		}
		if !ok {
			return errors.New("a write is cut off within its batch")
		}
		to.set(at, value)
	}
	return nil
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return d.Sync()
}
