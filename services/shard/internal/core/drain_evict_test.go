package core

import (
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// donor is a shard with a view, and a cluster that uses all machines at a priority and a penalty.
func donor(t *testing.T, machines int, priority int32, penalty demand.Bucket) *world {
	w := newWorld(t, func(c *Config) { c.Coordinated = true }, slotsOf(machines)...)
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: &View{Term: 1, Index: 1, OnlyShard: true}}}})
	w.connect("red", "reclaim-cancel")
	w.run(Second)
	row := demand.Row{Profile: demand.Profile{Priority: priority, Interruption: penalty, Reclamation: demand.Zero},
		Aggregate: []resource.Quantity{{Name: "cpu", Milli: int64(machines) * 4000}}, MinUnit: []resource.Quantity{{Name: "cpu", Milli: 4000}}}
	row.Seal()
	w.rollup("red", []demand.Row{row})
	w.run(Minute)
	if n := w.state(inventory.Configured); n != machines {
		t.Fatalf("%d of %d machines serve", n, machines)
	}
	return w
}

func (w *world) order(x Instruction) {
	w.step(CoordinatorReplied{Term: x.Term, UUID: "u", Instructions: []Instruction{x}})
}

func (w *world) acked(id string) *AckInstruction {
	for i := range w.acks {
		if w.acks[i].ID == id {
			return &w.acks[i]
		}
	}
	return nil
}

func reserveTier3(count int64, priority int32, penalty demand.Bucket) Instruction {
	return Instruction{ID: "r1", Term: 1, Reserve: &ReserveInstruction{Move: "m1", To: "other", InstanceType: "m4", Count: count, Tier: 3, Priority: priority, Interruption: penalty}}
}

// COORD-12.13: tier 3 drains machines of lower priority and lower penalty through instruct, ack and Drain, with the grace of
// the table, and acks when they are Idle and reserved; no cluster takes them, and the release lets exactly them go.
func TestTierThreeDrainsReservesAndLetsGo(t *testing.T) {
	w := donor(t, 3, 10, demand.Zero)
	w.order(reserveTier3(2, 1000, demand.OneDollar))
	if w.acked("r1") != nil {
		t.Fatal("acked before anything was drained")
	}
	w.run(Minute)
	a := w.acked("r1")
	if a == nil || a.Outcome != InstructionAccepted || len(a.Machines) != 2 {
		t.Fatalf("answered %+v", a)
	}
	sent := 0
	for _, x := range w.sent {
		if s, ok := x.(SendReclaim); ok && !s.Cancelled {
			sent++
			if s.PreemptorPriority != 1000 || s.GraceSecs != 600 || !slices.Contains(a.Machines, s.Machine) {
				t.Errorf("instruction %+v", s)
			}
		}
	}
	if drained := w.called(RPCDrain); sent < 2 || len(drained) != 2 {
		t.Errorf("sent %d, drained %v", sent, drained)
	}
	w.run(20 * Minute) // red is short now, and the hold of Idle machines is over: they stay
	if n := w.state(inventory.Idle); n != 2 || w.state(inventory.Configured) != 1 {
		t.Errorf("%d machines are Idle, %d Configured", n, w.state(inventory.Configured))
	}
	w.order(Instruction{ID: "t1", Term: 1, Transfer: &TransferInstruction{Move: "m1", From: "shard-0", To: "other", Machines: a.Machines}})
	w.run(Minute)
	if w.c.coord.foreign != 2 || len(w.c.ctl.Reservations) != 0 {
		t.Errorf("%d machines went, reservations %v", w.c.coord.foreign, w.c.ctl.Reservations)
	}
}

// COORD-12.13, scenario 52: with no victim cheaper than the requester nothing is drained.
func TestTierThreeTakesOnlyWhatIsCheaper(t *testing.T) {
	for name, x := range map[string]Instruction{
		"equal priority": reserveTier3(1, 10, demand.Pinned),
		"equal penalty":  reserveTier3(1, 1000, demand.OneDollar),
	} {
		w := donor(t, 2, 10, demand.OneDollar)
		w.order(x)
		w.run(5 * Minute)
		if a := w.acked("r1"); a == nil || a.Outcome != InstructionInvalid || len(w.called(RPCDrain)) != 0 {
			t.Errorf("%s: answered %+v, drained %v", name, a, w.called(RPCDrain))
		}
	}
}

// COORD-12.13, SHARD-19.3: the drains of a move keep to the reclaim budget.
func TestTierThreeKeepsToTheBudget(t *testing.T) {
	w := donor(t, 4, 10, demand.Zero)
	w.c.cfg.ReclaimCapPerMille, w.c.cfg.ReclaimCapOff, w.c.cfg.ReclaimCapWindow = 50, false, 10*Second
	w.tampered = true
	w.order(reserveTier3(3, 1000, demand.OneDollar))
	w.run(5 * Second)
	if n := len(w.called(RPCDrain)); n > 1 {
		t.Errorf("%d drains in half a window, the budget is one a window", n)
	}
	w.run(2 * Minute)
	if a := w.acked("r1"); a == nil || len(a.Machines) != 3 {
		t.Errorf("answered %+v", a)
	}
}

// COORD-12.11, 12.18: a move that is cancelled while machines drain gives them back.
func TestTierThreeCancelled(t *testing.T) {
	w := donor(t, 2, 10, demand.Zero)
	w.ack = func(SendReclaim) bool { return false } // the operator is silent, so nothing is drained yet
	w.order(reserveTier3(2, 1000, demand.OneDollar))
	w.run(10 * Second)
	w.order(Instruction{ID: "c1", Term: 1, CancelMove: "m1"})
	w.run(Minute)
	if a := w.acked("c1"); a == nil || a.Outcome != InstructionAccepted || len(a.Machines) != 0 {
		t.Errorf("answered %+v", a)
	}
	if n := w.state(inventory.Configured); n != 2 || len(w.called(RPCDrain)) != 0 {
		t.Errorf("%d machines serve, drained %v", n, w.called(RPCDrain))
	}
	for i := range w.c.world.Inventory.All() {
		if len(w.c.world.Inventory.Withheld(i)) != 0 {
			t.Errorf("%s is still reserved", w.c.world.Inventory.ID(i))
		}
	}
	cancelled := 0
	for _, x := range w.sent {
		if s, ok := x.(SendReclaim); ok && s.Cancelled {
			cancelled++
		}
	}
	if cancelled != 2 {
		t.Errorf("%d instructions were taken back", cancelled)
	}
}

// COORD-9.3, rule 1: who owns a bound machine follows the shard named in its metadata before the cluster.
func TestOwnerOfBoundMachines(t *testing.T) {
	c := New(nil)
	c.cfg = Config{ShardID: "me", Coordinated: true}
	v := View{Clusters: []string{"red", "green"}, Released: []string{"gone"}, Inherited: []Inherited{{Cluster: "green", From: []string{"old"}}}}
	for _, x := range []struct {
		cluster, owner string
		only, want     bool
	}{
		{"red", "me", false, true},       // mine by name
		{"blue", "me", false, true},      // mine by name, whatever the cluster
		{"gone", "me", false, false},     // released
		{"red", "", false, true},         // no name: the cluster decides
		{"blue", "", false, false},       //
		{"red", "other", false, false},   // another's name, although the cluster is mine: its release is not known
		{"green", "old", false, true},    // inherited from that very shard
		{"green", "other", false, false}, // and from no other
		{"blue", "other", true, true},    // a provider with one shard needs no partition
		{"gone", "other", true, false},   // but a released cluster is released
	} {
		view := v
		view.OnlyShard = x.only
		c.ctl.View = &view
		m := host("m", inventory.Configured, x.cluster)
		if got := c.ownership.mine(&m, x.owner); got != x.want {
			t.Errorf("cluster %s, named %q, only shard %v: mine is %v", x.cluster, x.owner, x.only, got)
		}
	}
}

// COORD-9.9g: a view that was stored under another provider address is not obeyed; until the first answer the shard stands
// as one without a view, and the same instruction puts the view in force again.
func TestViewOfAnotherProviderIsIgnored(t *testing.T) {
	old := &View{Term: 1, Index: 1, OnlyShard: true, Under: "old:9000"}
	set := Instruction{ID: "v1", Term: 1, SetView: &View{Term: 1, Index: 1, OnlyShard: true}}
	for _, address := range []string{"old:9000", "new:9000"} {
		c := New(nil)
		at := At{Mono: Second, Wall: Second}
		c.Step(at, Started{Epoch: 9, Config: Config{ShardID: "shard-0", Providers: []string{"p"}, Coordinated: true, ProviderAddress: address},
			Control: Control{View: old, Done: []DoneAck{{ID: "v1"}}}})
		m := slot("m1")
		if got := c.ownership.mine(&m, ""); got != (address == "old:9000") {
			t.Errorf("at %s a free machine is mine: %v", address, got)
		}
		if address == "old:9000" {
			continue
		}
		if c.ctl.View != nil {
			t.Error("the view is reported as in force")
		}
		c.Step(at, CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{set}})
		if !c.ownership.mine(&m, "") || c.ctl.View == nil || c.ctl.View.Under != address {
			t.Errorf("after the first answer the view is %+v", c.ctl.View)
		}
	}
}
