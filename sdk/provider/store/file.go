package store

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

const (
	// segmentSize bounds a log file. Two of them are at most 3 s of 2,000 acks a second, and as much memory is kept for the move
	// of one into the base.
	segmentSize = 4 << 20
	// partWrites is how many writes the base takes in one transaction while commits continue beside it: each is a page or two, and
	// a flush of the log waits for a flush of them.
	partWrites = 256
)

// Open opens or creates a state file: a bbolt file with the tables up to some batch, and beside it a log of the batches since,
// FILE.log0 and FILE.log1. A commit is one write and one flush of the log; a full log goes into the bbolt file in the
// background (docs/adr/0166). A clean Close leaves the bbolt file alone. A bbolt file without a log, as builds before had
// it, is opened as it is.
func Open(path string) (Store, error) {
	return open(path, options{limit: segmentSize, part: partWrites, step: func(string) {}, flush: datasync})
}

// options are what tests change.
type options struct {
	limit int64        // of a log file
	part  int          // writes of one transaction of the base
	step  func(string) // is called before and after whatever changes a file
	flush func(*os.File) error
	fast  bool // the base is not flushed either: a killed process needs no flush
}

func open(path string, o options) (Store, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, explain(path, fmt.Errorf("make its directory: %w", err))
	}
	var random [8]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, explain(path, err)
	}
	b, hadID, err := openBase(path, max(1, binary.BigEndian.Uint64(random[:])), o.fast)
	if err != nil {
		return nil, err
	}
	s := &file{options: o, base: b, logs: [2]*segment{{name: path + ".log0"}, {name: path + ".log1"}}}
	if err := s.replay(hadID); err != nil {
		return nil, errors.Join(err, s.abandon())
	}
	return s, nil
}

// file is a base with a log in front. One goroutine besides the caller's may be at work: it brings the other log into the base.
type file struct {
	options
	base   *base
	logs   [2]*segment
	now    int    // index of the log that is written
	number uint64 // of the newest batch
	body   []byte
	buffer []byte
	failed error
	mover  mover
	moving chan error    // ends with what became of the other log; nil when no move runs
	behind func() error  // moves the other log, nil when it is empty
	hurry  chan struct{} // is closed when somebody waits for moving
}

// mover is the memory of a move, which the next one uses again: it is as large as a log, and as garbage would make the collector
// run more often than all acks of that log do.
type mover struct {
	content []byte
	frames  []frame
	writes  []Write
}

// replay brings what the logs have into the base, so that both are empty.
func (s *file) replay(hadID bool) error {
	id := s.base.id
	if !hadID {
		id = 0
	}
	var all []frame
	for _, g := range s.logs {
		content, err := g.open()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return explain(g.name, err)
		}
		if other, ok := readFrame(content, 0); ok && (!hadID || other.id != id) {
			return explain(g.name, fmt.Errorf("has batch %d of another state file than %s: restore the file that it belongs to, or move the log "+
				"away, which loses its content", other.number, s.base.file))
		}
		if all, err = readLog(all, content, s.base.id, s.base.applied); err != nil {
			return explain(g.name, err)
		}
	}
	slices.SortFunc(all, func(a, b frame) int { return cmp.Compare(a.number, b.number) })
	s.number = s.base.applied
	all = slices.DeleteFunc(all, func(f frame) bool { return f.number <= s.base.applied })
	for _, f := range all {
		if f.number != s.number+1 {
			return explain(s.base.file, fmt.Errorf("its log continues with batch %d after batch %d: the file is an older copy than its log, or a log is missing: %w",
				f.number, s.number, ErrDamaged))
		}
		s.number = f.number
	}
	return s.apply(all, hurried)
}

// Commit appends the batch to the log. One that is larger than a log goes into the base. A full disk is the one failure after which
// it may be called again: the next batch takes the place of the one that did not fit.
func (s *file) Commit(batch []Write) error {
	if s.failed != nil {
		return s.failed
	}
	err := s.commit(batch, s.number+1)
	if err == nil {
		s.number++
	} else if !errors.Is(err, ErrFull) {
		s.failed = err
	}
	return err
}

func (s *file) commit(batch []Write, number uint64) error {
	if err := s.moved(false); err != nil {
		return err
	}
	var err error
	s.body = appendWrites(s.body[:0], batch)
	s.buffer, err = appendFrame(s.buffer[:0], s.base.id, number, s.body)
	size := int64(len(s.buffer))
	if err != nil || size+sector > s.limit {
		s.buffer, s.body = nil, nil // they are as large as the batch was
		if err := s.drain(); err != nil {
			return err
		}
		return s.write(batch, number)
	}
	if s.logs[s.now].used+size+sector > s.limit {
		if err := s.turn(); err != nil {
			return err
		}
	}
	g := s.logs[s.now]
	s.step("append")
	if err := g.append(s.buffer, s.options); err != nil {
		return noRoom(explain(g.name, err))
	}
	s.step("appended")
	if s.buffer, err = appendSeal(s.buffer[:0], s.base.id, number); err == nil {
		err = g.seal(s.buffer, g.used+size)
	}
	if err != nil {
		return explain(g.name, err)
	}
	g.used += size
	s.step("sealed")
	return nil
}

// turn makes the other log the one that is written, and brings this one into the base in the background.
func (s *file) turn() error {
	if err := s.moved(true); err != nil {
		return err
	}
	full, upTo := s.logs[s.now], s.number
	s.now = 1 - s.now
	done, hurry := make(chan error, 1), make(chan struct{})
	s.moving, s.hurry, s.behind = done, hurry, func() error { return s.move(full, upTo, hurried) }
	go func() { done <- s.move(full, upTo, hurry) }()
	return nil
}

// moved says what became of the log that was brought into the base, if that has ended or is to be waited for. A move for which there
// was not room is tried again when it is waited for.
func (s *file) moved(wait bool) error {
	if s.moving != nil {
		var err error
		if wait {
			close(s.hurry)
			err = <-s.moving
		} else {
			select {
			case err = <-s.moving:
			default:
				return nil
			}
		}
		s.moving = nil
		if err == nil {
			s.behind = nil
		} else if !errors.Is(err, ErrFull) {
			return err
		}
	}
	if !wait || s.behind == nil {
		return nil
	}
	if err := s.behind(); err != nil {
		return err
	}
	s.behind = nil
	return nil
}

// hurried is for work that somebody waits for.
var hurried = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// move brings a log whose newest batch is upTo into the base and empties it.
func (s *file) move(g *segment, upTo uint64, hurry <-chan struct{}) error {
	var err error
	if s.mover.content, err = g.read(s.mover.content); err != nil {
		return explain(g.name, err)
	}
	all, err := readLog(s.mover.frames[:0], s.mover.content, s.base.id, 0)
	if err != nil {
		return explain(g.name, err)
	}
	s.mover.frames = all
	if len(all) > 0 && all[len(all)-1].number != upTo {
		return explain(g.name, fmt.Errorf("batch %d is the last that can be read, %d was written: %w", all[len(all)-1].number, upTo, ErrDamaged))
	}
	if err := s.apply(all, hurry); err != nil {
		return err
	}
	g.used = 0
	return nil
}

// apply brings batches into the base: of each key the newest value, in the order of the tree, a part at a time. Only the last
// part says that they are there. If the process ends before, they are applied again, from the first on, which ends in
// the same. After a part it rests as long as the part took, unless it is to hurry: a flush of the log waits for a flush of the
// base, and then those that waited get their turn.
func (s *file) apply(all []frame, hurry <-chan struct{}) error {
	if len(all) == 0 {
		return nil
	}
	newest, err := newestWrites(s.mover.writes[:0], all)
	if err != nil {
		return explain(s.base.file, err)
	}
	s.mover.writes = newest
	for len(newest) > s.part {
		begin := time.Now()
		if err := s.write(newest[:s.part], 0); err != nil {
			return noRoom(err)
		}
		newest = newest[s.part:]
		select {
		case <-hurry:
		case <-time.After(time.Since(begin)):
		}
	}
	return noRoom(s.write(newest, all[len(all)-1].number))
}

// newestWrites adds the last write of each key, in the order of the tree.
func newestWrites(out []Write, all []frame) ([]Write, error) {
	for _, f := range all {
		if err := f.writes(func(w Write) { out = append(out, w) }); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(out, byKey)
	last := 0
	for i, w := range out {
		if i > 0 && byKey(out[last], w) != 0 {
			last++
		}
		out[last] = w
	}
	return out[:min(last+1, len(out))], nil
}

func (s *file) write(writes []Write, applied uint64) error {
	s.step("write base")
	err := s.base.write(writes, applied)
	s.step("wrote base")
	return err
}

func byKey(a, b Write) int {
	if a.Table != b.Table {
		return int(a.Table) - int(b.Table)
	}
	return bytes.Compare(a.Key, b.Key)
}

// drain brings both logs into the base.
func (s *file) drain() error {
	if err := s.moved(true); err != nil {
		return err
	}
	return s.move(s.logs[s.now], s.number, hurried)
}

func (s *file) Load(visit func(t Table, key, value []byte) error) error {
	if s.failed == nil {
		s.failed = s.drain()
	}
	if s.failed != nil {
		return s.failed
	}
	return s.base.load(visit)
}

// Bytes counts the logs whole, as the disk does.
func (s *file) Bytes() int64 {
	n := s.base.bytes.Load()
	for _, g := range s.logs {
		if info, err := os.Stat(g.name); err == nil {
			n += info.Size()
		}
	}
	return n
}

func (s *file) Describe() string { return s.base.file }
func (s *file) Durable() bool    { return true }

// Close brings the logs into the base and removes them. After a failure it leaves everything as it is: the next Open reads it.
func (s *file) Close() error {
	if s.failed != nil {
		_ = s.moved(true) // wait for the background move; the first error was returned already
		return s.abandon()
	}
	if s.failed = s.drain(); s.failed != nil {
		return errors.Join(s.failed, s.abandon())
	}
	for _, g := range s.logs {
		s.step("remove a log")
		if err := os.Remove(g.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(explain(g.name, err), s.abandon())
		}
	}
	return s.abandon()
}

// abandon lets go of all files.
func (s *file) abandon() error {
	return errors.Join(s.logs[0].close(), s.logs[1].close(), s.base.db.Close())
}
