package inventory

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// A hash index finds what was put in and not taken out, also when many share a home or a hash.
func TestHashIndexAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		spread := rapid.SampledFrom([]uint64{1, 2, 7, 1 << 30}).Draw(t, "hashes")
		hashOf := func(n uint32) uint64 { return hashNumbers(uint64(n) % spread) }
		var x hashIndex
		in := map[uint32]bool{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			n := uint32(rapid.IntRange(0, 60).Draw(t, "number"))
			is := func(got uint32) bool { return got == n }
			got, found := x.find(hashOf(n), is)
			if found != in[n] || found && got != n {
				t.Fatalf("%d is found %v as %d, want %v", n, found, got, in[n])
			}
			if found {
				x.remove(hashOf(n), n, hashOf)
			} else {
				x.insert(hashOf(n), n, hashOf)
			}
			in[n] = !found
		}
		copied := x.clone()
		for n := range uint32(61) {
			if _, found := copied.find(hashOf(n), func(got uint32) bool { return got == n }); found != in[n] {
				t.Fatalf("%d is found %v in the copy, want %v", n, found, in[n])
			}
		}
	})
}

// A number that does not fit beside its tag is refused, not cut.
func TestHashIndexIsBounded(t *testing.T) {
	hashOf := func(n uint32) uint64 { return hashNumbers(uint64(n)) }
	var x hashIndex
	x.insert(hashOf(numberMask-1), numberMask-1, hashOf)
	if n, ok := x.find(hashOf(numberMask-1), func(uint32) bool { return true }); !ok || n != numberMask-1 {
		t.Errorf("the largest number is found as %d, %v", n, ok)
	}
	defer func() {
		if recover() == nil {
			t.Error("a number of 25 bits was taken")
		}
	}()
	x.insert(hashOf(numberMask), numberMask, hashOf)
}

// ENG-23.6: no insert moves more than its part of the ids, and a list that is filled in any order wastes little.
func TestTablesStayCompact(t *testing.T) {
	var x idIndex
	table := &Table{}
	table.idRef = make([]textRef, 20_000)
	for i := range table.idRef {
		table.idRef[i] = table.ids.add(fmt.Sprintf("i-%022x", i*7919))
		x.insert(table, Index(i))
	}
	slots := 0
	for k := range x {
		slots += len(x[k].slots)
		if n := len(x[k].slots); n > 3*20_000/idParts {
			t.Errorf("part %d has %d slots", k, n)
		}
	}
	if slots < 20_000*5/4 || slots > 20_000*7/4 {
		t.Errorf("%d slots for 20,000 ids", slots)
	}
	var l List
	for i := range Index(20_000) {
		l.insert(i*7919%20_011, func(a, b Index) bool { return a < b })
	}
	room := 0
	for _, c := range l.Chunks() {
		room += cap(c)
		if len(c) > chunkMax || len(c) == 0 {
			t.Errorf("a piece of %d", len(c))
		}
	}
	if room > 20_000*5/4 {
		t.Errorf("room for %d in a list of 20,000", room)
	}
}
