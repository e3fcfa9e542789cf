package planner_test

import (
	"runtime"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/kit/bench/measure"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// BenchmarkOutput is the floor under the cold plans of B2, B4 and B5 that no engine gets below: it decides nothing. It is given
// the answer, and writes it as a plan has to: in allocation order the row of each machine that is taken is read, the machine is marked,
// its record and its action are written; then each cluster's claims and verdicts. Machines lie in memory as a fleet has them, not as
// allocations take them.
func BenchmarkOutput(b *testing.B) {
	for name, gen := range map[string]func() *workload.World{
		"B2": func() *workload.World {
			s := workload.Size{Machines: measure.Scaled(fullSteady.Machines), Needs: measure.Scaled(fullSteady.Needs), Clusters: measure.Scaled(fullSteady.Clusters)}
			w := workload.Steady(s, measure.Seed())
			w.Unbind()
			return w
		},
		"B4": func() *workload.World { return workload.Gangs(max(1, measure.Scaled(16)), measure.Seed()) },
		"B5": func() *workload.World { return workload.One(measure.Scaled(500_000), measure.Seed()) },
	} {
		b.Run(name, func(b *testing.B) {
			w := newBenchWorld(gen()).w
			r := planner.Plan(engine.Input{World: w})
			runtime.GC()
			for b.Loop() {
				b.StopTimer()
				runtime.GC()
				b.StartTimer()
				if got := writeAgain(w, r); len(got.Actions) != len(r.Actions) {
					b.Fatal(len(got.Actions))
				}
			}
			b.ReportMetric(float64(len(r.Actions)), "machines")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(r.Actions)), "ns/machine")
		})
	}
}

// machineRecord is as large as what a planner notes of a machine.
type machineRecord struct {
	idx          inventory.Index
	class, order uint32
	state        inventory.State
	claim        int32
	_            [44]byte
}

// writeAgain makes a result like r.
func writeAgain(w *engine.World, r *engine.Result) *engine.Result {
	out := &engine.Result{Actions: make([]engine.Action, 0, len(r.Actions)), Blocks: make([]*engine.Block, len(r.Blocks))}
	records := make([][]machineRecord, len(r.Blocks))
	for i, old := range r.Blocks {
		records[i] = make([]machineRecord, 0, len(old.Claims))
	}
	taken := make([]uint64, (w.Inventory.Bound()+63)/64)
	for _, a := range r.Actions {
		row := w.Inventory.Row(a.Machine)
		taken[a.Machine/64] |= 1 << (a.Machine % 64)
		out.Actions = append(out.Actions, a)
		if !a.Need.None() {
			to := &records[a.Need.Block]
			*to = append(*to, machineRecord{idx: a.Machine, class: row.Class, order: row.Order, state: row.Seen(), claim: a.Need.Row})
		}
	}
	for i, old := range r.Blocks {
		nb := &engine.Block{Cluster: old.Cluster, Needs: old.Needs, Verdicts: make([]engine.Verdict, len(old.Verdicts)), Domains: old.Domains, Claims: make([]engine.Claim, 0, len(old.Claims))}
		copy(nb.Verdicts, old.Verdicts)
		for _, l := range records[i] {
			nb.Claims = append(nb.Claims, engine.Claim{Machine: l.idx, Row: l.claim, Kind: engine.ClaimIdle})
		}
		nb.Missing = append(nb.Missing, old.Missing...)
		out.Blocks[i] = nb
	}
	return out
}
