// Package store keeps what a provider must not forget: machines, marks, removals, and its own identity.
//
// A Store is a small durable table of bytes. It loads everything once, at start, and then only writes: reads of a running
// provider never touch it. What the bytes mean is the provider's affair; a Store neither decodes nor changes them.
//
// Two implementations are here: Open keeps a bbolt file with a log in front and survives SIGKILL and power loss, Memory forgets
// everything and is for tests and demonstrations. Others (a database, an etcd) implement the interface; package storetest shows whether
// they do it right. Never used concurrently: the provider calls one method at a time.
package store

import (
	"maps"
	"slices"
)

// Table is one of the four tables.
type Table uint8

// The tables. Keys are at most 6 KiB and never empty, values at most 5 MiB.
const (
	Meta     Table = iota + 1 // identity, format, revision, settings
	Machines                  // machine id -> record
	Marks                     // machine id and shard -> newest token
	Removals                  // revision -> tombstone
)

// Tables lists them all.
func Tables() []Table { return []Table{Meta, Machines, Marks, Removals} }

// String is the table's name, also the bucket's name in the bbolt file.
func (t Table) String() string {
	switch t {
	case Meta:
		return "meta"
	case Machines:
		return "machines"
	case Marks:
		return "marks"
	case Removals:
		return "removals"
	}
	return "unknown"
}

// Write sets one key, or deletes it when Value is nil. Deleting an absent key is not an error.
type Write struct {
	Table Table
	Key   []byte
	Value []byte
}

// Store is a durable table of bytes.
type Store interface {
	// Load visits every key of every table once, Meta first. Key and value are valid only during the visit. An error of
	// visit ends the load and is returned. Data that cannot be read is an error, never an empty table (PROV-12.8).
	Load(visit func(t Table, key, value []byte) error) error
	// Commit applies the whole batch or nothing, and returns once it is durable. After an error the provider treats the
	// content of the disk as unknown and never calls Commit again, unless the error is ErrFull (PROV-12.7). It may keep neither keys nor values.
	Commit(batch []Write) error
	// Bytes is the size on disk, 0 when unknown. It may be called at any time.
	Bytes() int64
	// Describe names the place for people: a file name, an address.
	Describe() string
	// Durable says whether committed data survives the process.
	Durable() bool
	Close() error
}

// Memory returns a store that lives and dies with the process.
func Memory() Store {
	m := &memory{tables: map[Table]map[string][]byte{}}
	for _, t := range Tables() {
		m.tables[t] = map[string][]byte{}
	}
	return m
}

type memory struct{ tables map[Table]map[string][]byte }

func (m *memory) Load(visit func(t Table, key, value []byte) error) error {
	for _, t := range Tables() {
		for _, k := range slices.Sorted(maps.Keys(m.tables[t])) {
			if err := visit(t, []byte(k), m.tables[t][k]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *memory) Commit(batch []Write) error {
	for _, w := range batch {
		if w.Value == nil {
			delete(m.tables[w.Table], string(w.Key))
		} else {
			m.tables[w.Table][string(w.Key)] = slices.Clone(w.Value)
		}
	}
	return nil
}

func (m *memory) Bytes() int64     { return 0 }
func (m *memory) Describe() string { return "memory" }
func (m *memory) Durable() bool    { return false }
func (m *memory) Close() error     { return nil }
