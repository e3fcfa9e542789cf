package measure

import (
	"os"
	"strconv"
)

// Scaled is n, or the part of it that BIGFLEET_BENCH_SCALE asks for: 10 is a tenth, as CI runs it.
func Scaled(n int) int { return max(1, n/scale()) }

// FullSize reports whether nothing is scaled down.
func FullSize() bool { return scale() == 1 }

func scale() int {
	if by, err := strconv.Atoi(os.Getenv("BIGFLEET_BENCH_SCALE")); err == nil && by > 1 {
		return by
	}
	return 1
}

// Seed is 1, that of published runs, or what BIGFLEET_BENCH_SEED says.
func Seed() uint64 {
	if seed, err := strconv.ParseUint(os.Getenv("BIGFLEET_BENCH_SEED"), 10, 64); err == nil {
		return seed
	}
	return 1
}
