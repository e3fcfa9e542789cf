package inventory

import (
	"slices"
	"sort"
)

// chunkRows bounds the copy that a writer makes after a reader took a cut: 256 pointers are 2 KiB.
const chunkRows = 256

// revisions keeps all rows and tombstones in the order of their revision. A cut of it costs one pointer table, whatever
// the size: chunks are copied by the writer that next changes them.
type revisions struct {
	chunks     []*chunk // never empty chunks, rising
	generation uint64   // raised by each cut; an older chunk belongs to a cut
	shared     bool     // the pointer table itself belongs to a cut
}

type chunk struct {
	generation uint64
	rows       []*Row // rising by revision
}

// cut is an immutable view.
type cut []*chunk

func (x *revisions) cut() cut {
	x.generation++
	x.shared = true
	return x.chunks
}

// append adds a row with a revision above all others.
func (x *revisions) append(row *Row) {
	x.own()
	if n := len(x.chunks); n == 0 || len(x.chunks[n-1].rows) >= chunkRows {
		x.chunks = append(x.chunks, &chunk{generation: x.generation, rows: make([]*Row, 0, chunkRows)})
	}
	c := x.writable(len(x.chunks) - 1)
	c.rows = append(c.rows, row)
}

// replace exchanges the row of the same revision.
func (x *revisions) replace(row *Row) {
	i, j, found := cut(x.chunks).find(row.Revision)
	if found {
		x.own()
		x.writable(i).rows[j] = row
	}
}

// remove takes out the row with that revision.
func (x *revisions) remove(revision uint64) {
	i, j, found := cut(x.chunks).find(revision)
	if !found {
		return
	}
	x.own()
	c := x.writable(i)
	c.rows = slices.Delete(c.rows, j, j+1)
	switch {
	case len(c.rows) == 0:
		x.chunks = slices.Delete(x.chunks, i, i+1)
	case len(c.rows) <= chunkRows/4 && i+1 < len(x.chunks) && len(x.chunks[i+1].rows) <= chunkRows/2:
		// Old chunks thin out as machines move on; joining them keeps the table proportional to the machines.
		c.rows = append(c.rows, x.chunks[i+1].rows...)
		x.chunks = slices.Delete(x.chunks, i+1, i+2)
	}
}

func (x *revisions) own() {
	if x.shared {
		x.chunks, x.shared = slices.Clone(x.chunks), false
	}
}

func (x *revisions) writable(i int) *chunk {
	c := x.chunks[i]
	if c.generation != x.generation {
		rows := make([]*Row, len(c.rows), chunkRows)
		copy(rows, c.rows)
		c = &chunk{generation: x.generation, rows: rows}
		x.chunks[i] = c
	}
	return c
}

// find returns the place of a revision.
func (v cut) find(revision uint64) (i, j int, found bool) {
	i, j = v.after(revision - 1)
	return i, j, i < len(v) && v[i].rows[j].Revision == revision
}

// after returns the place of the first row above a revision; i is len(v) when there is none.
func (v cut) after(revision uint64) (i, j int) {
	i = sort.Search(len(v), func(i int) bool { rows := v[i].rows; return rows[len(rows)-1].Revision > revision })
	if i == len(v) {
		return i, 0
	}
	rows := v[i].rows
	return i, sort.Search(len(rows), func(j int) bool { return rows[j].Revision > revision })
}

// walk visits the rows above a revision in rising order until visit says stop.
func (v cut) walk(revision uint64, visit func(*Row) bool) {
	i, j := v.after(revision)
	for ; i < len(v); i, j = i+1, 0 {
		for _, row := range v[i].rows[j:] {
			if !visit(row) {
				return
			}
		}
	}
}
