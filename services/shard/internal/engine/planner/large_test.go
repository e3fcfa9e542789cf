package planner_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ENG-9.12, ENG-13.9: a Need with a hard spread owns the empty half of a large cluster, and the busy half is in few zones or racks, because the scheduler put
// its Pods there. Its plan takes a small multiple of one in which nothing is busy.
func TestWhichOfManyNodesToKeep(t *testing.T) {
	const machines, most = 2_000, 300
	for key, values := range map[string]int{"zone": 3, "rack": 700} {
		t.Run(key, func(t *testing.T) {
			plan := func(busy inventory.Occupancy) time.Duration {
				s := newScript()
				row := sharingRow(0, machines/2, 20, 0, key)
				var lines strings.Builder
				for i := range machines {
					value := i % values
					if i >= machines/2 {
						value = i % max(1, values/100)
					}
					fmt.Fprintf(&lines, "machine m%d cpu=20 label.%s=v%d configured=red\n", i, key, value)
				}
				s.lines(lines.String())
				s.w.Demand.Replace("red", []demand.Row{row}, nil, 1)
				for i := range machines {
					at, _ := s.w.Inventory.Find(fmt.Sprint("m", i))
					if s.w.Inventory.SetOccupancy(at, busy); i < machines/2 {
						s.w.Inventory.SetAttribution(at, &inventory.Attribution{Fingerprint: row.Fingerprint, Group: row.Group})
						s.w.Inventory.SetOccupancy(at, inventory.OccupancyEmpty)
					}
				}
				began := time.Now()
				planner.Plan(engine.Input{World: s.w})
				return time.Since(began)
			}
			floor := plan(inventory.OccupancyEmpty)
			if took := plan(inventory.OccupancyProtected); took > most*max(floor, time.Millisecond) {
				t.Errorf("%s; %s where all are empty", took, floor)
			} else {
				t.Logf("%s; %s where all are empty", took, floor)
			}
		})
	}
}
