package store

import (
	"os"
	"path/filepath"
	"slices"
)

// growthMin is the first size of a log file; it doubles until it has the size of a segment.
const growthMin = 256 << 10

// segment is one of the two log files. It is overwritten from its beginning each time its content is in the base, so that after
// its first use it has its size and its blocks for good: an append is then one write and one flush of data, without a
// commit of the file system's own journal.
type segment struct {
	name      string
	f         *os.File // nil until it is needed
	used      int64    // bytes of frames
	allocated int64
}

// append writes a frame behind those in use and returns once it is on disk. The caller counts it as used.
func (g *segment) append(frame []byte, o options) error {
	if g.f == nil {
		if err := g.create(); err != nil {
			return err
		}
	}
	if need := g.used + int64(len(frame)) + sector; need > g.allocated { // with its seal
		if err := g.grow(max(need, min(o.limit, max(growthMin, 2*g.allocated)))); err != nil {
			return err
		}
	}
	if _, err := g.f.WriteAt(frame, g.used); err != nil {
		return err
	}
	return o.flush(g.f)
}

// seal writes behind the newest frame that it is acknowledged. It needs no flush: it is for a start after this process was killed, and
// the next flush takes it along.
func (g *segment) seal(frame []byte, at int64) error {
	_, err := g.f.WriteAt(frame, at)
	return err
}

// create makes the file and its entry in the directory durable.
func (g *segment) create() (err error) {
	if g.f, err = os.OpenFile(g.name, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(g.name))
	if err != nil {
		return err
	}
	defer func() { _ = dir.Close() }()
	return dir.Sync()
}

// grow writes zeros, so that the blocks are there and not only promised.
func (g *segment) grow(size int64) error {
	zeros := make([]byte, min(size-g.allocated, 1<<20))
	for g.allocated < size {
		n, err := g.f.WriteAt(zeros[:min(int64(len(zeros)), size-g.allocated)], g.allocated)
		if g.allocated += int64(n); err != nil {
			return err
		}
	}
	return nil
}

// open opens an existing file and reads it whole; nothing of it counts as used.
func (g *segment) open() (content []byte, err error) {
	if content, err = os.ReadFile(g.name); err != nil {
		return nil, err
	}
	if g.f, err = os.OpenFile(g.name, os.O_RDWR, 0o600); err != nil {
		return nil, err
	}
	g.allocated = int64(len(content))
	return content, nil
}

// read returns what was written, in b where that has room.
func (g *segment) read(b []byte) ([]byte, error) {
	b = slices.Grow(b[:0], int(g.used))[:g.used]
	if g.used == 0 {
		return b, nil
	}
	_, err := g.f.ReadAt(b, 0)
	return b, err
}

func (g *segment) close() error {
	if g.f == nil {
		return nil
	}
	return g.f.Close()
}
