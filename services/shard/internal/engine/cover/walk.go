package cover

import (
	"math"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// walker visits the free machines of one class by id, without those that the cluster must not take.
type walker struct {
	chunks     [][]inventory.Index
	chunk, pos int
	class      uint32
	at         inventory.Index
	order      uint32 // of at; the largest number at the end
}

const atEnd = math.MaxUint32

// walk starts at the first free machine of a class.
func (c *Search) walk(w *walker, class uint32) {
	w.class = class
	cur := &c.free.cursor[c.pool][class]
	if c.domain != nil && !c.byClass {
		cur = c.left.cursor(c.domainAt, c.pool, class)
		w.chunks = c.domain.Pools[c.pool].Chunks()
	} else {
		w.chunks = c.free.inv.Class(class).Pools[c.pool].Chunks()
	}
	w.chunk, w.pos = int(cur.chunk), int(cur.pos)
	c.pass(w)
	cur.chunk, cur.pos = int32(w.chunk), int32(w.pos)
	c.find(w)
}

// pass moves to the next machine that the plan has not taken.
func (c *Search) pass(w *walker) {
	for ; w.chunk < len(w.chunks); w.chunk, w.pos = w.chunk+1, 0 {
		for list := w.chunks[w.chunk]; w.pos < len(list); w.pos++ {
			if !c.free.IsTaken(list[w.pos]) {
				return
			}
		}
	}
}

// find moves to the next machine that may be taken, beginning with the present one.
func (c *Search) find(w *walker) {
	for c.pass(w); w.chunk < len(w.chunks); c.pass(w) {
		i := w.chunks[w.chunk][w.pos]
		r := c.free.inv.Row(i)
		if r.Class != w.class {
			break
		}
		if len(c.Spare) == 0 || !c.spared(i) {
			w.at, w.order = i, r.Order
			return
		}
		w.pos++
	}
	w.order = atEnd
}

func (c *Search) spared(i inventory.Index) bool {
	for _, x := range c.Spare {
		if x == i {
			return true
		}
	}
	return false
}

// machines visits the free machines of a group by id until yield says stop. How many this cover has taken tentatively
// plays no part. yield must not take what it is given.
func (c *Search) machines(g int32, yield func(i inventory.Index, order uint32) bool) {
	sh, gr := &c.mk.groups[c.mk.of[g]], c.mk.tier(g)
	c.walks = c.walks[:0]
	for i := gr.from; i < gr.to; i++ {
		c.walks = append(c.walks, walker{})
		w := &c.walks[len(c.walks)-1]
		if c.walk(w, sh.slots[i].Class); w.order == atEnd {
			c.walks = c.walks[:len(c.walks)-1]
		}
	}
	walks := c.walks
	for len(walks) > 0 {
		least := 0
		for i := 1; i < len(walks); i++ { // classes of equal supply and cost are few
			if walks[i].order < walks[least].order {
				least = i
			}
		}
		w := &walks[least]
		if !yield(w.at, w.order) {
			return
		}
		w.pos++
		if c.find(w); w.order == atEnd {
			walks[least] = walks[len(walks)-1]
			walks = walks[:len(walks)-1]
		}
	}
}

// Listed appends the first n free machines of a group to a list, by id.
func (c *Search) Listed(into []Machine, g, n int32) []Machine {
	c.machines(g, func(i inventory.Index, _ uint32) bool {
		into = append(into, Machine{i, c.free.inv.Row(i).Class})
		n--
		return n > 0
	})
	return into
}
