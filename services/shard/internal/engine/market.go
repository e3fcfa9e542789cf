package engine

import (
	"cmp"
	"math"
	"math/bits"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// shelf is classes with equal supply, in groups of equal effective cost for one interruption bucket, cheapest first. What
// is not the cheapest of its shelf is never better than what is (ENG-13), so a choice looks at one group per shelf.
// Markets that match the same classes of a supply share their shelf.
//
// Groups are cut by full supply, not by class: how labels split classes must not change a choice (ENG-6.5).
type shelf struct {
	class  uint32 // one that has its supply
	groups []group
	slots  []slot // of each group
	gen    uint32 // of the stock that head is about
	head   [2]int32
}

type group struct {
	cost     int64
	from, to int32 // slots
	pile     int32 // in the catalog, if the group was all of one when it was made, or -1
}

// slot is one class of a group. n is used by markets of one domain only: how many are free there.
type slot struct {
	class uint32
	n     int32
}

// fill cuts slots, which are sorted by cost, into groups. cost is by slot.
func (s *shelf) fill(cost func(class uint32) int64) {
	s.class = s.slots[0].class
	s.groups = s.groups[:0]
	for i, x := range s.slots {
		k := cost(x.class)
		if n := len(s.groups); n > 0 && s.groups[n-1].cost == k {
			s.groups[n-1].to++
			continue
		}
		s.groups = append(s.groups, group{cost: k, from: int32(i), to: int32(i + 1), pile: -1})
	}
}

// market is what Needs with one matcher, one frame and one interruption bucket can choose from, sorted for the cover
// rule. Nothing in it depends on what is free, so it is kept from plan to plan.
type market struct {
	m       *matcher
	f       *frame
	bucket  demand.Bucket
	version uint64

	zones []*market           // its parts by domain of top,
	top   *inventory.Topology //
	cut   uint64              // as of this version

	shelves []*shelf
	base    []int32    // number of the first group of each shelf; groups are numbered through the market
	of      []int32    // shelf of each group
	sup     []int64    // by shelf: supply in the frame
	most    []int64    // the largest supply in each dimension
	rungs   []rungs    // by dimension, if a word has a bit for each shelf; made on first use
	cheap   [2]ranking // by pool: shelves by cost alone
	orders  [2]map[uint64]*ranking
}

// ranking is shelves by the least that they can cost, or can cost per share. Machines only become fewer while Needs take
// turns, so a shelf only moves back; when something is given back, and in a new plan, all begin where they stood.
type ranking struct {
	gen  uint32 // of the stock
	list []ranked
}

type ranked struct {
	shelf int32
	group int32 // the one that cost is of
	pile  int32 // see group
	slots int32
	cost  int64
	share uint64 // not clipped; 1 in an order by cost alone
}

// point makes a place about a group of its shelf.
func (o *ranked) point(k *market, h int32) {
	s := k.shelves[o.shelf]
	gr := &s.groups[h]
	o.cost, o.group, o.pile, o.slots = gr.cost, k.base[o.shelf]+h, gr.pile, gr.to-gr.from
}

// effectiveCost is ENG-7.4: half a dollar times parts per million is half a millionth of a dollar.
func effectiveCost(c *inventory.Class, b demand.Bucket) int64 {
	return resource.AddSat(c.Price, (int64(c.Probability)*int64(b.Penalty())+1)/2)
}

func (k *market) group(g int32) *group {
	s := k.of[g]
	return &k.shelves[s].groups[g-k.base[s]]
}

func (k *market) supply(s int32) []int64 {
	n := int32(len(k.f.dims))
	return k.sup[s*n : s*n+n : s*n+n]
}

// index numbers the groups and sorts the shelves, once these are in place.
func (k *market) index() {
	groups := 0
	for _, s := range k.shelves {
		groups += len(s.groups)
	}
	n, dims := len(k.shelves), len(k.f.dims)
	k.base, k.of = slices.Grow(k.base[:0], n), slices.Grow(k.of[:0], groups)
	k.sup, k.most = slices.Grow(k.sup[:0], n*dims), slices.Grow(k.most[:0], dims)[:dims]
	k.orders, k.rungs = [2]map[uint64]*ranking{}, k.rungs[:0]
	clear(k.most)
	for p := range k.cheap {
		k.cheap[p].gen, k.cheap[p].list = 0, slices.Grow(k.cheap[p].list[:0], n)
	}
	for i, s := range k.shelves {
		k.base = append(k.base, int32(len(k.of)))
		for range s.groups {
			k.of = append(k.of, int32(i))
		}
		sup := k.f.of(s.class)
		k.sup = append(k.sup, sup...)
		for j, x := range sup {
			k.most[j] = max(k.most[j], x)
		}
		for p := range k.cheap {
			k.cheap[p].list = append(k.cheap[p].list, ranked{shelf: int32(i), share: 1})
		}
	}
}

// start puts the shelves where they stand when nothing is taken.
func (r *ranking) start(k *market, gen uint32) {
	r.gen = gen
	for i := range r.list {
		r.list[i].point(k, 0)
	}
	slices.SortFunc(r.list, func(a, b ranked) int {
		if c := compareRatio(a.cost, a.share, b.cost, b.share); c != 0 {
			return c
		}
		return cmp.Compare(a.shelf, b.shelf)
	})
}

// settle moves the shelf at i back if what is left of it costs more than was known, and reports whether it did. What has
// nothing left goes to the end.
func (r *ranking) settle(i int, k *market, p inventory.Pool) bool {
	x := r.list[i]
	s := k.shelves[x.shelf]
	cost := int64(math.MaxInt64)
	if h := s.head[p]; s.gen == r.gen && int(h) < len(s.groups) {
		cost = s.groups[h].cost
	}
	if s.gen != r.gen || cost == x.cost {
		return false
	}
	if x.cost = cost; cost != math.MaxInt64 {
		x.point(k, s.head[p])
	} else {
		x.pile = -1
	}
	for ; i+1 < len(r.list) && compareRatio(r.list[i+1].cost, r.list[i+1].share, x.cost, x.share) < 0; i++ {
		r.list[i] = r.list[i+1]
	}
	r.list[i] = x
	return true
}

const (
	orderedMin = 6 // shelves; fewer are looked at one by one
	shapesMax  = 256
)

// order returns the shelves by least cost per unclipped share, for residuals of one shape: the same dimensions positive
// and the same weights (13.2). Clipping only lowers a share and taking only raises a cost, so a walk in this order may
// stop at the first shelf that cannot be better any more (ENG-21.8). It returns nil if the market is not worth it.
func (k *market) order(active []int, shift []uint8, p inventory.Pool, gen uint32) *ranking {
	if len(k.shelves) < orderedMin || len(k.f.dims) > 8 {
		return nil
	}
	shape := uint64(0)
	for a, j := range active {
		shape |= uint64(shift[a]+1) << (8 * j)
	}
	r := k.orders[p][shape]
	if r == nil {
		if k.orders[p] == nil || len(k.orders[p]) > shapesMax {
			k.orders[p] = map[uint64]*ranking{}
		}
		r = &ranking{list: make([]ranked, 0, len(k.shelves))}
		for s := range k.shelves {
			if share := unclipped(k.supply(int32(s)), active, shift); share > 0 {
				r.list = append(r.list, ranked{shelf: int32(s), share: share})
			}
		}
		k.orders[p][shape] = r
	}
	if r.gen != gen {
		r.start(k, gen)
	}
	return r
}

// unclipped is the share of a supply if the residual were large.
func unclipped(sup []int64, active []int, shift []uint8) uint64 {
	share := uint64(0)
	for a, j := range active {
		if bits.Len64(uint64(sup[j]))+int(shift[a]) > 63 {
			return math.MaxUint64 // more than any clipped share
		}
		share = addShare(share, sup[j], shift[a])
	}
	return share
}

// addShare adds a weighted amount to a share, saturating.
func addShare(share uint64, x int64, shift uint8) uint64 {
	sum, carry := bits.Add64(share, uint64(x)<<shift, 0)
	if carry != 0 {
		return math.MaxUint64
	}
	return sum
}

// compareRatio compares a÷x with b÷y.
func compareRatio(a int64, x uint64, b int64, y uint64) int {
	ahi, alo := bits.Mul64(uint64(a), y)
	bhi, blo := bits.Mul64(uint64(b), x)
	switch {
	case ahi != bhi:
		return cmp.Compare(ahi, bhi)
	case alo != blo:
		return cmp.Compare(alo, blo)
	}
	return 0
}
