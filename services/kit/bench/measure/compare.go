package measure

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// Compare is Run as a benchmark: one iteration is one round, so `go test -bench B1 -benchtime 12x` gives two warm-up
// rounds and ten that count. It reports the ratio and both times, and the result goes to the Recorder that the
// environment names (see RecorderFromEnv). With fewer than twelve iterations it reports and records nothing, because
// testing tries each benchmark with one first.
func Compare(b *testing.B, p Pair) {
	b.Helper()
	if err := p.check(); err != nil {
		b.Fatal(err)
	}
	c := &comparison{pair: p}
	const warmUp = 2
	for round := range b.N {
		if err := c.round(round >= warmUp); err != nil {
			b.Fatal(err)
		}
	}
	// The time of an iteration holds preparation and oracle and means nothing, so it is not shown. The timer runs all the
	// same: without it testing would try ever more iterations under a -benchtime that is a time.
	b.ReportMetric(0, "ns/op")
	if len(c.ratios) < roundsMin {
		if b.N >= warmUp+roundsMin {
			b.Fatalf("%d of %d rounds are left: %v", len(c.ratios), b.N-warmUp, c.dropped)
		}
		return
	}
	result, err := c.result()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(result.Ratio.Median, "ratio")
	b.ReportMetric(result.Ratio.Low, "ratio-low")
	b.ReportMetric(result.Ratio.High, "ratio-high")
	b.ReportMetric(Median(floats(c.floor)), "floor-ns")
	b.ReportMetric(Median(floats(c.subject)), "subject-ns")
	b.ReportMetric(float64(result.AllocsOp), "subject-allocs")
	b.ReportMetric(float64(result.BytesOp), "subject-B")
	recorder, err := RecorderFromEnv()
	if err != nil {
		b.Fatal(err)
	}
	if recorder != nil {
		if err := recorder.Record(result); err != nil {
			b.Fatal(err)
		}
	}
}

// Name is the name of a size, B1/machines=500k/needs=50k: the bench and its sizes in the order of their keys.
func Name(bench string, size map[string]any) string {
	keys := make([]string, 0, len(size))
	for key := range size {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	parts := []string{bench}
	for _, key := range keys {
		parts = append(parts, key+"="+short(size[key]))
	}
	return strings.Join(parts, "/")
}

func short(value any) string {
	if n, ok := value.(int); ok {
		switch {
		case n >= 1_000_000 && n%1_000_000 == 0:
			return fmt.Sprintf("%dM", n/1_000_000)
		case n >= 1_000 && n%1_000 == 0:
			return fmt.Sprintf("%dk", n/1_000)
		}
	}
	return fmt.Sprint(value)
}

func floats(samples []int64) []float64 {
	out := make([]float64, len(samples))
	for i, s := range samples {
		out[i] = float64(s)
	}
	return out
}
