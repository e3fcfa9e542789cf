package audit

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// Config is what a Log needs.
type Config struct {
	Dir     string // segments; empty: nothing is written
	Lines   string // --audit-log: records as JSON lines; empty: none
	Shard   string
	Epoch   int64
	Version string
	Log     *slog.Logger
	OnError func() // counts each failure

	Retention time.Duration
	BytesMax  int64

	SegmentBytes int64         // 0 means 64 MiB
	SegmentAge   time.Duration // 0 means 1 h
	Queue        int           // 0 means 65,536 entries
	SyncEvery    time.Duration // 0 means 1 s
	Recent       int           // records kept in memory for readers that follow; 0 means 16,384

	// Checkpoint asks the core for a checkpoint, which comes back through Log.Checkpoint, and reports whether it could ask.
	// full asks for the core's state with it. It must not block.
	Checkpoint func(full bool) bool
}

// Log writes the decision log and keeps the newest records in memory.
type Log struct {
	cfg   Config
	queue chan entry
	lost  atomic.Int64

	queued atomic.Int64 // bytes of roll-ups that wait

	recent *ring

	file    *os.File
	written int64
	opened  time.Time
	number  int64
	events  [][]byte
	records [][]byte
	first   int64
	last    int64
	lines   lines
	asked   atomic.Bool // a checkpoint is on its way
	broken  bool        // the last write failed; the next segment begins with a checkpoint
	retry   retry
	states  states   // made beside the writing
	damaged sync.Map // paths of segments that readers found damaged; at most all of them
}

// entry is one thing to write: an event, a record, or a checkpoint.
type entry struct {
	wall   int64
	event  []byte
	rollup *rollup // instead of event
	record *core.Record
	mark   bool // a segment begins here
	state  *core.Capture
	step   int64
	digest uint64
	done   chan struct{} // closed when everything before it is on the disk
}

// rollup is a roll-up to write. The writer encodes it: a large one would hold up the loop.
type rollup struct {
	step   int64
	at     core.At
	event  core.RollupArrived
	digest uint64
}

// queueBytes bounds the roll-ups that wait, by their size on the wire: with a disk that stalls they must not fill the memory.
const queueBytes = 256 << 20

// New returns a log that has not touched the disk.
func New(c Config) *Log {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&c.Queue, 65_536)
	def(&c.Recent, 16_384)
	if c.SegmentBytes == 0 {
		c.SegmentBytes = 64 << 20
	}
	if c.SegmentAge == 0 {
		c.SegmentAge = time.Hour
	}
	if c.SyncEvery == 0 {
		c.SyncEvery = time.Second
	}
	return &Log{cfg: c, queue: make(chan entry, c.Queue), recent: newRing(c.Recent)}
}

// Event queues an event in its reduced form, which does not change from here on. It is called by the loop and never blocks.
func (l *Log) Event(step int64, at core.At, e core.Event, digest uint64) {
	if l.cfg.Dir == "" {
		return
	}
	if r, is := e.(core.RollupArrived); is {
		l.put(entry{wall: at.Wall, rollup: &rollup{step, at, r, digest}})
		return
	}
	l.put(entry{wall: at.Wall, event: encode(step, at, e, digest)})
}

// weight is how much of queueBytes an entry takes.
func (e *entry) weight() int64 {
	if e.rollup == nil || e.rollup.event.Rows == nil {
		return 0
	}
	return e.rollup.event.Bytes
}

// Record queues a record. It is called by the loop and never blocks.
func (l *Log) Record(r *core.Record) {
	l.recent.add(convert.Record(r, l.cfg.Shard))
	if l.cfg.Dir != "" || l.cfg.Lines != "" {
		l.put(entry{wall: r.Wall, record: r})
	}
}

// Checkpoint queues the beginning of a segment: the step that has just been taken, the digest of the core behind it, and
// its state if that was asked for.
func (l *Log) Checkpoint(at core.At, step int64, s *core.Capture, digest uint64) {
	l.put(entry{wall: at.Wall, mark: true, step: step, state: s, digest: digest})
}

func (l *Log) put(e entry) {
	w := e.weight()
	room := l.queued.Add(w) <= queueBytes || w == 0
	if room {
		select {
		case l.queue <- e:
			return
		default:
		}
	}
	l.queued.Add(-w)
	l.lose(e)
}

func (l *Log) lose(e entry) {
	if e.mark {
		l.asked.Store(false)
	}
	l.lost.Add(1)
	l.cfg.OnError()
}

// Sync returns when everything queued before it is on the disk, or after the given time.
func (l *Log) Sync(limit time.Duration) {
	done := make(chan struct{})
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case l.queue <- entry{done: done}:
	case <-timer.C:
		return
	}
	select {
	case <-done:
	case <-timer.C:
	}
}

// Reopen makes the JSON lines go to a new file, after the old one was renamed (SHARD-28.8).
func (l *Log) Reopen() { l.lines.reopen.Store(true) }

// Run writes until ctx ends and then flushes. A failing disk is an error: the caller starts Run again after a pause.
func (l *Log) Run(ctx context.Context) (err error) {
	defer func() {
		if closeErr := l.close(); err == nil {
			err = closeErr
		}
	}()
	tick := time.NewTicker(l.cfg.SyncEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return l.finish()
		case e := <-l.queue:
			err = l.take(e)
		case <-tick.C:
			err = l.flush(true)
		}
		if err != nil {
			l.cfg.OnError()
			return err
		}
	}
}

// finish writes what is queued at the end of the process.
func (l *Log) finish() error {
	for {
		select {
		case e := <-l.queue:
			if err := l.take(e); err != nil {
				return err
			}
		default:
			return l.flush(true)
		}
	}
}

// take collects one entry for the open segment.
func (l *Log) take(e entry) error {
	l.queued.Add(-e.weight())
	if e.done != nil {
		defer close(e.done)
		return l.flush(true)
	}
	if e.record != nil && l.cfg.Lines != "" {
		l.line(e.record)
	}
	if l.cfg.Dir == "" {
		return nil
	}
	if e.mark {
		l.asked.Store(false)
		if e.state == nil && (l.file == nil || l.lost.Load() > 0) { // after a gap, only the core has the state
			l.askCheckpoint()
			if l.file == nil {
				l.lost.Add(1)
			}
			return nil
		}
		h := head{Step: e.step, Digest: e.digest}
		if e.state != nil {
			h.State = e.state.Snapshot()
		}
		return l.begin(h, e.wall)
	}
	if l.file == nil && (l.broken || l.number > 0) {
		l.askCheckpoint() // entries before it cannot be replayed and are left out as a gap
		l.lost.Add(1)
		return nil
	}
	if l.file == nil {
		if err := l.begin(head{}, e.wall); err != nil {
			return err
		}
	}
	l.noteTime(e.wall)
	if r := e.rollup; r != nil {
		e.event = encode(r.step, r.at, r.event, r.digest)
	}
	if e.event != nil {
		l.events = append(l.events, e.event)
	} else if raw := canonical(convert.Record(e.record, l.cfg.Shard)); len(raw) > 0 {
		l.records = append(l.records, raw)
	}
	if len(l.events)+len(l.records) >= 4096 {
		return l.flush(false)
	}
	return nil
}

func (l *Log) noteTime(wall int64) {
	if l.first == 0 {
		l.first = wall
	}
	l.last = wall
}

func (l *Log) askCheckpoint() {
	full := l.file == nil || l.lost.Load() > 0
	if full && !l.mayBegin() {
		return
	}
	if l.cfg.Checkpoint != nil && l.asked.CompareAndSwap(false, true) && !l.cfg.Checkpoint(full) {
		l.asked.Store(false)
	}
}

// begin starts a segment. When it cannot, the next one has to begin with a checkpoint.
func (l *Log) begin(h head, wall int64) error {
	err := l.open(h, wall)
	if err != nil {
		l.broken = true
		l.lost.Add(1)
		l.retry.failed()
	}
	return err
}

func (l *Log) open(h head, wall int64) error {
	if err := l.flush(true); err != nil {
		return err
	}
	if l.file != nil {
		if err := l.file.Close(); err != nil {
			return err
		}
		l.file = nil
	}
	if err := os.MkdirAll(l.cfg.Dir, 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(l.cfg.Dir, segmentName(l.cfg.Epoch, l.number+1)), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("decision log: %w", err)
	}
	l.number++
	l.file, l.opened, l.broken, l.written = f, time.Now(), false, 0
	h.Shard, h.Epoch, h.Number, h.Version, h.Gap = l.cfg.Shard, l.cfg.Epoch, l.number, l.cfg.Version, l.lost.Swap(0)
	b, err := pack(blockHead, [][]byte{codec.Marshal(h)}, wall, wall)
	if err != nil {
		return err
	}
	if err := l.write(append([]byte(magic), b...)); err != nil {
		return err
	}
	if h.State == nil && h.Step > 0 {
		l.states.make(&l.cfg, l.number)
	}
	return l.prune()
}

// flush writes what was collected, and begins a new segment by asking for a checkpoint when this one is full or old.
func (l *Log) flush(sync bool) error {
	if l.file == nil {
		l.events, l.records, l.first = nil, nil, 0
		return nil
	}
	for _, x := range []struct {
		kind blockKind
		list *[][]byte
	}{{blockEvents, &l.events}, {blockRecords, &l.records}} {
		if len(*x.list) == 0 {
			continue
		}
		b, err := pack(x.kind, *x.list, l.first, l.last)
		if err != nil {
			return err
		}
		*x.list = (*x.list)[:0]
		if err := l.write(b); err != nil {
			return err
		}
	}
	l.first = 0
	if sync {
		if err := l.file.Sync(); err != nil {
			l.giveUp()
			return fmt.Errorf("decision log: %w", err)
		}
		l.retry.worked(l.opened)
	}
	if l.written >= l.cfg.SegmentBytes || time.Since(l.opened) >= l.cfg.SegmentAge || l.lost.Load() > 0 {
		l.askCheckpoint()
	}
	return nil
}

func (l *Log) write(b []byte) error {
	n, err := l.file.Write(b)
	l.written += int64(n)
	if err != nil {
		l.giveUp()
		return fmt.Errorf("decision log: %w", err)
	}
	return nil
}

// giveUp leaves a segment that cannot be written. What was collected is lost, as a marked gap.
func (l *Log) giveUp() {
	l.lost.Add(int64(len(l.events) + len(l.records) + 1))
	l.events, l.records, l.first = nil, nil, 0
	_ = l.file.Close()
	l.file, l.broken = nil, true
	l.retry.failed()
	l.asked.Store(false)
}

func (l *Log) close() error {
	l.states.stop()
	var err error
	if l.file != nil {
		err = l.file.Close()
		l.file = nil
	}
	l.lines.close()
	return err
}

// prune removes the oldest segments beyond the retention and the size (SHARD-28.3). The one being written stays.
func (l *Log) prune() error {
	list, err := segments(l.cfg.Dir)
	if err != nil {
		return err
	}
	total := int64(0)
	for _, s := range list {
		total += s.size
	}
	oldest := time.Now().Add(-l.cfg.Retention).UnixNano()
	base := newestBase(list, l.cfg.Epoch)
	for _, s := range list[:max(0, len(list)-1)] {
		if s.epoch == l.cfg.Epoch && s.number >= base {
			break // the log from here on can still be replayed
		}
		tooOld := l.cfg.Retention > 0 && s.modified < oldest
		tooMuch := l.cfg.BytesMax > 0 && total > l.cfg.BytesMax
		if !tooOld && !tooMuch {
			continue
		}
		if err := os.Remove(s.path); err != nil {
			return err
		}
		_ = os.Remove(statePath(s.path))
		total -= s.size
	}
	return nil
}
