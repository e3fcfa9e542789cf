package bench

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

const head = `# Benchmarks

` + "```sh" + `
make bench          # B1 to B12, half an hour, on a quiet machine with a clean tree; make bench-nightly adds B6b and B9
make bench-ci       # a tenth of each size, four minutes, compared with e2e/bench/gates.yaml
` + "```" + `

`

const method = `
Written by ` + "`make bench-report`" + ` from [benchmarks/results](benchmarks/results); do not edit.

Each benchmark times our work and its physical floor, which is the least that any program must do for the same result, in one process and in the
order floor, ours, ours, floor. An oracle checks every timed output outside the timed part; a wrong answer prints no time. *Ratio* is ours over
floor: the median of all rounds, with the interval that contains the true median with a probability of about 98 %. A ratio without an interval is
from one round. Outliers are kept. A target that is missed is marked **not met**. What dominates, and why some targets are not met:
[engine-performance.md](engine-performance.md), [shard-performance.md](shard-performance.md).
`

const tail = `
## What the numbers do not show

Providers are fakes or simulations, so no latency of a cloud is included. The network is loopback. Prices are invented. All results are from the
machines above, which have two cores; no number is scaled to another machine.

## Public figures of others

These figures are not comparable: the work and the machines differ. They show the order of magnitude in the field.

| Project | Public figure | Condition |
|---|---|---|
| Karpenter | 1,000 Pods 0.78 s, 10,000 Pods 8.1 s | its own scheduling benchmark, M3 Pro, pull request 2486; it weighs per-Pod affinity, BigFleet counts capacity |
| Kueue | 15,000 workloads in 351 s | baseline range file in its repository; partly paced by the generator |
| kube-scheduler | CI floors of 680 to 1,100 Pods a second | scheduler_perf thresholds; includes apiserver writes |
| Cluster Autoscaler | at most 30 s (under 100 nodes), 60 s (to 1,000 nodes) | service level in its FAQ |
`

// Report is every file of the report by its path below docs: benchmarks.md and its pictures.
func Report(all []measure.Result) map[string]string {
	newest := Newest(all)
	out := map[string]string{}
	var pictures strings.Builder
	for _, p := range drawings(all, newest) {
		if p.svg == "" {
			continue
		}
		out["benchmarks/"+p.file] = p.svg
		fmt.Fprintf(&pictures, "![%s](benchmarks/%s)\n\n", p.title, p.file)
	}
	out["benchmarks.md"] = page(newest, pictures.String())
	return out
}

// page is docs/benchmarks.md.
func page(newest []measure.Result, pictures string) string {
	var b strings.Builder
	b.WriteString(head)
	for _, m := range machines(newest) {
		fmt.Fprintf(&b, "Machine `%s`: %s, %d cores, %d MiB of L3, %d GiB, Linux %s, Go %s. %s\n", m.Name, m.CPU, m.Cores, m.L3MiB, m.RAMGiB, m.Kernel, m.Go, commits(newest, m))
	}
	b.WriteString(method)
	b.WriteString("\n## Ratios\n\n")
	b.WriteString(ratioTable(newest))
	b.WriteString("\n## Pictures\n\n")
	b.WriteString(strings.TrimSuffix(pictures, "\n"))
	b.WriteString("\n## Absolute bounds and other numbers\n\n")
	b.WriteString(boundTable(newest))
	b.WriteString(tail)
	return b.String()
}

// pair is one benchmark and size with its results for two processors and for one.
type pair struct{ two, one *measure.Result }

func (p pair) first() *measure.Result {
	if p.two != nil {
		return p.two
	}
	return p.one
}

// pairs joins the results of a benchmark and size.
func pairs(results []measure.Result) (out []pair) {
	at := map[string]int{}
	for i := range results {
		r := &results[i]
		n, known := at[Name(*r)]
		if !known {
			n = len(out)
			at[Name(*r)] = n
			out = append(out, pair{})
		}
		if r.GOMAXPROCS == 1 {
			out[n].one = r
		} else {
			out[n].two = r
		}
	}
	return out
}

func ratioTable(results []measure.Result) string {
	var b strings.Builder
	b.WriteString("| Benchmark | Ours, 2 CPUs | Ours, 1 CPU | Floor | Ratio, 2 CPUs | Ratio, 1 CPU | Target | | Allocations | Recorded |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for _, p := range pairs(results) {
		r := p.first()
		if r.Ratio.Rounds == 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s (%s) | %s | %s | %s | %s | %d | %s |\n", Name(*r), ours(p.two), ours(p.one), value(seriesUnit(r), r.Floor.Quantile(0.5)), r.Floor.Probe,
			interval(p.two), interval(p.one), target(r.Target), p.verdict(), r.AllocsOp, recorded(*r))
	}
	return b.String()
}

func ours(r *measure.Result) string {
	if r == nil {
		return ""
	}
	return value(seriesUnit(r), r.Subject.Quantile(0.5))
}

// seriesUnit is what the samples of a result count: nanoseconds, but for a floor that says that it counts bytes (B9).
func seriesUnit(r *measure.Result) string {
	if strings.Contains(r.Floor.Probe, "bytes") {
		return "B"
	}
	return "ns"
}

func interval(r *measure.Result) string {
	switch {
	case r == nil:
		return ""
	case r.Ratio.Rounds == 1:
		return fmt.Sprintf("%.3g", r.Ratio.Median)
	}
	return fmt.Sprintf("%.3g (%.3g to %.3g)", r.Ratio.Median, r.Ratio.Low, r.Ratio.High)
}

// verdict says for how many processors the target is met.
func (p pair) verdict() string {
	met := func(r *measure.Result) bool { return r == nil || r.Ratio.Median <= r.Target }
	return verdict(p.first().Target != 0, met(p.two), met(p.one), p.one != nil)
}

// verdict says for how many processors something is met that is judged with two of them and, if that was measured, with one.
func verdict(judged, two, one, measured bool) string {
	switch {
	case !judged:
		return ""
	case two && one:
		return "met"
	case two:
		return "met with 2, **not met** with 1"
	case one && measured:
		return "**not met** with 2, met with 1"
	}
	return "**not met**"
}

func boundTable(results []measure.Result) string {
	var b strings.Builder
	b.WriteString("| Benchmark | What | 2 CPUs | 1 CPU | Bound | | Oracle | Recorded |\n|---|---|---|---|---|---|---|---|\n")
	for _, p := range pairs(results) {
		for _, x := range p.first().Bounds {
			two, one := boundOf(p.two, x.Name), boundOf(p.one, x.Name)
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s, %s | %s |\n", Name(*p.first()), x.Name, shown(two), shown(one), limit(x),
				verdict(x.Limit != 0 || !x.Met, two == nil || two.Met, one == nil || one.Met, one != nil), p.first().Oracle.Name, checks(p.first().Oracle.Checks), recorded(*p.first()))
		}
	}
	return b.String()
}

func checks(n int) string {
	if n == 1 {
		return "1 check"
	}
	return fmt.Sprintf("%d checks", n)
}

func shown(x *measure.Bound) string {
	if x == nil {
		return ""
	}
	return value(x.Unit, x.Value)
}

func recorded(r measure.Result) string {
	return fmt.Sprintf("%.8s, %s", r.Commit, r.Time.Format(time.DateOnly))
}

func machines(results []measure.Result) []measure.Machine {
	var out []measure.Machine
	for _, r := range results {
		if !slices.Contains(out, r.Machine) {
			out = append(out, r.Machine)
		}
	}
	return out
}

// commits says which commits the results of a machine belong to.
func commits(results []measure.Result, m measure.Machine) string {
	var out []string
	for _, r := range results {
		if at := recorded(r); r.Machine == m && !slices.Contains(out, at) {
			out = append(out, at)
		}
	}
	slices.Sort(out)
	if len(out) == 1 {
		return "Commit " + out[0] + "."
	}
	return "Commits " + strings.Join(out, "; ") + "."
}

func target(t float64) string {
	if t == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g", t)
}

func limit(x measure.Bound) string {
	switch {
	case x.Limit == 0:
		return ""
	case x.AtLeast:
		return "at least " + value(x.Unit, x.Limit)
	}
	return value(x.Unit, x.Limit)
}

func value(unit string, v float64) string {
	switch unit {
	case "ns":
		return duration(v)
	case "B":
		switch {
		case v >= 10<<20:
			return fmt.Sprintf("%.1f MiB", v/(1<<20))
		case v >= 10<<10:
			return fmt.Sprintf("%.1f KiB", v/(1<<10))
		}
		return fmt.Sprintf("%.1f B", v)
	case "1/s":
		if v >= 1e6 {
			return fmt.Sprintf("%.2f M/s", v/1e6)
		}
		return fmt.Sprintf("%.0f /s", v)
	}
	return fmt.Sprintf("%.4g", v)
}

func duration(ns float64) string {
	switch {
	case math.IsNaN(ns):
		return ""
	case ns >= 1e9:
		return fmt.Sprintf("%.2f s", ns/1e9)
	case ns >= 1e6:
		return fmt.Sprintf("%.2f ms", ns/1e6)
	case ns >= 1e3:
		return fmt.Sprintf("%.1f us", ns/1e3)
	}
	return fmt.Sprintf("%.0f ns", ns)
}
