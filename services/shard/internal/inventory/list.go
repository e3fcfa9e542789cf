package inventory

import "slices"

// List is a set of machines in a fixed order, kept in pieces so that a change moves little memory whatever the size.
type List struct {
	chunks [][]Index
	n      int
	last   int // piece of the last insertion: machines often come in order
}

// chunkMax is how many machines a piece holds at most: half a kilobyte is moved by an average insertion.
const chunkMax = 256

// Len is the number of machines.
func (l *List) Len() int { return l.n }

// Chunks returns the pieces in order. They are the list's own and valid until the next change.
func (l *List) Chunks() [][]Index { return l.chunks }

// seek returns the piece and the position of the first machine that is not before i.
func (l *List) seek(i Index, before func(a, b Index) bool) (int, int) {
	at := l.piece(i, before)
	if at == len(l.chunks) {
		return at, 0
	}
	c := l.chunks[at]
	lo, hi := 0, len(c)
	for lo < hi {
		mid := (lo + hi) / 2
		if before(c[mid], i) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return at, lo
}

// piece returns the first piece whose last machine is not before i. It searches from where the last insertion was, in steps
// that double: pages of a List come in order, and their neighbours are in the cache.
func (l *List) piece(i Index, before func(a, b Index) bool) int {
	reaches := func(x int) bool { c := l.chunks[x]; return !before(c[len(c)-1], i) }
	lo, hi := 0, len(l.chunks)
	switch x := l.last; {
	case x >= hi:
	case !reaches(x):
		lo = x + 1
		for step := 1; lo < hi; step *= 2 {
			x = min(lo+step, hi) - 1
			if reaches(x) {
				hi = x
				break
			}
			lo = x + 1
		}
	case x == 0 || !reaches(x-1):
		return x
	default:
		hi = x - 1
	}
	for lo < hi {
		if mid := (lo + hi) / 2; reaches(mid) {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo
}

// insert adds a machine that is not in the list and returns where it went.
func (l *List) insert(i Index, before func(a, b Index) bool) (int, int) {
	l.n++
	at, pos := l.seek(i, before)
	if at == len(l.chunks) {
		if at > 0 && len(l.chunks[at-1]) < chunkMax {
			at--
			pos = len(l.chunks[at])
		} else {
			l.chunks = append(l.chunks, nil)
		}
	}
	if c := l.chunks[at]; len(c) == chunkMax {
		const half = chunkMax / 2
		l.chunks[at] = grow(slices.Clip(c[:half]))
		l.chunks = slices.Insert(l.chunks, at+1, grow(slices.Clip(c[half:])))
		if pos >= half {
			at, pos = at+1, pos-half
		}
	}
	l.chunks[at] = slices.Insert(grow(l.chunks[at]), pos, i)
	l.last = at
	return at, pos
}

// push adds a machine that comes after all others.
func (l *List) push(i Index) {
	if last := len(l.chunks) - 1; last < 0 || len(l.chunks[last]) == chunkMax {
		l.chunks = append(l.chunks, nil)
	}
	l.n++
	l.last = len(l.chunks) - 1
	l.chunks[l.last] = append(grow(l.chunks[l.last]), i)
}

// grow returns s with capacity for one more element. It adds an eighth and not a half, because machines come once, in a
// first List, and stay.
func grow[S ~[]E, E any](s S) S { return growBy(s, 8) }

func growBy[S ~[]E, E any](s S, part int) S {
	if len(s) < cap(s) {
		return s
	}
	return append(slices.Grow(S(nil), len(s)+len(s)/part+1), s...)
}

// remove takes a machine out that is in the list.
func (l *List) remove(i Index, before func(a, b Index) bool) {
	at, pos := l.seek(i, before)
	l.n--
	c := slices.Delete(l.chunks[at], pos, pos+1)
	switch {
	case len(c) == 0:
		l.chunks = slices.Delete(l.chunks, at, at+1)
	case at+1 < len(l.chunks) && len(c)+len(l.chunks[at+1]) <= chunkMax/2:
		l.chunks[at] = append(c, l.chunks[at+1]...)
		l.chunks = slices.Delete(l.chunks, at+1, at+2)
	default:
		l.chunks[at] = c
	}
}

func (l *List) clone() List {
	c := List{chunks: make([][]Index, len(l.chunks)), n: l.n}
	for i := range l.chunks {
		c.chunks[i] = slices.Clone(l.chunks[i])
	}
	return c
}
