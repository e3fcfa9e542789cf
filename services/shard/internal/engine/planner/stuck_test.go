package planner_test

import (
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
)

// ENG-11.11, ENG-11.12, ENG-11.15: whose Pods have to be without a place, and under which circumstances, for a cluster to share less.
func TestWhoIsStuckLowersTheLevel(t *testing.T) {
	for _, c := range []struct {
		name, stuck, world string
		old                bool // the report is not repeated
		want               int32
	}{
		{name: "who has a share", stuck: "recipient", want: 500},
		{name: "who gives one", stuck: "donor", want: 500},
		{name: "who does neither", stuck: "alone", want: 1000},
		{name: "none", stuck: "none", want: 1000},
		{name: "the Node of its share is not Ready", stuck: "recipient", world: "machine m1 node=lost", want: 1000},
		{name: "the Node of its machine is not Ready", stuck: "donor", world: "machine m1 node=not-ready", want: 1000},
		{name: "another Node is not Ready", stuck: "recipient", world: "machine m2 node=lost", want: 500},
		{name: "its machine is still starting", stuck: "donor", world: "machine m1 configuring=red", want: 1000},
		{name: "the report is old", stuck: "recipient", old: true, want: 1000},
		{name: "a gang that is folded", stuck: "gang", world: "need red/gang cpu=1 unit=cpu:1 same=rack", want: 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScript()
			s.lines(`
				need red/donor cpu=2 unit=cpu:2
				need red/recipient cpu=1 unit=cpu:1
				need red/alone cpu=4 unit=cpu:4
				machine m1 configured=red for=donor cpu=4 label.rack=ra node=ready
				machine m2 configured=red for=alone cpu=4 label.rack=ra node=ready` + "\n" + c.world)
			var sharing ledger.Sharing
			sharing.Session("red", true)
			for now := int64(10); now <= 200; now += 10 {
				s.w.Inventory.Advance(now * engine.Second)
				r := planner.Plan(engine.Input{World: s.w})
				if len(r.Short) > 0 {
					t.Fatalf("short: %v", r.Short)
				}
				if !c.old || now == 10 {
					rows := map[demand.RowKey]int64{}
					for _, n := range r.Blocks[0].Needs {
						if strings.HasPrefix(n.Group, c.stuck) {
							rows[n.RowKey()] = 1
						}
					}
					sharing.Report("red", rows, now*engine.Second)
				}
				sharing.Observe(s.w, r, engine.DefaultPolicy())
			}
			if got := sharing.PerMille("red"); got != c.want {
				t.Errorf("the level is %d, not %d", got, c.want)
			}
			sharing.SessionClosed("red") // while no session lives the last level stands (ENG-11.10)
			if got := sharing.PerMille("red"); got != c.want {
				t.Errorf("without a session the level is %d, not %d", got, c.want)
			}
		})
	}
}
