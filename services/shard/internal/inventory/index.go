package inventory

import "slices"

// logMax is how many changes of free pools, classes in stock and clusters are remembered.
const logMax = 1 << 14

// leave takes a machine out of every index and count, enter puts it in, both from what its row says at that time. A
// writer calls leave, changes the row, and calls enter.
func (t *Table) leave(i Index) { t.index(i, -1) }
func (t *Table) enter(i Index) { t.index(i, +1) }

func (t *Table) index(i Index, by int32) {
	t.version++
	r := t.rows.at(i)
	c := &t.classes[r.Class]
	s := &t.shapes.all[c.Shape]
	if r.flags&isForeign == 0 {
		t.counts[r.State()] += int(by)
	}
	c.Counts[r.Seen()] += by
	if r.flags&isForeign == 0 && t.Exists(i) {
		t.billed.add(s.Price, by)
	}
	if k, ok := r.stock(); ok {
		c.Stock[k] += by
		crosses := func(n int32) bool { return n == 0 || by > 0 && n == 1 }
		if r.flags&markedAll == 0 {
			c.Obtainable += by
		}
		if crosses(c.Stock[IdlePool]+c.Stock[SpeculativePool]) || r.flags&markedAll == 0 && crosses(c.Obtainable) {
			t.stockVersion++
		}
	}
	if r.flags&isForeign != 0 && (r.Seen() == Idle || r.Seen() == Speculative) {
		if c.Elsewhere += by; c.Elsewhere == 0 || by > 0 && c.Elsewhere == 1 {
			t.elsewhereVersion++
		}
	}
	if k, ok := r.pool(); ok {
		t.indexFree(i, k, by)
	}
	if r.sound() {
		for _, top := range t.walked {
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
			t.inFlight.insert(i, t.byOrder)
		} else {
			t.inFlight.remove(i, t.byOrder)
		}
	}
	if id, ok := t.member(i); ok {
		m := t.clusterChanged(id)
		if by > 0 {
			r.pos = uint32(len(m.list))
			m.list = append(grow(m.list), i)
		} else {
			last := m.list[len(m.list)-1]
			m.list[r.pos] = last
			t.rows.at(last).pos = r.pos
			m.list = m.list[:len(m.list)-1]
		}
	}
}

// indexFree is index for a machine in a free pool.
func (t *Table) indexFree(i Index, k Pool, by int32) {
	r := t.rows.at(i)
	c := &t.classes[r.Class]
	if by > 0 {
		c.Pools[k].insert(i, t.byOrder)
	} else {
		c.Pools[k].remove(i, t.byOrder)
	}
	if k == SpeculativePool {
		t.shapes.all[c.Shape].stock += by
	}
	for _, top := range t.walked {
		top.index(t, i, k, by)
	}
	if r.flags&markedSome != 0 {
		for _, w := range t.marks[i] {
			if w.Cluster == "" {
				continue
			}
			id, _ := t.space.Clusters.Find(w.Cluster)
			m := t.clusterChanged(id)
			if at := slices.Index(m.avoided, i); by > 0 && at < 0 { // a machine may have several marks for one cluster
				m.avoided = append(m.avoided, i)
			} else if by < 0 && at >= 0 {
				m.avoided = slices.Delete(m.avoided, at, at+1)
			}
		}
	}
}

func (t *Table) bySince(a, b Index) bool {
	x, y := t.rows.at(a), t.rows.at(b)
	return x.Since < y.Since || x.Since == y.Since && x.Order < y.Order
}

// Releasable returns the Idle machines of an elastic type that nothing but a claim keeps from being released when their
// hold is over, by Since and then by id.
func (t *Table) Releasable(c CapacityType) *List { return &t.release[c-OnDemand] }

// Held returns the owned Idle and Speculative machines without promise that have a mark, by id.
func (t *Table) Held() *List { return &t.held }

// InFlight returns the machines in flight, by id.
func (t *Table) InFlight() *List { return &t.inFlight }
