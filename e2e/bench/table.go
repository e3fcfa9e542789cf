package bench

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

const head = `# Benchmarks

Written by ` + "`make bench-report`" + ` from [benchmarks/results](benchmarks/results); do not edit. Run them with
` + "`make bench`" + ` (everything, on a quiet machine with a clean tree) or ` + "`make bench-ci`" + ` (a tenth of each size, compared with
e2e/bench/gates.yaml).

Each benchmark runs beside the physical floor of the same work, in one process, in the order floor, ours, ours, floor; an
oracle checks every timed output outside the timed part, and a wrong answer prints no time. *Ratio* is ours over floor, the
median of at least ten rounds with the interval that holds the true median with about 98 %. Outliers stay. A target that is
not met stands here as **not met**. How the engine got here, and what is still slow: [engine-performance.md](engine-performance.md).

![Ratio over target](benchmarks/ratios.svg)

`

const tail = `
## What the numbers do not say

No cloud latency: providers are fakes or simulations. The network is loopback. Prices are made up. Everything runs on the
machine named above, with two cores; no number is scaled to another machine.

## Public figures of others

Not comparable: other work on other machines. They show the order of size of the field.

| Project | Public figure | Condition |
|---|---|---|
| Karpenter | 1,000 Pods 0.78 s, 10,000 Pods 8.1 s | its own scheduling benchmark, M3 Pro, pull request 2486; it weighs per-Pod affinity, BigFleet counts capacity |
| Kueue | 15,000 workloads in 351 s | baseline range file in its repository; partly paced by the generator |
| kube-scheduler | CI floors of 680 to 1,100 Pods a second | scheduler_perf thresholds; includes apiserver writes |
| Cluster Autoscaler | at most 30 s (under 100 nodes), 60 s (to 1,000 nodes) | service level in its FAQ |
`

// Table is docs/benchmarks.md for the results.
func Table(results []measure.Result) string {
	var b strings.Builder
	b.WriteString(head)
	for _, m := range machines(results) {
		fmt.Fprintf(&b, "Machine `%s`: %s, %d cores, %d MiB of L3, %d GiB, Linux %s, Go %s.\n", m.Name, m.CPU, m.Cores, m.L3MiB, m.RAMGiB, m.Kernel, m.Go)
	}
	b.WriteString("\n## Ratios\n\n| Benchmark | CPUs | Ours | Floor | Ratio | Target | | Allocations | Commit |\n|---|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		if r.Ratio.Rounds == 0 {
			continue
		}
		fmt.Fprintf(&b, "| %s | %d | %s | %s (%s) | %.2f (%.2f to %.2f) | %s | %s | %d | %.8s, %s |\n", Name(r), r.GOMAXPROCS, duration(r.Subject.Quantile(0.5)),
			duration(r.Floor.Quantile(0.5)), r.Floor.Probe, r.Ratio.Median, r.Ratio.Low, r.Ratio.High, target(r.Target),
			verdict(r.Target != 0, r.Ratio.Median <= r.Target), r.AllocsOp, r.Commit, r.Time.Format(time.DateOnly))
	}
	b.WriteString("\n## Absolute bounds and other numbers\n\n| Benchmark | CPUs | What | Value | Bound | | Oracle | Commit |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		for _, x := range r.Bounds {
			fmt.Fprintf(&b, "| %s | %d | %s | %s | %s | %s | %s, %d checks | %.8s, %s |\n", Name(r), r.GOMAXPROCS, x.Name, value(x.Unit, x.Value), limit(x),
				verdict(x.Limit != 0 || !x.Met, x.Met), r.Oracle.Name, r.Oracle.Checks, r.Commit, r.Time.Format(time.DateOnly))
		}
	}
	b.WriteString(tail)
	return b.String()
}

func machines(results []measure.Result) []measure.Machine {
	var out []measure.Machine
	seen := map[measure.Machine]bool{}
	for _, r := range results {
		if !seen[r.Machine] {
			seen[r.Machine] = true
			out = append(out, r.Machine)
		}
	}
	return out
}

func target(t float64) string {
	if t == 0 {
		return ""
	}
	return fmt.Sprintf("%.3g", t)
}

func verdict(judged, met bool) string {
	switch {
	case !judged:
		return ""
	case met:
		return "met"
	}
	return "**not met**"
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
