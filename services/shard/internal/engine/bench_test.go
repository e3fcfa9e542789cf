package engine

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
)

// TestTimes prints rough times of every shape; it is for profiling and needs BIGFLEET_TIMES.
func TestTimes(t *testing.T) {
	if os.Getenv("BIGFLEET_TIMES") == "" {
		t.Skip("set BIGFLEET_TIMES to run; the measured numbers come from the benchmarks")
	}
	at := time.Now()
	lap := func(what string) {
		fmt.Printf("%-40s %v\n", what, time.Since(at))
		at = time.Now()
	}
	gen := workload.Steady(workload.Size{Machines: 500_000, Needs: 50_000, Clusters: 5_000}, 1)
	lap("generate")
	b := newBenchWorld(gen)
	lap("fill")
	fmt.Println("classes", b.w.Inventory.Classes(), "keys", b.w.Demand.ValueKeys(), b.w.Demand.PresenceKeys(), "forms", b.w.Demand.FormLen())
	inc := NewPlanner()
	r := inc.Plan(Input{World: b.w})
	lap("first plan")
	fmt.Println("actions", len(r.Actions), "short", len(r.Short), "open", r.Counters.OpenNeeds)
	var steady time.Duration
	for range 200 {
		b.settle(r)
		b.churn(0.01)
		at = time.Now()
		r = inc.Plan(Input{World: b.w})
		steady += time.Since(at)
	}
	fmt.Println("steady 1%, mean of 200", steady/200, len(r.Actions), "dirty", r.Counters.DirtyClusters, "open", r.Counters.OpenNeeds)
}
