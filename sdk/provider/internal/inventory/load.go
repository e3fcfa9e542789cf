package inventory

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
)

// load reads the store into memory, or gives a new store its identity.
func (r *Inventory) load() error {
	l := loading{known: shapes{}}
	if err := r.config.Store.Load(func(t store.Table, key, value []byte) error { return l.visit(r, t, key, value) }); err != nil {
		return fmt.Errorf("read %s: %w", r.config.Store.Describe(), err)
	}
	if l.empty() {
		return r.create()
	}
	if len(l.id) != 16 {
		return fmt.Errorf("%s holds records but no store id: it is damaged; restore a copy, or move it away and start with --adopt-store", r.config.Store.Describe())
	}
	r.id = [16]byte(l.id)
	r.index.newest, r.index.floor = l.newest, l.floor
	slices.SortFunc(l.rows, func(a, b *Row) int { return cmp.Compare(a.Revision, b.Revision) })
	for i, row := range l.rows {
		if row.Revision == 0 || row.Revision > l.newest || i > 0 && row.Revision == l.rows[i-1].Revision {
			return fmt.Errorf("%s: machine %q has the impossible revision %d: the file is damaged; restore a copy", r.config.Store.Describe(), row.id, row.Revision)
		}
		slot := r.slotWhileLoading(row.id)
		if old := slot.row.Load(); old != nil {
			return fmt.Errorf("%s: machine %q is stored twice: the file is damaged; restore a copy", r.config.Store.Describe(), row.id)
		}
		r.place(slot, nil, row)
	}
	r.marks.loaded(r)
	return nil
}

// create gives a new store its identity.
func (r *Inventory) create() error {
	if _, err := io.ReadFull(r.config.Random, r.id[:]); err != nil {
		return fmt.Errorf("draw a store id: %w", err)
	}
	if err := r.config.Store.Commit([]store.Write{
		{Table: store.Meta, Key: keyFormat, Value: number(Format)},
		{Table: store.Meta, Key: keyStoreID, Value: r.id[:]},
		{Table: store.Meta, Key: keyRevision, Value: number(0)},
	}); err != nil {
		return fmt.Errorf("begin %s: %w", r.config.Store.Describe(), err)
	}
	return nil
}

type loading struct {
	known         shapes
	id            []byte
	newest, floor uint64
	rows          []*Row
	marks         int
}

func (l *loading) empty() bool { return l.id == nil && len(l.rows) == 0 && l.marks == 0 }

func (l *loading) visit(r *Inventory, t store.Table, key, value []byte) error {
	switch t {
	case store.Meta:
		return l.meta(r, string(key), value)
	case store.Machines:
		row, err := decodeRow(string(key), value, l.known)
		if err != nil {
			return fmt.Errorf("machine %q cannot be read: %w: the file is damaged; restore a copy", key, err)
		}
		l.rows = append(l.rows, row)
	case store.Marks:
		machine, shard, err := parseMarkKey(key)
		if err != nil {
			return fmt.Errorf("%w cannot be read: the file is damaged; restore a copy", err)
		}
		token, at, err := decodeMark(value)
		if err != nil {
			return fmt.Errorf("%w of machine %q cannot be read: the file is damaged; restore a copy", err, machine)
		}
		l.marks++
		r.slotWhileLoading(machine).setMark(r.marks.intern(shard, at), token, at)
	case store.Removals:
		row, err := decodeRemoval(key, value)
		if err != nil {
			return fmt.Errorf("%w cannot be read: the file is damaged; restore a copy", err)
		}
		l.rows = append(l.rows, row)
	}
	return nil
}

func (l *loading) meta(r *Inventory, key string, value []byte) error {
	n, err := uint64(0), error(nil)
	switch key {
	case string(keyStoreID):
		l.id = slices.Clone(value)
	case string(keyFormat):
		if n, err = parseNumber(value); err == nil && n != Format {
			err = fmt.Errorf("format %d; this program knows format %d: start the newer program again, or restore a copy", n, Format)
		}
	case string(keyRevision):
		l.newest, err = parseNumber(value)
	case string(keyFloor):
		l.floor, err = parseNumber(value)
	default:
		if name, ok := strings.CutPrefix(key, settingPrefix); ok {
			r.settings.Store(name, slices.Clone(value))
		}
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s", key), err)
	}
	return nil
}

// slotWhileLoading needs no lock: the inventory is not shared yet.
func (r *Inventory) slotWhileLoading(id string) *Slot {
	slots := r.shards[r.shard(id)].slots
	s := slots[id]
	if s == nil {
		s = &Slot{id: id}
		slots[id] = s
	}
	return s
}
