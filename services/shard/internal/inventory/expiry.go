package inventory

import (
	"cmp"
	"slices"
)

// expiryHeap says which machines to look at when. An entry may be out of date: then nothing is found to drop.
type expiryHeap []expires

type expires struct {
	at int64
	i  Index
}

func (h *expiryHeap) push(at int64, i Index) {
	if at == 0 {
		return
	}
	*h = append(*h, expires{at, i})
	for c := len(*h) - 1; c > 0; {
		p := (c - 1) / 2
		if (*h)[p].at <= (*h)[c].at {
			break
		}
		(*h)[p], (*h)[c] = (*h)[c], (*h)[p]
		c = p
	}
}

// pop returns a machine whose time has come at now.
func (h *expiryHeap) pop(now int64) (Index, bool) {
	s := *h
	if len(s) == 0 || s[0].at > now {
		return 0, false
	}
	i := s[0].i
	s[0] = s[len(s)-1]
	s = s[:len(s)-1]
	for p := 0; ; {
		c := 2*p + 1
		if c >= len(s) {
			break
		}
		if c+1 < len(s) && s[c+1].at < s[c].at {
			c++
		}
		if s[p].at <= s[c].at {
			break
		}
		s[p], s[c] = s[c], s[p]
		p = c
	}
	*h = s
	return i, true
}

// rebuildExpiry drops entries that are out of date.
func (t *Table) rebuildExpiry() {
	t.expiry = t.expiry[:0]
	for i := range t.All() {
		if t.rows.at(i).flags&(isPromised|markedAll|markedSome) == 0 {
			continue
		}
		if p, ok := t.promises[i]; ok {
			t.expiry.push(p.Expires, i)
		}
		for _, w := range t.marks[i] {
			t.expiry.push(w.Until, i)
		}
	}
	slices.SortFunc(t.expiry, func(a, b expires) int { return cmp.Compare(a.at, b.at) })
}
