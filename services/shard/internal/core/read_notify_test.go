package core

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// SHARD-18.1, 18.2, 18.4, 18.6: an operator hears of a machine when the provider has taken the order and not before, as
// CREATING while it is made; on its way out the cluster that it leaves hears the last of it, with released.
func TestWhatAClusterHearsOfAMachine(t *testing.T) {
	w := newWorld(t, nil, slotsOf(1)...)
	w.dwell = Minute
	answers := 0
	w.reply = func(c Command) (Code, bool) {
		if answers++; answers == 1 {
			return CodeResourceExhausted, false // rolled back: nothing was ordered
		}
		return CodeOK, true
	}
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	for answers == 0 {
		w.run(Millisecond)
	}
	w.run(10 * Millisecond)
	if got := sentOf[SendNodeState](w); len(got) != 0 {
		t.Fatalf("red hears %v of a machine whose Create was refused", got[0].Machine.State)
	}
	w.run(5 * Minute)
	w.rollup("red", nil)
	w.run(5 * Minute)
	var heard []string
	for _, s := range sentOf[SendNodeState](w) {
		if text := fmt.Sprint(s.Machine.State, s.Released); s.Cluster == "red" && (len(heard) == 0 || heard[len(heard)-1] != text) {
			heard = append(heard, text)
		}
	}
	want := "[creating false idle false configuring false configured false draining false idle true]"
	if got := fmt.Sprint(heard); got != want {
		t.Errorf("red hears\n%s, want\n%s", got, want)
	}
}

// SHARD-17.1, 17.9: one instruction per machine goes before the Drain, in whole seconds, at priority 0 for a voluntary one; what
// the operator reports of the drain is shown with it, by name of what blocks it.
func TestDrainIsInstructedAndReported(t *testing.T) {
	w := newWorld(t, nil, hostsOf(1, "red")...)
	w.dwell = 10 * Minute
	w.connect("red")
	w.run(Second)
	w.rollup("red", nil)
	w.run(2 * Second)
	sent := sentOf[SendReclaim](w)
	if len(sent) != 1 || sent[0].PreemptorPriority != 0 || sent[0].GraceSecs <= 0 || sent[0].Cause != CauseVoluntary || sent[0].Cluster != "red" {
		t.Fatalf("instructions %+v", sent)
	}
	if len(w.called(RPCDrain)) != 1 {
		t.Fatal("it is not drained")
	}
	w.step(DrainReported{Cluster: "red", Session: w.sessions["red"], Instruction: sent[0].Instruction, State: 2, PodsLeft: 3, Blocking: []string{"shop/web"}})
	w.step(DrainReported{Cluster: "blue", Session: 99, Instruction: sent[0].Instruction, PodsLeft: 50}) // not its drain
	w.run(11 * Second)
	if d := w.view.Status.Drains; len(d) != 1 || d[0].Machine != "red-000" || d[0].Note.PodsLeft != 3 || fmt.Sprint(d[0].Note.Blocking) != "[shop/web]" {
		t.Errorf("drains in the status: %+v", d)
	}
	if k, _ := w.c.Why("red-000"); k.Drain == nil || k.Drain.Note.PodsLeft != 3 {
		t.Errorf("the machine's own drain: %+v", k.Drain)
	}
	if n := len(sentOf[SendReclaim](w)); n != 1 {
		t.Errorf("%d instructions for one drain", n)
	}
}

// SHARD-12.5, 12.2: a cluster that has machines and says nothing is silent after the time of the flag, and nothing is done
// about it; its first roll-up, with zero rows, ends that and opens its gate. A rejected one does neither.
func TestSilentCluster(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.SilentAfter = 5 * Minute }, hostsOf(2, "red")...)
	w.run(4 * Minute)
	if w.view.Status.Silent != 0 {
		t.Fatal("silent too early")
	}
	w.run(2 * Minute)
	if w.view.Status.Silent != 1 || !w.view.Clusters[0].Silent || len(w.calls) != 0 {
		t.Fatalf("%d clusters are silent; calls %v", w.view.Status.Silent, w.calls)
	}
	w.connect("red")
	w.arrival++
	w.step(RollupArrived{Cluster: "red", Session: w.sessions["red"], Arrival: w.arrival, Reject: &Rejection{Reason: "invalid"}})
	w.run(11 * Second)
	if w.view.Status.Silent != 1 || w.view.Clusters[0].GateOpen {
		t.Error("a rejected roll-up counts as a report")
	}
	w.rollup("red", nil)
	w.run(11 * Second)
	if w.view.Status.Silent != 0 || !w.view.Clusters[0].GateOpen {
		t.Error("the first roll-up, without rows, changes nothing")
	}
}

// SHARD-18.7: a Configured machine without a ready node for five minutes counts as not joined, in a cluster that reports
// nodes and in no other.
func TestUnjoinedMachines(t *testing.T) {
	w := newWorld(t, nil, append(hostsOf(2, "red"), hostsOf(2, "blue")...)...)
	w.connect("red")
	w.connect("blue", "released")
	w.run(Second)
	w.rollup("red", needs(0, 8))
	w.rollup("blue", needs(0, 8))
	w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], Machine: "red-000", Node: "n0", Present: true, Ready: true, LastOfFullSet: true})
	w.run(4 * Minute)
	unjoined := func() int {
		var s Census
		w.c.Count(&s, 0, 100)
		return s.Unjoined
	}
	if n := unjoined(); n != 0 {
		t.Errorf("%d after four minutes", n)
	}
	w.run(2 * Minute)
	if n := unjoined(); n != 1 {
		t.Errorf("%d after six minutes", n)
	}
}

// SHARD-26.2, 26.3, 26.1: the age of a shortfall is whole nominal cycles plus one, however many plans were made, and the
// gauges sort them by it.
func TestAgesCountNominalCycles(t *testing.T) {
	w := newWorld(t, nil, host("m", inventory.Idle, ""))
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 400))
	for i := range 40 { // many plans
		w.run(250 * Millisecond)
		w.connect(fmt.Sprint("other", i))
	}
	w.run(15 * Second)
	s := w.view.Status
	if len(s.Shortfalls) != 1 || s.Shortfalls[0].AgeCycles < 2 || s.Shortfalls[0].AgeCycles > 4 || s.Aged != [4]int{1, 0, 0, 0} {
		t.Fatalf("after 25 s and %d plans: %+v, aged %v", s.Cycle, s.Shortfalls, s.Aged)
	}
	w.run(10 * Minute)
	if s := w.view.Status; s.Aged != [4]int{0, 0, 1, 0} || s.Shortfalls[0].AgeCycles/10 != 6 {
		t.Errorf("after ten minutes: age %d, aged %v", s.Shortfalls[0].AgeCycles, s.Aged)
	}
}

// SHARD-25.5: the status of a need that no machine matches names the requirements that none meets, in the words of explain, and not those
// that a machine meets by now.
func TestWhatNoMachineHasIsNamed(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	w.connect("red")
	w.run(Second)
	r := demand.Row{RowID: "typo", Profile: demand.Profile{Requirements: []demand.Requirement{
		{Key: inventory.ZoneKey, Op: demand.In, Values: []string{"y"}}, {Key: inventory.TypeKey, Op: demand.In, Values: []string{"m4"}}}},
		Aggregate: []resource.Quantity{{Name: "cpu", Milli: 1000}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: 1000}}}
	r.Seal()
	w.rollup("red", []demand.Row{r})
	w.run(30 * Second)
	said := sentOf[SendNeedStatus](w)
	if len(said) != 1 {
		t.Fatalf("%d statuses, want 1", len(said))
	}
	want := engine.DetailNoMatch.Sentence() + " No machine has topology.kubernetes.io/zone in (y)."
	if said[0].Text != want {
		t.Errorf("the owner of the Pod reads %q, want %q", said[0].Text, want)
	}
	other := slot("other")
	other.Zone, other.InstanceType = "y", "m8"
	w.provider["other"] = &other
	w.run(30 * Minute)
	said = sentOf[SendNeedStatus](w)
	if last := said[len(said)-1]; last.Satisfied || last.Text != engine.DetailNoMatch.Sentence() {
		t.Errorf("a machine of that zone exists, and the owner of the Pod reads %+v", last)
	}
}
