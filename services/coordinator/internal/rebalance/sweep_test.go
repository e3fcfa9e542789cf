package rebalance

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	"pgregory.net/rapid"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

func policy() *v1.RebalancePolicy {
	return &v1.RebalancePolicy{Mode: v1.RebalanceMode_REBALANCE_MODE_ON, MaxTier: v1.MoveTier_MOVE_TIER_QUOTA, AgeGatesSeconds: []int64{60, 60, 180},
		FlowCooldownSeconds: 600, MachineCooldownSeconds: 3600, DonorMargin: 0.1, DonorCap: 0.01, MaxOpenMoves: 32, MaxExceptions: 10000}
}

func resources(cpu string) *v1.Resources {
	return &v1.Resources{Resources: map[string]string{"cpu": cpu, "memory": "1Gi"}}
}

func bucket(typ, zone string, idle, speculative int32, price float64) *v1.SupplyBucket {
	return &v1.SupplyBucket{InstanceType: typ, Zone: zone, CapacityType: v1.CapacityType_CAPACITY_TYPE_ON_DEMAND, Idle: idle, Speculative: speculative,
		Allocatable: &v1.Resources{Resources: map[string]string{"cpu": "4", "memory": "16Gi"}}, PricePerHour: price}
}

func short(fingerprint, cpu string, age int64) *v1.Shortfall {
	return &v1.Shortfall{Fingerprint: fingerprint, Deficit: resources(cpu), MinUnit: resources("1"), AgeSeconds: age, Priority: 100,
		UnmetReason: v1.UnmetReason_UNMET_REASON_NO_MATCHING_SUPPLY}
}

type fixture struct {
	interner *Interner
	in       Input
}

func newFixture() *fixture {
	return &fixture{interner: NewInterner(), in: Input{Policy: policy(), Room: 10000}}
}

func (f *fixture) shard(id string, supply []*v1.SupplyBucket, shortfalls ...*v1.Shortfall) *Shard {
	sh := Shard{ID: id, Provider: "sim", Fresh: true, Moves: true, Machines: 1000}
	sh.Supply, _ = f.interner.Supply(supply, 256)
	first, _ := f.interner.Shortfalls(shortfalls, nil, 100)
	sh.Shortfalls, _ = f.interner.Shortfalls(shortfalls, first, 100)
	f.in.Shards = append(f.in.Shards, sh)
	return &f.in.Shards[len(f.in.Shards)-1]
}

func describe(list []Proposal) string {
	var out []string
	for _, p := range list {
		out = append(out, fmt.Sprintf("tier %d: %d %s/%s %s -> %s for %s", p.Tier, p.Wanted, p.Bucket.Kind.InstanceType, p.Bucket.Kind.Zone, p.From, p.To, p.Shortfall.Fingerprint))
	}
	return strings.Join(out, "\n")
}

// COORD-12.3 to 12.10, COORD-21.48: who is served, by whom, with how much, and who is not.
func proposed(in Input) []Proposal {
	out, _ := Sweep(in)
	return out
}

func TestSweep(t *testing.T) {
	supply := func(idle, speculative int32) []*v1.SupplyBucket {
		return []*v1.SupplyBucket{bucket("c5", "a", idle, speculative, 1)}
	}
	for name, tc := range map[string]struct {
		world func(f *fixture)
		want  string
	}{
		"idle machines first, never more than the deficit": {func(f *fixture) {
			f.shard("donor", supply(100, 50))
			f.shard("needy", nil, short("x", "18", 61))
		}, "tier 1: 5 c5/a donor -> needy for x"},
		"slots when nothing is idle": {func(f *fixture) {
			f.shard("donor", supply(0, 50))
			f.shard("needy", nil, short("x", "18", 61))
		}, "tier 2: 5 c5/a donor -> needy for x"},
		"tier 3 needs the policy": {func(f *fixture) {
			f.shard("donor", []*v1.SupplyBucket{{InstanceType: "c5", Zone: "a", Configured: 9, Allocatable: resources("4")}})
			f.shard("needy", nil, short("x", "4", 500))
		}, ""},
		"tier 3 when allowed and old enough": {func(f *fixture) {
			f.in.Policy.MaxTier = v1.MoveTier_MOVE_TIER_DRAIN
			f.shard("donor", []*v1.SupplyBucket{{InstanceType: "c5", Zone: "a", Configured: 9, Allocatable: resources("4")}})
			f.shard("needy", nil, short("x", "4", 180), short("young", "4", 179))
		}, "tier 3: 1 c5/a donor -> needy for x"},
		"too young": {func(f *fixture) {
			f.shard("donor", supply(100, 0))
			f.shard("needy", nil, short("x", "4", 59), short("no age", "4", 0))
		}, ""},
		"Same never, however old": {func(f *fixture) {
			s := short("x", "4", 1<<40)
			s.Requirements = []*v1.NodeSelectorRequirement{{Key: "rack", Operator: v1.NodeSelectorRequirement_OPERATOR_SAME}}
			bound := short("y", "4", 1<<40)
			bound.TopologyBound = true
			topology := short("z", "4", 1<<40)
			topology.UnmetReason = v1.UnmetReason_UNMET_REASON_TOPOLOGY_UNSATISFIABLE
			f.shard("donor", supply(100, 0))
			f.shard("needy", nil, s, bound, topology)
		}, ""},
		"other provider": {func(f *fixture) {
			f.shard("donor", supply(100, 0)).Provider = "elsewhere"
			f.shard("needy", nil, short("x", "4", 99))
		}, ""},
		"stale, without moves, quarantined": {func(f *fixture) {
			f.shard("donor", supply(100, 0))
			f.shard("a", nil, short("x", "4", 99)).Fresh = false
			f.shard("b", nil, short("x", "4", 99)).Moves = false
			f.shard("c", nil, short("x", "4", 99)).Quarantined = true
			f.shard("d", nil, short("x", "4", 99)).Draining = true
		}, ""},
		"donors that may not give": {func(f *fixture) {
			f.shard("a", supply(100, 0)).Fresh = false
			f.shard("b", supply(100, 0)).Moves = false
			f.shard("c", supply(100, 0)).EpochChanged = true
			f.shard("d", supply(100, 0), short("own", "400", 1))
			f.shard("e", supply(0, 0))
			f.shard("needy", nil, short("x", "4", 99))
		}, ""},
		"three of three go, whatever the margin": {func(f *fixture) {
			f.shard("donor", supply(3, 0))
			f.shard("needy", nil, short("x", "40", 99))
		}, "tier 1: 3 c5/a donor -> needy for x"},
		"the margin of a large pool stays": {func(f *fixture) {
			f.shard("donor", supply(20, 0)).Machines = 3000
			f.shard("needy", nil, short("x", "400", 99))
		}, "tier 1: 18 c5/a donor -> needy for x"},
		"a draining shard gives everything": {func(f *fixture) {
			sh := f.shard("old", supply(3, 0), short("own", "400", 99))
			sh.Draining, sh.Machines = true, 300
			f.shard("needy", nil, short("x", "40", 99))
		}, "tier 1: 3 c5/a old -> needy for x"},
		"cheaper, then more, then by id": {func(f *fixture) {
			f.shard("a", []*v1.SupplyBucket{bucket("c5", "a", 100, 0, 2)})
			f.shard("b", []*v1.SupplyBucket{bucket("c5", "a", 50, 0, 1)})
			f.shard("c", []*v1.SupplyBucket{bucket("c5", "a", 100, 0, 1)})
			f.shard("d", []*v1.SupplyBucket{bucket("c5", "a", 100, 0, 1)})
			f.shard("needy", nil, short("x", "4", 99))
		}, "tier 1: 1 c5/a c -> needy for x"},
		"priority, age, id": {func(f *fixture) {
			f.in.Policy.MaxOpenMoves = 2
			f.shard("donor", []*v1.SupplyBucket{bucket("c5", "a", 100, 0, 1), bucket("c5", "b", 100, 0, 1), bucket("c5", "c", 100, 0, 1)})
			low, old, high := short("low", "4", 999), short("old", "4", 99), short("high", "4", 61)
			low.Priority, high.Priority = 1, 1000
			f.shard("n1", nil, low)
			f.shard("n2", nil, old)
			f.shard("n3", nil, high)
		}, "tier 1: 1 c5/a donor -> n3 for high\ntier 1: 1 c5/b donor -> n2 for old"},
		"cap per donor": {func(f *fixture) {
			f.shard("donor", []*v1.SupplyBucket{bucket("c5", "a", 100, 0, 1), bucket("c5", "b", 100, 0, 1)}).Machines = 1700
			f.shard("n1", nil, short("x", "400", 99))
			f.shard("n2", nil, short("x", "400", 98))
		}, "tier 1: 17 c5/a donor -> n1 for x"},
		"a small shard gives what is missing, not one machine": {func(f *fixture) {
			f.shard("donor", supply(0, 4)).Machines = 29
			f.shard("needy", nil, short("x", "16", 61))
		}, "tier 2: 4 c5/a donor -> needy for x"},
		"of what runs, a small shard drains one at a time": {func(f *fixture) {
			f.in.Policy.MaxTier = v1.MoveTier_MOVE_TIER_DRAIN
			f.shard("donor", []*v1.SupplyBucket{{InstanceType: "c5", Zone: "a", Configured: 9, Allocatable: resources("4")}}).Machines = 29
			f.shard("needy", nil, short("x", "16", 500))
		}, "tier 3: 1 c5/a donor -> needy for x"},
		"requirements and size": {func(f *fixture) {
			f.shard("donor", []*v1.SupplyBucket{bucket("c5", "a", 100, 0, 1), bucket("m5", "b", 100, 0, 3)})
			s := short("x", "4", 99)
			s.Requirements = []*v1.NodeSelectorRequirement{{Key: keyZone, Operator: v1.NodeSelectorRequirement_OPERATOR_IN, Values: []string{"b", "c"}},
				{Key: "team", Operator: v1.NodeSelectorRequirement_OPERATOR_IN, Values: []string{"who knows"}}}
			big := short("y", "4", 98)
			big.MinUnit = resources("5")
			f.shard("needy", nil, s, big)
		}, "tier 1: 1 m5/b donor -> needy for x"},
		"cooldown in both directions": {func(f *fixture) {
			f.in.Flows = []Flow{{From: "needy", To: "donor", AgeSeconds: 599}}
			f.shard("donor", supply(100, 0))
			f.shard("needy", nil, short("x", "4", 99))
		}, ""},
		"the same direction only until the recipient has reported": {func(f *fixture) {
			f.in.Flows = []Flow{{From: "donor", To: "needy", Fingerprint: "x", AgeSeconds: 60}}
			f.shard("donor", supply(100, 0))
			f.shard("needy", nil, short("x", "4", 99))
		}, "tier 1: 1 c5/a donor -> needy for x"},
		"the same direction, before it can have reported": {func(f *fixture) {
			f.in.Flows = []Flow{{From: "donor", To: "needy", Fingerprint: "x", AgeSeconds: 59}}
			f.shard("donor", supply(100, 0))
			f.shard("needy", nil, short("x", "4", 99))
		}, ""},
		"the same direction after a move that gave nothing": {func(f *fixture) {
			f.in.Flows = []Flow{{From: "donor", To: "needy", Fingerprint: "x", AgeSeconds: 599, Aborted: true}}
			f.shard("donor", supply(100, 0))
			f.shard("needy", nil, short("x", "4", 99))
		}, ""},
		"after the cooldown": {func(f *fixture) {
			f.in.Flows = []Flow{{From: "needy", To: "donor", AgeSeconds: 600}}
			f.shard("donor", supply(100, 0))
			f.shard("needy", nil, short("x", "4", 99))
		}, "tier 1: 1 c5/a donor -> needy for x"},
		"machines that moved do not move again": {func(f *fixture) {
			kind := Kind{InstanceType: "c5", Zone: "a", CapacityType: v1.CapacityType_CAPACITY_TYPE_ON_DEMAND}
			f.in.Flows = []Flow{{From: "third", To: "donor", Kind: kind, AgeSeconds: 700, Cooling: 9}}
			f.shard("donor", supply(10, 0))
			f.shard("needy", nil, short("x", "4", 99))
		}, ""},
		"quota units go with slots": {func(f *fixture) {
			f.in.Slice = func(string, string, string) (int32, bool) { return 2, true }
			f.shard("donor", supply(0, 50))
			f.shard("needy", nil, short("x", "40", 99))
		}, "tier 2: 2 c5/a donor -> needy for x"},
		"no room for exceptions": {func(f *fixture) {
			f.in.Room = 0
			f.shard("donor", supply(100, 0))
			f.shard("needy", nil, short("x", "4", 99))
		}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			tc.world(f)
			if got := describe(proposed(f.in)); got != tc.want {
				t.Errorf("got\n%s\nwant\n%s", got, tc.want)
			}
		})
	}
}

// COORD-12.3: a shortfall must have been in two reports.
func TestOneReportIsNotEnough(t *testing.T) {
	f := newFixture()
	f.shard("donor", []*v1.SupplyBucket{bucket("c5", "a", 100, 0, 1)})
	sh := f.shard("needy", nil, short("x", "4", 99))
	sh.Shortfalls, _ = f.interner.Shortfalls([]*v1.Shortfall{short("x", "4", 99)}, nil, 100)
	if got := proposed(f.in); len(got) != 0 {
		t.Fatal(describe(got))
	}
}

// COORD-12.9: a shortfall that no donor may serve now is named, with when the next move may start.
func TestWhatWaitsIsNamed(t *testing.T) {
	f := newFixture()
	f.in.Flows = []Flow{{From: "a", To: "needy", AgeSeconds: 5}}
	f.shard("a", []*v1.SupplyBucket{bucket("c5", "a", 100, 0, 1)})
	f.shard("needy", nil, short("x", "4", 99))
	got, waits := Sweep(f.in)
	if len(got) != 0 || len(waits) != 1 || waits[0].To != "needy" || waits[0].Shortfall.Fingerprint != "x" || len(waits[0].Donors) != 1 ||
		waits[0].Donors[0].GetShardId() != "a" || !strings.Contains(waits[0].Donors[0].GetReason(), "may start in 55 s") {
		t.Fatalf("%s, %+v", describe(got), waits)
	}
}

// COORD-12.21: a proposal names the donors that were passed over, and why.
func TestProposalsExplainThemselves(t *testing.T) {
	f := newFixture()
	f.in.Flows = []Flow{{From: "a", To: "needy", AgeSeconds: 5}}
	f.shard("a", []*v1.SupplyBucket{bucket("c5", "a", 100, 0, 1)})
	f.shard("b", []*v1.SupplyBucket{bucket("c5", "a", 100, 0, 2)})
	f.shard("needy", nil, short("x", "4", 99))
	got := proposed(f.in)
	if len(got) != 1 || len(got[0].Donors) != 2 || got[0].Donors[0].GetTaken() || !strings.Contains(got[0].Donors[0].GetReason(), "may start in 55 s") ||
		!got[0].Donors[1].GetTaken() || !strings.Contains(got[0].Reason, "needy has been short for 99 s") {
		t.Fatalf("%+v", got)
	}
}

// COORD-12.8, 12.9: whatever the world, no shard gives more than surplus, cap and deficit allow, nothing crosses providers,
// and the answer does not depend on the order of anything but the ids.
func TestSweepKeepsItsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := newFixture()
		for i := range rapid.IntRange(2, 6).Draw(t, "shards") {
			var supply []*v1.SupplyBucket
			for z := range rapid.IntRange(0, 3).Draw(t, "buckets") {
				supply = append(supply, bucket("c5", fmt.Sprint(z), rapid.Int32Range(-2, 30).Draw(t, "idle"), rapid.Int32Range(0, 5).Draw(t, "spec"), float64(i)))
			}
			var shorts []*v1.Shortfall
			for s := range rapid.IntRange(0, 3).Draw(t, "shorts") {
				shorts = append(shorts, short(fmt.Sprint("f", s), fmt.Sprint(rapid.IntRange(0, 80).Draw(t, "cpu")), rapid.Int64Range(0, 300).Draw(t, "age")))
			}
			sh := f.shard(fmt.Sprint("s", i), supply, shorts...)
			sh.Machines = rapid.Int32Range(0, 900).Draw(t, "machines")
			sh.Provider = rapid.SampledFrom([]string{"sim", "other"}).Draw(t, "provider")
			sh.Draining = rapid.IntRange(0, 5).Draw(t, "draining") == 0
		}
		got := proposed(f.in)
		if d := cmp.Diff(describe(got), describe(proposed(f.in))); d != "" {
			t.Fatalf("two runs differ: %s", d)
		}
		byID := map[string]*Shard{}
		for i := range f.in.Shards {
			byID[f.in.Shards[i].ID] = &f.in.Shards[i]
		}
		given := map[string]int32{}
		for _, p := range got {
			from, to := byID[p.From], byID[p.To]
			given[p.From] += p.Wanted
			most := p.Bucket.Idle
			if p.Tier == v1.MoveTier_MOVE_TIER_QUOTA {
				most = p.Bucket.Speculative
			}
			if from.Provider != to.Provider || from == to || to.Draining || p.Wanted < 1 || p.Wanted > most ||
				int64(p.Wanted) > machinesFor(p.Shortfall.Deficit, p.Bucket.Allocatable) || given[p.From] > max(10, from.Machines/100) {
				t.Fatalf("%s", describe(got))
			}
		}
	})
}

// COORD-7.6, 7.7: what was reported comes back, and what is too much is left out and counted.
func TestBook(t *testing.T) {
	b := NewInterner()
	supply := []*v1.SupplyBucket{bucket("c5", "a", 3, 4, 0.5), bucket("m5", "b", 1, 0, 2)}
	got, surplus := b.Supply(supply, 1)
	if d := cmp.Diff(supply[:1], b.WireSupply(got), protocmp.Transform()); d != "" || surplus != 1 {
		t.Fatalf("%d left out\n%s", surplus, d)
	}
	shorts := []*v1.Shortfall{short("x", "1500m", 9), short("y", "1", 9)}
	shorts[0].Deficit.Resources["memory"] = "2"
	shorts[0].Requirements = []*v1.NodeSelectorRequirement{{Key: "a", Operator: v1.NodeSelectorRequirement_OPERATOR_EXISTS}}
	list, surplus := b.Shortfalls(shorts, nil, 1)
	if d := cmp.Diff(shorts[:1], b.WireShortfalls(list), protocmp.Transform()); d != "" || surplus != 1 {
		t.Fatalf("%d left out\n%s", surplus, d)
	}
}

// full is the largest fleet of COORD-1.5: 4,000 shards with 256 buckets and 100 shortfalls each.
func full() Input {
	f := newFixture()
	var supply []*v1.SupplyBucket
	for i := range 256 {
		b := bucket(fmt.Sprint("type-", i%32), fmt.Sprint("zone-", i/32), int32(i%5), int32(i%7), float64(i%9))
		supply = append(supply, b)
	}
	var shorts []*v1.Shortfall
	for i := range 100 {
		s := short(fmt.Sprint("fingerprint-", i), "400", 100+int64(i))
		s.Requirements = []*v1.NodeSelectorRequirement{{Key: keyType, Operator: v1.NodeSelectorRequirement_OPERATOR_IN, Values: []string{fmt.Sprint("type-", i%40)}}}
		shorts = append(shorts, s)
	}
	for i := range 4000 {
		sh := f.shard(fmt.Sprintf("shard-%04d", i), supply, shorts...)
		sh.Provider = fmt.Sprint("provider-", i%10)
	}
	return f.in
}

// COORD-19: a sweep at full size, target 200 ms. The time is reported, not asserted.
func BenchmarkSweepFull(b *testing.B) {
	in := full()
	var worst time.Duration
	for b.Loop() {
		start := time.Now()
		Sweep(in)
		worst = max(worst, time.Since(start))
	}
	b.ReportMetric(float64(worst.Milliseconds()), "worst-ms")
}

// COORD-1.5: what reports repeat is interned, and what they do not repeat does not stay for the length of a leadership: a table
// at its bound starts over, and what was handed out before stays what it was.
func TestBookIsBounded(t *testing.T) {
	b := NewInterner()
	b.most = 100
	var first []Shortfall
	for i := range 10 * b.most {
		got, _ := b.Shortfalls([]*v1.Shortfall{{Fingerprint: "x", Deficit: &v1.Resources{Resources: map[string]string{"cpu": "4"}},
			MinUnit:      &v1.Resources{Resources: map[string]string{"cpu": fmt.Sprint(i + 1)}},
			Requirements: []*v1.NodeSelectorRequirement{{Key: "job", Operator: v1.NodeSelectorRequirement_OPERATOR_IN, Values: []string{fmt.Sprint(i)}}}}}, nil, 10)
		b.Supply([]*v1.SupplyBucket{{InstanceType: fmt.Sprint(i)}}, 10)
		if i == 0 {
			first = got
		}
	}
	if len(b.reqs) > b.most || len(b.vectors) > b.most || len(b.kinds) > b.most {
		t.Fatalf("%d sets of requirements, %d vectors, %d kinds with a bound of %d", len(b.reqs), len(b.vectors), len(b.kinds), b.most)
	}
	if got := b.WireShortfalls(first)[0]; got.GetRequirements()[0].GetValues()[0] != "0" || got.GetMinUnit().GetResources()["cpu"] != "1" || got.GetDeficit().GetResources()["cpu"] != "4" {
		t.Fatalf("what was handed out became %v", got)
	}
}
