package measure

import (
	"reflect"
	"slices"
)

// Piece is one named part of a whole, in bytes.
type Piece struct {
	Name  string  `json:"name"`
	Bytes float64 `json:"bytes"`
}

// Footprint says what each field of the struct behind v holds: the room of its slices, maps and pointers, through all
// levels. Unlike Live it knows names, and unlike Live it counts no rounding of the allocator and estimates maps. What two
// fields share is counted once, under the first. Strings count where they are held. skip names fields that belong to others.
func Footprint(v any, skip ...string) []Piece {
	s := reflect.ValueOf(v).Elem()
	w := weigher{seen: map[uintptr]bool{}}
	var out []Piece
	for i := range s.NumField() {
		name := s.Type().Field(i).Name
		if slices.Contains(skip, name) {
			continue
		}
		out = append(out, Piece{name, w.behind(s.Field(i))})
	}
	return out
}

type weigher struct{ seen map[uintptr]bool }

// behind is what a value points to, without the value itself.
func (w weigher) behind(v reflect.Value) (sum float64) {
	switch v.Kind() {
	case reflect.String:
		return float64(v.Len())
	case reflect.Pointer:
		if v.IsNil() || w.again(v.Pointer()) {
			return 0
		}
		return float64(v.Type().Elem().Size()) + w.behind(v.Elem())
	case reflect.Slice:
		if v.Cap() == 0 || w.again(v.Pointer()) {
			return 0
		}
		sum = float64(v.Cap()) * float64(v.Type().Elem().Size())
		return sum + w.elements(v)
	case reflect.Array:
		return w.elements(v)
	case reflect.Map:
		const perSlot = 8.0 / 7 / 0.7 // groups of eight slots and a word of control, filled to seventy percent
		sum = float64(v.Len()) * float64(v.Type().Key().Size()+v.Type().Elem().Size()+1) * perSlot
		if !holds(v.Type().Key()) && !holds(v.Type().Elem()) {
			return sum
		}
		for it := v.MapRange(); it.Next(); {
			sum += w.behind(it.Key()) + w.behind(it.Value())
		}
		return sum
	case reflect.Struct:
		for i := range v.NumField() {
			sum += w.behind(v.Field(i))
		}
		return sum
	case reflect.Interface:
		if !v.IsNil() {
			return w.behind(v.Elem())
		}
	}
	return sum
}

func (w weigher) elements(v reflect.Value) (sum float64) {
	if !holds(v.Type().Elem()) {
		return 0
	}
	for i := range v.Len() {
		sum += w.behind(v.Index(i))
	}
	return sum
}

func (w weigher) again(at uintptr) bool {
	known := w.seen[at]
	w.seen[at] = true
	return known
}

// holds reports whether a value of the type can point to something.
func holds(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.String, reflect.Pointer, reflect.Slice, reflect.Map, reflect.Interface:
		return true
	case reflect.Array:
		return holds(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if holds(t.Field(i).Type) {
				return true
			}
		}
	}
	return false
}
