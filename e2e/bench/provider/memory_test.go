package provider_test

import (
	"net/http"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/loopback"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
)

// PROV-25.9: live bytes of the heap per machine, encoded form and indexes included: what a provider with 500,000 machines
// holds after a collection, less what one with 5,000 holds. Slots have no metadata.
func BenchmarkMemory(b *testing.B) {
	const few = 5_000
	machines := scaled(500_000)
	b.Run("rounds", func(b *testing.B) {
		for range b.N {
		}
		b.ReportMetric(0, "ns/op")
		if b.N == 1 {
			return // testing tries every benchmark with one round first
		}
		live := func(n int) float64 {
			port, err := loopback.Reserve()
			if err != nil {
				b.Fatal(err)
			}
			defer port.Release()
			f := start(b, n, 0, "--metrics-addr", port.Addr())
			f.metrics = "http://" + port.Addr() + "/metrics"
			if got := len(f.list(b, &pb.ListFilter{}).GetMachines()); got != n {
				b.Fatalf("%d machines of %d", got, n)
			}
			for range 2 { // what the first collection finds free, pools keep until the second
				answer, err := http.Get("http://" + port.Addr() + "/debug/pprof/heap?gc=1")
				if err == nil {
					_, err = readAll(answer)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
			heap := f.value(b, "go_memstats_heap_alloc_bytes")
			if err := f.process.Stop(b.Context()); err != nil {
				b.Fatal(err)
			}
			return heap
		}
		large, small := live(machines), live(few)
		result := measure.Result{
			Schema: 1, Bench: "PROV-25.9", Size: map[string]any{"machines": machines}, Seed: measure.Seed(), WorkloadSum: "slots",
			Time: time.Now().UTC().Truncate(time.Second), GOMAXPROCS: 2, Oracle: measure.Oracle{Name: "every machine is listed", Checks: 2},
			Bounds: []measure.Bound{
				measure.AtMost("live bytes per machine", "B", (large-small)/float64(machines-few), 1024),
				measure.Shown("heap with all of them, after a collection", "B", large),
			},
		}
		b.ReportMetric(result.Bounds[0].Value, "B/machine")
		recorder, err := measure.RecorderFromEnv()
		if err == nil && recorder != nil {
			err = recorder.Record(result)
		}
		if err != nil {
			b.Fatal(err)
		}
	})
}
