package match

import (
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// UnitsOf returns k if the aggregate is k whole units, k ≥ 1, and 0 if it is not.
func UnitsOf(agg, unit []int64) int64 {
	if slices.Equal(agg, unit) { // the common case, without a division
		if IsZero(unit) {
			return 0
		}
		return 1
	}
	k := int64(0)
	for j, u := range unit {
		if u > 0 {
			k = agg[j] / u
			break
		}
	}
	if k == 0 {
		return 0
	}
	for j, u := range unit {
		if u == 0 && agg[j] > 0 || u > 0 && (agg[j]%u != 0 || agg[j]/u != k) {
			return 0
		}
	}
	return k
}

// UnitsIn is how many whole units fit into an amount. The unit is not empty.
func UnitsIn(amount, unit []int64) int64 {
	n := int64(-1)
	for j, u := range unit {
		if u == 0 {
			continue
		}
		if amount[j] < u {
			return 0
		}
		if q := amount[j] / u; n < 0 || q < n {
			n = q
		}
	}
	return n
}

// WholeUnits writes the whole units that fit into an amount, at most so many; 0 is no limit. into may be the amount.
func WholeUnits(into, amount, unit []int64, most int32) {
	n := UnitsIn(amount, unit)
	if most > 0 {
		n = min(n, int64(most))
	}
	for j, u := range unit {
		into[j] = u * n
	}
}

// RoundUp makes an aggregate whole units: what a hard spread counts (ENG-13.9). A unit that names too little cannot be counted.
func RoundUp(agg, unit []int64) {
	k := int64(0)
	for j, a := range agg {
		if a > 0 && unit[j] == 0 {
			return
		}
		if a > 0 {
			k = max(k, (a-1)/unit[j]+1)
		}
	}
	for j, u := range unit {
		agg[j] = resource.MulSat(u, k)
	}
}

// AddHeadroom adds the units that a need gets beyond what it asks for (ENG-11.16). An amount near the limit of int64 gets no headroom. Negative units are served elsewhere (ENG-11.18).
func AddHeadroom(agg, unit []int64, units int64) {
	if units == 0 {
		return
	}
	if units < 0 {
		for j, u := range unit {
			agg[j] = max(0, agg[j]-resource.MulSat(u, -units))
		}
		return
	}
	for j, u := range unit {
		if agg[j] > headroomMax || resource.MulSat(u, units) > headroomMax {
			return
		}
	}
	for j, u := range unit {
		agg[j] += u * units
	}
}

const headroomMax = 1 << 60
