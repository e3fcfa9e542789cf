// Package inventory is the durable list of all machines of a provider, with their marks and the revision order.
//
// It owns the slots (one lock per machine id, known or not), the order of changes, the cursors, the tombstones and the
// group commit. The rule it stands for: memory shows a change only after the store has it (PROV-16.4). Reads never touch
// the store and never wait for a writer for more than the copy of a pointer table.
//
// It decides nothing about machines (package lifecycle does), knows no RPC, no substrate and no offering.
//
// Safe for concurrent use. Start at Inventory.Acquire and Inventory.Commit for writers, Inventory.Get and Inventory.List for readers.
package inventory

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
)

// Format is the version of the stored form. A store with a higher one is refused.
const Format = 1

// Config is what Open needs.
type Config struct {
	Store  store.Store      // required; the Inventory closes it
	Random io.Reader        // required; 16 bytes for a new store id
	Now    func() time.Time // required
	// Limits of section 30 of the specification.
	CommitBatchMax  int
	UnknownMarksMax int
	TombstonesMax   int
	// ProbeInterval is how often a full store is tried again. 0 means 1 s.
	ProbeInterval time.Duration
	// OnCommit hears about every commit: its size, its duration and its error.
	OnCommit func(changes int, took time.Duration, err error)
}

// Inventory is the durable list of machines.
type Inventory struct {
	config Config
	id     [16]byte

	shards [shardCount]struct {
		sync.Mutex
		slots map[string]*Slot
	}
	marks ghostLedger

	// index guards the revision index and what is derived from it. Held for copies of pointers only.
	index struct {
		sync.Mutex
		revisions  revisions
		newest     uint64
		tombstones []tombstone // oldest first
		standing   int         // tombstones that are not revived
		floor      uint64      // newest revision of a tombstone that was forgotten
		count      Count
		bindings   int // bytes of clusters and metadata
	}
	machines atomic.Int64

	intake   intake
	outgoing outgoing // of the committer
	stop     chan struct{}
	stopped  chan struct{}
	closing  sync.Once
	broken   atomic.Pointer[broken]
	settings sync.Map // string -> []byte, see Setting
}

// tombstone remembers a removal until it is swept. row is nil once the id came back.
type tombstone struct {
	revision uint64
	row      *Row
}

// broken is the store after a commit that failed.
type broken struct {
	err    error
	healed chan struct{} // closed when there is room again; nil when the store is not written again
}

// shardCount spreads the id table; a power of two.
const shardCount = 256

// ErrClosed is returned by Commit after Close.
var ErrClosed = errors.New("the provider is stopping")

// Open loads the store and starts the committer.
func Open(c Config) (*Inventory, error) {
	if c.ProbeInterval == 0 {
		c.ProbeInterval = time.Second
	}
	r := &Inventory{
		config: c, intake: intake{wake: make(chan struct{}, 1)},
		stop: make(chan struct{}), stopped: make(chan struct{}),
	}
	r.index.count = Count{}
	for i := range r.shards {
		r.shards[i].slots = map[string]*Slot{}
	}
	if err := r.load(); err != nil {
		return nil, errors.Join(err, c.Store.Close())
	}
	go r.commitLoop()
	return r, nil
}

// Close waits for the commit that runs and closes the store. Later commits get ErrClosed.
func (r *Inventory) Close() error {
	r.closing.Do(func() { close(r.stop) })
	<-r.stopped
	return r.config.Store.Close()
}

// ID is the identity of the store: random, made once, part of every cursor.
func (r *Inventory) ID() [16]byte { return r.id }

// Durable says whether the store survives the process.
func (r *Inventory) Durable() bool { return r.config.Store.Durable() }

// Machines is the number of records.
func (r *Inventory) Machines() int { return int(r.machines.Load()) }

// Marks is the number of marks, and how many of them belong to unknown machines.
func (r *Inventory) Marks() (all, unknown int) { return r.marks.counts() }

// BindingBytes is the size of what shards had stored with their machines: clusters and metadata.
func (r *Inventory) BindingBytes() int {
	r.index.Lock()
	defer r.index.Unlock()
	return r.index.bindings
}

// Tombstones is the number of removals that are still remembered.
func (r *Inventory) Tombstones() int {
	r.index.Lock()
	defer r.index.Unlock()
	return r.index.standing
}

// WriteError returns the error of the commit that failed, nil while the store can be written (PROV-12.7).
func (r *Inventory) WriteError() error {
	if b := r.broken.Load(); b != nil {
		return b.err
	}
	return nil
}

// AwaitRoom waits while the store is full. It returns nil once the store can be written, and an error when ctx ends first or the
// store is not written again.
func (r *Inventory) AwaitRoom(ctx context.Context) error {
	for {
		b := r.broken.Load()
		switch {
		case b == nil:
			return nil
		case b.healed == nil:
			return b.err
		}
		select {
		case <-b.healed:
		case <-r.stop:
			return ErrClosed
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Row is one machine as of one revision. It never changes.
type Row struct {
	Revision uint64
	Record   *lifecycle.Record // nil: a tombstone
	id       string
	head     []byte // the record's wire form without its shape
	removed  time.Time
}

func (w *Row) bindingBytes() int {
	if w == nil || w.Record == nil {
		return 0
	}
	return w.Record.BindingBytes()
}

// ID is the machine id.
func (w *Row) ID() string { return w.id }

func newRow(record *lifecycle.Record) *Row {
	return &Row{Record: record, id: record.ID, head: record.AppendWire(nil)}
}

// visible says whether a reader can tell the two rows apart (PROV-10.8, 10.9).
func (w *Row) visible(before *Row) bool {
	return before == nil || before.Record == nil || string(w.head) != string(before.head) ||
		w.Record.Shape != before.Record.Shape && string(w.Record.Shape.Wire()) != string(before.Record.Shape.Wire())
}

// Get returns the current row of a machine, nil when it is unknown.
func (r *Inventory) Get(id string) *Row {
	s := r.find(id)
	if s == nil {
		return nil
	}
	if row := s.row.Load(); row != nil && row.Record != nil {
		return row
	}
	return nil
}

// Setting reads a small durable value of the provider itself, such as "paused".
func (r *Inventory) Setting(name string) []byte {
	if v, ok := r.settings.Load(name); ok {
		return v.([]byte)
	}
	return nil
}

// Settings visits the settings whose name begins with the prefix.
func (r *Inventory) Settings(prefix string) iter.Seq2[string, []byte] {
	return func(yield func(string, []byte) bool) {
		r.settings.Range(func(name, value any) bool {
			return !strings.HasPrefix(name.(string), prefix) || yield(name.(string), value.([]byte))
		})
	}
}

// SetSetting stores one; nil deletes it.
func (r *Inventory) SetSetting(name string, value []byte) error {
	err := r.submit(requests, &commit{plain: []store.Write{{Table: store.Meta, Key: []byte(settingPrefix + name), Value: value}}})
	if err != nil {
		return err
	}
	if value == nil {
		r.settings.Delete(name)
	} else {
		r.settings.Store(name, value)
	}
	return nil
}

const settingPrefix = "setting/"

// Keys of the meta table.
var (
	keyStoreID  = []byte("store-id")
	keyFormat   = []byte("format")
	keyRevision = []byte("revision")
	keyFloor    = []byte("tombstone-floor")
)

func number(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

func parseNumber(b []byte) (uint64, error) {
	if len(b) != 8 {
		return 0, fmt.Errorf("number of %d bytes", len(b))
	}
	return binary.BigEndian.Uint64(b), nil
}
