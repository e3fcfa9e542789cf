package planner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
)

// spreadOverRacks are rows that differ in unit and requirements, with a hard spread over racks that all differ, of so many units each. If they hold some, each has a machine in
// every second rack.
func spreadOverRacks(s *script, racks, rows, units int, holds bool) {
	var lines strings.Builder
	lines.WriteString("cluster red sharing=0\n")
	for i := range rows {
		fmt.Fprintf(&lines, "need red/w%d cpu=%g mem=%g unit=cpu:%g,mem:1.5 notin=pool:p%d absent=k%d spread=rack:1\n",
			i, float64(units*(1_000+i))/1_000, float64(units)*1.5, float64(1_000+i)/1_000, i%12, i)
		for d := 0; holds && d < racks; d += 2 {
			fmt.Fprintf(&lines, "machine h%d-%d cpu=1.9 mem=2 label.rack=r%d configured=red for=w%d\n", i, d, d, i)
		}
	}
	s.lines(lines.String())
}

// ENG-13.9: short rows with a hard spread over racks that all differ, for each pair of row and rack.
func BenchmarkSpreadOverRacks(b *testing.B) {
	for _, racks := range []int{2_000, 10_000} {
		for _, state := range []string{"idle", "speculative"} {
			for _, c := range []struct {
				name        string
				rows, units int
				holds       bool
			}{{"few units", 20, 3, false}, {"half of the racks", 8, racks / 2, false}, {"holds half", 8, racks/2 + 3, true}} {
				b.Run(fmt.Sprintf("racks=%d/%s/%s", racks, state, c.name), func(b *testing.B) {
					s := newScript()
					racksThatDiffer(s, racks, state)
					spreadOverRacks(s, racks, c.rows, c.units, c.holds)
					var r *engine.Result
					planner.Plan(engine.Input{World: s.w}) // the inventory learns the key
					for b.Loop() {
						r = planner.Plan(engine.Input{World: s.w})
					}
					if len(r.Short) > 0 {
						b.Fatalf("%d are short", len(r.Short))
					}
					b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*c.rows*racks), "ns/pair")
					b.ReportMetric(float64(len(r.Actions))/float64(c.rows), "taken/row")
				})
			}
		}
	}
}
