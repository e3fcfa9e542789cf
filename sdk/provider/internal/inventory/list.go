package inventory

import (
	"encoding/binary"
	"hash/crc32"
	"iter"
	"maps"
	"runtime"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"google.golang.org/protobuf/encoding/protowire"
)

// Filter selects machines (PROV-10.2, 10.3).
type Filter struct {
	States []lifecycle.State // empty: all
	Max    int               // 0 or less: no cap
	Since  []byte            // an earlier cursor, or anything
}

// Page is the answer to a Filter: a consistent cut of one revision.
type Page struct {
	Rows     []*Row
	Removed  []string // ids of tombstones
	Cursor   []byte
	Complete bool // this answer, or its scan, shows every machine
	More     bool // the cap cut it
	// Reset says why a cursor that was given did not count; empty when it did or none was given.
	Reset string
	Delta bool // the answer began from a cursor that was not a complete scan's
}

// List answers a filter.
func (r *Inventory) List(f Filter) Page {
	r.index.Lock()
	view, newest, floor := r.index.revisions.cut(), r.index.newest, r.index.floor
	r.index.Unlock()

	from, page := r.begin(f.Since, newest, floor)
	wanted := stateSet(f.States)
	if wanted == 0 {
		// Each change has a revision of its own, so that the span bounds the rows.
		most := min(newest-min(from.position, newest), uint64(max(0, r.Machines()))) //nolint:gosec // not negative
		if f.Max > 0 {
			most = min(most, uint64(f.Max)) //nolint:gosec // above 0
		}
		page.Rows = make([]*Row, 0, most)
	}
	last, scanFloor := from.position, uint64(0)
	if from.scanning {
		scanFloor = from.scanStart
	}
	var turn breather
	view.walk(from.position, func(row *Row) bool {
		turn.breathe()
		switch {
		case row.Record == nil:
			// Inside a complete scan a removal from before the scan means nothing to the reader.
			if row.Revision > scanFloor && (page.Delta || from.scanning) {
				page.Removed = append(page.Removed, row.id)
			}
		case wanted != 0 && wanted&(1<<uint(row.Record.State)) == 0:
		case f.Max > 0 && len(page.Rows) == f.Max:
			page.More = true
			return false
		default:
			page.Rows = append(page.Rows, row)
		}
		last = row.Revision
		return true
	})
	next := cursor{position: newest}
	if page.More {
		next.position = last
		if page.Complete {
			next.scanning, next.scanStart = true, newest
			if from.scanning {
				next.scanStart = from.scanStart
			}
		}
	}
	page.Cursor = next.encode(r.id)
	return page
}

// begin judges the cursor.
func (r *Inventory) begin(since []byte, newest, floor uint64) (cursor, Page) {
	full := func(reset string) (cursor, Page) { return cursor{}, Page{Complete: true, Reset: reset} }
	if len(since) == 0 {
		return full("")
	}
	c, why := decodeCursor(since, r.id)
	switch {
	case why != "":
		return full(why)
	case c.position > newest || c.scanStart > newest:
		return full("future") // the file was put back to an older copy
	case c.scanning && c.scanStart < floor, !c.scanning && c.position < floor:
		return full("forgotten") // tombstones since then are gone (PROV-10.19)
	}
	return c, Page{Complete: c.scanning, Delta: !c.scanning}
}

// stateSet is a bit per state, 0 for all. Values that are no state select nothing (PROV-10.2).
func stateSet(states []lifecycle.State) uint64 {
	if len(states) == 0 {
		return 0
	}
	set := uint64(1) << 63 // never a state: a list of unknown values alone matches nothing
	for _, s := range states {
		if s >= lifecycle.Speculative && s <= lifecycle.Failed {
			set |= 1 << uint(s)
		}
	}
	return set
}

// breather lets others run every few microseconds of a walk over a fleet. The scheduler by itself gives a goroutine 10 ms, and an
// ack waits for several goroutines in turn (PROV-25.7).
type breather int

// breatherRows is some 20 us of copying rows.
const breatherRows = 64

func (n *breather) breathe() {
	if *n++; *n%breatherRows == 0 {
		runtime.Gosched()
	}
}

// Bytes is the encoded size of the rows inside a MachineList.
func (p *Page) Bytes() int {
	n := 0
	var turn breather
	for _, row := range p.Rows {
		turn.breathe()
		size := row.size()
		n += protowire.SizeTag(1) + protowire.SizeBytes(size)
	}
	return n
}

// AppendWire appends the rows as field 1 of a MachineList. The rows are copied, never encoded again (PROV-16.6). A slice with
// room for Bytes and for what is added behind spares a list of a fleet every other copy.
func (p *Page) AppendWire(b []byte) []byte {
	var turn breather
	for _, row := range p.Rows {
		turn.breathe()
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendVarint(b, uint64(row.size()))
		b = append(b, row.head...)
		b = append(b, row.Record.Shape.Wire()...)
	}
	return b
}

func (w *Row) size() int { return len(w.head) + len(w.Record.Shape.Wire()) }

// cursor is a place in the order of revisions.
type cursor struct {
	position  uint64 // newest revision delivered
	scanning  bool   // a complete scan continues here
	scanStart uint64 // newest revision when that scan began
}

const (
	cursorFormat = 1
	cursorBytes  = 1 + 16 + 8 + 1 + 8 + 4
)

// encode gives format byte, store id, position, whether a scan continues, its start, checksum (PROV-10.18).
func (c cursor) encode(id [16]byte) []byte {
	b := make([]byte, 0, cursorBytes)
	b = append(b, cursorFormat)
	b = append(b, id[:]...)
	b = binary.BigEndian.AppendUint64(b, c.position)
	if c.scanning {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.BigEndian.AppendUint64(b, c.scanStart)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// decodeCursor gives the reason when the bytes are not a cursor of this store.
func decodeCursor(b []byte, id [16]byte) (c cursor, why string) {
	if len(b) != cursorBytes || b[0] != cursorFormat ||
		binary.BigEndian.Uint32(b[cursorBytes-4:]) != crc32.ChecksumIEEE(b[:cursorBytes-4]) || b[25] > 1 {
		return cursor{}, "unknown"
	}
	if [16]byte(b[1:17]) != id {
		return cursor{}, "other_store"
	}
	return cursor{binary.BigEndian.Uint64(b[17:25]), b[25] == 1, binary.BigEndian.Uint64(b[26:34])}, ""
}

// All visits every machine as of one revision.
func (r *Inventory) All() iter.Seq[*Row] {
	return func(yield func(*Row) bool) {
		r.index.Lock()
		view := r.index.revisions.cut()
		r.index.Unlock()
		view.walk(0, func(row *Row) bool { return row.Record == nil || yield(row) })
	}
}

// Count is the number of machines by state and capacity type.
type Count map[CountKey]int

// CountKey is one cell of a Count.
type CountKey struct {
	State        lifecycle.State
	CapacityType lifecycle.CapacityType
	Failure      lifecycle.Failure
	Bound        bool // counted for Failed only
}

// Count returns the machines as of one revision. It is kept and not counted: metrics ask for it all the time.
func (r *Inventory) Count() Count {
	r.index.Lock()
	defer r.index.Unlock()
	return maps.Clone(r.index.count)
}

// add counts a row that becomes visible (by 1) or goes (by -1).
func (c Count) add(row *Row, by int) {
	if row == nil || row.Record == nil {
		return
	}
	k := CountKey{State: row.Record.State, CapacityType: row.Record.Shape.Attributes().CapacityType, Failure: row.Record.Failure}
	k.Bound = k.State == lifecycle.Failed && row.Record.IsBound()
	if c[k] += by; c[k] == 0 {
		delete(c, k)
	}
}
