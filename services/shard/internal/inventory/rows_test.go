package inventory

import (
	"reflect"
	"testing"
)

// SHARD-4.7: rows never move, however many come after them, so that no step copies those of a large table; a copy is one
// whether memory was made ready for all of them, for some or for none.
func TestRowsStayWhereTheyAre(t *testing.T) {
	var rows rowTable
	const n = 2*rowBlockLen + 5
	var first, last *Row
	for i := range n {
		at := rows.grow()
		if int(at) != i {
			t.Fatalf("row %d has number %d", i, at)
		}
		rows.at(at).Order = uint32(i)
		if i == 0 {
			first = rows.at(at)
		}
		last = rows.at(at)
	}
	if rows.at(0) != first || rows.at(n-1) != last {
		t.Error("a row has moved")
	}
	for _, blocks := range []int{0, 1, 3, 7} {
		var ready []*rowBlock
		for range blocks {
			b := new(rowBlock)
			b[1].Order = 99 // left from an earlier use
			ready = append(ready, b)
		}
		c := rows.clone(ready)
		rows.at(1).Order = 7
		for i := range n {
			if got := c.at(Index(i)).Order; got != uint32(i) {
				t.Fatalf("with %d blocks ready, row %d of the copy is %d", blocks, i, got)
			}
		}
		rows.at(1).Order = 1
		if at := c.grow(); int(at) != n || rows.n != n {
			t.Errorf("the copy grows to %d, the table has %d", at, rows.n)
		}
	}
}

// ENG-21.7, ENG-23.6: what plans read of every machine is at most 64 bytes and holds no pointer, so that a collection does
// not look at it.
func TestRowsHoldNoPointers(t *testing.T) {
	row := reflect.TypeFor[Row]()
	if row.Size() > 64 {
		t.Errorf("a row has %d bytes", row.Size())
	}
	for i := range row.NumField() {
		if k := row.Field(i).Type.Kind(); k < reflect.Bool || k > reflect.Uint64 {
			t.Errorf("%s is a %s", row.Field(i).Name, k)
		}
	}
}
