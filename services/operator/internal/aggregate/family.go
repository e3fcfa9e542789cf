package aggregate

import "slices"

// family is the rows of one profile, one for each size of request (OP-5.22). The shard counts a row of equal requests in whole
// units, so that fragmentation cannot leave one of their Pods without a machine. When there are more sizes than a roll-up
// should carry, the smallest share the overflow row, which is counted by its sum: small requests waste little.
//
// The sizes alone decide which of them have their own row, so a rebuild in any order gives the same rows. A row keeps its id
// for life: a size that comes or goes moves at most one other size into or out of the overflow row.
type family struct {
	shapes   []*row // sizes with a member, largest first
	overflow *row   // sum of the smallest sizes when there are too many; on the wire only then
}

// shapesMax is how many rows of a roll-up have the same constraints and differ in size.
const shapesMax = 16

// ownRows is the number of sizes with their own row.
func (f *family) ownRows() int {
	if len(f.shapes) <= shapesMax {
		return len(f.shapes)
	}
	return shapesMax - 1
}

// addRow adds a row that has its first member.
func (a *Aggregate) addRow(r *row) {
	a.rows[r.profile.id] = r
	if r.profile.near != nil {
		r.placed, r.where = false, nil
		a.near[r.profile.id], a.nearMoved = r, true
	}
	if r.profile.family == (familyID{}) {
		a.show(r)
		return
	}
	f := a.families[r.profile.family]
	if f == nil {
		f = &family{}
		a.families[r.profile.family] = f
	}
	r.family = f
	at, _ := slices.BinarySearchFunc(f.shapes, r, compareShapes)
	f.shapes = slices.Insert(f.shapes, at, r)
	a.updateOverflow(f, at)
}

// removeRow removes a row whose last member left.
func (a *Aggregate) removeRow(r *row) {
	delete(a.rows, r.profile.id)
	if r.profile.near != nil {
		delete(a.near, r.profile.id)
		a.nearMoved = true
	}
	if r.onWire {
		a.hide(r)
	}
	f := r.family
	if f == nil {
		return
	}
	at, _ := slices.BinarySearchFunc(f.shapes, r, compareShapes)
	f.shapes = slices.Delete(f.shapes, at, at+1)
	if r.family = nil; f.overflow != nil {
		f.overflow.sent = nil
	}
	if len(f.shapes) == 0 {
		delete(a.families, r.profile.family)
		return
	}
	a.updateOverflow(f, -1)
}

func compareShapes(x, y *row) int { return compareProfiles(x.profile, y.profile) }

// updateOverflow decides which rows are on the wire after a size came (at index at) or went (at is -1): the new size, the sizes
// next to the limit, and the overflow row.
func (a *Aggregate) updateOverflow(f *family, at int) {
	own := f.ownRows()
	update := func(i int) {
		switch r := f.shapes[i]; {
		case i < own && !r.onWire:
			a.show(r)
		case i >= own && r.onWire:
			a.hide(r)
		}
	}
	if at >= 0 {
		update(at)
	}
	for i := max(0, shapesMax-2); i < min(len(f.shapes), shapesMax+1); i++ {
		update(i)
	}
	shared := own < len(f.shapes)
	if shared && f.overflow == nil {
		f.overflow = &row{profile: newOverflowProfile(f.shapes[0].profile), overflowOf: f}
	}
	if f.overflow == nil {
		return
	}
	if f.overflow.sent = nil; shared != f.overflow.onWire {
		if shared {
			a.show(f.overflow)
		} else {
			a.hide(f.overflow)
		}
	}
}

// show puts a row on the wire.
func (a *Aggregate) show(r *row) {
	r.onWire, r.sent, r.left = true, nil, leftForNothing
	for _, t := range r.variants {
		t.excluded = false // it may have been excluded in the overflow row
	}
	a.byID[r.profile.id] = r
	if at, ok := a.place(r); ok {
		a.order = slices.Insert(a.order, at, r)
	}
}

// hide takes a row off the wire.
func (a *Aggregate) hide(r *row) {
	r.onWire = false
	delete(a.byID, r.profile.id)
	if at, ok := a.place(r); ok {
		a.order = slices.Delete(a.order, at, at+1)
	}
}

// wireRow is the row of the roll-up that contains a row: itself, or the overflow row of its family.
func (r *row) wireRow() *row {
	if !r.onWire && r.family != nil {
		return r.family.overflow
	}
	return r
}

// parts are the rows that make up a row of the roll-up.
func (r *row) parts() []*row {
	if r.overflowOf != nil {
		return r.overflowOf.shapes[r.overflowOf.ownRows():]
	}
	return []*row{r}
}
