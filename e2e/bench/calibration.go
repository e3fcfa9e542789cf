package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

// Calibration is what several runs say about each ratio and its allocations, as entries of gates.yaml: the mean, and a
// limit 20 % above it.
func Calibration(runs [][]measure.Result) string {
	var b strings.Builder
	for _, first := range Newest(slices.Concat(runs...)) {
		if first.Ratio.Rounds == 0 {
			continue
		}
		var ratios, allocs []float64
		for _, run := range runs {
			for _, r := range run {
				if Name(r) == Name(first) {
					ratios, allocs = append(ratios, r.Ratio.Median), append(allocs, float64(r.AllocsOp))
				}
			}
		}
		mean, deviation := moments(ratios)
		fmt.Fprintf(&b, "- bench: %s\n  # %d runs on %s, %s: mean %.3g, standard deviation %.2g\n", Name(first), len(ratios), first.Machine.Name,
			first.Time.Format(time.DateOnly), mean, deviation)
		fmt.Fprintf(&b, "  ratio: {mean: %.3g, fail_above: %.3g}\n  allocs_op: {fail_above: %.0f}\n", mean, 1.2*mean, math.Ceil(1.2*measure.Quantile(allocs, 1)))
	}
	return b.String()
}

// moments are mean and standard deviation of samples.
func moments(samples []float64) (mean, deviation float64) {
	for _, x := range samples {
		mean += x / float64(len(samples))
	}
	for _, x := range samples {
		deviation += (x - mean) * (x - mean)
	}
	return mean, math.Sqrt(deviation / math.Max(1, float64(len(samples)-1)))
}
