package inventory

// rowTable is the rows by Index, in blocks that never move: a machine more costs a small block now and then, and no step ever
// copies or clears those of half a million (SHARD-4.7).
type rowTable struct {
	blocks []*rowBlock
	n      int
}

type rowBlock [rowBlockLen]Row

const (
	rowBits     = 12
	rowBlockLen = 1 << rowBits
)

func (t *rowTable) at(i Index) *Row { return &t.blocks[i>>rowBits][i&(rowBlockLen-1)] }

// grow adds a row, zero, and returns its number.
func (t *rowTable) grow() Index {
	if t.n == len(t.blocks)*rowBlockLen {
		t.blocks = append(t.blocks, new(rowBlock))
	}
	t.n++
	return Index(t.n - 1)
}

// clone copies the rows, into these blocks as far as they go.
func (t *rowTable) clone(into []*rowBlock) rowTable {
	out := rowTable{n: t.n}
	for k, b := range t.blocks {
		to := (*rowBlock)(nil)
		if k < len(into) {
			to = into[k]
		} else {
			to = new(rowBlock)
		}
		*to = *b
		out.blocks = append(out.blocks, to)
	}
	return out
}
