package planner_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
)

// room is a cluster whose rows are covered, and the ledger that hears of Pods without a place.
type room struct {
	*script
	sharing ledger.Sharing
	now     int64
}

func newRoom(world string) *room {
	r := &room{script: newScript()}
	r.lines(world)
	r.sharing.Session("red", true)
	return r
}

func (r *room) report(pods map[string]int64) {
	rows := map[demand.RowKey]int64{}
	for _, n := range r.w.Demand.Cluster("red").Needs {
		if p := pods[strings.TrimPrefix(n.RowID, "red/")]; p > 0 {
			rows[n.RowKey()] = p
		}
	}
	r.sharing.Report("red", rows, r.now*engine.Second)
}

// plan makes one plan at a second and returns the units of room that a row has after it.
func (r *room) plan(at int64, row string) int64 {
	r.now = at
	r.w.Inventory.Advance(at * engine.Second)
	result := planner.Plan(engine.Input{World: r.w})
	if _, changed := r.sharing.Observe(r.w, result, r.policy); len(changed) > 0 {
		r.w.Demand.SetHeadroom("red", func(n *demand.Need) int64 { return r.sharing.Headroom("red", n.RowKey()) })
	}
	for _, n := range r.w.Demand.Cluster("red").Needs {
		if n.RowID == "red/"+row {
			return r.sharing.Headroom("red", n.RowKey())
		}
	}
	return -1
}

// ENG-11.16: Pods without a place get room at once when every machine that they could use is there. While one is on its way they
// wait for it, and for a report from after it came: the one before says nothing about it. They wait at most stuck_after.
func TestRoomWaitsForTheMachinesOfTheWaveOnly(t *testing.T) {
	for _, c := range []struct {
		name, more, then string
		first, second    int64 // room by the report, and when the machine has come
	}{
		{name: "all are there", first: 1, second: 1},
		{name: "one that it could use is starting", more: "machine m3 cpu=8 configuring=red", then: "machine m3 configured=red node=ready", second: 1},
		{name: "one has joined and is not Ready", more: "machine m3 cpu=8 configured=red node=not-ready", then: "machine m3 node=ready", second: 1},
		{name: "one has not joined", more: "machine m3 cpu=8 configured=red node=none", then: "machine m3 node=ready", second: 1},
		{name: "one is being bought", more: "machine m3 cpu=8 creating promised=red/small", then: "machine m3 configured=red node=ready", second: 1},
		{name: "one is bought by this plan", more: "need red/later cpu=4 unit=cpu:4\nmachine m3 cpu=4 speculative", then: "machine m3 configured=red for=later node=ready", second: 1},
		{name: "a small one is starting", more: "machine m3 cpu=2 configuring=red", first: 1, second: 1},
		{name: "one that it does not match is starting", more: "machine m3 cpu=8 configuring=red taint=gpu\nneed red/small tolerate=x\nneed red/large tolerate=x", first: 1, second: 1},
		{name: "one was Ready and is lost", more: "machine m3 cpu=8 configured=red node=lost", first: 1, second: 1},
		{name: "one has failed", more: "machine m3 cpu=8 failed", first: 1, second: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoom(`
				cluster red reports
				need red/large cpu=4 unit=cpu:4
				need red/small cpu=4 unit=cpu:1
				` + c.more + `
				machine m1 configured=red for=large cpu=4 node=ready
				machine m2 configured=red for=small cpu=4 node=ready`)
			r.plan(1000, "large")
			r.report(map[string]int64{"large": 1})
			if got := r.plan(1000, "large"); got != c.first {
				t.Fatalf("room for %d Pods at the report, want %d", got, c.first)
			}
			if c.then == "" {
				return
			}
			r.lines(c.then)
			if got := r.plan(1003, "large"); got != 0 {
				t.Fatalf("room for %d Pods by a report from before the machine came", got)
			}
			r.now = 1004
			r.report(map[string]int64{"large": 1})
			if got := r.plan(1004, "large"); got != c.second {
				t.Fatalf("room for %d Pods a second after the machine came, want %d", got, c.second)
			}
		})
	}
	t.Run("it never comes", func(t *testing.T) {
		r := newRoom(`
			cluster red reports
			need red/large cpu=4 unit=cpu:4
			machine m1 configured=red for=large cpu=4 node=ready
			machine m3 configuring=red cpu=8`)
		for at := int64(1000); at <= 1130; at += 10 {
			r.now = at
			r.report(map[string]int64{"large": 1})
			if got, want := r.plan(at, "large"), int64(0); at >= 1120 != (got > want) {
				t.Fatalf("room for %d Pods after %d s", got, at-1000)
			}
		}
	})
}

// ENG-11.16: room that does not help comes again after two minutes, then four, then eight, for one Pod at a time and four times.
func TestRoomThatDoesNotHelpComesSlower(t *testing.T) {
	r := newRoom(`
		need red/a cpu=4 unit=cpu:2
		machine m1 configured=red for=a cpu=4 node=ready`)
	for i := range 30 {
		r.do(fmt.Sprintf("machine x%02d configured=red cpu=4 node=ready", i))
	}
	var grown []int64
	last := int64(0)
	for at := int64(1000); at < 9000; at += 10 {
		r.now = at
		r.report(map[string]int64{"a": 2})
		if got := r.plan(at, "a"); got > last {
			grown, last = append(grown, at-1000), got
		}
	}
	if want := "[0 120 360 840 1800]"; fmt.Sprint(grown) != want {
		t.Errorf("room grew after %v s, want %s", grown, want)
	}
}

// ENG-11.17: a machine that room brought and that stands empty while every Pod has a place is given back. One that runs a Pod stays, so
// does one that the demand needs by count, and nothing is given back while some Pod waits.
func TestRoomThatStandsEmptyIsGivenBack(t *testing.T) {
	for _, c := range []struct {
		name, world string
		waits       int64
		want        int
	}{
		{name: "empty", world: "machine m2 holds=nothing", want: 1},
		{name: "in use", world: "machine m2 holds=1"},
		{name: "nothing is known", world: ""},
		{name: "not Ready", world: "machine m2 holds=nothing node=lost"},
		{name: "some Pod waits", world: "machine m2 holds=nothing", waits: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoom(`
				need red/a cpu=4 unit=cpu:2
				need red/b cpu=4 unit=cpu:4
				machine m1 configured=red for=a cpu=4 node=ready holds=1
				machine m2 configured=red cpu=4 node=ready
				machine m4 configured=red for=b cpu=4 node=ready holds=1`)
			r.now = 1000
			r.report(map[string]int64{"a": 1})
			if got := r.plan(1000, "a"); got != 1 {
				t.Fatalf("room for %d Pods, want 1", got)
			}
			r.lines(c.world)
			for at := int64(1010); at < 1310; at += 10 {
				r.now = at
				r.report(map[string]int64{"b": c.waits})
				if got := r.plan(at, "a"); got != 1 {
					t.Fatalf("%d s later: room for %d Pods", at-1000, got)
				}
			}
			for at := int64(1310); at < 5000; at += 10 {
				r.now = at
				r.report(map[string]int64{"b": c.waits})
				r.plan(at, "a")
			}
			var gone []string
			for _, a := range planner.Plan(engine.Input{World: r.w}).Actions {
				if a.Kind == engine.Reclaim {
					gone = append(gone, r.w.Inventory.ID(a.Machine))
				}
			}
			if len(gone) != c.want || c.want > 0 && gone[0] != "m2" {
				t.Errorf("given back %v, want %d", gone, c.want)
			}
		})
	}
}
