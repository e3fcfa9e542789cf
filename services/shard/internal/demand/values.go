package demand

import (
	"maps"
	"slices"
	"strconv"
)

// Values lists the values of a label key that requirements in the demand name, and for each the least one that they all answer alike: those of one long list
// are one value. bounds is the numbers that they compare the value with. Lists are ascending and have nothing twice, but for alike.
func (t *Table) Values(key string) (values, alike []string, bounds []int64) {
	parts, compared := parts{of: map[string]int{}}, map[int64]bool{}
	for _, r := range t.rules {
		eachRequirement(r.requirements, r.preferences, func(r *Requirement) {
			switch {
			case r.Key != key:
			case r.Op != Gt && r.Op != Lt:
				parts.split(r.Values)
			default:
				for _, v := range r.Values {
					if n, err := strconv.ParseInt(v, 10, 64); err == nil {
						compared[n] = true
					}
				}
			}
		})
	}
	values, bounds = slices.Sorted(maps.Keys(parts.of)), slices.Sorted(maps.Keys(compared))
	least := map[[2]int]string{}
	for _, v := range values {
		part := [2]int{parts.of[v], placeOf(v, bounds)}
		if _, known := least[part]; !known {
			least[part] = v
		}
		alike = append(alike, least[part])
	}
	return values, alike, bounds
}

// placeOf numbers the integers that comparisons with the bounds tell apart; -1: it is none, or there are no bounds.
func placeOf(value string, bounds []int64) int {
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil || len(bounds) == 0 {
		return -1
	}
	at, equal := slices.BinarySearch(bounds, n)
	if equal {
		return 2*at + 1
	}
	return 2 * at
}

// parts numbers values: those that are in the same lists have one number.
type parts struct {
	of    map[string]int // 0: in no list
	last  int
	moved map[int]int // within one list
}

// split tells the values of a list from those that are not in it.
func (p *parts) split(list []string) {
	p.moved = map[int]int{}
	for _, v := range list {
		was := p.of[v]
		if p.moved[was] == 0 {
			p.last++
			p.moved[was] = p.last
		}
		p.of[v] = p.moved[was]
	}
}
