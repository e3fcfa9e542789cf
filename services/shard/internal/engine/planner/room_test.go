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
	r.sharing.ReportUnbound("red", nil)
}

// plan makes one plan at a second and returns the units of room that a row has after it.
func (r *room) plan(at int64, row string) int64 {
	r.now = at
	r.w.Inventory.Advance(at * engine.Second)
	result := planner.Plan(engine.Input{World: r.w})
	if _, changed := r.sharing.Observe(r.w, result, r.policy); len(changed) > 0 {
		r.w.Demand.SetHeadroom("red", func(n *demand.Need) int64 { return r.sharing.Headroom("red", n.RowKey()) })
		r.w.Demand.SetOwn("red", func(n *demand.Need) int64 { return r.sharing.Own("red", n.RowKey()) })
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

// ENG-11.16: room that did not help four times in a row ends. As soon as fewer Pods wait it has helped, and the four times begin again.
func TestRoomThatHelpedIsTriedAgain(t *testing.T) {
	r := newRoom(`
		need red/a cpu=4 unit=cpu:2
		machine m1 configured=red for=a cpu=4 node=ready`)
	for i := range 30 {
		r.do(fmt.Sprintf("machine x%02d configured=red cpu=4 node=ready", i))
	}
	last := int64(0)
	grows := func(from, to, waiting int64) (times int) {
		for at := from; at < to; at += 10 {
			r.now = at
			r.report(map[string]int64{"a": waiting})
			if got := r.plan(at, "a"); got > last {
				times, last = times+1, got
			}
		}
		return times
	}
	if got := grows(1000, 20000, 2); got != 5 {
		t.Fatalf("room grew %d times, want once and four times more", got)
	}
	if got := grows(20000, 20010, 1) + grows(20010, 60000, 2); got != 5 {
		t.Errorf("after it helped, room grew %d times, want once and four times more", got)
	}
}

// ENG-11.16: when a machine holds less by what was learnt of it, a row loses as much room as the shares that it has there hold less, and no more.
func TestRoomEndsByWhatSharesHoldLess(t *testing.T) {
	r := newRoom(`
		cluster red reports sharing=1000
		need red/large cpu=2 unit=cpu:2
		need red/small cpu=4 unit=cpu:1
		machine m1 type=big configured=red for=large cpu=8 node=ready`)
	r.plan(1000, "small")
	r.report(map[string]int64{"small": 3})
	if got := r.plan(1000, "small"); got != 3 {
		t.Fatalf("room for %d Pods, want 3", got)
	}
	block := planner.Plan(engine.Input{World: r.w}).Blocks[0]
	r.sharing.Learn(r.w, block, func() bool {
		r.lines("cluster red reports sharing=1000 room=big:cpu:6")
		return true
	})
	// Of 8 Pods on the whole machine 6 are left, so of the 4 of this row 3.
	for _, n := range r.w.Demand.Cluster("red").Needs {
		if n.RowID == "red/small" {
			if got := r.sharing.Headroom("red", n.RowKey()); got != 2 {
				t.Errorf("room for %d Pods, want 2", got)
			}
		}
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

// plans makes plans for some seconds, ten seconds apart, each with a report of rows whose Pods wait and of rows that are not all bound,
// and returns the actions of the last one by machine.
func (r *room) plans(seconds int64, waits map[string]int64, unbound ...string) map[string]engine.Kind {
	var last *engine.Result
	for end := r.now + seconds; r.now < end; {
		r.now += 10
		r.report(waits)
		rows := map[demand.RowKey]bool{}
		for _, n := range r.w.Demand.Cluster("red").Needs {
			for _, u := range unbound {
				if n.RowID == "red/"+u {
					rows[n.RowKey()] = true
				}
			}
		}
		r.sharing.ReportUnbound("red", rows)
		for range 4 { // a change is planned at once
			r.w.Inventory.Advance(r.now * engine.Second)
			for _, c := range r.sharing.Recount(r.w, r.now*engine.Second) {
				r.set(c)
			}
			last = planner.Plan(engine.Input{World: r.w})
			if _, changed := r.sharing.Observe(r.w, last, r.policy); len(changed) > 0 {
				r.set("red")
			}
			var again ledger.Sharing // a ledger that is saved and restored goes on where it was
			again.Restore(r.sharing.Entries())
			r.sharing = again
		}
	}
	out := map[string]engine.Kind{}
	for _, a := range last.Actions {
		out[r.w.Inventory.ID(a.Machine)] = a.Kind
	}
	return out
}

func (r *room) set(cluster string) {
	r.w.Demand.SetHeadroom(cluster, func(n *demand.Need) int64 { return r.sharing.Headroom(cluster, n.RowKey()) })
}

const servedElsewhere = `
	cluster red reports sharing=1000
	need red/web cpu=4 unit=cpu:2
	need red/api cpu=4 unit=cpu:4
	machine m1 configured=red for=web cpu=4 price=1 node=ready holds=nothing
	machine m2 configured=red for=api cpu=8 price=2 node=ready holds=12
	machine m3 speculative cpu=4 price=1
	machine m4 speculative cpu=4 price=1`

// ENG-11.18: a machine that the sum of its row asks for, and that stays empty because its Pods run elsewhere, is given back after
// EmptyAfter; not while Pods of the cluster wait, its row asks for Pods that do not run yet, or nothing says whether it does.
func TestMachinesThatStayEmptyAreGivenBack(t *testing.T) {
	for _, c := range []struct {
		name, more string
		waits      map[string]int64
		unbound    []string
		want       string
	}{
		{name: "its Pods run elsewhere", want: "map[m1:RECLAIM]"},
		{name: "a Pod of the cluster waits", more: "need red/big cpu=4 unit=cpu:4\nmachine m5 configured=red for=big cpu=4 node=ready holds=1\nmachine m3 failed\nmachine m4 failed",
			waits: map[string]int64{"big": 1}, want: "map[]"},
		{name: "its row has Pods without a node", unbound: []string{"web"}, want: "map[]"},
		{name: "another row has", unbound: []string{"api"}, want: "map[m1:RECLAIM]"},
		{name: "its node holds something", more: "machine m1 holds=1", want: "map[]"},
		{name: "its node is lost", more: "machine m1 node=lost", want: "map[]"},
		{name: "another shard owns it", more: "machine m1 foreign", want: "map[]"},
		{name: "another row shares it, and waits for its Pods", more: "need red/late cpu=8 unit=cpu:1\nmachine m1 cpu=8", unbound: []string{"late"}, want: "map[]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRoom(servedElsewhere + "\n" + c.more)
			r.now = 1000
			if got := r.plans(290, c.waits, c.unbound...); len(got) > 0 && got["m1"] == engine.Reclaim {
				t.Fatalf("before its time: %v", got)
			}
			// At 1010 s the first plan sees it empty, at 1310 s empty_after has passed.
			if got := fmt.Sprint(r.plans(20, c.waits, c.unbound...)); !strings.EqualFold(got, c.want) {
				t.Fatalf("%s, want %s", got, c.want)
			}
		})
	}
}

// ENG-11.18, 11.19: what was given back is not bought again at constant demand. More demand is bought, less keeps what is in use, and a Pod
// that waits after all gets its machine again.
func TestWhatIsServedElsewhereIsNotBoughtAgain(t *testing.T) {
	begin := func(t *testing.T) *room {
		r := newRoom(servedElsewhere)
		r.now = 1000
		if got := r.plans(320, nil); got["m1"] != engine.Reclaim {
			t.Fatalf("not given back: %v", got)
		}
		r.lines("machine m1 speculative")
		if got := r.plans(20000, nil); len(got) > 0 {
			t.Fatalf("constant demand, and %v", got)
		}
		return r
	}
	t.Run("more is asked for", func(t *testing.T) {
		r := begin(t)
		r.lines("need red/web cpu=8 unit=cpu:2")
		if got := r.plans(10, nil, "web"); len(got) != 1 || got["m1"] != engine.Provision {
			t.Fatalf("two Pods more, and %v", got)
		}
	})
	t.Run("a Pod of it waits", func(t *testing.T) {
		r := begin(t)
		if got := r.plans(10, map[string]int64{"web": 1}, "web"); len(got) != 1 || got["m1"] != engine.Provision {
			t.Fatalf("one Pod waits, and %v", got)
		}
	})
	t.Run("what its Pods run on is not needed by its own row", func(t *testing.T) {
		r := begin(t)
		r.lines("need red/api cpu=0 unit=cpu:4")
		if got := r.plans(10, nil); len(got) > 0 {
			t.Fatalf("the machine in use: %v", got)
		}
		r.lines("machine m2 holds=nothing\nneed red/web cpu=0 unit=cpu:2")
		if got := r.plans(10, nil); got["m2"] != engine.Reclaim {
			t.Fatalf("nothing is asked for, and %v", got)
		}
	})
}

// ENG-11.16: Pods that share a topology domain get room in that domain, as far as it has free machines: a gang with more than its domain
// can hold would be bought again in another one.
func TestRoomOfAGangIsInItsDomain(t *testing.T) {
	for name, c := range map[string]struct {
		gang           string
		reported, want int64
		buys           string
	}{
		"one Pod":                           {"need red/near cpu=12 unit=cpu:6 same=zone\nmachine m3 zone=a configured=red for=near cpu=8 node=ready", 1, 1, "s1"},
		"more Pods than the zone has rooms": {"need red/near cpu=12 unit=cpu:6 same=zone\nmachine m3 zone=a configured=red for=near cpu=8 node=ready", 3, 1, "s1"},
		"it fits one machine":               {"need red/near cpu=6 unit=cpu:6 same=zone", 1, 1, "s1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRoom(`
				cluster red reports
				` + c.gang + `
				need red/small cpu=4 unit=cpu:1
				machine m1 zone=a configured=red for=near cpu=8 node=ready
				machine m2 zone=a configured=red for=small cpu=8 node=ready
				machine s1 zone=a cpu=8 price=3 speculative
				machine s2 zone=b cpu=32 price=1 speculative
				machine s3 zone=c cpu=8 price=1 speculative`)
			r.plan(1000, "near")
			r.report(map[string]int64{"near": c.reported})
			if got := r.plan(1000, "near"); got != c.want {
				t.Fatalf("room for %d Pods, want %d", got, c.want)
			}
			r.now++
			result := planner.Plan(engine.Input{World: r.w})
			var buys []string
			for _, a := range result.Actions {
				buys = append(buys, r.w.Inventory.ID(a.Machine))
			}
			if got := strings.Join(buys, " "); got != c.buys {
				t.Errorf("acts on %q, want %q", got, c.buys)
			}
		})
	}
}

// ENG-11.16: room is bought once. Of a row that has shares, what its new machines hold stands for the room, and the shares go on serving the
// rest.
func TestRoomBesideSharesIsBoughtOnce(t *testing.T) {
	r := newRoom(`
		cluster red reports
		need red/large cpu=3 unit=cpu:3
		need red/small cpu=3 unit=cpu:1
		machine m1 configured=red for=large cpu=8 node=ready
		machine m2 cpu=1 price=1 speculative
		machine m3 cpu=1 price=1 speculative
		machine m4 cpu=1 price=1 speculative`)
	r.plan(1000, "small")
	r.report(map[string]int64{"small": 1})
	if got := r.plan(1000, "small"); got != 1 {
		t.Fatalf("room for %d Pods, want 1", got)
	}
	for at := int64(1001); at < 1004; at++ {
		r.w.Inventory.Advance(at * engine.Second)
		var buys []string
		for _, a := range planner.Plan(engine.Input{World: r.w}).Actions {
			buys = append(buys, r.w.Inventory.ID(a.Machine))
		}
		want := ""
		if at == 1001 {
			want = "m2"
		}
		if strings.Join(buys, " ") != want {
			t.Fatalf("at %d s the plan acts on %v, want %q", at, buys, want)
		}
		for _, id := range buys {
			r.lines("machine " + id + " configured=red for=small node=ready")
		}
	}
}

// ENG-11.18, 13.9: a row's only machine in a zone that stays empty is given back once. The zone still counts, for it has a machine of others, so that
// what the row's own machines hold is no more than before.
func TestTheOnlyMachineInAZoneIsGivenBackOnce(t *testing.T) {
	r := newRoom(`
		cluster red reports
		need red/even cpu=10 unit=cpu:2 spread=zone:1
		need red/other cpu=2 unit=cpu:2 in=zone:c
		machine m4 zone=c configured=red for=other cpu=2 node=ready holds=5
		machine m1 zone=a configured=red for=even cpu=4 node=ready holds=5
		machine m2 zone=b configured=red for=even cpu=4 node=ready holds=5
		machine m3 zone=c configured=red for=even cpu=2 node=ready holds=nothing`)
	var did []string
	for at := int64(1000); at < 1000+3600; at += 10 {
		r.now = at
		r.report(nil)
		r.plan(at, "even")
		for _, a := range planner.Plan(engine.Input{World: r.w}).Actions {
			id := r.w.Inventory.ID(a.Machine)
			did = append(did, a.Kind.String()+" "+id)
			if a.Kind == engine.Reclaim {
				r.lines("machine " + id + " speculative")
			} else {
				r.lines("machine " + id + " configured=red for=even node=ready holds=nothing")
			}
		}
	}
	if len(did) != 1 {
		t.Errorf("in an hour: %v", did)
	}
}
