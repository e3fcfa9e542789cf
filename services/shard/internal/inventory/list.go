package inventory

import "slices"

// List is a set of machines in a fixed order, kept in pieces so that a change moves little memory whatever the size.
type List struct {
	chunks [][]Index
	n      int
}

// chunkMax is how many machines a piece holds at most: half a kilobyte is moved by an average insertion.
const chunkMax = 256

// Len is the number of machines.
func (l *List) Len() int { return l.n }

// Chunks returns the pieces in order. They are the list's own and valid until the next change.
func (l *List) Chunks() [][]Index { return l.chunks }

// seek returns the piece and the position of the first machine that is not before i.
func (l *List) seek(i Index, before func(a, b Index) bool) (int, int) {
	lo, hi := 0, len(l.chunks)
	for lo < hi { // first piece whose last machine is not before i
		mid := (lo + hi) / 2
		if c := l.chunks[mid]; before(c[len(c)-1], i) {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == len(l.chunks) {
		return lo, 0
	}
	c := l.chunks[lo]
	a, b := 0, len(c)
	for a < b {
		mid := (a + b) / 2
		if before(c[mid], i) {
			a = mid + 1
		} else {
			b = mid
		}
	}
	return lo, a
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
		l.chunks[at] = room(slices.Clip(c[:half]))
		l.chunks = slices.Insert(l.chunks, at+1, room(slices.Clip(c[half:])))
		if pos >= half {
			at, pos = at+1, pos-half
		}
	}
	l.chunks[at] = slices.Insert(room(l.chunks[at]), pos, i)
	return at, pos
}

// room returns s with room for one more. What grows here grows by an eighth and not by half of itself: machines come
// once, in a first List, and stay.
func room[S ~[]E, E any](s S) S {
	if len(s) < cap(s) {
		return s
	}
	return append(slices.Grow(S(nil), len(s)+len(s)/8+1), s...)
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
