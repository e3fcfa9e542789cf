package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// segmentBytes is when a new segment is begun. Small enough that a compaction frees space soon, large enough that a
// rotation, which syncs twice more, is rare.
const segmentBytes = 4 << 20

// LogOptions of OpenLog. The zero value is fine.
type LogOptions struct {
	// OnFailure hears of the first write that failed. The log refuses every write from then on.
	OnFailure func(error)
	// OnSync hears how long each fsync of an append took.
	OnSync func(time.Duration)

	segmentBytes int64
	sync         func(*os.File) error // replaces (*os.File).Sync in tests
}

// Log is a raft.LogStore. Safe for concurrent use.
type Log struct {
	dir  string
	opts LogOptions

	mu       sync.RWMutex
	marks    *os.File
	mark     mark
	segments []*segment // ascending; the last one is written to
	failed   error
}

// segment is one file with consecutive entries.
type segment struct {
	path  string
	file  *os.File
	first uint64
	offs  []int64 // start of each record
	end   int64   // offset behind the last record
	// legacy: an earlier build wrote it. It is read and truncated, never appended to.
	legacy bool
}

// parse decodes the record that b begins with.
func (s *segment) parse(b []byte, l *raft.Log) (size int, err error) {
	if s.legacy {
		return parseLegacyRecord(b, l)
	}
	return parseRecord(b, l)
}

func (s *segment) last() uint64 { return s.first + uint64(len(s.offs)) - 1 }

// FirstIndex implements raft.LogStore.
func (l *Log) FirstIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mark.first, nil
}

// LastIndex implements raft.LogStore.
func (l *Log) LastIndex() (uint64, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.mark.last, nil
}

// GetLog implements raft.LogStore. The record's checksum is verified at each read.
func (l *Log) GetLog(index uint64, out *raft.Log) error {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.mark.first == 0 || index < l.mark.first || index > l.mark.last {
		return raft.ErrLogNotFound
	}
	i := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].first > index }) - 1
	s := l.segments[i]
	n := int(index - s.first)
	start, end := s.offs[n], s.end
	if n+1 < len(s.offs) {
		end = s.offs[n+1]
	}
	buf := make([]byte, end-start)
	if _, err := s.file.ReadAt(buf, start); err != nil {
		return fmt.Errorf("reading entry %d from %s: %w", index, s.path, err)
	}
	if size, err := s.parse(buf, out); err != nil || size != len(buf) || out.Index != index {
		return fmt.Errorf("entry %d in %s is damaged", index, s.path)
	}
	return nil
}

// StoreLog implements raft.LogStore.
func (l *Log) StoreLog(entry *raft.Log) error { return l.StoreLogs([]*raft.Log{entry}) }

// StoreLogs implements raft.LogStore: one write and one fsync for the whole batch.
func (l *Log) StoreLogs(entries []*raft.Log) error {
	if len(entries) == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed != nil {
		return l.failed
	}
	next := l.mark.last + 1
	if l.mark.first == 0 {
		next = entries[0].Index
	}
	var buf []byte
	var offs []int64
	for _, e := range entries {
		if e.Index != next || e.Index == 0 {
			return fmt.Errorf("entry %d does not follow entry %d", e.Index, next-1)
		}
		offs = append(offs, int64(len(buf)))
		var err error
		if buf, err = appendRecord(buf, e); err != nil {
			return err // nothing was written: the log stays usable
		}
		next++
	}
	if err := l.append(entries[0].Index, buf, offs); err != nil {
		return l.fail(err)
	}
	return nil
}

// append writes encoded records behind the last one and acknowledges them.
func (l *Log) append(first uint64, buf []byte, offs []int64) error {
	if len(l.segments) == 0 || l.tail().legacy || l.tail().end >= l.opts.segmentBytes {
		if err := l.rotate(first); err != nil {
			return err
		}
	}
	s := l.tail()
	if _, err := s.file.WriteAt(buf, s.end); err != nil {
		return err
	}
	start := time.Now()
	if err := l.opts.sync(s.file); err != nil {
		return err
	}
	l.opts.OnSync(time.Since(start))
	for _, off := range offs {
		s.offs = append(s.offs, s.end+off)
	}
	s.end += int64(len(buf))
	m := l.mark
	m.last, m.segment, m.end = s.last(), s.first, uint64(s.end)
	if m.first == 0 {
		m.first = first
	}
	return l.setMark(m, false)
}

func (l *Log) tail() *segment { return l.segments[len(l.segments)-1] }

// rotate begins a new segment.
func (l *Log) rotate(first uint64) error {
	header, err := appendSegmentHeader(nil, l.mark.generation, first)
	if err != nil {
		return err
	}
	path := filepath.Join(l.dir, segmentName(l.mark.generation, first))
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(header)
	if err = errors.Join(err, l.opts.sync(file), syncDir(l.dir)); err != nil {
		_ = file.Close()
		return err
	}
	l.segments = append(l.segments, &segment{path: path, file: file, first: first, end: int64(segmentHeader)})
	return nil
}

func segmentName(generation, first uint64) string {
	return fmt.Sprintf("%08d-%020d.seg", generation, first)
}

// setMark writes the next mark into the slot of the older one.
func (l *Log) setMark(m mark, durable bool) error {
	m.seq = l.mark.seq + 1
	if _, err := l.marks.WriteAt(m.encode(), int64(m.seq%2)*markSlot); err != nil {
		return err
	}
	if durable {
		if err := l.opts.sync(l.marks); err != nil {
			return err
		}
	}
	l.mark = m
	return nil
}

// DeleteRange implements raft.LogStore. Raft removes a prefix, a suffix or everything.
func (l *Log) DeleteRange(low, high uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	m := l.mark
	if l.failed != nil {
		return l.failed
	}
	if m.first == 0 || high < m.first || low > m.last || low > high {
		return nil
	}
	var err error
	switch {
	case low <= m.first && high >= m.last:
		err = l.clear()
	case low <= m.first:
		err = l.dropPrefix(high + 1)
	case high >= m.last:
		err = l.dropSuffix(low)
	default:
		return fmt.Errorf("entries %d to %d are in the middle of the log %d to %d", low, high, m.first, m.last)
	}
	if err != nil {
		return l.fail(err)
	}
	return nil
}

// clear empties the log. The new generation disowns the old segments before they are removed.
func (l *Log) clear() error {
	if err := l.setMark(mark{generation: l.mark.generation + 1}, true); err != nil {
		return err
	}
	old := l.segments
	l.segments = nil
	return removeSegments(l.dir, old)
}

func (l *Log) dropPrefix(first uint64) error {
	m := l.mark
	m.first = first
	if err := l.setMark(m, true); err != nil {
		return err
	}
	n := 0
	for n < len(l.segments)-1 && l.segments[n].last() < first {
		n++
	}
	old := l.segments[:n]
	l.segments = append([]*segment(nil), l.segments[n:]...)
	return removeSegments(l.dir, old)
}

// dropSuffix removes the entries from index on. The mark goes first, so that a crash in between is not damage; what
// comes back then was never committed, and Raft removes it again.
func (l *Log) dropSuffix(index uint64) error {
	i := sort.Search(len(l.segments), func(i int) bool { return l.segments[i].first > index }) - 1
	s := l.segments[i]
	if s.first == index && i > 0 {
		i--
		s = l.segments[i]
	}
	keep := int(index - s.first)
	end := s.end
	if keep < len(s.offs) {
		end = s.offs[keep]
	}
	m := l.mark
	m.last, m.segment, m.end = index-1, s.first, uint64(end)
	if err := l.setMark(m, true); err != nil {
		return err
	}
	old := l.segments[i+1:]
	l.segments = append([]*segment(nil), l.segments[:i+1]...)
	s.offs, s.end = s.offs[:keep], end
	return errors.Join(s.file.Truncate(end), l.opts.sync(s.file), removeSegments(l.dir, old))
}

func removeSegments(dir string, old []*segment) error {
	if len(old) == 0 {
		return nil
	}
	var errs []error
	for _, s := range old {
		errs = append(errs, s.file.Close(), os.Remove(s.path))
	}
	return errors.Join(append(errs, syncDir(dir))...)
}

// fail makes the log refuse every write from now on: after a failed fsync the content of the disk is unknown (COORD-5.2).
func (l *Log) fail(err error) error {
	l.failed = fmt.Errorf("the Raft log in %s cannot be written: %w", l.dir, err)
	l.opts.OnFailure(l.failed)
	return l.failed
}

// Close closes the files. The log must not be used afterwards.
func (l *Log) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = os.ErrClosed
	}
	var errs []error
	for _, s := range l.segments {
		errs = append(errs, s.file.Close())
	}
	l.segments = nil
	l.mark.first = 0
	if l.marks != nil {
		errs = append(errs, l.marks.Close())
		l.marks = nil
	}
	return errors.Join(errs...)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
