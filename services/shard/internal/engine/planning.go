package engine

import (
	"math"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/symbol"
)

// planning is one plan at work. Its memory is that of a Planner and used again by the next plan.
type planning struct {
	w      *World
	policy *Policy
	now    int64
	res    *Result

	cat         *catalog
	folding     folding
	foldVersion uint64
	stock       stock
	tops        []*topState

	states []*clusterState // by block
	dirty  []*clusterState

	queue   []turn
	late    []turn // a heap: Needs that lost something in turns and take theirs later (12.6)
	cover   coverer
	x       scratch
	buf     []int64
	taking  []inventory.Index
	counts  []int32 // of the buckets
	spilled []int32
	local   market // of one domain
	views   []domainView
	spread  spreading

	victims  victimIndex
	wish     wish
	drained  []drainage
	handed   []handed
	byID     []*clusterState // by symbol of the cluster
	displace int
	bought   bool // some Need took a Speculative machine
	tries    int
	spent    bool
	saved    int64
}

// turn names a Need in turn order (ENG-7.2): the rank with higher first, the arrival with unknown last, the cluster and
// the position in it, which are in order themselves.
type turn struct {
	rank, arrival uint64
	cl, want      int32
}

func turnOf(cl *clusterState, w *want) turn {
	f := w.need.Form
	t := turn{cl: cl.at, want: w.at, arrival: math.MaxUint64}
	t.rank = ^(uint64(uint32(f.Priority)^1<<31)<<16 | uint64(f.Interruption)<<8 | uint64(f.Reclamation))
	if w.need.Arrival != 0 {
		t.arrival = uint64(w.need.Arrival) ^ 1<<63
	}
	return t
}

func compareTurn(a, b turn) int {
	switch {
	case a.rank != b.rank:
		return sign(a.rank < b.rank)
	case a.arrival != b.arrival:
		return sign(a.arrival < b.arrival)
	case a.cl != b.cl:
		return sign(a.cl < b.cl)
	case a.want != b.want:
		return sign(a.want < b.want)
	}
	return 0
}

func sign(before bool) int {
	if before {
		return -1
	}
	return 1
}

func (p *planning) text(s symbol.ID) string { return p.w.Space.Strings.Text(s) }

// topState is what the plan at work has taken per domain of a topology key.
type topState struct {
	top      *inventory.Topology
	byClass  bool               // every class has one value: what is left of it is what is left in its domain
	taken    [2][]map[int]int32 // by domain, by position in Cells
	touched  []int32
	changed  []uint32 // by domain: grows with every take there
	sequence uint32
}

func (p *planning) beginTopologies() {
	p.tops = p.tops[:0]
	str := p.w.Space.Strings
	for _, key := range p.w.Demand.TopologyKeys() {
		id, _ := str.Find(key)
		top := p.w.Inventory.TopologyOf(id)
		t := &topState{top: top, byClass: key == inventory.ZoneKey || key == inventory.TypeKey}
		p.tops = append(p.tops, t)
	}
}

func (p *planning) topology(key symbol.ID) *topState {
	for _, t := range p.tops {
		if t.top.Key == key {
			return t
		}
	}
	return nil
}

// left is how many machines of a cell the plan has left.
func (p *planning) left(t *topState, d int, k inventory.Pool, cell int) int32 {
	c := t.top.Domains[d].Cells[k][cell]
	if t.byClass {
		return p.stock.free[k][c.Class]
	}
	if len(t.taken[k]) == 0 || t.taken[k][d] == nil {
		return c.N
	}
	return c.N - t.taken[k][d][cell]
}

// countTaken keeps the topologies right when a free machine is taken (by 1) or given back (by -1).
func (p *planning) countTaken(i inventory.Index, class uint32, k inventory.Pool, by int32) {
	for _, t := range p.tops {
		if t.byClass {
			continue
		}
		v, has := p.w.Inventory.Value(i, t.top.Key)
		if !has {
			continue
		}
		d, ok := t.top.Domain(v)
		if !ok {
			continue
		}
		if len(t.taken[k]) == 0 {
			t.taken[k] = make([]map[int]int32, len(t.top.Domains))
		}
		if t.taken[k][d] == nil {
			t.taken[k][d] = map[int]int32{}
		}
		cells := t.top.Domains[d].Cells[k]
		at, _ := slices.BinarySearchFunc(cells, class, func(c inventory.Cell, class uint32) int { return int(c.Class) - int(class) })
		t.taken[k][d][at] += by
	}
}

// take moves a free machine into a cluster, claimed by w.
func (p *planning) take(cl *clusterState, w *want, i inventory.Index, k inventory.Pool) {
	inv := p.w.Inventory
	r := inv.Row(i)
	p.stock.take(i, r.Class, k)
	p.countTaken(i, r.Class, k, 1)
	p.bought = p.bought || k == inventory.SpeculativePool
	l := local{idx: i, class: r.Class, order: r.Order, stamp: r.Stamp, state: r.Seen(), bits: lAcquired, claim: -1, next: -1, owner: -1,
		ownNext: -1, shares: -1, out: -1, used: -1, price: inv.Class(r.Class).Price}
	if r.Stamp != 0 {
		l.recl = inv.StampRow(r.Stamp).Reclamation
	}
	cl.loc = append(cl.loc, l)
	cl.claim(w, int32(len(cl.loc)-1))
	cl.spoiled = true
}

// anyFree reports whether a pool has anything left that matches.
func (p *planning) anyFree(m *matcher, k inventory.Pool) bool {
	if m.epoch != p.stock.gen {
		m.epoch, m.alive = p.stock.gen, [2]int32{}
	}
	for ; int(m.alive[k]) < len(m.classes); m.alive[k]++ {
		if p.stock.free[k][m.classes[m.alive[k]]] > 0 {
			return true
		}
	}
	return false
}

func (p *planning) state(t turn) (*clusterState, *want) {
	cl := p.states[t.cl]
	return cl, &cl.wants[t.want]
}

func held(w *want) bool { return w.hold != demand.NotHeld }

func sortTurns(list []turn) { slices.SortFunc(list, compareTurn) }
