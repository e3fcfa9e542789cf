package inventory

import (
	"slices"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/store"
)

// ghostLedger counts marks and remembers which of them belong to unknown machines, oldest first.
type ghostLedger struct {
	sync.Mutex
	all    int
	ghosts []ghost
	shards map[string]*shardSeen
}

type ghost struct {
	machine, shard string
	at             int64
}

type shardSeen struct {
	name string
	at   int64
}

// intern returns the one copy of a shard's name and notes that it spoke.
func (g *ghostLedger) intern(shard string, at int64) string {
	g.Lock()
	defer g.Unlock()
	if g.shards == nil {
		g.shards = map[string]*shardSeen{}
	}
	s := g.shards[shard]
	if s == nil {
		s = &shardSeen{name: string([]byte(shard))}
		g.shards[s.name] = s
	}
	s.at = max(s.at, at)
	return s.name
}

func (g *ghostLedger) counts() (all, unknown int) {
	g.Lock()
	defer g.Unlock()
	return g.all, len(g.ghosts)
}

// loaded rebuilds the ledger after the store was read.
func (g *ghostLedger) loaded(r *Inventory) {
	for i := range r.shards {
		for _, s := range r.shards[i].slots {
			g.all += len(s.marks)
			if s.Record() == nil {
				for _, m := range s.marks {
					g.ghosts = append(g.ghosts, ghost{s.id, m.shard, m.at})
				}
			}
		}
	}
	slices.SortFunc(g.ghosts, func(a, b ghost) int { return int(a.at - b.at) })
}

// applyMarks follows a commit in memory. The callers hold the slots.
func (r *Inventory) applyMarks(changes []Change) {
	now := r.config.Now().Unix()
	for _, c := range changes {
		if c.Mark != nil {
			shard := r.marks.intern(c.Mark.Shard, now)
			added := c.Slot.setMark(shard, c.Mark.Token, now)
			r.marks.Lock()
			if added {
				r.marks.all++
				if c.Slot.Record() == nil {
					r.marks.ghosts = append(r.marks.ghosts, ghost{c.Slot.id, shard, now})
				}
			}
			r.marks.Unlock()
		}
		if c.Remove { // its marks are those of an unknown machine from here on (PROV-6.17)
			r.marks.Lock()
			for _, m := range c.Slot.marks {
				r.marks.ghosts = append(r.marks.ghosts, ghost{c.Slot.id, m.shard, now})
			}
			r.marks.Unlock()
		}
		if len(c.drop) > 0 {
			before := len(c.Slot.marks)
			c.Slot.marks = slices.DeleteFunc(c.Slot.marks, func(m mark) bool { return slices.Contains(c.drop, m.shard) })
			r.marks.Lock()
			r.marks.all -= before - len(c.Slot.marks)
			r.marks.Unlock()
		}
	}
}

// Age says what a sweep may forget.
type Age struct {
	UnknownMark time.Duration
	SilentShard time.Duration
	Tombstone   time.Duration
}

// Sweep forgets what is too old or too much: marks of unknown machines, marks of silent shards, tombstones. The caller
// runs it regularly, one at a time.
func (r *Inventory) Sweep(age Age) error {
	now := r.config.Now()
	if err := r.sweepGhosts(now.Add(-age.UnknownMark).Unix()); err != nil {
		return err
	}
	if err := r.sweepShards(now.Add(-age.SilentShard).Unix()); err != nil {
		return err
	}
	return r.sweepTombstones(now.Add(-age.Tombstone))
}

func (r *Inventory) sweepGhosts(before int64) error {
	for {
		r.marks.Lock()
		excess := len(r.marks.ghosts) - r.config.UnknownMarksMax
		n := 0
		for n < len(r.marks.ghosts) && n < r.config.CommitBatchMax && (n < excess || r.marks.ghosts[n].at < before) {
			n++
		}
		batch := slices.Clone(r.marks.ghosts[:n])
		r.marks.ghosts = slices.Delete(r.marks.ghosts, 0, n)
		r.marks.Unlock()
		if n == 0 {
			return nil
		}
		for _, g := range batch {
			if err := r.dropMark(g, before, excess > 0); err != nil {
				return err
			}
		}
	}
}

func (r *Inventory) dropMark(g ghost, before int64, crowded bool) error {
	s := r.Acquire(g.machine)
	defer r.Release(s)
	if s.Record() != nil {
		return nil // it became a machine: an ordinary mark now
	}
	i := slices.IndexFunc(s.marks, func(m mark) bool { return m.shard == g.shard })
	if i < 0 {
		return nil
	}
	if at := s.marks[i].at; at != g.at && at >= before && !crowded { // it moved since: young again
		r.marks.Lock()
		r.marks.ghosts = append(r.marks.ghosts, ghost{g.machine, g.shard, at})
		r.marks.Unlock()
		return nil
	}
	return r.CommitBulk([]Change{{Slot: s, drop: []string{g.shard}}})
}

func (r *Inventory) sweepShards(before int64) error {
	r.marks.Lock()
	silent := map[string]bool{}
	for name, s := range r.marks.shards {
		if s.at < before {
			silent[name] = true
		}
	}
	r.marks.Unlock()
	if len(silent) == 0 {
		return nil
	}
	for _, id := range r.ids() {
		if err := r.dropShards(id, silent); err != nil {
			return err
		}
	}
	r.marks.Lock()
	defer r.marks.Unlock()
	for name := range silent {
		if r.marks.shards[name].at < before {
			delete(r.marks.shards, name)
		}
	}
	return nil
}

func (r *Inventory) dropShards(id string, silent map[string]bool) error {
	s := r.Acquire(id)
	defer r.Release(s)
	var drop []string
	for _, m := range s.marks {
		if silent[m.shard] {
			drop = append(drop, m.shard)
		}
	}
	if len(drop) == 0 {
		return nil
	}
	return r.CommitBulk([]Change{{Slot: s, drop: drop}})
}

// ids lists every id that has a slot, in no order.
func (r *Inventory) ids() []string {
	var all []string
	for i := range r.shards {
		r.shards[i].Lock()
		for id := range r.shards[i].slots {
			all = append(all, id)
		}
		r.shards[i].Unlock()
	}
	return all
}

// sweepTombstones forgets removals that are too old or too many. A cursor from before the newest forgotten one gets the
// full list (PROV-10.19), hence the floor.
func (r *Inventory) sweepTombstones(before time.Time) error {
	for {
		r.index.Lock()
		n := 0
		var batch []*Row
		for n < len(r.index.tombstones) && len(batch) < r.config.CommitBatchMax {
			row := r.index.tombstones[n].row
			if row != nil && !row.removed.Before(before) && r.index.standing-len(batch) <= r.config.TombstonesMax {
				break
			}
			if row != nil {
				batch = append(batch, row)
			}
			n++
		}
		r.index.Unlock()
		if n == 0 {
			return nil
		}
		if err := r.forget(batch, n); err != nil {
			return err
		}
	}
}

func (r *Inventory) forget(batch []*Row, skip int) error {
	floor := r.index.floor
	writes := make([]store.Write, 0, len(batch)+1)
	for _, row := range batch {
		floor = max(floor, row.Revision)
		writes = append(writes, store.Write{Table: store.Removals, Key: number(row.Revision)})
	}
	writes = append(writes, store.Write{Table: store.Meta, Key: keyFloor, Value: number(floor)})
	if err := r.submit(bulk, &commit{plain: writes}); err != nil {
		return err
	}
	r.index.Lock()
	for _, row := range batch {
		if slot := r.find(row.id); slot != nil && slot.row.CompareAndSwap(row, nil) {
			r.index.revisions.remove(row.Revision)
			r.index.standing--
		}
	}
	r.index.tombstones = slices.Delete(r.index.tombstones, 0, skip)
	r.index.floor = floor
	r.index.Unlock()
	for _, row := range batch { // an empty slot goes away with its last user
		r.Release(r.Acquire(row.id))
	}
	return nil
}
