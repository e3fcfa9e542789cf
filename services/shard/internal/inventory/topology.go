package inventory

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// DomainsMax is of how many values of a key each is a domain. A key with more tells machines apart, not places, and has no domain (ENG-10.14).
const DomainsMax = 1 << 16

// Topology keeps the free machines by their value of one key (ENG-21.9).
type Topology struct {
	Key     symbol.ID
	Domains []Domain // in no order; a domain stays until the key goes
	byValue map[symbol.ID]int32
	owned   int            // domains with an owned machine that has not failed
	byClass bool           // every class has one value, so that the lists of classes are those of domains
	walked  bool           // some set of labels has or had the key, or it is byClass
	many    bool           // sets of labels have more values than DomainsMax,
	margin  int            // and that stays so while so many more sets come, or go if it has many; below 0 they are counted again
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

// SetTopologyKeys states for which keys the table keeps a Topology. Keys that are not listed are forgotten, but for up to spareKeys that machines have,
// with spareDomains together: they may come again, and each would index all machines again.
func (t *Table) SetTopologyKeys(keys []string) {
	turned := t.countAgain()
	old := make(map[symbol.ID]*Topology, len(t.topology))
	for _, top := range t.topology {
		old[top.Key] = top
	}
	var next, fresh []*Topology
	for _, key := range keys {
		id := t.space.Strings.Intern(key)
		top := old[id]
		if top == nil || turned[top] {
			t.version++
			top = &Topology{Key: id, byValue: map[symbol.ID]int32{}, byClass: id == t.typeKey || id == t.zoneKey}
			fresh = append(fresh, top)
		} else {
			t.space.Strings.Release(id) // the old one has its own
			delete(old, id)
		}
		next = append(next, top)
	}
	spare, domains := spareKeys, spareDomains
	for _, top := range t.topology {
		switch {
		case old[top.Key] != top:
		case spare > 0 && domains >= len(top.Domains) && !turned[top] && top.worth():
			spare, domains = spare-1, domains-len(top.Domains)
			next = append(next, top)
		default:
			for d := range top.Domains {
				t.space.Strings.Release(top.Domains[d].Value)
			}
			t.space.Strings.Release(top.Key)
		}
	}
	t.topology = next
	t.fill(fresh)
	t.findTopologies()
}

// DomainsVersion grows when a domain of some key gets its first owned machine, or loses the last one.
func (t *Table) DomainsVersion() uint64 { return t.domainsVersion }

// findTopologies sets what finds topologies by their keys. Of all that clusters name together, few are those of machines.
func (t *Table) findTopologies() {
	t.topologyOf, t.walked = make(map[symbol.ID]*Topology, len(t.topology)), nil
	for _, top := range t.topology {
		if t.topologyOf[top.Key] = top; top.walked {
			t.walked = append(t.walked, top)
		}
	}
}

// walk takes a new set of labels, with which machines may come into topologies in which none was.
func (t *Table) walk(words []symbol.ID) {
	for ; len(words) > 0; words = words[2:] {
		top := t.topologyOf[words[0]]
		if top == nil {
			continue
		}
		if !top.many {
			top.margin--
		}
		if !top.walked {
			top.walked = true
			t.walked = append(t.walked, top)
		}
	}
}

// walkedOut takes the labels of a set that is forgotten.
func (t *Table) walkedOut(words []symbol.ID) {
	for ; len(words) > 0; words = words[2:] {
		if top := t.topologyOf[words[0]]; top != nil && top.many {
			top.margin--
		}
	}
}

// worth reports whether a topology without demand is kept: machines are in it, or it has no domains because they are too many, and so costs nothing.
func (top *Topology) worth() bool {
	return top.many || slices.ContainsFunc(top.Domains, func(d Domain) bool { return len(d.Owned)+len(d.Cells[0])+len(d.Cells[1]) > 0 })
}

// fill indexes machines in new topologies. A key that no machine has costs nothing.
func (t *Table) fill(fresh []*Topology) {
	values := t.labelSets.values(fresh)
	for _, top := range fresh {
		top.count(values[top.Key], t.domainsMax)
		if top.walked = top.byClass || values[top.Key] > 0; top.walked && !top.many {
			t.fillOne(top)
		}
	}
}

// count takes how many values sets of labels have, and reports whether the topology has or loses its domains by that.
func (top *Topology) count(values, most int) (turned bool) {
	had := top.many
	if top.many = values > most && !top.byClass; top.many {
		top.margin = values - most - 1
	} else {
		top.margin = most - values
	}
	return top.many != had
}

// countAgain counts values of topologies where that is due, and returns those that have to be made again.
func (t *Table) countAgain() (turned map[*Topology]bool) {
	due := slices.DeleteFunc(slices.Clone(t.walked), func(top *Topology) bool { return !top.due() })
	values := t.labelSets.values(due)
	for _, top := range due {
		if top.count(values[top.Key], t.domainsMax) {
			if turned == nil {
				turned = map[*Topology]bool{}
				t.turned++
				t.domainsVersion++
			}
			turned[top] = true
		}
	}
	return turned
}

func (top *Topology) due() bool { return top.margin < 0 && !top.byClass }

// HasDomains reports whether values of a topology key of the demand are domains, as ClassFor has found it last.
func (t *Table) HasDomains(key string) bool {
	id, known := t.space.Strings.Find(key)
	return !known || t.topologyOf[id] == nil || !t.topologyOf[id].many
}

// Turned is how often a key that stays in the demand had no domains any more, or had some again.
func (t *Table) Turned() uint64 { return t.turned }

// fillOne goes through the free machines in the order of a domain's pools, so that each is appended, and looks at each set of labels once.
func (t *Table) fillOne(top *Topology) {
	domains := make([]int32, len(t.labelSets.sets)) // 0: not looked at; else the domain and 2
	domain := func(i Index) int32 {
		if top.byClass {
			return top.domainOf(t, i)
		}
		d := &domains[t.labels[i]]
		if *d == 0 {
			*d = top.domainOf(t, i) + 2
		}
		return *d - 2
	}
	for class := range t.classes {
		for k := range t.classes[class].Pools {
			for _, part := range t.classes[class].Pools[k].chunks {
				for _, i := range part {
					if d := domain(i); d >= 0 {
						top.Domains[d].Cells[k] = count(top.Domains[d].Cells[k], uint32(class), +1)
						if !top.byClass {
							top.Domains[d].Pools[k].push(i)
						}
					}
				}
			}
		}
	}
	for i := range Index(t.rows.n) {
		if r := t.rows.at(i); r.flags&isLive != 0 && r.sound() {
			if d := domain(i); d >= 0 {
				top.own(d, r.Class, +1)
			}
		}
	}
}

// own counts an owned machine in a domain.
func (top *Topology) own(d int32, class uint32, by int32) {
	x := &top.Domains[d].Owned
	before := len(*x)
	*x = count(*x, class, by)
	top.owned += min(len(*x), 1) - min(before, 1)
}

// Owned is how many domains have an owned machine that has not failed.
func (top *Topology) Owned() int { return top.owned }

// ByClass reports whether every class has one value of the key: code that asks for a Topology of a type or a zone must
// list that key among MatchKeys.Values. What is free in a domain is then what is free of its classes.
func (top *Topology) ByClass() bool { return top.byClass }

// TopologyOf returns what is kept for a key, or nil.
func (t *Table) TopologyOf(key symbol.ID) *Topology {
	return t.topologyOf[key]
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
	if top.many {
		return
	}
	if d := top.domainOf(t, i); d >= 0 {
		had := top.owned
		if top.own(d, t.rows.at(i).Class, by); top.owned != had {
			t.domainsVersion++
		}
	}
}

func (top *Topology) index(t *Table, i Index, k Pool, by int32) {
	if top.many {
		return
	}
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
