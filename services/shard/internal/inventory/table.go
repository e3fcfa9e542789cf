package inventory

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Index is the dense number of a machine.
type Index uint32

// None is no machine.
const None = ^Index(0)

// Table is the inventory of a shard. It is not safe for concurrent use.
type Table struct {
	space   *symbol.Space
	entries []entry
	byID    map[string]Index
	free    []Index
	removed []Index // since the last Advance
	now     int64
	version uint64
	perC    map[string]uint64 // version by cluster
	counts  [states]int
}

type entry struct {
	live      bool
	m         Machine
	stamp     Stamp
	hasStamp  bool
	promise   *Promise
	withheld  []Withheld
	since     int64
	readiness Readiness
	foreign   bool
	stuck     bool
}

// New returns an empty table in the given space.
func New(space *symbol.Space) *Table {
	return &Table{space: space, byID: map[string]Index{}, perC: map[string]uint64{}}
}

// Put stores what a provider says about a machine: a new one, or new word of one that is known. It touches nothing of
// what the shard remembers. changed is false if that is what the table holds already.
func (t *Table) Put(m Machine) (i Index, changed bool) {
	m.normalise()
	i, known := t.byID[m.ID]
	if !known {
		if n := len(t.free); n > 0 {
			i, t.free = t.free[n-1], t.free[:n-1]
		} else {
			i = Index(len(t.entries))
			t.entries = append(t.entries, entry{})
		}
		t.entries[i] = entry{live: true, m: m}
		t.byID[m.ID] = i
		t.counts[m.State]++
		t.touch(i)
		return i, true
	}
	e := &t.entries[i]
	if equalMachines(&e.m, &m) {
		return i, false
	}
	t.touch(i)
	t.counts[e.m.State]--
	t.counts[m.State]++
	e.m = m
	t.touch(i)
	return i, true
}

func equalMachines(a, b *Machine) bool {
	return a.ID == b.ID && a.Provider == b.Provider && a.State == b.State && a.InstanceType == b.InstanceType && a.Zone == b.Zone &&
		a.CapacityType == b.CapacityType && a.Price == b.Price && a.Probability == b.Probability && a.Cluster == b.Cluster &&
		a.HostProvider == b.HostProvider && a.HostRef == b.HostRef && a.LastError == b.LastError && a.Failure == b.Failure &&
		slices.Equal(a.Resources, b.Resources) && slices.Equal(a.Allocatable, b.Allocatable) &&
		slices.Equal(a.Labels, b.Labels) && slices.Equal(a.Taints, b.Taints)
}

// touch advances the versions of everything that counts machine i now.
func (t *Table) touch(i Index) {
	t.version++
	e := &t.entries[i]
	if e.m.Cluster != "" {
		t.perC[e.m.Cluster] = t.version
	}
	if e.promise != nil {
		t.perC[e.promise.Cluster] = t.version
	}
}

// Move stores a transition that the shard made itself: the state, and the cluster, which is empty for states that have
// none. It is Put for these two fields alone.
func (t *Table) Move(i Index, s State, cluster string) bool {
	e := &t.entries[i]
	if e.m.State == s && e.m.Cluster == cluster {
		return false
	}
	t.touch(i)
	t.counts[e.m.State]--
	t.counts[s]++
	e.m.State, e.m.Cluster = s, cluster
	t.touch(i)
	return true
}

// Remove forgets a machine. Its Index is not given to another before the next Advance.
func (t *Table) Remove(i Index) {
	t.touch(i)
	t.counts[t.entries[i].m.State]--
	delete(t.byID, t.entries[i].m.ID)
	t.entries[i] = entry{}
	t.removed = append(t.removed, i)
}

// SetStamp stores or, with nil, clears the attribution of a machine.
func (t *Table) SetStamp(i Index, s *Stamp) bool {
	e := &t.entries[i]
	var v Stamp
	if s != nil {
		v = *s
	}
	if e.hasStamp == (s != nil) && e.stamp == v {
		return false
	}
	e.stamp, e.hasStamp = v, s != nil
	t.touch(i)
	return true
}

// SetPromise stores or, with nil, clears the promise of a machine.
func (t *Table) SetPromise(i Index, p *Promise) bool {
	e := &t.entries[i]
	if p == nil && e.promise == nil || p != nil && e.promise != nil && *p == *e.promise {
		return false
	}
	t.touch(i)
	e.promise = nil
	if p != nil {
		c := *p
		e.promise = &c
	}
	t.touch(i)
	return true
}

// Withhold adds a mark, or replaces the one with the same reason and cluster.
func (t *Table) Withhold(i Index, w Withheld) bool {
	e := &t.entries[i]
	for j := range e.withheld {
		if e.withheld[j].Reason == w.Reason && e.withheld[j].Cluster == w.Cluster {
			if e.withheld[j] == w {
				return false
			}
			e.withheld = slices.Clone(e.withheld)
			e.withheld[j] = w
			t.touch(i)
			return true
		}
	}
	e.withheld = append(slices.Clone(e.withheld), w)
	slices.SortFunc(e.withheld, func(a, b Withheld) int {
		return cmp.Or(cmp.Compare(a.Reason, b.Reason), strings.Compare(a.Cluster, b.Cluster))
	})
	t.touch(i)
	return true
}

// Lift takes away the mark with this reason and cluster.
func (t *Table) Lift(i Index, r WithheldReason, cluster string) bool {
	e := &t.entries[i]
	for j := range e.withheld {
		if e.withheld[j].Reason == r && e.withheld[j].Cluster == cluster {
			e.withheld = slices.Delete(slices.Clone(e.withheld), j, j+1)
			t.touch(i)
			return true
		}
	}
	return false
}

// SetSince stores when the machine entered its present state, on the shard's clock: idle_since of an Idle machine,
// configured_at of a Configured one. The table does not set it by itself.
func (t *Table) SetSince(i Index, at int64) bool {
	e := &t.entries[i]
	if e.since == at {
		return false
	}
	e.since = at
	t.touch(i)
	return true
}

// SetReadiness stores what node reports say. A new binding begins with NoReport.
func (t *Table) SetReadiness(i Index, r Readiness) bool {
	e := &t.entries[i]
	if e.readiness == r {
		return false
	}
	e.readiness = r
	t.touch(i)
	return true
}

// SetForeign marks a machine as owned by another shard (ENG-5.10), or takes the mark away. A new machine is ours.
func (t *Table) SetForeign(i Index, foreign bool) bool {
	e := &t.entries[i]
	if e.foreign == foreign {
		return false
	}
	e.foreign = foreign
	t.touch(i)
	return true
}

// SetStuck makes the engine see the machine as Failed, whatever its state (SHARD-14.14), or takes that back.
func (t *Table) SetStuck(i Index, stuck bool) bool {
	e := &t.entries[i]
	if e.stuck == stuck {
		return false
	}
	e.stuck = stuck
	t.touch(i)
	return true
}

// Advance sets the time of the next plan. It drops promises and marks that have expired at it and returns the machines
// that lost one, by id. It also frees the numbers of machines removed since the last call.
func (t *Table) Advance(now int64) []Lapse {
	t.now = now
	t.free = append(t.free, t.removed...)
	t.removed = t.removed[:0]
	var out []Lapse
	for i := range t.All() {
		e := &t.entries[i]
		if p := e.promise; p != nil && p.Expires != 0 && p.Expires <= now {
			out = append(out, Lapse{Index: i, Promise: p})
			t.SetPromise(i, nil)
		}
		for _, w := range slices.Clone(e.withheld) {
			if w.Until != 0 && w.Until <= now {
				out = append(out, Lapse{Index: i, Withheld: w})
				t.Lift(i, w.Reason, w.Cluster)
			}
		}
	}
	return out
}

// Lapse is a promise or a mark that expired.
type Lapse struct {
	Index    Index
	Promise  *Promise // nil if it was a mark
	Withheld Withheld
}

// Find returns the machine with an id.
func (t *Table) Find(id string) (Index, bool) {
	i, ok := t.byID[id]
	return i, ok
}

// All visits every machine by id, ascending.
func (t *Table) All() iter.Seq[Index] {
	ids := make([]Index, 0, len(t.byID))
	for i := range t.entries {
		if t.entries[i].live {
			ids = append(ids, Index(i))
		}
	}
	slices.SortFunc(ids, func(a, b Index) int { return strings.Compare(t.entries[a].m.ID, t.entries[b].m.ID) })
	return slices.Values(ids)
}

// Len is the number of machines; Bound is one more than the largest Index in use.
func (t *Table) Len() int   { return len(t.byID) }
func (t *Table) Bound() int { return len(t.entries) }

// Count is the number of machines in a state, as the provider says it.
func (t *Table) Count(s State) int { return t.counts[s] }

// Version grows with every change.
func (t *Table) Version() uint64 { return t.version }

// Now is the time of the last Advance.
func (t *Table) Now() int64 { return t.now }

// Space returns the numbering the table uses.
func (t *Table) Space() *symbol.Space { return t.space }
