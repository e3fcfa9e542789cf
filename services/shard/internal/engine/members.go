package engine

import (
	"cmp"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// gather lists the machines of the cluster and whose Own each is.
func (cl *clusterState) gather(p *planning, x *scratch) {
	inv := p.w.Inventory
	list, _ := inv.Members(cl.d.ID)
	reports := cl.d.Facts.ReportsReadiness
	if cl.gathered == cl.supplyVersion && cl.gathered != 0 && !reports && !cl.reported {
		cl.renew(p)
	} else {
		if !cl.byRow {
			cl.list(p, list)
		}
		cl.readiness(p)
		cl.arrange(x)
	}
	cl.gathered, cl.reported, cl.keys = cl.supplyVersion, reports, p.w.Demand.KeysVersion()
	for at := range cl.loc {
		l := &cl.loc[at]
		key, keyed := l.key, l.bits&lKeyed != 0
		if !l.state.Bound() { // a promise names its row by text: the row may be new
			pr, _ := inv.Promise(l.idx)
			key, keyed = p.w.Space.Keys.Find(pr.For.Fingerprint, pr.For.Group)
		}
		if cl.byRow && l.owner >= 0 {
			l.owner = cl.rowWant[l.owner]
		} else if l.owner = cl.ownerAsBefore(l.owner, key); !keyed {
			l.owner = -1
		} else if l.owner < 0 {
			l.owner = cl.ownerOf(p, key)
		}
	}
	cl.byRow = false
	for _, list := range [...][]int32{cl.flight, cl.bound} { // chains are built from the end: bound first, each in order
		for _, at := range slices.Backward(list) {
			if l := &cl.loc[at]; l.owner >= 0 {
				w := &cl.wants[l.owner]
				l.ownNext, w.own = w.own, at
			}
		}
	}
	cl.loose, cl.excess, cl.looseOld = len(cl.bound), 0, true
	for _, at := range cl.bound {
		if l := &cl.loc[at]; l.state == inventory.Configured && l.bits&lForeign == 0 {
			cl.excess++
		}
	}
}

// list reads the members from the inventory.
func (cl *clusterState) list(p *planning, list []inventory.Index) {
	inv := p.w.Inventory
	cl.loc = slices.Grow(cl.loc[:0], len(list))
	cl.bound, cl.flight, cl.byID, cl.columns = slices.Grow(cl.bound[:0], len(list)), cl.flight[:0], cl.byID[:0], cl.columns[:0]
	sum := uint32(0)
	for n, i := range list {
		if n%aheadTurns == 0 { // see lookAhead
			for _, i := range list[n:min(n+aheadTurns, len(list))] {
				sum += inv.Row(i).Class
			}
			cl.ahead = sum
		}
		r := inv.Row(i)
		l := local{idx: i, class: r.Class, order: r.Order, state: r.Seen(), claim: -1, next: -1, owner: -1, ownNext: -1,
			shares: -1, out: -1, used: -1, price: inv.Class(r.Class).Price}
		if r.Foreign() {
			l.bits |= lForeign
		}
		if r.Stamp != 0 {
			s := inv.StampRow(r.Stamp)
			l.recl, l.key = s.Reclamation, s.Key
			l.bits |= lKeyed
			if s.Ours {
				l.bits |= lOurs
			}
		}
		if l.state.Bound() {
			cl.bound = append(cl.bound, int32(len(cl.loc)))
		} else {
			cl.flight = append(cl.flight, int32(len(cl.loc)))
		}
		cl.loc = append(cl.loc, l)
	}
	cl.members = len(cl.loc)
}

// arrange sorts the members for the walks of credit.
func (cl *clusterState) arrange(x *scratch) {
	n := 0 // Configured
	x.list = x.list[:0]
	for _, at := range cl.bound {
		if cl.loc[at].state == inventory.Configured {
			cl.bound[n] = at
			n++
		} else {
			x.list = append(x.list, at)
		}
	}
	copy(cl.bound[n:], x.list)
	cl.keepOrder(cl.bound[:n], x)
	cl.keepOrder(cl.bound[n:], x)
	slices.SortFunc(cl.flight, func(a, b int32) int {
		x, y := &cl.loc[a], &cl.loc[b]
		return cmp.Or(cmp.Compare(flightRank(x.state), flightRank(y.state)), cmp.Compare(x.order, y.order))
	})
	cl.byID = append(cl.byID, cl.flight...)
	slices.SortFunc(cl.byID, func(a, b int32) int { return cmp.Compare(cl.loc[a].order, cl.loc[b].order) })
}

// renew makes the members of the last credit unclaimed again. They are the same machines in the same states, so their
// order is the same, too.
func (cl *clusterState) renew(p *planning) {
	cl.loc = cl.loc[:cl.members]
	for i := range cl.loc {
		l := &cl.loc[i]
		l.claim, l.next, l.ownNext, l.shares, l.out, l.used = -1, -1, -1, -1, -1, -1
		l.bits &= lOurs | lForeign | lKeyed
	}
	if cl.keys != p.w.Demand.KeysVersion() {
		cl.columns = cl.columns[:0]
	}
	for i := range cl.columns {
		if c := &cl.columns[i]; len(c.values) > cl.members {
			c.values = c.values[:cl.members]
		}
	}
}

// findRows notes of each machine in owner the row of demand that it is the Own of.
func (cl *clusterState) findRows(p *planning) {
	cl.byRow = true
	for at := range cl.loc {
		l := &cl.loc[at]
		key, keyed := l.key, l.bits&lKeyed != 0
		if !l.state.Bound() {
			pr, _ := p.w.Inventory.Promise(l.idx)
			key, keyed = p.w.Space.Keys.Find(pr.For.Fingerprint, pr.For.Group)
		}
		if keyed {
			if row, ok := cl.d.Row(key); ok {
				l.owner = int32(row)
			}
		}
	}
}

// ownerAsBefore returns the position that a row key had in the last credit if the same row is there now, or -1. It saves
// most of the lookups of a cluster where one amount has changed.
func (cl *clusterState) ownerAsBefore(at int32, key symbol.ID) int32 {
	if at >= 0 && int(at) < len(cl.wants) {
		if w := &cl.wants[at]; w.bits&wFolded == 0 && cl.need(w).Key == key {
			return at
		}
	}
	return -1
}

// ownerOf returns the Need that a row key names (ENG-5.7), or -1.
func (cl *clusterState) ownerOf(p *planning, key symbol.ID) int32 {
	if row, ok := cl.d.Row(key); ok {
		return cl.rowWant[row]
	}
	if len(cl.folds) > 0 {
		fp, group := p.w.Space.Keys.Text(key)
		for i := range cl.folds {
			if n := &cl.folds[i].Need; n.Group == group && n.Form.Fingerprint == fp {
				return cl.rowWant[cl.folds[i].Members[0]]
			}
		}
	}
	return -1
}

// flightRank orders in-flight machines for credit: Idle, Creating, Draining.
func flightRank(s inventory.State) int {
	switch s {
	case inventory.Idle:
		return 0
	case inventory.Creating:
		return 1
	}
	return 2
}

// keep is keep order (ENG-7.3).
func (cl *clusterState) keep(a, b int32) int {
	x, y := &cl.loc[a], &cl.loc[b]
	return cmp.Or(cmp.Compare(x.price, y.price), cmp.Compare(y.recl, x.recl), cmp.Compare(x.order, y.order))
}

// keepKey is what keep order looks at, side by side.
type keepKey struct {
	price     int64
	recl      demand.Penalty
	order, at uint32
}

// keepOrder puts machines into keep order.
func (cl *clusterState) keepOrder(list []int32, x *scratch) {
	x.keys = slices.Grow(x.keys[:0], len(list))
	for _, at := range list {
		l := &cl.loc[at]
		x.keys = append(x.keys, keepKey{l.price, l.recl, l.order, uint32(at)})
	}
	slices.SortFunc(x.keys, func(a, b keepKey) int {
		switch {
		case a.price != b.price:
			return sign(a.price < b.price)
		case a.recl != b.recl:
			return sign(a.recl > b.recl)
		}
		return sign(a.order < b.order)
	})
	for i := range x.keys {
		list[i] = int32(x.keys[i].at)
	}
}

// values returns the column of a topology key, for all local machines.
func (cl *clusterState) values(inv *inventory.Table, key symbol.ID) []int64 {
	var col *column
	for i := range cl.columns {
		if cl.columns[i].key == key {
			col = &cl.columns[i]
		}
	}
	if col == nil {
		cl.columns = append(cl.columns, column{key: key})
		col = &cl.columns[len(cl.columns)-1]
	}
	if len(col.values) == len(cl.loc) {
		return col.values
	}
	top := inv.TopologyOf(key)
	byClass := top != nil && top.ByClass() // a class is read more often than its machines
	col.values = slices.Grow(col.values, len(cl.loc)-len(col.values))
	for i := len(col.values); i < len(cl.loc); i++ {
		var v symbol.ID
		var has bool
		if byClass {
			v, has = inv.ClassValue(inv.Class(cl.loc[i].class), key)
		} else {
			v, has = inv.ValueIn(cl.loc[i].class, cl.loc[i].idx, key)
		}
		x := int64(v)
		if !has {
			x = -1
		}
		col.values = append(col.values, x)
	}
	return col.values
}

// noteValue says which value of a key the last local machine has, if the column is complete but for it.
func (cl *clusterState) noteValue(key, v symbol.ID) {
	for i := range cl.columns {
		if c := &cl.columns[i]; c.key == key && len(c.values) == len(cl.loc)-1 {
			c.values = append(c.values, int64(v))
		}
	}
}
