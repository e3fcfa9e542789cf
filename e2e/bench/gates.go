package bench

import (
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"sigs.k8s.io/yaml"
)

// Gate is the limits of one benchmark at one size. What it leaves out is not checked.
type Gate struct {
	Bench string `json:"bench"` // the name with its size
	Ratio *struct {
		Mean      float64 `json:"mean"` // of the calibration runs, for the reader
		FailAbove float64 `json:"fail_above"`
		Goal      float64 `json:"goal"` // the target of the full size, for the reader
	} `json:"ratio"`
	Allocs *Limit `json:"allocs_op"`
	Bytes  *Limit `json:"bytes_op"`
	Slope  *Slope `json:"slope"`
	// Bounds are limits of numbers beside the ratio, by name.
	Bounds map[string]Limit `json:"bounds"`
	// Exact results fail with any bound that is not met; the others show it.
	Exact bool `json:"exact"`
}

// Limit is the largest value that passes.
type Limit struct {
	FailAbove float64 `json:"fail_above"`
}

// Slope compares with a larger size of the same run: how fast Of grows where Over grows. Time that is proportional has a
// slope of 1; "four times the size, at most 4.6 times the time" is 1.1; what must not depend on the size has 0.
type Slope struct {
	To        string  `json:"to"`   // the name of the larger size
	Over      string  `json:"over"` // needs, machines, ...
	Of        string  `json:"of"`   // the name of a bound; empty is the median time
	FailAbove float64 `json:"fail_above"`
}

// Failure is a limit that was exceeded, or a gate without a result.
type Failure struct {
	Bench string // B1
	Text  string // one sentence
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

// Check compares results with gates and lists what fails. Of a size that ran on several numbers of processors the largest counts.
func Check(gates []Gate, results []measure.Result) []Failure {
	by := map[string]measure.Result{}
	for _, r := range results {
		if old, ok := by[Name(r)]; !ok || r.GOMAXPROCS > old.GOMAXPROCS {
			by[Name(r)] = r
		}
	}
	var out []Failure
	for _, g := range gates {
		r, ok := by[g.Bench]
		if !ok {
			out = append(out, Failure{Family(g.Bench), g.Bench + " has no result: it did not run, or its answer was wrong"})
			continue
		}
		for _, text := range g.judge(r, by) {
			out = append(out, Failure{r.Bench, g.Bench + ": " + text})
		}
	}
	return out
}

func (g Gate) judge(r measure.Result, by map[string]measure.Result) (out []string) {
	above := func(what string, got, limit float64, note string) {
		if got > limit || math.IsNaN(got) {
			out = append(out, fmt.Sprintf("%s is %.4g, %.0f %% above the limit of %.4g%s", what, got, 100*(got/limit-1), limit, note))
		}
	}
	if g.Ratio != nil {
		above("the ratio to the floor", r.Ratio.Median, g.Ratio.FailAbove,
			fmt.Sprintf(" (interval %.4g to %.4g, calibrated mean %.4g)", r.Ratio.Low, r.Ratio.High, g.Ratio.Mean))
	}
	if g.Allocs != nil {
		above("allocations", float64(r.AllocsOp), g.Allocs.FailAbove, "")
	}
	if g.Bytes != nil {
		above("bytes allocated", float64(r.BytesOp), g.Bytes.FailAbove, "")
	}
	if g.Slope != nil {
		if slope, err := g.Slope.between(r, by); err != nil {
			out = append(out, err.Error())
		} else if slope > g.Slope.FailAbove || math.IsNaN(slope) {
			out = append(out, fmt.Sprintf("the slope to %s over %s is %.2f, above the limit of %.2f", g.Slope.To, g.Slope.Over, slope, g.Slope.FailAbove))
		}
	}
	for _, name := range sorted(g.Bounds) {
		if x := boundOf(&r, name); x != nil {
			above(name, x.Value, g.Bounds[name].FailAbove, "")
		} else {
			out = append(out, "there is no number called "+name)
		}
	}
	for _, b := range r.Bounds {
		if g.Exact && !b.Met {
			out = append(out, fmt.Sprintf("%s is %g, the bound is %g", b.Name, b.Value, b.Limit))
		}
	}
	return out
}

func (s *Slope) between(small measure.Result, by map[string]measure.Result) (float64, error) {
	large, ok := by[s.To]
	if !ok {
		return 0, fmt.Errorf("the slope needs %s, which has no result", s.To)
	}
	of := func(r measure.Result) float64 {
		if s.Of == "" {
			return r.Subject.Quantile(0.5)
		}
		if x := boundOf(&r, s.Of); x != nil {
			return x.Value
		}
		return math.NaN()
	}
	return measure.Slope([]float64{amount(small, s.Over), amount(large, s.Over)}, []float64{of(small), of(large)}), nil
}

// boundOf is the bound of a result with a name, or nil.
func boundOf(r *measure.Result, name string) *measure.Bound {
	if r == nil {
		return nil
	}
	at := slices.IndexFunc(r.Bounds, func(b measure.Bound) bool { return b.Name == name })
	if at < 0 {
		return nil
	}
	return &r.Bounds[at]
}

func sorted[V any](m map[string]V) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
