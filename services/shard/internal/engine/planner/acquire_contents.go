package planner

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// contents sorts the domains of a key by what they have free. Domains that have the same answer every question in the same way, so that a gang
// looks at one of them (ENG-21.9).
type contents struct {
	plan  uint64 // the last plan that brought it up to date
	since uint64 // number of the next change of the topology
	read  int    // how far in touched
	stale []int32
	of    []int32 // by domain: its content, or noContent
	list  []content
	byKey map[string]int32
	cells int // of contents that domains have
	contentBuffers
}

// contentBuffers are used again.
type contentBuffers struct {
	key  []byte
	left [2][]inventory.Cell
	view []int64
}

// content is what some domains have free.
type content struct {
	cells [2][]inventory.Cell
	ranks []int32 // of the domains, ascending
}

const noContent = -1

// forget takes note of the domains that a plan took something of.
func (c *contents) forget(touched []int32) {
	if c.stale = append(c.stale, touched...); len(c.stale) > 2*len(c.of) {
		*c = contents{stale: c.stale[:0], contentBuffers: c.contentBuffers}
	}
}

// sync looks at the domains that changed, and reports whether contents are less to look at than domains.
func (c *contents) sync(ts *topologies, t *topState) bool {
	if n := len(t.Top.Domains); len(c.of) != n || len(c.list) > 2*n {
		*c = contents{of: slices.Repeat([]int32{noContent}, n), byKey: map[string]int32{}, contentBuffers: c.contentBuffers}
	}
	if c.plan != ts.plans {
		changes, next, ok := t.Top.Changes(c.since)
		if c.since = next; !ok || len(c.list) == 0 {
			c.stale = append(c.stale[:0], t.byRank...)
		}
		for _, x := range changes {
			c.stale = append(c.stale, x.Domain)
		}
		c.plan, c.read = ts.plans, 0
	} else if c.cells > len(c.of) && !ts.off.atOnce {
		return false // for the rest of the plan
	}
	for _, d := range c.stale {
		c.look(ts, t, d)
	}
	c.stale = c.stale[:0]
	for _, d := range t.touched[max(c.read-1, 0):] { // the last one may have been touched again
		c.look(ts, t, d)
	}
	c.read = len(t.touched)
	return c.cells <= len(c.of) || ts.off.atOnce
}

// look finds the content of a domain.
func (c *contents) look(ts *topologies, t *topState, d int32) {
	c.key = c.key[:0]
	for k := range c.left {
		c.left[k] = c.left[k][:0]
		for i, cell := range t.Top.Domains[d].Cells[k] {
			if n := t.Left(ts.free, int(d), inventory.Pool(k), i); n > 0 {
				c.left[k] = append(c.left[k], inventory.Cell{Class: cell.Class, N: n})
			}
		}
		c.key = append(inventory.AppendCells(c.key, c.left[k]), 0)
	}
	to, known := c.byKey[string(c.key)]
	switch {
	case len(c.key) == 2:
		to = noContent
	case !known:
		to = int32(len(c.list))
		c.list = append(c.list, content{cells: [2][]inventory.Cell{slices.Clone(c.left[0]), slices.Clone(c.left[1])}})
		c.byKey[string(c.key)] = to
	}
	from := c.of[d]
	if from == to {
		return
	}
	if from >= 0 {
		x := &c.list[from]
		if at, _ := slices.BinarySearch(x.ranks, t.rank[d]); at == 0 {
			x.ranks = x.ranks[1:]
		} else {
			x.ranks = slices.Delete(x.ranks, at, at+1)
		}
		if len(x.ranks) == 0 {
			c.cells -= x.size()
		}
	}
	if to >= 0 {
		x := &c.list[to]
		if len(x.ranks) == 0 {
			c.cells += x.size()
		}
		at, _ := slices.BinarySearch(x.ranks, t.rank[d])
		x.ranks = slices.Insert(x.ranks, at, t.rank[d])
	}
	c.of[d] = to
}

func (x *content) size() int { return len(x.cells[0]) + len(x.cells[1]) }

// best is topologies.best by contents.
func (c *contents) best(cl *clusterState, w *needState, t *topState, skip []int32) (at int32, satisfiable bool) {
	var best domainPlace
	at = -1
	agg := cl.aggregate(w)
	k := len(agg)
	c.view = slices.Grow(c.view[:0], 2*k)[:2*k]
	idle, total := c.view[:k], c.view[k:]
	for i := range c.list {
		x := &c.list[i]
		first := slices.IndexFunc(x.ranks, func(rank int32) bool { return len(skip) == 0 || !slices.Contains(skip, t.byRank[rank]) })
		if first < 0 {
			continue
		}
		clear(idle)
		n := addCells(cl, w, x.cells[inventory.IdlePool], idle)
		copy(total, idle)
		if n += addCells(cl, w, x.cells[inventory.SpeculativePool], total); n == 0 || best.first >= satisfiableBit && !match.Covers(total, agg) {
			continue
		}
		if p := placeOf(idle, total, total, agg, n, x.ranks[first]); at < 0 || p.better(&best) {
			at, best = t.byRank[x.ranks[first]], p
		}
	}
	return at, best.first >= satisfiableBit
}

// addCells adds up what machines that fit a gang have for it, and counts those that contribute.
func addCells(cl *clusterState, w *needState, cells []inventory.Cell, into []int64) (n int32) {
	for _, cell := range cells {
		if !cl.fits(w, cell.Class) {
			continue
		}
		if match.Touches(cl.f.Supply(cell.Class), cl.aggregate(w)) {
			n += cell.N
		}
		for j, s := range cl.amount(w, cell.Class) {
			into[j] = resource.AddSat(into[j], resource.MulSat(s, int64(cell.N)))
		}
	}
	return n
}
