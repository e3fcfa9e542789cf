package ledger_test

import (
	"reflect"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
)

// plan is a result in which the gang of a cluster is short with a coverage.
func plan(v engine.Verdict) *engine.Result {
	v.Status = engine.Short
	form := &demand.Form{Fingerprint: "f1-gang", Same: &demand.Requirement{Key: "rack", Op: demand.Same}}
	return &engine.Result{Short: []engine.Ref{{Block: 0, Row: 0}},
		Blocks: []*engine.Block{{Cluster: "red", Needs: []demand.Need{{Form: form, Group: "g"}}, Verdicts: []engine.Verdict{v}}}}
}

var gang = demand.RowKey{Fingerprint: "f1-gang", Group: "g"}

// ENG-18.2, 18.3: a gang that no domain satisfies is parked after so many nominal cycles without progress, and probed every so many after that.
func TestParkingAndItsProbes(t *testing.T) {
	policy := &engine.Policy{ParkAfter: 3, ParkReprobe: 4}
	var p ledger.Parking
	var parked []bool
	for cycle := range int64(12) {
		for range 3 { // several plans in a nominal cycle count once
			p.Observe(plan(engine.Verdict{Coverage: 500}), cycle)
		}
		parked = append(parked, p.Parked("red", gang, policy))
	}
	// Stalled for 0, 1, 2 … cycles; a probe at each multiple of ParkReprobe.
	want := []bool{false, false, false, true, false, true, true, true, false, true, true, true}
	if !slices.Equal(parked, want) {
		t.Errorf("parked by cycle %v\n           want %v", parked, want)
	}
	if p.Parked("blue", gang, policy) || p.Parked("red", demand.RowKey{Fingerprint: "f1-gang"}, policy) {
		t.Error("another row is parked")
	}
	var again ledger.Parking
	again.Restore(p.Entries())
	if !reflect.DeepEqual(again.Entries(), p.Entries()) || p.Len() != 1 {
		t.Errorf("%v is restored as %v", p.Entries(), again.Entries())
	}
}

// ENG-18.2: progress starts the count over, and a gang that some domain satisfies, or that is short no more, is forgotten. A hold for another
// reason neither counts nor forgets.
func TestParkingForgets(t *testing.T) {
	policy := &engine.Policy{ParkAfter: 2, ParkReprobe: 100}
	stalled := func() *ledger.Parking {
		var p ledger.Parking
		for cycle := range int64(4) {
			p.Observe(plan(engine.Verdict{Coverage: 500}), cycle)
		}
		return &p
	}
	for name, c := range map[string]struct {
		next   *engine.Result
		parked bool
		left   int
	}{
		"the same again":   {plan(engine.Verdict{Coverage: 500, Hold: demand.HeldParked}), true, 1},
		"less coverage":    {plan(engine.Verdict{Coverage: 400}), true, 1},
		"more coverage":    {plan(engine.Verdict{Coverage: 501}), false, 1},
		"satisfiable":      {plan(engine.Verdict{Coverage: 500, Satisfiable: true}), false, 0},
		"short no more":    {&engine.Result{}, false, 0},
		"held, not parked": {plan(engine.Verdict{Coverage: 0, Hold: demand.HeldOffline}), true, 1},
	} {
		p := stalled()
		p.Observe(c.next, 4)
		if got := p.Parked("red", gang, policy); got != c.parked || p.Len() != c.left {
			t.Errorf("%s: parked %v with %d entries, want %v with %d", name, got, p.Len(), c.parked, c.left)
		}
	}
}

// ENG-18.3: a probe that gained nothing is named, once; one that gained is not, and neither is a gang that is not parked yet.
func TestFruitlessProbes(t *testing.T) {
	policy := &engine.Policy{ParkAfter: 2, ParkReprobe: 4}
	var p ledger.Parking
	if got := p.Fruitless(plan(engine.Verdict{Coverage: 500}), policy); len(got) != 0 {
		t.Errorf("an empty ledger names %v", got)
	}
	p.Observe(plan(engine.Verdict{Coverage: 500}), 0)
	if got := p.Fruitless(plan(engine.Verdict{Coverage: 500}), policy); len(got) != 0 {
		t.Errorf("%v is named before it is parked", got)
	}
	p.Restore([]ledger.ParkingEntry{{Cluster: "red", Row: gang, Best: 500, Stalled: 4, Last: 4}})
	for name, v := range map[string]engine.Verdict{"more coverage": {Coverage: 501}, "satisfiable": {Coverage: 500, Satisfiable: true},
		"held": {Coverage: 500, Hold: demand.HeldParked}} {
		if got := p.Fruitless(plan(v), policy); len(got) != 0 {
			t.Errorf("%s: %v is named", name, got)
		}
	}
	if p.Parked("red", gang, policy) {
		t.Fatal("no probe is due")
	}
	if got := p.Fruitless(plan(engine.Verdict{Coverage: 500}), policy); !slices.Equal(got, []string{"red"}) {
		t.Errorf("%v is named", got)
	}
	if !p.Parked("red", gang, policy) {
		t.Error("the gang is probed a second time in the plan that is made again")
	}
}

// ENG-17.4, 17.6: drains count for a join timeout, failures until some node of the cluster is Ready.
func TestJoinCounts(t *testing.T) {
	policy := &engine.Policy{JoinTimeout: 10}
	var j ledger.Join
	j.Ready("red") // nothing is known of it
	counts := func(now int64, drained, failures int32) {
		t.Helper()
		if d, f := j.Counters("red", now, policy); d != drained || f != failures {
			t.Errorf("at %d: %d drained and %d failures, want %d and %d", now, d, f, drained, failures)
		}
	}
	counts(0, 0, 0)
	j.Drained("red", 1)
	j.Drained("red", 5)
	counts(10, 2, 2)
	if next := j.NextChange("red", policy); next != 11 {
		t.Errorf("the next change is at %d, want 11", next)
	}
	counts(11, 1, 2)
	counts(15, 0, 2)
	if next := j.NextChange("red", policy); next != 0 {
		t.Errorf("a change is expected at %d", next)
	}
	j.Drained("blue", 16)
	var again ledger.Join
	again.Restore(j.Entries())
	if want := []ledger.JoinEntry{{Cluster: "blue", Drained: []int64{16}, Failures: 1}, {Cluster: "red", Drained: nil, Failures: 2}}; len(again.Entries()) != 2 ||
		again.Entries()[0].Cluster != want[0].Cluster || again.Entries()[1].Failures != 2 {
		t.Errorf("restored as %v, want %v", again.Entries(), want)
	}
	j.Ready("red")
	counts(16, 0, 0)
	if d, f := j.Counters("blue", 16, policy); d != 1 || f != 1 {
		t.Errorf("another cluster has %d and %d", d, f)
	}
	if list := j.Entries(); len(list) != 1 {
		t.Errorf("%v is kept", list)
	}
}

// ENG-18.2: a block that stands says nothing new, and clusters are named only when one of their gangs came, went or stalled: each name has all holds of its
// cluster computed again.
func TestParkingNamesClustersWithNews(t *testing.T) {
	var p ledger.Parking
	r := plan(engine.Verdict{Coverage: 500})
	for i, want := range []struct {
		r     *engine.Result
		cycle int64
		news  []string
	}{
		{r, 0, []string{"red"}}, {r, 0, nil}, {plan(engine.Verdict{Coverage: 500}), 0, nil}, // it came; it stands; it is written again
		{r, 1, []string{"red"}}, {r, 1, nil}, // it stalled
		{&engine.Result{}, 1, []string{"red"}}, {&engine.Result{}, 2, nil}, // it went
	} {
		if got := p.Observe(want.r, want.cycle); !slices.Equal(got, want.news) {
			t.Errorf("plan %d names %v, want %v", i, got, want.news)
		}
	}
}
