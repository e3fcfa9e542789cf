package match

// This file is the arithmetic of amounts in a projection: slices of equal length, no element below 0.

import (
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// IsZero reports whether no dimension is positive.
func IsZero(v []int64) bool {
	for _, x := range v {
		if x > 0 {
			return false
		}
	}
	return true
}

// Covers reports whether have is at least want in every dimension.
func Covers(have, want []int64) bool {
	for j, w := range want {
		if have[j] < w {
			return false
		}
	}
	return true
}

// Touches reports whether some dimension is positive in both.
func Touches(a, b []int64) bool {
	for j, x := range a {
		if x > 0 && b[j] > 0 {
			return true
		}
	}
	return false
}

// Subtract subtracts b from a, not below 0.
func Subtract(a, b []int64) {
	for j, x := range b {
		a[j] = max(0, a[j]-x)
	}
}

// Add adds b to a, saturating.
func Add(a, b []int64) {
	for j, x := range b {
		a[j] = resource.AddSat(a[j], x)
	}
}
