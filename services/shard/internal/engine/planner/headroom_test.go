package planner_test

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"pgregory.net/rapid"
)

// shelter is the part of the core that gives room: it hears which Pods wait, and tells the demand (ENG-11.10 to 11.17).
type shelter struct {
	*loop
	ledger   ledger.Sharing
	contents bool // nodes report what they hold, and the cluster which rows are not bound
}

func newShelter(seed uint64, clusters ...string) *shelter {
	s := &shelter{loop: newLoop(seed)}
	for _, c := range clusters {
		s.yard(c)
		s.ledger.Session(c, true)
	}
	return s
}

func (s *shelter) cycle(t rapid.TB) {
	for _, y := range s.clusters {
		waiting := map[demand.RowKey]int64{}
		if d := s.w.Demand.Cluster(y.name); d != nil {
			for i := range d.Needs {
				for _, ld := range y.loads {
					if n := ld.waiting(); ld.name == d.Needs[i].Group && n > 0 {
						waiting[d.Needs[i].RowKey()] = n
					}
				}
			}
		}
		s.ledger.Report(y.name, waiting, s.now)
		if s.contents {
			unbound := map[demand.RowKey]bool{}
			for k := range waiting {
				unbound[k] = true
			}
			s.ledger.ReportUnbound(y.name, unbound)
			for _, i := range s.nodes(y) {
				s.w.Inventory.SetReadiness(i, inventory.ReadyOnce)
				held := inventory.OccupancyEmpty
				if n := len(y.pods[i]); n > 0 {
					held = inventory.OccupancyOf(n / 4)
				}
				s.w.Inventory.SetOccupancy(i, held)
			}
		}
		s.w.Demand.SetFacts(y.name, demand.Facts{Heard: true, SharingPerMille: s.ledger.PerMille(y.name)})
		s.w.Demand.SetUnplaced(y.name, func(n *demand.Need) bool { return s.ledger.Unplaced(y.name, n.RowKey(), s.now, s.policy) })
	}
	for _, c := range s.ledger.Recount(s.w, s.now) {
		s.w.Demand.SetHeadroom(c, func(n *demand.Need) int64 { return s.ledger.Headroom(c, n.RowKey()) })
	}
	s.loop.cycle(t)
	_, room := s.ledger.Observe(s.w, s.last, s.policy)
	for _, c := range room {
		s.w.Demand.SetHeadroom(c, func(n *demand.Need) int64 { return s.ledger.Headroom(c, n.RowKey()) })
	}
}

// restart is a new process: it knows what the one before kept, and no more (SHARD-13.20).
func (s *shelter) restart() {
	var next ledger.Sharing
	for _, y := range s.clusters {
		next.Session(y.name, true)
		next.Inherit(y.name, s.ledger.Kept(y.name))
		s.w.Demand.SetHeadroom(y.name, func(*demand.Need) int64 { return 0 })
	}
	s.ledger = next
}

func (ld *load) waiting() (n int64) {
	for _, p := range ld.pods {
		if !p.placed {
			n++
		}
	}
	return n
}

// served says which row has Pods that wait although no row of its cluster is short; empty: none. With too few machines it is
// the scheduler who decides which of the Pods of one priority run, so that another row may be the one that is short.
func (s *shelter) served() string {
	for _, y := range s.clusters {
		short, waits := false, ""
		for _, n := range s.w.Demand.Cluster(y.name).Needs {
			v, _ := s.last.Verdict(y.name, n.RowKey())
			short = short || v.Status == engine.Short
			for _, ld := range y.loads {
				if n.Group == ld.name && ld.waiting() > 0 {
					waits = fmt.Sprintf("%s: %d of %d Pods of %v wait, and the row is %s", y.name, ld.waiting(), ld.replicas, ld.unit, v.Status)
				}
			}
		}
		if waits != "" && !short {
			return waits
		}
	}
	return ""
}

// empty names a machine that is kept although its node is empty and no row of its cluster is short. One of which another row has a share may
// stay: each of the two rows needs it by its sum, in turn.
func (s *shelter) empty() string {
	shared := map[inventory.Index]bool{}
	for _, b := range s.last.Blocks {
		for _, x := range b.Shares {
			shared[x.Machine] = true
		}
	}
	for _, y := range s.clusters {
		short := false
		for _, n := range s.w.Demand.Cluster(y.name).Needs {
			v, _ := s.last.Verdict(y.name, n.RowKey())
			short = short || v.Status == engine.Short
		}
		for _, i := range s.nodes(y) {
			if len(y.pods[i]) == 0 && !short && !shared[i] {
				return fmt.Sprintf("%s of %s is empty", s.w.Inventory.ID(i), y.name)
			}
		}
	}
	return ""
}

// ENG-S72, ENG-11.16, ENG-4.12, OP-5.22: whatever Pods of several sizes come, on whatever machines, and however the scheduler spreads
// them: in the end every Pod runs, or the fleet has no more for the cluster and says so. Then nothing moves, not even when the shard is
// started again (SHARD-13.20).
func TestEveryPodRunsOrARowIsShort(t *testing.T) {
	units := []amounts3{{1, 1}, {1, 3}, {2, 1}, {2, 2}, {3, 2}, {4, 4}, {5, 3}, {7, 9}}
	rapid.Check(t, func(rt *rapid.T) {
		s := newShelter(rapid.Uint64().Draw(rt, "seed"), []string{"blue", "red"}[:rapid.IntRange(1, 2).Draw(rt, "clusters")]...)
		s.scatter, s.every, s.contents = rapid.Bool().Draw(rt, "scatter"), 23, rapid.Bool().Draw(rt, "contents")
		if s.contents {
			s.policy.EmptyAfter = 60 * engine.Second
		}
		s.slots("small", rapid.IntRange(0, 30).Draw(rt, "small"), "cpu=4 mem=8 price=1 label.rack=r1")
		s.slots("middle", rapid.IntRange(0, 12).Draw(rt, "middle"), "cpu=8 mem=12 price=2.2 label.rack=r1")
		s.slots("large", rapid.IntRange(0, 6).Draw(rt, "large"), "cpu=16 mem=32 price=4.1 label.rack=r2")
		s.dwell["create"], s.dwell["configure"], s.dwell["drain"] = s.rng.IntN(3), s.rng.IntN(2), 1
		for _, y := range s.clusters {
			for k := range rapid.IntRange(1, 4).Draw(rt, "sizes") {
				y.run(fmt.Sprintf("w%d", k), 10, units[s.rng.IntN(len(units))], 1+s.rng.IntN(9))
			}
		}
		for range s.rng.IntN(20) {
			s.cycle(rt)
		}
		for range s.rng.IntN(3) { // demand goes up and down meanwhile
			y := s.clusters[s.rng.IntN(len(s.clusters))]
			y.loads[s.rng.IntN(len(y.loads))].scale(y, s.rng.IntN(12))
			for range s.rng.IntN(40) {
				s.cycle(rt)
			}
		}
		quiet, bad := 0, ""
		for n := 0; quiet < 40; n++ {
			s.cycle(rt)
			if bad = s.served(); bad == "" && len(s.moves())+len(s.due) == 0 {
				quiet++
			} else {
				quiet = 0
			}
			if n > 900 {
				rt.Fatalf("after %d cycles: %q; moves %v", n, bad, s.moves())
			}
		}
		if empty := s.empty(); s.contents && empty != "" {
			rt.Fatalf("ENG-11.18: nothing moves, and %s: %+v\n%s", empty, s.ledger.Entries(), render(s.w, s.last))
		}
		s.restart()
		for n := range 30 {
			if s.cycle(rt); len(s.moves())+len(s.due) > 0 {
				rt.Fatalf("%d cycles after a restart: %v\n%s", n, s.moves(), render(s.w, s.last))
			}
		}
	})
}

// ENG-S73, ENG-11.16: small Pods that the scheduler put everywhere leave no machine with room for the large ones. Each large one that
// waits gets room once, and with it the cluster is quiet.
func TestPodsWithoutRoomGetSome(t *testing.T) {
	s := newShelter(116, "blue")
	s.scatter = true
	s.slots("m", 12, "cpu=4 mem=8 price=1 label.rack=r1")
	y := s.clusters[0]
	small := y.run("small", 10, amounts3{1, 1}, 12)
	for range 20 {
		s.cycle(t)
	}
	small.scale(y, 0)
	small.scale(y, 6) // on each of three machines two, when they come back
	y.run("large", 10, amounts3{3, 2}, 2)
	for range 30 {
		s.cycle(t)
	}
	if got := s.bought; got < 3 {
		t.Fatalf("%d machines for 12 cpu", got)
	}
	for range 100 {
		s.cycle(t)
	}
	if placed, all := s.running(); placed != all {
		t.Fatalf("%d of %d Pods run: %s", placed, all, s.served())
	}
	bought := s.bought
	for range 1000 { // more than two hours: what was given stays for as long as the demand is what it was
		if s.cycle(t); len(s.moves()) > 0 {
			t.Fatalf("nothing changed, and %v", s.moves())
		}
	}
	if s.bought != bought {
		t.Fatalf("%d machines more for nothing", s.bought-bought)
	}
}

// ENG-S54, ENG-11.14, ENG-11.15, ENG-11.16: Pods that no room helps get it once, and then for one Pod a few times more. After that nothing is
// bought, nothing was drained, and the verdict says UNPLACED.
func TestRoomThatDoesNotHelpEnds(t *testing.T) {
	s := newLoop(54)
	s.slots("m", 40, "cpu=4 mem=8 price=1 label.rack=r1")
	y := s.yard("blue")
	y.run("web", 10, amounts3{2, 1}, 6)
	var sharing ledger.Sharing
	sharing.Session("blue", true)
	key := func() demand.RowKey { return s.w.Demand.Cluster("blue").Needs[0].RowKey() }
	cycle := func() {
		s.cycle(t)
		sharing.Report("blue", map[demand.RowKey]int64{key(): 3}, s.now) // whatever runs
		s.w.Demand.SetUnplaced("blue", func(n *demand.Need) bool { return sharing.Unplaced("blue", n.RowKey(), s.now, s.policy) })
		if _, room := sharing.Observe(s.w, s.last, s.policy); len(room) > 0 {
			s.w.Demand.SetHeadroom("blue", func(n *demand.Need) int64 { return sharing.Headroom("blue", n.RowKey()) })
		}
	}
	for range 400 {
		cycle()
	}
	// Three machines hold the six Pods; three Pods that wait are two machines more, and each further try is one.
	if want := 3 + 2 + ledger.HeadroomTries; s.bought != want || s.moved[engine.Reclaim]+s.moved[engine.Preempt] != 0 {
		t.Fatalf("%d machines were bought, want %d; %d drains", s.bought, want, s.moved[engine.Reclaim]+s.moved[engine.Preempt])
	}
	if v, _ := s.last.Verdict("blue", key()); v.Status != engine.Met || v.Detail != engine.DetailUnplaced || sharing.PerMille("blue") != 1000 {
		t.Fatalf("%s %s, level %d", v.Status, v.Detail, sharing.PerMille("blue"))
	}
	bought := s.bought
	for range 2000 {
		if cycle(); len(s.moves()) > 0 || s.bought != bought {
			t.Fatalf("hours later: %v", s.moves())
		}
	}
}

// ENG-11.16: demand that goes and comes back does not make room grow for Pods that no room helps.
func TestDemandThatComesBackBuysNoRoom(t *testing.T) {
	s := newLoop(54)
	s.slots("m", 100, "cpu=4 mem=8 price=1 label.rack=r1")
	y := s.yard("blue")
	y.run("web", 10, amounts3{2, 1}, 6)
	api := y.run("api", 10, amounts3{4, 1}, 2)
	var sharing ledger.Sharing
	sharing.Session("blue", true)
	settled := int64(0)
	for i := range 1500 {
		api.scale(y, 2+2*(i/60%2))
		s.cycle(t)
		var web demand.RowKey
		for _, n := range s.w.Demand.Cluster("blue").Needs {
			if n.Group == "web" {
				web = n.RowKey()
			}
		}
		sharing.Report("blue", map[demand.RowKey]int64{web: 3}, s.now) // whatever runs
		sharing.Observe(s.w, s.last, s.policy)
		s.w.Demand.SetHeadroom("blue", func(n *demand.Need) int64 { return sharing.Headroom("blue", n.RowKey()) })
		switch room := sharing.Headroom("blue", web); {
		case i == 500:
			settled = room
		case i > 500 && room != settled:
			t.Fatalf("cycle %d: room for %d Pods, for three that wait; it was %d", i, room, settled)
		}
	}
	if settled == 0 {
		t.Fatal("no room was given at all")
	}
}

// ENG-11.17: room goes with the demand that it was for: with the row, and when the cluster asks for less and nothing was stuck
// for an hour. A ledger that is saved and restored goes on where it was.
func TestRoomIsGivenBack(t *testing.T) {
	s := newScript()
	s.lines(`cluster red sharing=1000
		need red/a cpu=4 unit=cpu:2
		need red/b cpu=2 unit=cpu:1
		machine m1 cpu=4 configured=red for=a
		machine m2 cpu=4 configured=red for=b
		machine m3 cpu=4 configured=red`)
	var sharing ledger.Sharing
	sharing.Session("red", true)
	var a demand.RowKey
	for _, n := range s.w.Demand.Cluster("red").Needs {
		if n.RowKey().Group == "a" || n.RowID == "red/a" {
			a = n.RowKey()
		}
	}
	now := int64(0)
	run := func(seconds int64, waiting int64) {
		for end := now + seconds*engine.Second; now < end; now += ledger.NominalCycle {
			s.w.Inventory.Advance(now)
			rows := map[demand.RowKey]int64{}
			if waiting > 0 {
				rows[a] = waiting
			}
			sharing.Report("red", rows, now)
			r := planner.Plan(engine.Input{World: s.w})
			if _, room := sharing.Observe(s.w, r, s.policy); len(room) > 0 {
				s.w.Demand.SetHeadroom("red", func(n *demand.Need) int64 { return sharing.Headroom("red", n.RowKey()) })
			}
			var again ledger.Sharing
			again.Restore(sharing.Entries())
			if again.Headroom("red", a) != sharing.Headroom("red", a) || fmt.Sprint(again.Entries()) != fmt.Sprint(sharing.Entries()) {
				t.Fatalf("restored: %v, was %v", again.Entries(), sharing.Entries())
			}
			sharing = again
		}
	}
	run(100, 1)
	if got := sharing.Headroom("red", a); got != 1 {
		t.Fatalf("room for %d Pods, want 1", got)
	}
	run(10*3600, 0)
	if got := sharing.Headroom("red", a); got != 1 {
		t.Fatalf("the demand is what it was, and room is for %d Pods", got)
	}
	rows, _ := s.w.Demand.Save("red")
	var less []demand.Row
	for _, x := range rows {
		if (demand.RowKey{Fingerprint: x.Row.Fingerprint, Group: x.Row.Group}) == a {
			less = append(less, x.Row)
		}
	}
	s.w.Demand.Replace("red", less, nil, now)
	run(20, 0)
	if got := sharing.Headroom("red", a); got != 0 {
		t.Fatalf("less is asked for and nothing was stuck for hours: room for %d Pods", got)
	}
	run(100, 1)
	if got := sharing.Headroom("red", a); got != 1 {
		t.Fatalf("stuck again: room for %d Pods, want 1", got)
	}
	s.w.Demand.Replace("red", nil, nil, now)
	run(20, 0)
	if got := sharing.Headroom("red", a); got != 0 {
		t.Fatalf("the row is gone, and has room for %d Pods", got)
	}
}
