package aggregate

import "slices"

// family is the rows of one profile, one for each size of request (OP-5.22). Rows of equal requests count in whole units at the
// shard, so that none of their Pods is left without room by a sum that is large enough. When there are more sizes than a
// roll-up should carry, the smallest of them share one row, which is counted by its sum: small requests waste little.
//
// Which sizes have a row of their own depends on the sizes alone, so that a rebuild and another order give the same. A row
// has the same name for as long as it lives: a size that comes or goes changes the others only at the border to the shared row.
type family struct {
	shapes []*row // those with a member, largest first
	rest   *row   // of the smallest shapes when there are too many; on the wire only then
}

// shapesMax is how many rows of a roll-up have the same constraints and differ in size.
const shapesMax = 16

// own is how many of the shapes have a row of their own.
func (f *family) own() int {
	if len(f.shapes) <= shapesMax {
		return len(f.shapes)
	}
	return shapesMax - 1
}

// appear takes up a row that has its first member.
func (a *Aggregate) appear(r *row) {
	a.rows[r.profile.id] = r
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
	a.border(f, at)
}

// vanish drops a row whose last member left.
func (a *Aggregate) vanish(r *row) {
	delete(a.rows, r.profile.id)
	if r.shown {
		a.hide(r)
	}
	f := r.family
	if f == nil {
		return
	}
	at, _ := slices.BinarySearchFunc(f.shapes, r, compareShapes)
	f.shapes = slices.Delete(f.shapes, at, at+1)
	if r.family = nil; f.rest != nil {
		f.rest.sent = nil
	}
	if len(f.shapes) == 0 {
		delete(a.families, r.profile.family)
		return
	}
	a.border(f, -1)
}

func compareShapes(x, y *row) int { return compareProfiles(x.profile, y.profile) }

// border shows and hides what one shape more or less changes: the new shape, which is at a place of shapes or nowhere (-1),
// those at the border, and the row that the shapes behind it share.
func (a *Aggregate) border(f *family, at int) {
	own := f.own()
	settle := func(i int) {
		switch r := f.shapes[i]; {
		case i < own && !r.shown:
			a.show(r)
		case i >= own && r.shown:
			a.hide(r)
		}
	}
	if at >= 0 {
		settle(at)
	}
	for i := max(0, shapesMax-2); i < min(len(f.shapes), shapesMax+1); i++ {
		settle(i)
	}
	shared := own < len(f.shapes)
	if shared && f.rest == nil {
		f.rest = &row{profile: newProfileOfRest(f.shapes[0].profile), of: f}
	}
	if f.rest == nil {
		return
	}
	if f.rest.sent = nil; shared != f.rest.shown {
		if shared {
			a.show(f.rest)
		} else {
			a.hide(f.rest)
		}
	}
}

// show puts a row on the wire.
func (a *Aggregate) show(r *row) {
	r.shown, r.sent = true, nil
	for _, t := range r.texts {
		t.over = false // that was so in the shared row
	}
	a.byID[r.profile.id] = r
	if at, ok := a.place(r); ok {
		a.order = slices.Insert(a.order, at, r)
	}
}

// hide takes a row off the wire.
func (a *Aggregate) hide(r *row) {
	r.shown = false
	delete(a.byID, r.profile.id)
	if at, ok := a.place(r); ok {
		a.order = slices.Delete(a.order, at, at+1)
	}
}

// onWire is the row of the roll-up that a row is part of: itself, or the one that the smallest shapes share.
func (r *row) onWire() *row {
	if !r.shown && r.family != nil {
		return r.family.rest
	}
	return r
}

// parts are the rows that a row of the roll-up consists of.
func (r *row) parts() []*row {
	if r.of != nil {
		return r.of.shapes[r.of.own():]
	}
	return []*row{r}
}
