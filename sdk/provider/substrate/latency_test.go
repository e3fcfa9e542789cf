package substrate

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// PROV-26.8: each form of latency has the distribution that it names.
func TestLatencyDistributions(t *testing.T) {
	const n = 40_000
	draw := func(l Latency) []time.Duration {
		t.Helper()
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
		r, out := rand.New(rand.NewPCG(1, 2)), make([]time.Duration, n)
		for i := range out {
			out[i] = l.draw(r)
		}
		slices.Sort(out)
		return out
	}
	near := func(what string, got, want time.Duration) {
		t.Helper()
		if math.Abs(float64(got-want)) > 0.05*float64(want) {
			t.Errorf("%s is %s, want %s within 5 %%", what, got, want)
		}
	}
	if all := draw(Latency{Constant: 50 * time.Millisecond}); all[0] != all[n-1] || all[0] != 50*time.Millisecond {
		t.Errorf("constant: %s to %s", all[0], all[n-1])
	}
	all := draw(Latency{Min: time.Second, Max: 3 * time.Second})
	if all[0] < time.Second || all[n-1] > 3*time.Second {
		t.Errorf("uniform: %s to %s", all[0], all[n-1])
	}
	near("the median of uniform", all[n/2], 2*time.Second)
	near("the first quarter of uniform", all[n/4], 1500*time.Millisecond)
	all = draw(Latency{P50: 20 * time.Second, P99: 80 * time.Second})
	near("the p50 of log-normal", all[n/2], 20*time.Second)
	near("the p99 of log-normal", all[n*99/100], 80*time.Second)
	near("the first percentile of log-normal", all[n/100], 5*time.Second) // symmetric in the logarithm
	all = draw(Latency{List: []time.Duration{1, 5, 9}})
	for _, want := range []time.Duration{1, 5, 9} {
		share := 0
		for _, d := range all {
			if d == want {
				share++
			}
		}
		if math.Abs(float64(share)-n/3.0) > 0.05*n {
			t.Errorf("%d of %d draws are %d", share, n, want)
		}
	}
	for name, l := range map[string]Latency{
		"two forms": {Constant: 1, Min: 1, Max: 2}, "backwards": {Min: 2, Max: 1}, "p99 below p50": {P50: 2, P99: 1}, "negative": {List: []time.Duration{-1}},
	} {
		if l.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// PROV-24.2, 26.8: a failure rate is kept, within three standard deviations.
func TestFailureRates(t *testing.T) {
	const n, p = 5000, 0.2
	cloud, err := New(Config{Seed: 3, Behaviours: []*bigfleetv1alpha1.Behaviour{{
		Call: CallCreate, Fault: bigfleetv1alpha1.FaultKind_FAULT_KIND_ERROR, ErrorClass: "quota", Probability: p,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for i := range n {
		id := string(rune('a'+i%26)) + string(rune('a'+i/26%26)) + string(rune('a'+i/676))
		_, err := cloud.Create(t.Context(), provider.CreateOp{ID: "op-" + id, Machine: provider.Machine{ID: id}})
		if err == nil {
			continue
		}
		if class, _ := provider.ClassOf(err); class != provider.ClassQuota {
			t.Fatalf("%v is %s", err, class)
		}
		failed++
	}
	if deviation := math.Sqrt(n * p * (1 - p)); math.Abs(float64(failed)-n*p) > 3*deviation {
		t.Errorf("%d of %d failed, want %.0f ± %.0f", failed, n, n*p, 3*deviation)
	}
}
