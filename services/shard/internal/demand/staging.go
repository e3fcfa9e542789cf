package demand

import "github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"

// PartRows is how many rows one part of a large replacement takes in or gives back. A part takes a few milliseconds, and other
// clusters wait for no more than one.
const PartRows = 1024

// Staging is a large replacement on its way into a Table. Its rows are interned a part at a time, so that the core serves other
// clusters in between. The demand of the cluster stays as it is until Commit; Drop undoes what was taken in. A
// Clone or Freeze of the Table counts what is staged or not yet swept for good: such copies do not live long.
type Staging struct {
	rows    []Row
	next    int // first row that is not interned yet
	needs   []Need
	seen    keyIndex
	merged  int
	arrived bool // arrivals are known,
	ordered bool // and the order
	added   int  // row keys that the demand before does not have, once arrivals are known
}

// IsLarge reports whether replacing the demand of a cluster by so many rows takes more than one part.
func (t *Table) IsLarge(cluster string, rows int) bool {
	if c := t.clusters[cluster]; c != nil {
		rows = max(rows, len(c.Needs))
	}
	return rows > t.part
}

// Stage begins a replacement. Rows are changed by Seal alone, and are not kept after Commit.
func (t *Table) Stage(rows []Row) *Staging {
	return &Staging{rows: rows, needs: make([]Need, 0, len(rows)), seen: newKeyIndex(len(rows))}
}

// StageAll stages rows at once.
func (t *Table) StageAll(rows []Row) *Staging {
	s := t.Stage(rows)
	t.StageMore(s, len(rows))
	return s
}

// StageMore interns at most n rows more and reports whether some are left.
func (t *Table) StageMore(s *Staging, n int) (more bool) {
	end := min(len(s.rows), s.next+n)
	for ; s.next < end; s.next++ {
		t.internRow(s, &s.rows[s.next])
	}
	return s.next < len(s.rows)
}

// internRow turns a row into a Need without arrival, and counts everything it uses. Rows with equal row keys become one Need.
func (t *Table) internRow(s *Staging, r *Row) {
	if r.Fingerprint == "" {
		r.Seal()
	}
	key := t.space.Keys.Intern(r.Fingerprint, r.Group)
	agg := resource.Intern(t.space.Dimensions, r.Aggregate)
	unit := resource.Intern(t.space.Dimensions, r.MinUnit)
	if j, ok := s.seen.find(key); ok {
		n := &s.needs[j]
		t.space.Keys.Release(key)
		sum, larger := n.Aggregate.Add(agg), n.MinUnit.Max(unit)
		sum.Retain(t.space.Dimensions)
		larger.Retain(t.space.Dimensions)
		for _, v := range []*resource.Vector{&n.Aggregate, &n.MinUnit, &agg, &unit} {
			v.Release(t.space.Dimensions)
		}
		n.Aggregate, n.MinUnit = sum, larger
		s.merged++
		return
	}
	s.seen.set(key, len(s.needs))
	form := t.form(r.Profile, r.Fingerprint)
	t.keys.add(form, 1)
	s.needs = append(s.needs, Need{Form: form, Key: key, Group: r.Group, RowID: r.RowID, Aggregate: agg, MinUnit: unit})
}

// Drop gives up a replacement that will not be committed.
func (t *Table) Drop(s *Staging) { t.discard(s.needs) }

// discard gives back what Needs use that left the demand: few at once, many in parts (Sweep).
func (t *Table) discard(needs []Need) {
	if len(needs) > t.part {
		t.discarded = append(t.discarded, needs)
		return
	}
	t.releaseNeeds(needs)
}

// Sweep gives back what at most n discarded Needs use, and reports whether some are left.
func (t *Table) Sweep(n int) (more bool) {
	for n > 0 && len(t.discarded) > 0 {
		list := t.discarded[0]
		k := min(n, len(list))
		t.releaseNeeds(list[:k])
		n -= k
		if t.discarded[0] = list[k:]; k == len(list) {
			t.discarded[0] = nil
			t.discarded = t.discarded[1:]
		}
	}
	return len(t.discarded) > 0
}

func (t *Table) releaseNeeds(needs []Need) {
	for i := range needs {
		n := &needs[i]
		n.Aggregate.Release(t.space.Dimensions)
		n.MinUnit.Release(t.space.Dimensions)
		t.space.Keys.Release(n.Key)
		t.keys.add(n.Form, -1)
		t.dropForm(n.Form)
	}
}
