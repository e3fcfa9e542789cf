package bench

import (
	"fmt"
	"os"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"sigs.k8s.io/yaml"
)

// Gate is the limits of one benchmark at one size. What it leaves out is not checked.
type Gate struct {
	Bench string `json:"bench"` // the name with its size
	Ratio *struct {
		Mean      float64 `json:"mean"` // of the calibration runs, for the reader
		FailAbove float64 `json:"fail_above"`
		Goal      float64 `json:"goal"`
	} `json:"ratio"`
	Allocs *struct {
		FailAbove int64 `json:"fail_above"`
	} `json:"allocs_op"`
	// Exact results fail with any bound that is not met; the others show it.
	Exact bool `json:"exact"`
}

// ReadGates reads gates.yaml.
func ReadGates(path string) ([]Gate, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var gates []Gate
	if err := yaml.UnmarshalStrict(data, &gates); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return gates, nil
}

// Check compares results with gates. It lists what fails, and gates without a result, one sentence each.
func Check(gates []Gate, results []measure.Result) []string {
	var out []string
	by := map[string]measure.Result{}
	for _, r := range results {
		by[Name(r)] = r
	}
	for _, g := range gates {
		r, ok := by[g.Bench]
		if !ok {
			out = append(out, g.Bench+": no result")
			continue
		}
		if g.Ratio != nil && r.Ratio.Median > g.Ratio.FailAbove {
			out = append(out, fmt.Sprintf("%s: ratio %.2f is above %.2f (calibrated mean %.2f)", g.Bench, r.Ratio.Median, g.Ratio.FailAbove, g.Ratio.Mean))
		}
		if g.Allocs != nil && r.AllocsOp > g.Allocs.FailAbove {
			out = append(out, fmt.Sprintf("%s: %d allocations are above %d", g.Bench, r.AllocsOp, g.Allocs.FailAbove))
		}
		for _, b := range r.Bounds {
			if g.Exact && !b.Met {
				out = append(out, fmt.Sprintf("%s: %s is %g, the bound is %g", g.Bench, b.Name, b.Value, b.Limit))
			}
		}
	}
	return out
}
