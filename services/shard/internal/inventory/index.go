package inventory

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// clusterMembers is what counts for one cluster: machines bound to it or in flight for it, in no order.
type clusterMembers struct {
	list    []Index
	version uint64
	avoided []Index // free machines withheld for this cluster alone
}

// member returns the cluster that the machine is bound to or in flight for.
func (t *Table) member(i Index) (symbol.ID, bool) {
	r := &t.rows[i]
	switch {
	case r.Bound():
		return r.Cluster, true
	case r.InFlight():
		id, _ := t.space.Clusters.Find(t.promises[i].Cluster)
		return id, true
	}
	return 0, false
}

func (t *Table) clusterOf(id symbol.ID) *clusterMembers {
	for int(id) >= len(t.clusters) {
		t.clusters = append(t.clusters, clusterMembers{})
	}
	return &t.clusters[id]
}

// touch advances the version of the cluster that counts the machine.
func (t *Table) touch(i Index) {
	t.version++
	if id, ok := t.member(i); ok {
		t.clusterChanged(id)
	}
}

// clusterChanged advances the version of a cluster and remembers that it did.
func (t *Table) clusterChanged(id symbol.ID) *clusterMembers {
	m := t.clusterOf(id)
	m.version = t.version
	l := &t.clusterLog
	if n := len(l.list); n > 0 && l.list[n-1] == id {
		return m
	}
	if len(l.list) == logMax {
		n := copy(l.list, l.list[logMax/2:])
		l.list = l.list[:n]
		l.base += logMax / 2
	}
	l.list = append(l.list, id)
	return m
}

// clusterLog remembers the last clusters whose machines changed.
type clusterLog struct {
	list []symbol.ID
	base uint64
}

// ClusterChanges returns the clusters whose Members changed since the number that an earlier call returned, perhaps more
// than once, and the number to give next time. ok is false if not all are remembered.
func (t *Table) ClusterChanges(since uint64) (changed []symbol.ID, next uint64, ok bool) {
	l := &t.clusterLog
	next = l.base + uint64(len(l.list))
	if since > l.base {
		since--
	}
	if since < l.base || since > next {
		return nil, next, false
	}
	return l.list[since-l.base:], next, true
}

// leave takes a machine out of every index and count, enter puts it in, both from what its row says at that time. A
// writer calls leave, changes the row, and calls enter.
func (t *Table) leave(i Index) { t.index(i, -1) }
func (t *Table) enter(i Index) { t.index(i, +1) }

func (t *Table) index(i Index, by int32) {
	t.version++
	r := &t.rows[i]
	c := &t.classes[r.Class]
	s := &t.shapes.all[c.Shape]
	t.counts[r.State()] += int(by)
	c.Counts[r.Seen()] += by
	if r.billed() {
		t.billed.add(s.Price, by)
	}
	if k, ok := r.stock(); ok {
		if c.Stock[k] += by; c.Stock[k] == 0 || by > 0 && c.Stock[k] == 1 {
			t.stockChanged(r.Class)
		}
	}
	if k, ok := r.pool(); ok {
		t.indexFree(i, k, by)
	}
	if r.sound() {
		for _, top := range t.topology {
			top.indexOwned(t, i, by)
		}
	}
	if _, ok := r.stock(); ok && r.flags&isPromised == 0 && r.flags&(markedAll|markedSome) != 0 {
		if by > 0 {
			t.held.insert(i, t.byOrder)
		} else {
			t.held.remove(i, t.byOrder)
		}
	}
	if s.Capacity.Elastic() && r.releasable() {
		l := &t.release[s.Capacity-OnDemand]
		if by > 0 {
			l.insert(i, t.bySince)
		} else {
			l.remove(i, t.bySince)
		}
	}
	if r.InFlight() {
		if by > 0 {
			t.flying.insert(i, t.byOrder)
		} else {
			t.flying.remove(i, t.byOrder)
		}
	}
	if id, ok := t.member(i); ok {
		m := t.clusterChanged(id)
		if by > 0 {
			r.pos = uint32(len(m.list))
			m.list = append(m.list, i)
		} else {
			last := m.list[len(m.list)-1]
			m.list[r.pos] = last
			t.rows[last].pos = r.pos
			m.list = m.list[:len(m.list)-1]
		}
	}
}

// indexFree is index for a machine in a free pool.
func (t *Table) indexFree(i Index, k Pool, by int32) {
	r := &t.rows[i]
	c := &t.classes[r.Class]
	if by > 0 {
		c.Pools[k].insert(i, t.byOrder)
	} else {
		c.Pools[k].remove(i, t.byOrder)
	}
	if k == SpeculativePool {
		t.shapes.all[c.Shape].stock += by
	}
	for _, top := range t.topology {
		top.index(t, i, k, by)
	}
	if r.flags&markedSome != 0 {
		for _, w := range t.marks[i] {
			if w.Cluster == "" {
				continue
			}
			id, _ := t.space.Clusters.Find(w.Cluster)
			m := t.clusterChanged(id)
			if by > 0 {
				m.avoided = append(m.avoided, i)
			} else if at := slices.Index(m.avoided, i); at >= 0 {
				m.avoided = slices.Delete(m.avoided, at, at+1)
			}
		}
	}
}

func (t *Table) bySince(a, b Index) bool {
	x, y := &t.rows[a], &t.rows[b]
	return x.Since < y.Since || x.Since == y.Since && x.Order < y.Order
}

// Members returns the machines bound to a cluster or in flight for it, in no order, and the version of that set and of
// what a plan reads about its machines. The slice is the table's own and valid until the next write.
func (t *Table) Members(cluster symbol.ID) ([]Index, uint64) {
	if int(cluster) >= len(t.clusters) {
		return nil, 0
	}
	m := &t.clusters[cluster]
	return m.list, m.version
}

// MemberPosition returns where a machine that is bound or in flight is in the Members of its cluster.
func (t *Table) MemberPosition(i Index) int32 { return int32(t.rows[i].pos) }

// Avoided returns the free machines that are withheld for this cluster alone, in no order.
func (t *Table) Avoided(cluster symbol.ID) []Index {
	if int(cluster) >= len(t.clusters) {
		return nil
	}
	return t.clusters[cluster].avoided
}

// Releasable returns the Idle machines of an elastic type that nothing but a claim keeps from being released when their
// hold is over, by Since and then by id.
func (t *Table) Releasable(c CapacityType) *List { return &t.release[c-OnDemand] }

// Held returns the owned Idle and Speculative machines without promise that have a mark, by id.
func (t *Table) Held() *List { return &t.held }

// Flying returns the machines in flight, by id.
func (t *Table) Flying() *List { return &t.flying }

// StockVersion grows when a class gains its first, or loses its last, owned Idle or Speculative machine.
func (t *Table) StockVersion() uint64 { return t.stockLog.base + uint64(len(t.stockLog.list)) }

// StockChanges returns the classes whose stock did that since a version, perhaps more than once. ok is false if not all
// are remembered.
func (t *Table) StockChanges(since uint64) (classes []uint32, ok bool) {
	l := &t.stockLog
	if since < l.base || since > t.StockVersion() {
		return nil, false
	}
	return l.list[since-l.base:], true
}

// stockLog remembers the last classes whose stock changed between some and none.
type stockLog struct {
	list []uint32
	base uint64
}

func (t *Table) stockChanged(class uint32) {
	l := &t.stockLog
	if len(l.list) == logMax {
		n := copy(l.list, l.list[logMax/2:])
		l.list = l.list[:n]
		l.base += logMax / 2
	}
	l.list = append(l.list, class)
}

// Billed is the price of all owned machines that cost something now, millionths of a dollar per hour, saturating.
func (t *Table) Billed() int64 { return t.billed.saturated() }

// wide is a sum of many prices that never overflows.
type wide struct{ hi, lo uint64 }

func (w *wide) add(v int64, by int32) {
	var carry uint64
	if by > 0 {
		w.lo, carry = bits.Add64(w.lo, uint64(v), 0)
		w.hi += carry
	} else {
		w.lo, carry = bits.Sub64(w.lo, uint64(v), 0)
		w.hi -= carry
	}
}

func (w *wide) saturated() int64 {
	if w.hi != 0 || w.lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(w.lo)
}

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

// logMax is how many changes of free pools, classes in stock and clusters are remembered.
const logMax = 1 << 14

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
		return slices.Insert(cells, at, Cell{class, by})
	}
	if cells[at].N += by; cells[at].N == 0 {
		return slices.Delete(cells, at, at+1)
	}
	return cells
}

// RunStart returns where in the pieces of a domain's pool the machines of a class begin, or would.
func (t *Table) RunStart(d *Domain, k Pool, class uint32) (chunk, pos int) {
	chunks := d.Pools[k].chunks
	chunk, _ = slices.BinarySearchFunc(chunks, class, func(c []Index, class uint32) int {
		if t.rows[c[len(c)-1]].Class < class {
			return -1
		}
		return 1
	})
	if chunk < len(chunks) {
		pos, _ = slices.BinarySearchFunc(chunks[chunk], class, func(i Index, class uint32) int {
			if t.rows[i].Class < class {
				return -1
			}
			return 1
		})
	}
	return chunk, pos
}

// SetTopologyKeys tells the table for which keys to keep Topology. Keys that are not listed are forgotten.
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
		for i := range t.rows {
			r := &t.rows[i]
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
		top.Domains[d].Owned = count(top.Domains[d].Owned, t.rows[i].Class, by)
	}
}

func (top *Topology) index(t *Table, i Index, k Pool, by int32) {
	d := top.domainOf(t, i)
	if d < 0 {
		return
	}
	top.record(DomainChange{Domain: d, Class: t.rows[i].Class, Pool: k, By: int8(by)})
	top.Domains[d].Cells[k] = count(top.Domains[d].Cells[k], t.rows[i].Class, by)
	switch {
	case top.byClass:
	case by > 0:
		top.Domains[d].Pools[k].insert(i, t.byClass)
	default:
		top.Domains[d].Pools[k].remove(i, t.byClass)
	}
}

func (t *Table) byClass(a, b Index) bool {
	x, y := &t.rows[a], &t.rows[b]
	return x.Class < y.Class || x.Class == y.Class && x.Order < y.Order
}

// expiryHeap says which machines to look at when. An entry may be out of date: then nothing is found to drop.
type expiryHeap []expires

type expires struct {
	at int64
	i  Index
}

func (h *expiryHeap) push(at int64, i Index) {
	if at == 0 {
		return
	}
	*h = append(*h, expires{at, i})
	for c := len(*h) - 1; c > 0; {
		p := (c - 1) / 2
		if (*h)[p].at <= (*h)[c].at {
			break
		}
		(*h)[p], (*h)[c] = (*h)[c], (*h)[p]
		c = p
	}
}

// pop returns a machine whose time has come at now.
func (h *expiryHeap) pop(now int64) (Index, bool) {
	s := *h
	if len(s) == 0 || s[0].at > now {
		return 0, false
	}
	i := s[0].i
	s[0] = s[len(s)-1]
	s = s[:len(s)-1]
	for p := 0; ; {
		c := 2*p + 1
		if c >= len(s) {
			break
		}
		if c+1 < len(s) && s[c+1].at < s[c].at {
			c++
		}
		if s[p].at <= s[c].at {
			break
		}
		s[p], s[c] = s[c], s[p]
		p = c
	}
	*h = s
	return i, true
}

// rebuildExpiry drops entries that are out of date.
func (t *Table) rebuildExpiry() {
	t.expiry = t.expiry[:0]
	for i := range t.All() {
		if t.rows[i].flags&(isPromised|markedAll|markedSome) == 0 {
			continue
		}
		if p, ok := t.promises[i]; ok {
			t.expiry.push(p.Expires, i)
		}
		for _, w := range t.marks[i] {
			t.expiry.push(w.Until, i)
		}
	}
	slices.SortFunc(t.expiry, func(a, b expires) int { return cmp.Compare(a.at, b.at) })
}
