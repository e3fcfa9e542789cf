package inventory

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

// Slot is the critical section of one machine id, existing or not (PROV-4.3). Get one with Acquire, give it back with
// Release. Between the two, no other goroutine reads the decision inputs of that machine or changes it.
type Slot struct {
	id  string
	mu  sync.Mutex
	row atomic.Pointer[Row] // nil: never existed; a row without record: removed
	// The rest is guarded by mu.
	marks []mark
	users int // guarded by the shard's lock: Acquire calls that hold or wait for mu
}

type mark struct {
	shard string // interned: one copy per shard, not per machine
	token lifecycle.Token
	at    int64 // Unix seconds of the newest move
}

// hashSeed only spreads ids over lock shards; it never leaves the process and no order depends on it.
var hashSeed = maphash.MakeSeed()

func (r *Inventory) shard(id string) int { return int(maphash.String(hashSeed, id) % shardCount) }

// Acquire locks the slot of an id: calls for one machine follow each other, and those for others do not wait (PROV-13.1 to 13.4). An unknown
// id gets a slot too; it vanishes with Release unless a mark was stored.
func (r *Inventory) Acquire(id string) *Slot {
	shard := &r.shards[r.shard(id)]
	shard.Lock()
	s := shard.slots[id]
	if s == nil {
		s = &Slot{id: id}
		shard.slots[id] = s
	}
	s.users++
	shard.Unlock()
	s.mu.Lock()
	return s
}

// Release unlocks the slot.
func (r *Inventory) Release(s *Slot) {
	shard := &r.shards[r.shard(s.id)]
	// The lock of the shard is taken inside that of the slot; Acquire never waits for a slot inside the shard's, so the two
	// cannot wait for each other. A slot with a row stays: a tombstone needs it when its id comes back.
	shard.Lock()
	s.users--
	if s.users == 0 && len(s.marks) == 0 && s.row.Load() == nil {
		delete(shard.slots, s.id)
	}
	shard.Unlock()
	s.mu.Unlock()
}

func (r *Inventory) find(id string) *Slot {
	shard := &r.shards[r.shard(id)]
	shard.Lock()
	defer shard.Unlock()
	return shard.slots[id]
}

// Record is the machine, nil when the id is unknown.
func (s *Slot) Record() *lifecycle.Record {
	if row := s.row.Load(); row != nil {
		return row.Record
	}
	return nil
}

// Mark is the newest token of the shard for this machine, nil on first contact.
func (s *Slot) Mark(shard string) *lifecycle.Token {
	for i := range s.marks {
		if s.marks[i].shard == shard {
			token := s.marks[i].token
			return &token
		}
	}
	return nil
}

// Mark is one mark of a machine, for people.
type Mark struct {
	Shard string
	Token lifecycle.Token
	At    time.Time
}

// Marks lists all marks of the machine.
func (s *Slot) Marks() []Mark {
	all := make([]Mark, 0, len(s.marks))
	for _, m := range s.marks {
		all = append(all, Mark{m.shard, m.token, time.Unix(m.at, 0)})
	}
	return all
}

func (s *Slot) setMark(shard string, token lifecycle.Token, at int64) (added bool) {
	for i := range s.marks {
		if s.marks[i].shard == shard {
			s.marks[i].token, s.marks[i].at = token, at
			return false
		}
	}
	s.marks = append(s.marks, mark{shard, token, at})
	return true
}
