package store

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"
)

const markFile = "mark"

// OpenLog opens the log in dir, or begins one in an empty or missing dir. Every record is read and checked. What
// follows the acknowledged end and is incomplete was a write that a crash cut short: it is removed. Anything else that
// does not check out is an error that names the file.
func OpenLog(dir string, opts LogOptions) (*Log, error) {
	if opts.OnFailure == nil {
		opts.OnFailure = func(error) {}
	}
	if opts.OnSync == nil {
		opts.OnSync = func(time.Duration) {}
	}
	if opts.sync == nil {
		opts.sync = datasync
	}
	if opts.segmentBytes == 0 {
		opts.segmentBytes = segmentBytes
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	l := &Log{dir: dir, opts: opts}
	if err := l.open(); err != nil {
		_ = l.Close()
		return nil, err
	}
	return l, nil
}

func (l *Log) open() error {
	names, err := filepath.Glob(filepath.Join(l.dir, "*.seg"))
	if err != nil {
		return err
	}
	slices.Sort(names)
	if err := l.openMark(len(names) > 0); err != nil {
		return err
	}
	for _, path := range names {
		if !strings.HasPrefix(filepath.Base(path), fmt.Sprintf("%08d-", l.mark.generation)) {
			if err := os.Remove(path); err != nil { // deleted in an earlier life
				return err
			}
			continue
		}
		if err := l.openSegment(path, path == names[len(names)-1]); err != nil {
			return err
		}
	}
	return l.reconcile()
}

func (l *Log) openMark(segments bool) error {
	path := filepath.Join(l.dir, markFile)
	file, err := os.OpenFile(path, os.O_RDWR, 0o600)
	switch {
	case errors.Is(err, os.ErrNotExist) && segments:
		return fmt.Errorf("%s is missing beside the segments of the log", path)
	case errors.Is(err, os.ErrNotExist):
		return l.create(path)
	case err != nil:
		return err
	}
	l.marks = file
	buf, err := io.ReadAll(io.NewSectionReader(file, 0, markSlot+markBytes))
	if err != nil {
		return err
	}
	found := false
	for slot := range 2 {
		if off := slot * markSlot; len(buf) >= off+markBytes {
			if m, ok := parseMark(buf[off:]); ok && (!found || m.seq > l.mark.seq) {
				l.mark, found = m, true
			}
		}
	}
	if !found {
		return fmt.Errorf("%s is damaged: it has no valid mark", path)
	}
	return nil
}

func (l *Log) create(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	l.marks = file
	// Both slots, so that the file has its size forever.
	return errors.Join(l.setMark(l.mark, false), l.setMark(l.mark, true), syncDir(l.dir))
}

// openSegment reads and checks every record of one file.
func (l *Log) openSegment(path string, newest bool) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	s := &segment{path: path, file: file, end: int64(segmentHeader), legacy: strings.HasPrefix(string(data[:min(len(data), len(legacyMagic))]), legacyMagic)}
	parseHeader := parseSegmentHeader
	if s.legacy {
		parseHeader, s.end = parseLegacyHeader, legacyHeader
	}
	_, first, err := parseHeader(data)
	if err != nil || filepath.Base(path) != segmentName(l.mark.generation, first) {
		if newest && l.mark.last < indexOf(path) {
			// A rotation that a crash cut short: nothing in it was acknowledged.
			return errors.Join(file.Close(), os.Remove(path), syncDir(l.dir))
		}
		return errors.Join(fmt.Errorf("%s is damaged: its header is not valid", path), file.Close())
	}
	s.first = first
	l.segments = append(l.segments, s)
	for int(s.end) < len(data) {
		var entry raft.Log
		size, err := s.parse(data[s.end:], &entry)
		if err != nil || entry.Index != first+uint64(len(s.offs)) {
			break
		}
		s.offs = append(s.offs, s.end)
		s.end += int64(size)
	}
	if int(s.end) == len(data) {
		return nil
	}
	acknowledged := l.mark.segment > first || l.mark.segment == first && uint64(s.end) < l.mark.end
	if acknowledged || !newest {
		return fmt.Errorf("%s is damaged at byte %d, after entry %d, where acknowledged entries were", path, s.end, first+uint64(len(s.offs))-1)
	}
	return errors.Join(file.Truncate(s.end), l.opts.sync(file))
}

func indexOf(path string) uint64 {
	var generation, first uint64
	if _, err := fmt.Sscanf(filepath.Base(path), "%d-%d.seg", &generation, &first); err != nil {
		return 0
	}
	return first
}

// reconcile compares what was read with the mark, joins the segments and removes those that were compacted away.
func (l *Log) reconcile() error {
	for len(l.segments) > 1 && len(l.tail().offs) == 0 {
		// A rotation whose first entry never came. The next append makes it again.
		s := l.tail()
		l.segments = l.segments[:len(l.segments)-1]
		if err := removeSegments(l.dir, []*segment{s}); err != nil {
			return err
		}
	}
	for i := 1; i < len(l.segments); i++ {
		if l.segments[i].first != l.segments[i-1].last()+1 {
			return fmt.Errorf("the log in %s has a gap: a segment that ends with entry %d is followed by %s", l.dir, l.segments[i-1].last(), l.segments[i].path)
		}
	}
	last := uint64(0)
	if len(l.segments) > 0 && len(l.tail().offs) > 0 {
		last = l.tail().last()
	}
	m := l.mark
	if last < m.last {
		return fmt.Errorf("the log in %s ends with entry %d, but entry %d was acknowledged: a file was truncated or lost", l.dir, last, m.last)
	}
	if last == 0 {
		old := l.segments
		l.segments = nil
		return removeSegments(l.dir, old)
	}
	if m.first == 0 {
		m.first = l.segments[0].first
	}
	if m.first < l.segments[0].first {
		return fmt.Errorf("the log in %s begins with entry %d, but entry %d is part of it: a file was lost", l.dir, l.segments[0].first, m.first)
	}
	m.last, m.segment, m.end = last, l.tail().first, uint64(l.tail().end)
	// What a killed process wrote may still be in memory only.
	if err := errors.Join(l.opts.sync(l.tail().file), l.setMark(m, true)); err != nil {
		return err
	}
	return l.dropPrefix(m.first)
}
