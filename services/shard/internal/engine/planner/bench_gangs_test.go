package planner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// sizedGangs are gangs of which no two ask the same: each has another size, or another unit, or excludes other types of machines.
func sizedGangs(w *engine.World, n int, differ string) {
	rows := make([]demand.Row, n)
	for i := range rows {
		cpu, unit, reqs := int64(40_000), int64(1_000), []demand.Requirement{{Key: "rack", Op: demand.Same}}
		switch differ {
		case "size", "start":
			cpu += int64(i) * 1_000
		case "unit":
			unit += int64(i % 1_000)
			cpu = unit * int64(40+i/1_000)
		case "types":
			reqs = append(reqs, demand.Requirement{Key: "pool", Op: demand.NotIn, Values: []string{fmt.Sprint("p", i%16), fmt.Sprint("p", i/16%16), fmt.Sprint("p", i/256%16), fmt.Sprint("p", i/4096)}})
		}
		rows[i] = demand.Row{Profile: demand.Profile{Requirements: reqs}, Group: fmt.Sprint(i), RowID: fmt.Sprint(i),
			Aggregate: []resource.Quantity{{Name: "cpu", Milli: cpu}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: unit}}}
		if differ == "start" {
			rows[i].Profile.MinMembers = int32(cpu / unit)
		}
		rows[i].Seal()
	}
	w.Demand.Replace("red", rows, nil, 1)
}

// ENG-21.9: gangs of which no two ask the same, and many domains. In domains that are alike a gang looks at one of them.
func BenchmarkGangsOfEachSize(b *testing.B) {
	for _, domains := range []int{1_000, 10_000} {
		for _, fleet := range []string{"alike", "mixed", "different"} {
			var lines strings.Builder
			for d := range domains {
				for m := range 4 {
					cpu, pool := 4, 0
					switch {
					case fleet == "different": // from each other
						pool = d >> (4 * m) % 16
					case fleet == "mixed":
						if pool = d * 7 % 16; (d/16+m)%3 == 0 { // some are in use
							continue
						}
					}
					cpu += 2 * pool
					fmt.Fprintf(&lines, "machine m%d-%d cpu=%d label.rack=r%d label.pool=p%d speculative\n", d, m, cpu, d, pool)
				}
			}
			for _, differ := range []string{"size", "start", "unit", "types"} {
				s := newScript()
				s.lines(lines.String())
				sizedGangs(s.w, 16_667, differ)
				b.Run(fmt.Sprintf("domains=%d/%s/%s", domains, fleet, differ), func(b *testing.B) {
					for b.Loop() {
						planner.Plan(engine.Input{World: s.w})
					}
				})
			}
		}
	}
}
