package measure

import (
	"math"
	"slices"
)

// Median of samples; NaN for none.
func Median(samples []float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// mean of samples; NaN for none.
func mean(samples []float64) float64 {
	sum := 0.0
	for _, x := range samples {
		sum += x
	}
	return sum / float64(len(samples))
}

// Quantile is the smallest sample that at least the fraction q of all does not exceed; NaN for none.
func Quantile(samples []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(samples))
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[min(len(sorted)-1, max(0, int(math.Ceil(q*float64(len(sorted))))-1))]
}

// coverageMin is the chance with which Interval holds the true median: that of the second smallest and second largest
// of ten, 97.9 %.
const coverageMin = 0.978

// Interval returns the narrowest pair of order statistics that holds the true median with at least coverageMin,
// whatever the distribution: with n samples the j-th smallest is above the median with the chance of fewer than j heads
// in n throws of a coin. Fewer than seven samples cannot give that; then it is the smallest and largest.
func Interval(samples []float64) (low, high float64) {
	sorted := slices.Sorted(slices.Values(samples))
	n := len(sorted)
	if n == 0 {
		return math.NaN(), math.NaN()
	}
	j, tail, term := 0, 0.0, math.Pow(0.5, float64(n)) // term is the chance of exactly j heads
	for j < n/2 {
		if tail+term > (1-coverageMin)/2 {
			break
		}
		tail += term
		term = term * float64(n-j) / float64(j+1)
		j++
	}
	j = max(j, 1)
	return sorted[j-1], sorted[n-j]
}

// Slope fits y = c * x^slope through points by least squares on logarithms (B4: time against needs).
func Slope(x, y []float64) float64 {
	n := float64(len(x))
	var sx, sy, sxx, sxy float64
	for i := range x {
		lx, ly := math.Log(x[i]), math.Log(y[i])
		sx, sy, sxx, sxy = sx+lx, sy+ly, sxx+lx*lx, sxy+lx*ly
	}
	return (n*sxy - sx*sy) / (n*sxx - sx*sx)
}
