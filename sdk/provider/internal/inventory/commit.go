package inventory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
)

// Change is what one commit does to one machine. The caller holds the slot.
type Change struct {
	Slot *Slot
	// Record is the machine's next form; nil leaves it as it is.
	Record *lifecycle.Record
	// Remove ends the record and leaves a tombstone.
	Remove bool
	// Mark moves the mark of one shard.
	Mark *MarkMove
	// drop forgets marks; used by the sweep.
	drop []string
}

// MarkMove sets the mark of a shard to a token.
type MarkMove struct {
	Shard string
	Token lifecycle.Token
}

// commit is a request to the committer.
type commit struct {
	changes []Change
	plain   []store.Write
	rows    []*Row // one per change, nil where nothing visible or stored changes
	done    chan error
}

// Commit stores the changes as one unit and then shows them. It returns once they are durable; the caller's context is
// not asked, because a commit that began cannot be taken back. On an error nothing became visible and the store is never
// written again.
func (r *Inventory) Commit(changes ...Change) error {
	return r.submit(requests, &commit{changes: changes})
}

// CommitBulk is Commit for background work: a mutation waits for at most one bulk batch (PROV-16.7). At most
// CommitBatchMax changes.
func (r *Inventory) CommitBulk(changes []Change) error {
	return r.submit(bulk, &commit{changes: changes})
}

func (r *Inventory) submit(queue queueKind, c *commit) error {
	c.rows = make([]*Row, len(c.changes))
	for i, change := range c.changes {
		// The encoding is done here, by many callers in parallel, and not by the one committer.
		if change.Record != nil && !change.Remove {
			c.rows[i] = newRow(change.Record)
		}
	}
	c.done = make(chan error, 1)
	if !r.intake.put(queue, c) {
		return ErrClosed
	}
	if err := <-c.done; err != nil {
		return err
	}
	r.applyMarks(c.changes)
	return nil
}

// intake holds what waits for the committer. It is a list under a lock and not a channel, so that a caller sleeps once, until
// its commit is done, and is not woken to learn that it was taken.
type intake struct {
	mu      sync.Mutex
	waiting [2][]*commit // by queueKind
	closed  bool
	wake    chan struct{} // holds a token while something may wait
}

type queueKind int

const (
	requests queueKind = iota
	bulk
)

func (q *intake) put(kind queueKind, c *commit) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return false
	}
	q.waiting[kind] = append(q.waiting[kind], c)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return true
}

// take returns the oldest that wait, up to so many changes but at least one commit; nil when none waits.
func (q *intake) take(kind queueKind, most int) []*commit {
	q.mu.Lock()
	defer q.mu.Unlock()
	all, n, size := q.waiting[kind], 0, 0
	for n < len(all) && size < most {
		size += max(1, len(all[n].changes))
		n++
	}
	if n == len(all) {
		q.waiting[kind] = nil
		return all
	}
	q.waiting[kind] = all[n:]
	return all[:n:n]
}

// close refuses what waits and whatever comes.
func (q *intake) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, list := range q.waiting {
		for _, c := range list {
			c.done <- ErrClosed
		}
	}
	q.waiting = [2][]*commit{}
}

// commitLoop joins what is waiting into one transaction. There is no linger: while one batch is being synced, the next one
// gathers (PROV-16.3).
func (r *Inventory) commitLoop() {
	defer close(r.stopped)
	defer r.intake.close()
	probes := time.NewTicker(r.config.ProbeInterval)
	defer probes.Stop()
	for {
		select {
		case <-r.intake.wake:
		case <-probes.C:
			r.probe()
		case <-r.stop:
			return
		}
		for r.turn() {
			select {
			case <-r.stop:
				return
			default:
			}
		}
	}
}

// turn commits one batch of requests and one of bulk work, which gets its turn after each batch, so that neither side starves
// (PROV-16.7). It says whether there was anything.
func (r *Inventory) turn() bool {
	batch := r.intake.take(requests, r.config.CommitBatchMax)
	if len(batch) > 0 {
		r.commitBatch(batch)
	}
	large := r.intake.take(bulk, 1)
	if len(large) > 0 {
		r.commitBatch(large)
	}
	return len(batch)+len(large) > 0
}

func (r *Inventory) commitBatch(batch []*commit) {
	err := r.WriteError()
	if err == nil {
		start := time.Now()
		writes, shown := r.prepare(batch)
		if err = r.config.Store.Commit(writes); err != nil {
			err = r.fail(err)
		} else {
			r.show(shown)
		}
		size := 0
		for _, c := range batch {
			size += max(1, len(c.changes))
		}
		r.config.OnCommit(size, time.Since(start), err)
	}
	for _, c := range batch {
		c.done <- err
	}
}

// fail notes that the store cannot be written: for as long as it is full, else for good, because after a failed sync the content of the
// disk is unknown (PROV-12.7).
func (r *Inventory) fail(err error) error {
	if !errors.Is(err, store.ErrFull) {
		b := &broken{err: fmt.Errorf("the store %s cannot be written, restart the provider once that is repaired: %w", r.config.Store.Describe(), err)}
		r.broken.Store(b)
		return b.err
	}
	b := &broken{err: fmt.Errorf("the store %s is full, the provider continues once there is space: %w", r.config.Store.Describe(), err), healed: make(chan struct{})}
	r.broken.Store(b)
	return b.err
}

// probe tries a write that changes nothing while the store is full.
func (r *Inventory) probe() {
	b := r.broken.Load()
	if b == nil || b.healed == nil {
		return
	}
	r.index.Lock()
	newest := r.index.newest
	r.index.Unlock()
	err := r.config.Store.Commit([]store.Write{{Table: store.Meta, Key: keyRevision, Value: number(newest)}})
	switch {
	case err == nil:
		r.broken.Store(nil)
	case errors.Is(err, store.ErrFull):
		return
	default:
		_ = r.fail(err)
	}
	close(b.healed)
}

// prepare numbers the visible changes and encodes everything for the store. Only the committer runs it, so the revision
// counter needs no lock to be read here.
func (r *Inventory) prepare(batch []*commit) (writes []store.Write, shown []*Row) {
	r.index.Lock()
	newest := r.index.newest
	r.index.Unlock()
	now := r.config.Now()
	before := newest
	out := &r.outgoing
	out.reset()
	for _, c := range batch {
		out.writes = append(out.writes, c.plain...)
		for i, change := range c.changes {
			old := change.Slot.row.Load()
			switch {
			case change.Remove:
				newest++
				row := &Row{Revision: newest, id: change.Slot.id, removed: now}
				c.rows[i] = row
				out.set(store.Machines, func(b []byte) []byte { return append(b, row.id...) }, nil)
				out.set(store.Removals, revisionKey(newest), func(b []byte) []byte { return appendRemoval(b, row) })
				out.shown = append(out.shown, row)
			case c.rows[i] != nil:
				row := c.rows[i]
				if row.visible(old) {
					newest++
					row.Revision = newest
				} else {
					row.Revision = old.Revision
				}
				if old != nil && old.Record == nil {
					out.set(store.Removals, revisionKey(old.Revision), nil)
				}
				out.set(store.Machines, func(b []byte) []byte { return append(b, row.id...) }, func(b []byte) []byte { return appendRow(b, row) })
				out.shown = append(out.shown, row)
			}
			if m := change.Mark; m != nil {
				out.set(store.Marks, func(b []byte) []byte { return appendMarkKey(b, change.Slot.id, m.Shard) },
					func(b []byte) []byte { return appendMark(b, m.Token, now.Unix()) })
			}
			for _, shard := range change.drop {
				out.set(store.Marks, func(b []byte) []byte { return appendMarkKey(b, change.Slot.id, shard) }, nil)
			}
		}
	}
	if newest != before {
		out.set(store.Meta, func(b []byte) []byte { return append(b, keyRevision...) }, revisionKey(newest))
	}
	// Sorted keys make a B+tree touch each page once.
	slices.SortStableFunc(out.writes, func(a, b store.Write) int {
		if a.Table != b.Table {
			return int(a.Table) - int(b.Table)
		}
		return bytes.Compare(a.Key, b.Key)
	})
	return out.writes, out.shown
}

func revisionKey(n uint64) func([]byte) []byte {
	return func(b []byte) []byte { return binary.BigEndian.AppendUint64(b, n) }
}

// outgoing is what one batch is made of. Its memory is used again by the next batch: a store keeps nothing of it.
type outgoing struct {
	writes []store.Write
	shown  []*Row
	bytes  []byte
}

// outgoingMax is how much of a large batch is kept for the next one.
const outgoingMax = 4 << 20

func (o *outgoing) reset() {
	clear(o.shown) // a row that was replaced since is garbage
	clear(o.writes)
	o.writes, o.shown, o.bytes = o.writes[:0], o.shown[:0], o.bytes[:0]
	if cap(o.bytes) > outgoingMax {
		o.bytes = nil
	}
}

// set adds a write of what the two functions append; without a value the key is deleted.
func (o *outgoing) set(t store.Table, key, value func([]byte) []byte) {
	w := store.Write{Table: t, Key: o.append(key)}
	if value != nil {
		w.Value = o.append(value)
	}
	o.writes = append(o.writes, w)
}

// append returns what was appended. When bytes has to move, what was returned before keeps its own memory.
func (o *outgoing) append(to func([]byte) []byte) []byte {
	begin := len(o.bytes)
	o.bytes = to(o.bytes)
	return o.bytes[begin:len(o.bytes):len(o.bytes)]
}

// show makes the committed rows visible, all at once for a reader that takes a cut.
func (r *Inventory) show(rows []*Row) {
	if len(rows) == 0 {
		return
	}
	r.index.Lock()
	defer r.index.Unlock()
	for _, row := range rows {
		slot := r.find(row.id) // the writer holds it, so it exists
		old := slot.row.Load()
		r.place(slot, old, row)
	}
}

// place puts a row where old was. index is locked.
func (r *Inventory) place(slot *Slot, old, row *Row) {
	r.index.count.add(old, -1)
	r.index.count.add(row, 1)
	r.index.bindings += row.bindingBytes() - old.bindingBytes()
	switch {
	case old == nil:
	case old.Revision == row.Revision: // changed inside only
		r.index.revisions.replace(row)
		slot.row.Store(row)
		return
	default:
		r.index.revisions.remove(old.Revision)
	}
	if old != nil && old.Record == nil {
		r.forgetTombstone(old)
	}
	if old != nil && old.Record != nil {
		r.machines.Add(-1)
	}
	if row.Record != nil {
		r.machines.Add(1)
	} else {
		r.index.tombstones = append(r.index.tombstones, tombstone{row.Revision, row})
		r.index.standing++
	}
	r.index.revisions.append(row)
	r.index.newest = max(r.index.newest, row.Revision)
	slot.row.Store(row)
}

func (r *Inventory) forgetTombstone(row *Row) {
	all := r.index.tombstones
	i := sort.Search(len(all), func(i int) bool { return all[i].revision >= row.Revision })
	if i < len(all) && all[i].row == row {
		all[i].row = nil
		r.index.standing--
	}
}
