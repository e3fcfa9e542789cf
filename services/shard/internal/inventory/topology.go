package inventory

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// Topology keeps the free machines by their value of one key (ENG-21.9).
type Topology struct {
	Key     symbol.ID
	Domains []Domain // in no order; a domain stays until the key goes
	byValue map[symbol.ID]int32
	byClass bool           // every class has one value, so that the lists of classes are those of domains
	log     []DomainChange // the last changes
	logBase uint64         // number of the first one
}

// DomainChange is one machine that came into a free pool of a domain or left it.
type DomainChange struct {
	Domain int32
	Class  uint32
	Pool   Pool
	By     int8 // +1 or -1
}

// Changes returns the changes of the free pools since the number that an earlier call returned, and the number to give
// next time. ok is false if they are not all remembered: the reader then starts from the domains themselves.
func (top *Topology) Changes(since uint64) (changes []DomainChange, next uint64, ok bool) {
	next = top.logBase + uint64(len(top.log))
	if since < top.logBase || since > next {
		return nil, next, false
	}
	return top.log[since-top.logBase:], next, true
}

func (top *Topology) record(c DomainChange) {
	if len(top.log) == logMax {
		n := copy(top.log, top.log[logMax/2:])
		top.log = top.log[:n]
		top.logBase += logMax / 2
	}
	top.log = append(top.log, c)
}

// Domain is the free machines with one value.
type Domain struct {
	Value symbol.ID
	Pools [pools]List   // by class, then by id; empty where ByClass
	Cells [pools][]Cell // how many of which class, by class
	Owned []Cell        // all owned machines that have not failed, whatever they do, by class

	OwnedVersion uint64 // of Owned
}

// Cell counts the machines of one class in a domain.
type Cell struct {
	Class uint32
	N     int32
}

// count adds by to the cell of a class, which comes and goes with its machines.
func count(cells []Cell, class uint32, by int32) []Cell {
	at, ok := slices.BinarySearchFunc(cells, class, func(c Cell, class uint32) int { return cmp.Compare(c.Class, class) })
	if !ok {
		return slices.Insert(grow(cells), at, Cell{class, by})
	}
	if cells[at].N += by; cells[at].N == 0 {
		return slices.Delete(cells, at, at+1)
	}
	return cells
}

// RunStart returns where in the pieces of a domain's pool the machines of a class begin, or would. The counts say it: no
// machine is looked at.
func (d *Domain) RunStart(k Pool, class uint32) (chunk, pos int) {
	for _, c := range d.Cells[k] {
		if c.Class >= class {
			break
		}
		pos += int(c.N)
	}
	for _, c := range d.Pools[k].chunks {
		if pos < len(c) {
			break
		}
		pos -= len(c)
		chunk++
	}
	return chunk, pos
}

// SetTopologyKeys states for which keys the table keeps a Topology. Keys that are not listed are forgotten.
func (t *Table) SetTopologyKeys(keys []string) {
	var next []*Topology
	for _, key := range keys {
		id := t.space.Strings.Intern(key)
		if old := t.TopologyOf(id); old != nil {
			next = append(next, old)
			t.space.Strings.Release(id) // the old one has its own
			continue
		}
		t.version++
		top := &Topology{Key: id, byValue: map[symbol.ID]int32{}, byClass: id == t.typeKey || id == t.zoneKey}
		for i := range Index(t.rows.n) {
			r := t.rows.at(i)
			if r.flags&isLive == 0 {
				continue
			}
			if r.sound() {
				top.indexOwned(t, Index(i), +1)
			}
			if k, ok := r.pool(); ok {
				top.index(t, Index(i), k, +1)
			}
		}
		next = append(next, top)
	}
	for _, old := range t.topology {
		if !slices.Contains(next, old) {
			for d := range old.Domains {
				t.space.Strings.Release(old.Domains[d].Value)
			}
			t.space.Strings.Release(old.Key)
		}
	}
	t.topology = next
}

// ByClass reports whether every class has one value of the key: whoever asks for a Topology of a type or a zone must
// list that key among MatchKeys.Values. What is free in a domain is then what is free of its classes.
func (top *Topology) ByClass() bool { return top.byClass }

// TopologyOf returns what is kept for a key, or nil.
func (t *Table) TopologyOf(key symbol.ID) *Topology {
	for _, top := range t.topology {
		if top.Key == key {
			return top
		}
	}
	return nil
}

// Domain returns the position of a value in Domains.
func (top *Topology) Domain(value symbol.ID) (int32, bool) {
	d, ok := top.byValue[value]
	return d, ok
}

// domainOf returns the domain of a machine, new if need be, or -1.
func (top *Topology) domainOf(t *Table, i Index) int32 {
	v, has := t.Value(i, top.Key)
	if !has {
		return -1
	}
	d, ok := top.byValue[v]
	if !ok {
		d = int32(len(top.Domains))
		t.space.Strings.Retain(v)
		top.Domains = append(top.Domains, Domain{Value: v})
		top.byValue[v] = d
	}
	return d
}

// indexOwned counts an owned machine in its domain.
func (top *Topology) indexOwned(t *Table, i Index, by int32) {
	if d := top.domainOf(t, i); d >= 0 {
		top.Domains[d].OwnedVersion = t.version
		top.Domains[d].Owned = count(top.Domains[d].Owned, t.rows.at(i).Class, by)
	}
}

func (top *Topology) index(t *Table, i Index, k Pool, by int32) {
	d := top.domainOf(t, i)
	if d < 0 {
		return
	}
	top.record(DomainChange{Domain: d, Class: t.rows.at(i).Class, Pool: k, By: int8(by)})
	top.Domains[d].Cells[k] = count(top.Domains[d].Cells[k], t.rows.at(i).Class, by)
	switch {
	case top.byClass:
	case by > 0:
		top.Domains[d].Pools[k].insert(i, t.byClass)
	default:
		top.Domains[d].Pools[k].remove(i, t.byClass)
	}
}

func (t *Table) byClass(a, b Index) bool {
	x, y := t.rows.at(a), t.rows.at(b)
	return x.Class < y.Class || x.Class == y.Class && x.Order < y.Order
}
