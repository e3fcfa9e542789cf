package inventory

// idOrder keeps all machines by id and gives each a label, Row.Order, that compares as the ids do. So whatever is sorted
// by id compares two integers. Labels are spread over 32 bits; where they get too dense a stretch of them is written
// again (Bender and others, "Two simplified algorithms for maintaining order in a list": a range of 2^j labels may hold
// density^j machines).
type idOrder struct {
	all     List
	version uint64 // grows when labels that were given are rewritten
}

const (
	labelFirst   = 1 << 31
	labelStep    = 1 << 11 // between neighbours at the ends, so that a sorted stream of ids never meets a dense stretch
	labelDensity = 1.6     // below 2; 1.6^32 machines fit
)

func (t *Table) idBefore(a, b Index) bool { return t.ID(a) < t.ID(b) }

// add gives a new machine its place and label.
func (o *idOrder) add(t *Table, i Index) {
	at, pos := o.all.insert(i, t.idBefore)
	before, hasBefore := o.neighbour(at, pos, -1)
	after, hasAfter := o.neighbour(at, pos, +1)
	label := uint32(labelFirst)
	for {
		lo, hi := int64(-1), int64(1)<<32
		if hasBefore {
			lo = int64(t.rows.at(before).Order)
		}
		if hasAfter {
			hi = int64(t.rows.at(after).Order)
		}
		if hi-lo >= 2 {
			mid := (lo + hi) / 2
			if hasBefore && !hasAfter {
				mid = min(mid, lo+labelStep)
			}
			if hasAfter && !hasBefore {
				mid = max(mid, hi-labelStep)
			}
			if hasBefore || hasAfter {
				label = uint32(mid)
			}
			break
		}
		o.spread(t, at, pos, uint32(max(lo, 0)))
	}
	t.rows.at(i).Order = label
}

// neighbour returns the machine before or after a position.
func (o *idOrder) neighbour(at, pos, by int) (Index, bool) {
	pos += by
	if pos < 0 {
		if at--; at < 0 {
			return 0, false
		}
		pos = len(o.all.chunks[at]) - 1
	} else if pos == len(o.all.chunks[at]) {
		if at++; at == len(o.all.chunks) {
			return 0, false
		}
		pos = 0
	}
	return o.all.chunks[at][pos], true
}

// spread writes the labels around x again, over the smallest aligned range that is not too dense. The machine at
// (at, pos) has no label yet and is left out.
func (o *idOrder) spread(t *Table, at, pos int, x uint32) {
	o.version++
	room := 1.0
	var left, right []Index // of the range so far: left is nearest first
	la, lp, ra, rp := at, pos, at, pos
	for j := uint(1); j <= 32; j++ {
		room *= labelDensity
		lo := uint64(x) &^ (1<<j - 1)
		hi := lo + 1<<j
		for {
			i, ok := o.neighbour(la, lp, -1)
			if !ok || uint64(t.rows.at(i).Order) < lo {
				break
			}
			left = append(left, i)
			la, lp = o.step(la, lp, -1)
		}
		for {
			i, ok := o.neighbour(ra, rp, +1)
			if !ok || uint64(t.rows.at(i).Order) >= hi {
				break
			}
			right = append(right, i)
			ra, rp = o.step(ra, rp, +1)
		}
		n := uint64(len(left) + len(right))
		if float64(n) >= room && j < 32 {
			continue
		}
		gap := (hi - lo) / (n + 2) // one more for the machine to come
		next := lo
		for k := len(left) - 1; k >= 0; k-- {
			next += gap
			t.rows.at(left[k]).Order = uint32(next)
		}
		next += gap
		for _, i := range right {
			next += gap
			t.rows.at(i).Order = uint32(next)
		}
		if gap >= 2 || j == 32 {
			return
		}
		// Too narrow to take one more in the middle: go on with the next larger range.
	}
}

func (o *idOrder) step(at, pos, by int) (int, int) {
	pos += by
	if pos < 0 {
		at--
		return at, len(o.all.chunks[at]) - 1
	}
	if pos == len(o.all.chunks[at]) {
		return at + 1, 0
	}
	return at, pos
}

func (o *idOrder) drop(t *Table, i Index) { o.all.remove(i, t.byOrder) }

// byOrder is the order of ids, from labels.
func (t *Table) byOrder(a, b Index) bool { return t.rows.at(a).Order < t.rows.at(b).Order }
