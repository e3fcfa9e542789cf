package cover

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Domains is what a plan has left of the free pools in each domain of a topology key.
type Domains struct {
	Top     *inventory.Topology
	ByClass bool             // every class has one value: what is left of it is what is left in its domain
	taken   [2][]domainTaken // by domain
	Plan    uint64
}

// domainTaken is what a plan has taken of a pool of a domain, by position in Cells.
type domainTaken struct {
	plan    uint64 // the plan that it is about; in any other, nothing is taken
	n       []int32
	cursors []cursor   // nothing before it is free
	late    [12]uint32 // classes of machines that are taken and not yet in n: many at once are found faster
	lateN   int
}

// Left is how many machines of a cell the plan has left.
func (t *Domains) Left(free *FreePool, d int, k inventory.Pool, cell int) int32 {
	c := t.Top.Domains[d].Cells[k][cell]
	if t.ByClass {
		return free.Left(k, c.Class)
	}
	if d >= len(t.taken[k]) || t.taken[k][d].plan != t.Plan {
		return c.N
	}
	return c.N - t.takenOf(int32(d), k).n[cell]
}

// takenOf returns what is taken of a pool of a domain in the plan at work.
func (t *Domains) takenOf(d int32, k inventory.Pool) *domainTaken {
	if n := len(t.Top.Domains); len(t.taken[k]) < n {
		t.taken[k] = append(t.taken[k], make([]domainTaken, n-len(t.taken[k]))...)
	}
	x := &t.taken[k][d]
	if x.plan != t.Plan {
		n := len(t.Top.Domains[d].Cells[k])
		x.plan = t.Plan
		x.n, x.cursors, x.lateN = slices.Grow(x.n[:0], n)[:n], slices.Grow(x.cursors[:0], n)[:n], 0
		clear(x.n)
		for i := range x.cursors {
			x.cursors[i] = cursor{chunk: -1}
		}
	}
	for _, class := range x.late[:x.lateN] {
		x.n[t.cellOf(d, k, class)]++
	}
	x.lateN = 0
	return x
}

// cellOf returns the position of a class in a pool of a domain.
func (t *Domains) cellOf(d int32, k inventory.Pool, class uint32) int {
	cells := t.Top.Domains[d].Cells[k]
	lo, hi := 0, len(cells)
	for lo < hi {
		if mid := (lo + hi) / 2; cells[mid].Class < class {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// Take counts machines of a class as taken from a domain (by 1) or given back to it (by -1).
func (t *Domains) Take(class uint32, d int32, k inventory.Pool, by int32) {
	if by == 1 && int(d) < len(t.taken[k]) {
		if x := &t.taken[k][d]; x.plan == t.Plan && x.lateN < len(x.late) {
			x.late[x.lateN] = class
			x.lateN++
			return
		}
	}
	x, at := t.takenOf(d, k), t.cellOf(d, k, class)
	x.n[at] += by
	if by < 0 {
		x.cursors[at] = cursor{chunk: -1}
	}
}

// cursor returns the place of the first machine of a class in a domain that may be free.
func (t *Domains) cursor(d int32, k inventory.Pool, class uint32) *cursor {
	c := &t.takenOf(d, k).cursors[t.cellOf(d, k, class)]
	if c.chunk < 0 {
		chunk, pos := t.Top.Domains[d].RunStart(k, class)
		c.chunk, c.pos = int32(chunk), int32(pos)
	}
	return c
}
