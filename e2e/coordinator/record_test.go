package coordinator

import (
	"runtime"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

// publish appends a result of B11 to the record, when BIGFLEET_BENCH_RESULTS names its directory and the tree is clean.
// These results have no floor: nothing physical elects a leader.
func publish(t *testing.T, r measure.Result) {
	t.Helper()
	recorder, err := measure.RecorderFromEnv()
	if err != nil {
		t.Fatal(err)
	}
	if recorder == nil {
		return
	}
	r.Schema, r.Bench, r.GOMAXPROCS, r.Seed = 1, "B11", runtime.GOMAXPROCS(0), 1
	if err := recorder.Record(r); err != nil {
		t.Fatal(err)
	}
}

// publishGaps prints and records the pauses in accepted writes. The history was judged before.
func publishGaps(t *testing.T, work string, gaps []time.Duration, writes int, limit time.Duration) {
	t.Helper()
	series := measure.NewSeries("", nanoseconds(gaps))
	p50, p99 := series.Quantile(0.5), series.Quantile(0.99)
	t.Logf("%s: %d times, %d writes acknowledged; no write accepted for: p50 %.0f ms, p99 %.0f ms", work, len(gaps), writes, p50/1e6, p99/1e6)
	publish(t, measure.Result{Size: map[string]any{"nodes": 3, "work": work}, WorkloadSum: "4 writers and 2 readers of 4 registers", Subject: series,
		Bounds: []measure.Bound{measure.Shown("gap p50", "ns", p50), measure.AtMost("gap p99", "ns", p99, float64(limit)), measure.Shown("acknowledged writes", "count", float64(writes))},
		Oracle: measure.Oracle{Name: "porcupine; each acknowledged write once in the audit", Checks: len(gaps)}})
}

func nanoseconds(ds []time.Duration) []int64 {
	out := make([]int64, len(ds))
	for i, d := range ds {
		out[i] = int64(d)
	}
	return out
}
