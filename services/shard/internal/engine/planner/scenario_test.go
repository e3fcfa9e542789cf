package planner_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// Every scenario and every property of docs/spec/engine.md is cited by a dialogue or a test of this package.
func TestEveryScenarioIsCited(t *testing.T) {
	spec, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "..", "docs", "spec", "engine.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, scenarios, ok := strings.Cut(string(spec), "### 26.3 Scenarios")
	if !ok {
		t.Fatal("the spec has no scenarios any more")
	}
	var ids []string
	for _, m := range regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(scenarios, -1) {
		ids = append(ids, "S"+m[1])
	}
	for _, m := range regexp.MustCompile(`\*\*ENG-(P\d+)\*\*`).FindAllStringSubmatch(string(spec), -1) {
		ids = append(ids, m[1])
	}
	if len(ids) < 67+24 {
		t.Fatalf("only %d scenarios and properties were found", len(ids))
	}
	var text strings.Builder
	for _, pattern := range []string{"*_test.go", "testdata/*.txt", "../*_test.go", "../*/*_test.go", "../../demand/*_test.go", "../../inventory/*_test.go"} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			if b, err := os.ReadFile(f); err == nil && f != "scenario_test.go" {
				text.Write(b)
			}
		}
	}
	own, _ := os.ReadFile("scenario_test.go")
	text.Write(own)
	cited := map[string]bool{}
	for _, m := range regexp.MustCompile(`ENG-([SP]\d+)(?: to (?:ENG-)?P(\d+))?`).FindAllStringSubmatch(text.String(), -1) {
		cited[m[1]] = true
		var from, to int
		fmt.Sscanf(m[1], "P%d", &from)
		fmt.Sscanf(m[2], "%d", &to)
		for n := from; n > 0 && n <= to; n++ {
			cited[fmt.Sprint("P", n)] = true
		}
	}
	for _, id := range ids {
		if !cited[id] {
			t.Errorf("ENG-%s is cited by no dialogue and no test", id)
		}
	}
}

// shortcoming is a small world in which a row is short for one reason.
type shortcoming struct {
	name   string
	detail engine.Detail
	reason engine.UnmetReason
	world  string
	now    int64
}

var shortcomings = []shortcoming{
	{"offline", engine.DetailClusterOffline, engine.PriorityStarved, `need red/a cpu=4 hold=offline
		machine m1 cpu=4 speculative`, 0},
	{"backoff", engine.DetailBootstrapBackoff, engine.PriorityStarved, `need red/a cpu=4 hold=backoff
		machine m1 cpu=4 speculative`, 0},
	{"parked", engine.DetailParked, engine.TopologyUnsatisfiable, `need red/a cpu=8 unit=cpu:1 same=rack hold=parked
		machine m1 cpu=4 label.rack=r1 speculative
		machine m2 cpu=4 label.rack=r2 speculative`, 0},
	{"no match", engine.DetailNoMatch, engine.NoMatchingSupply, `need red/a cpu=4 in=zone:b
		machine m1 cpu=4 zone=a speculative`, 0},
	{"tainted", engine.DetailNoMatch, engine.NoMatchingSupply, `need red/a cpu=4 tolerate
		machine m1 cpu=4 taint=gpu speculative`, 0},
	{"dimension", engine.DetailDimensionMissing, engine.NoMatchingSupply, `need red/a cpu=4 gpu=1
		machine m1 cpu=4 speculative`, 0},
	{"too small", engine.DetailTooSmall, engine.NoMatchingSupply, `need red/a cpu=8 unit=cpu:8
		machine m1 cpu=4 speculative
		machine m2 cpu=4 speculative`, 0},
	{"domain", engine.DetailDomainTooSmall, engine.TopologyUnsatisfiable, `need red/a cpu=8 unit=cpu:1 same=rack
		machine m1 cpu=4 label.rack=r1 speculative
		machine m2 cpu=4 label.rack=r2 speculative`, 0},
	{"spread", engine.DetailSpreadBlocked, engine.TopologyUnsatisfiable, `need red/a cpu=8 unit=cpu:1 spread=zone:1
		need red/b cpu=4 in=zone:b
		machine m1 cpu=4 zone=a configured=red for=a
		machine m2 cpu=4 zone=b configured=red for=b
		machine m3 cpu=4 zone=a speculative`, 0},
	{"not joined", engine.DetailNodeNotJoined, engine.PriorityStarved, `cluster red reports
		need red/a cpu=4 unit=cpu:1
		machine m1 cpu=4 configured=red for=a node=not-ready`, 901 * engine.Second},
	{"preemption", engine.DetailPreemptionShort, engine.PreemptionExhausted, `need blue/low cpu=4 priority=1
		need red/a cpu=12 unit=cpu:1 priority=100
		machine m1 cpu=4 configured=blue for=low`, 0},
	{"stock", engine.DetailStockOut, engine.PriorityStarved, `need red/a cpu=4
		machine m1 cpu=4 speculative withheld=stock-out`, 0},
	{"quota", engine.DetailQuota, engine.PriorityStarved, `need red/a cpu=4
		machine m1 cpu=4 speculative withheld=quota`, 0},
	{"withheld", engine.DetailWithheld, engine.PriorityStarved, `need red/a cpu=4
		machine m1 cpu=4 idle withheld=backoff`, 0},
	{"held", engine.DetailHeldByOthers, engine.PriorityStarved, `need blue/high cpu=4 priority=100
		need red/a cpu=4
		machine m1 cpu=4 configured=blue for=high`, 0},
	{"not heard", engine.DetailHeldByOthers, engine.PriorityStarved, `cluster blue silent
		need blue/low cpu=4
		need red/a cpu=4 priority=100
		machine m1 cpu=4 configured=blue for=low`, 0},
}

// ENG-S61, ENG-19.4, ENG-19.11: one case for each row of the table: exactly that detail and reason; the suggestion,
// applied, satisfies the Need. The explanation names what the table wants named.
func TestEachShortcomingIsSaidAndHelped(t *testing.T) {
	seen := map[engine.Detail]bool{}
	for _, c := range shortcomings {
		s := newScript()
		s.lines(c.world)
		s.w.Inventory.Advance(c.now)
		in := engine.Input{World: s.w}
		r := planner.Plan(in)
		v, ref := r.Verdict("red", s.w.Demand.Cluster("red").Needs[0].RowKey())
		if v.Status != engine.Short || v.Detail != c.detail || v.Reason != c.reason {
			t.Errorf("%s: %s %s %s, want %s %s", c.name, v.Status, v.Detail, v.Reason, c.detail, c.reason)
			continue
		}
		seen[v.Detail] = true
		e := explain.ExplainNeed(s.w, nil, r, ref)
		suggestion := explain.Suggest(in, r, ref)
		if suggestion == nil {
			t.Errorf("%s: no suggestion; %s", c.name, e.Sentence)
			continue
		}
		t.Logf("%s: %s -> %s", c.name, e.Sentence, suggestion.Say)
		for _, edit := range suggestion.Edits {
			edit.Apply(s.w)
		}
		for range explain.SettleRounds {
			r = planner.Plan(in)
			explain.CarryOut(s.w, r, nil)
		}
		if v, _ := r.Verdict("red", suggestion.Key); v == nil || v.Status == engine.Short {
			t.Errorf("%s: %s did not help", c.name, suggestion.Say)
		}
	}
	for d := engine.DetailClusterOffline; d <= engine.DetailHeldByOthers; d++ {
		if !seen[d] {
			t.Errorf("no case for %s", d)
		}
	}
}

// ENG-19.4: what the explanation must name.
func TestExplanationsName(t *testing.T) {
	for _, c := range []struct{ world, name string }{
		{shortcomings[3].world, "topology.kubernetes.io/zone in (b)"},
		{"need red/a cpu=4 in=zone:b in=type:x\nmachine m1 cpu=4 zone=a type=y speculative\nmachine m2 cpu=4 zone=a type=x speculative", "No machine has topology.kubernetes.io/zone in (b)."},
		{"need red/a cpu=4 in=zone:b in=type:x\nmachine m1 cpu=4 zone=a type=y speculative",
			"No machine has node.kubernetes.io/instance-type in (x), or topology.kubernetes.io/zone in (b)."},
		{"need red/a cpu=4 in=zone:b in=type:x\nmachine m1 cpu=4 zone=a type=x speculative\nmachine m2 cpu=4 zone=b type=y speculative", "most machines would match"},
		{shortcomings[4].world, "gpu:NoSchedule"},
		{shortcomings[5].world, "No machine offers gpu"},
		{shortcomings[6].world, "m1: cpu: it offers 4, one Pod requests 8"},
		{shortcomings[14].world, "blue/high of cluster blue (priority 100). It has a higher priority."},
		{shortcomings[15].world, "blue/low of cluster blue (priority 0). The shard has not confirmed the demand of its cluster"},
	} {
		s := newScript()
		s.lines(c.world)
		s.w.Inventory.Advance(1)
		r := planner.Plan(engine.Input{World: s.w})
		_, ref := r.Verdict("red", s.w.Demand.Cluster("red").Needs[0].RowKey())
		if e := explain.ExplainNeed(s.w, nil, r, ref); !strings.Contains(e.Sentence, c.name) {
			t.Errorf("%q does not name %q", e.Sentence, c.name)
		}
	}
}

// ENG-S63: whether anything is carried out is not the plan's to know: with a pause or a dry run the world stays as it is,
// and the next plan has the same bytes.
func TestAPlanThatIsNotCarriedOutComesAgain(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		pl := planner.NewPlanner()
		in := engine.Input{World: w, Policy: f.policy}
		was := render(w, pl.Plan(in))
		for range 3 {
			if d := difference(was, render(w, pl.Plan(in))); d != "" {
				return fmt.Errorf("the plan is another one although nothing was done:\n%s", d)
			}
		}
		return nil
	})
}

// ENG-S53, ENG-11.11, ENG-11.12, ENG-11.13: shares that fragment. Reports of unplaced Pods lower the level, receivers buy; after a
// calm hour it rises, and nothing is drained by that.
func TestFragmentedSharesAreGivenUp(t *testing.T) {
	l := newLoop(53)
	l.slots("m", 12, "cpu=16 mem=32 price=1 label.rack=r1")
	y := l.yard("blue")
	y.run("donor", 100, amounts3{1, 1}, 8)
	for k := range 3 {
		y.run(fmt.Sprintf("receiver%d", k), 10, amounts3{2, 2}, 1)
	}
	var sharing ledger.Sharing
	sharing.Session("blue", true)
	level := func() int32 { return sharing.PerMille("blue") }
	stuck := true
	cycle := func() {
		if stuck {
			rows := map[demand.RowKey]int64{}
			for _, n := range l.w.Demand.Cluster("blue").Needs {
				if strings.HasPrefix(n.Group, "receiver") {
					rows[n.RowKey()] = 1
				}
			}
			sharing.Report("blue", rows, l.now)
		} else {
			sharing.Report("blue", nil, l.now)
		}
		l.w.Demand.SetFacts("blue", demand.Facts{Heard: true, SharingPerMille: level()})
		l.cycle(t)
		sharing.Observe(l.w, l.last, l.policy)
	}
	run := func(seconds int64) {
		for range seconds / 10 {
			cycle()
		}
	}
	l.settle(t, 50, 3)
	if level() != 1000 || l.last.Counters.Shares == 0 {
		t.Fatalf("level %d, %d receivers", level(), l.last.Counters.Shares)
	}
	start := l.bought
	run(90)
	if level() != 1000 {
		t.Fatal("the level went down before stuck_after")
	}
	run(120)
	if level() != 500 {
		t.Fatalf("stuck for two minutes: level %d, want 500", level())
	}
	run(720)
	if level() != 0 {
		t.Fatalf("still stuck ten minutes later: level %d, want 0", level())
	}
	if bought := l.bought - start; bought < 1 || bought > 3 {
		t.Fatalf("%d machines for 3 receivers", bought)
	}
	stuck = false
	drains := l.moved[engine.Reclaim]
	run(6 * 3600)
	if level() == 0 {
		t.Fatal("calm for hours, and the level is still 0")
	}
	if n := l.moved[engine.Reclaim] - drains; n > 0 {
		t.Fatalf("%d drains after the level rose", n)
	}
}

// ENG-S66, ENG-21.11: a million price changes leave memory flat, and the next plan follows the price.
func TestPriceChangesLeaveNothingBehind(t *testing.T) {
	s := newScript()
	s.lines("need red/a cpu=4 unit=cpu:1")
	for i := range 50 {
		s.do(fmt.Sprintf("machine m%02d cpu=4 spot risk=0.01 speculative", i))
	}
	r := rand.New(rand.NewPCG(66, 1))
	pl := planner.NewPlanner()
	var machines []inventory.Machine
	for i := range s.w.Inventory.All() {
		machines = append(machines, s.w.Inventory.Machine(i))
	}
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var early uint64
	const changes = 1_000_000
	for n := range changes {
		m := &machines[n%len(machines)]
		m.Price = 1 + int64(r.IntN(1<<30))
		s.w.Inventory.Put(*m)
		if n%10_000 == 0 {
			s.w.Inventory.Advance(int64(n))
			plan := pl.Plan(engine.Input{World: s.w})
			cheapest := machines[0]
			for _, m := range machines {
				if m.Price < cheapest.Price {
					cheapest = m
				}
			}
			if len(plan.Actions) != 1 || s.w.Inventory.Price(plan.Actions[0].Machine) != cheapest.Price {
				t.Fatalf("after %d changes the plan is %+v, the cheapest machine is %s", n, plan.Actions, cheapest.ID)
			}
		}
		if n == changes/10 {
			early = heap()
		}
	}
	if late := heap(); late > early+early/4+1<<20 {
		t.Errorf("%d bytes after a tenth of the changes, %d after all", early, late)
	}
	if c := s.w.Inventory.Classes(); c > 200 {
		t.Errorf("%d classes for 50 machines", c)
	}
}
