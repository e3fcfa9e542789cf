package bench

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

func gatesOf(t *testing.T, text string) []Gate {
	t.Helper()
	path := filepath.Join(t.TempDir(), "gates.yaml")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	gates, err := ReadGates(path)
	if err != nil {
		t.Fatal(err)
	}
	return gates
}

// Section 8: a gate fails on its ratio, on allocations, on any bound that must be exact, and when there is no result, and it
// says by how much.
func TestGates(t *testing.T) {
	list, err := Read(results(t))
	if err != nil {
		t.Fatal(err)
	}
	gates := gatesOf(t, `
- bench: B1/churn=1%/machines=500k/needs=50k
  ratio: {mean: 1.2, fail_above: 1.25}
  allocs_op: {fail_above: 8}
- bench: B10/machines=500k
  exact: true
- bench: B10/machines=500k
  bounds: {longest step: {fail_above: 10000000}}
- bench: B99
`)
	failed := Check(gates, list)
	for i, want := range []string{
		"B1/churn=1%/machines=500k/needs=50k: the ratio to the floor is 1.5, 20 % above the limit of 1.25 (interval 1.4 to 1.6, calibrated mean 1.2)",
		"B1/churn=1%/machines=500k/needs=50k: allocations is 9, 12 % above the limit of 8", "longest step is 1.2e+07, the bound is 1e+07",
		"longest step is 1.2e+07, 20 % above", "B99 has no result",
	} {
		if i >= len(failed) || !strings.Contains(failed[i].Text, want) {
			t.Errorf("failure %d of %q is not %q", i, failed, want)
		}
	}
	gates[0].Ratio.FailAbove, gates[0].Allocs.FailAbove, gates[1].Exact = 1.6, 9, false
	if failed := Check(gates[:2], list); len(failed) != 0 {
		t.Errorf("%q", failed)
	}
}

// work is what floor and subject do; how often the subject does it says how slow it is.
func work(times int) func() {
	var sum uint64
	return func() {
		for range times {
			for i := range uint64(1 << 18) {
				sum = sum*2862933555777941757 + i
			}
		}
	}
}

func planted(t *testing.T, size, floor, subject int, check func() error) ([]measure.Result, error) {
	t.Helper()
	r, err := measure.Run(measure.Pair{Bench: "B0", Size: map[string]any{"needs": size}, Oracle: "planted", Check: check,
		Floor: measure.Floor{Probe: "P", Parts: []measure.Part{{Run: work(floor)}}}, Subject: work(subject)}, measure.Options{})
	if err != nil {
		return nil, err
	}
	r.Size = map[string]any{"needs": float64(size)} // as it is read from a file
	return []measure.Result{r}, nil
}

func right() error { return nil }

// A slow-down that is planted in the subject fails the gate on the ratio, on a machine of any speed; without it the gate passes.
func TestAPlantedSlowdownFailsTheGate(t *testing.T) {
	gates := gatesOf(t, "- bench: B0/needs=1k\n  ratio: {mean: 1, fail_above: 3}\n")
	for slow, want := range map[int]int{1: 0, 12: 1} {
		list, err := planted(t, 1000, 1, slow, right)
		if err != nil {
			t.Fatal(err)
		}
		if failed := Check(gates, list); len(failed) != want {
			t.Errorf("%d times the work of the floor: %q", slow, failed)
		}
	}
}

// A wrong answer prints no time, so its gate has no result and fails.
func TestAPlantedWrongAnswerFailsTheGate(t *testing.T) {
	gates := gatesOf(t, "- bench: B0/needs=1k\n  ratio: {mean: 1, fail_above: 3}\n")
	list, err := planted(t, 1000, 1, 1, func() error { return errors.New("claimed twice") })
	if err == nil {
		t.Error("a wrong answer has a time")
	}
	if failed := Check(gates, list); len(failed) != 1 || !strings.Contains(failed[0].Text, "its answer was wrong") {
		t.Errorf("%q", failed)
	}
}

// Section 8: four times the size may take 4.6 times the time; a planted square does not pass, and neither does a larger size that is
// missing.
func TestAPlantedSlopeFailsTheGate(t *testing.T) {
	gates := gatesOf(t, "- bench: B0/needs=1k\n  slope: {to: B0/needs=4k, over: needs, fail_above: 1.6}\n")
	for times, want := range map[int]int{4: 0, 64: 1} {
		small, err := planted(t, 1000, 1, 1, right)
		if err != nil {
			t.Fatal(err)
		}
		large, err := planted(t, 4000, 1, times, right)
		if err != nil {
			t.Fatal(err)
		}
		if failed := Check(gates, append(small, large...)); len(failed) != want {
			t.Errorf("%d times the time for four times the size: %q", times, failed)
		}
		if failed := Check(gates, small); len(failed) != 1 || !strings.Contains(failed[0].Text, "needs B0/needs=4k") {
			t.Errorf("%q", failed)
		}
	}
	if slope := measure.Slope([]float64{1, 4}, []float64{1, 4.6}); slope < 1.1 || slope > 1.101 {
		t.Errorf("4.6 times the time is a slope of %v", slope)
	}
}

// Every gate that the repository has is one of a benchmark that the short run covers, and what must be gated is.
func TestTheGatesAreThoseOfTheSuite(t *testing.T) {
	gates, err := ReadGates("gates.yaml")
	if err != nil {
		t.Fatal(err)
	}
	covered := map[string]bool{}
	for _, p := range Suite() {
		for _, b := range p.Benches {
			covered[b] = covered[b] || p.CI
		}
	}
	exact, slope := map[string]bool{}, map[string]bool{}
	for _, g := range gates {
		if !covered[Family(g.Bench)] {
			t.Errorf("%s is not part of the short run", g.Bench)
		}
		exact[Family(g.Bench)] = exact[Family(g.Bench)] || g.Exact
		slope[Family(g.Bench)] = slope[Family(g.Bench)] || g.Slope != nil
		if g.Ratio != nil && g.Ratio.FailAbove > 1.21*g.Ratio.Mean {
			t.Errorf("%s fails above %v, more than 20 %% over its mean %v", g.Bench, g.Ratio.FailAbove, g.Ratio.Mean)
		}
	}
	if !exact["B12"] || !slope["B4"] || !slope["B10"] {
		t.Errorf("exact %v, slopes %v: want B12 exact, and slopes of B4 and B10", exact, slope)
	}
}

// The programme names its twelve benchmarks, each once or more, and a selection is by name.
func TestSuite(t *testing.T) {
	seen := map[string]bool{}
	for _, p := range Suite() {
		for _, b := range p.Benches {
			seen[b] = true
		}
		if (p.Bench != "") == (p.Run != "" || p.Program) {
			t.Errorf("%v is a benchmark or else a test or a program", p)
		}
	}
	for _, b := range []string{"B1", "B2", "B3", "B4", "B5", "B6a", "B6b", "B7", "B8", "B9", "B10", "B11", "B12",
		"PROV-25.1", "PROV-25.2", "PROV-25.3", "PROV-25.4", "PROV-25.5", "PROV-25.6", "PROV-25.7", "PROV-25.8", "PROV-25.9", "PROV-25.10"} {
		if !seen[b] {
			t.Errorf("%s is in no part", b)
		}
	}
	if parts := Select(Suite(), []string{"B6"}); len(parts) != 2 || len(Select(Suite(), nil)) != len(Suite()) || len(Select(Suite(), []string{"B1"})) != 1 {
		t.Errorf("B6 selects %v", parts)
	}
	if parts := Select(Suite(), []string{"PROV"}); len(parts) != 8 {
		t.Errorf("PROV selects %v", parts)
	}
	if Family("B7/cold/requests=25k") != "B7" || Family("B6a") != "B6a" {
		t.Error(Family("B7/cold"), Family("B6a"))
	}
}

// Section 8: each limit of a gate is the mean of its calibration runs plus 20 %.
func TestCalibration(t *testing.T) {
	run := func(ratio float64, allocs int64) []measure.Result {
		return []measure.Result{{Bench: "B1", Size: map[string]any{"machines": 50_000}, GOMAXPROCS: 2, AllocsOp: allocs, Ratio: measure.Ratio{Median: ratio, Rounds: 10},
			Machine: measure.Machine{Name: "m"}}, {Bench: "B12"}}
	}
	text := Calibration([][]measure.Result{run(1, 10), run(2, 11), run(3, 10)})
	gates := gatesOf(t, text)
	if len(gates) != 1 || gates[0].Bench != "B1/machines=50k" || gates[0].Ratio.Mean != 2 || gates[0].Ratio.FailAbove != 2.4 || gates[0].Allocs.FailAbove != 14 {
		t.Errorf("%+v of\n%s", gates, text)
	}
	if !strings.Contains(text, "3 runs on m, ") || !strings.Contains(text, "mean 2, standard deviation 1") {
		t.Errorf("no calibration in\n%s", text)
	}
}
