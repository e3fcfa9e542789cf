package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

func coordinated(c *Config) { c.Coordinated = true }

func zoned(id, zone string, s inventory.State, cluster string) inventory.Machine {
	m := host(id, s, cluster)
	if s == inventory.Speculative || s == inventory.Creating {
		m.HostProvider, m.HostRef = "", ""
	}
	m.Zone = zone
	return m
}

// COORD-9.10: with a coordinator configured and no view yet, a shard acquires nothing; an answer without a UUID comes
// from a coordinator that does not partition, and then it owns everything.
func TestFirstContact(t *testing.T) {
	w := newWorld(t, coordinated, slotsOf(4)...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(5 * Minute)
	if len(w.calls) != 0 {
		t.Fatalf("%d calls before any view", len(w.calls))
	}
	w.step(CoordinatorReplied{Term: 3})
	w.run(Minute)
	if w.state(inventory.Configured) != 1 {
		t.Errorf("%d machines after an answer of a coordinator without views", w.state(inventory.Configured))
	}
}

// COORD-9.5, 9.9f: a view that takes a domain away is not acknowledged while a host of it waits for its boot data here: it is Idle at the provider, and
// the new owner may configure it, too. Once the provider has accepted Configure, the host is bound and names this shard.
func TestAViewWaitsForAHostThatIsNotConfiguredYet(t *testing.T) {
	w := newWorld(t, coordinated, zoned("a1", "za", inventory.Idle, ""))
	w.connect("red")
	w.run(Second)
	view := func(index uint64, owned ...DomainRef) CoordinatorReplied {
		return CoordinatorReplied{Term: 3, UUID: "u", Instructions: []Instruction{{ID: fmt.Sprint("v", index), Term: 3,
			SetView: &View{Term: 3, Index: index, PartitionKeys: []string{labelZone}, Owned: owned, Clusters: []string{"red"}}}}}
	}
	w.step(view(1, DomainRef{labelZone, "za"}))
	var pulled PullBootstrap
	w.blob = func(p PullBootstrap) *BootstrapAnswered { pulled = p; return nil }
	w.rollup("red", needs(0, 4))
	w.run(Second)
	acked := func() bool {
		return slices.ContainsFunc(w.acks, func(a AckInstruction) bool { return a.ID == "v2" && a.Outcome == InstructionAccepted })
	}
	w.step(view(2))
	w.run(5 * Second)
	if acked() || pulled.Request == "" || len(w.called(RPCConfigure)) != 0 {
		t.Fatalf("the view is acknowledged: %v, with pull %q and calls of Configure: %v", acked(), pulled.Request, w.called(RPCConfigure))
	}
	w.blob = nil
	w.pull(pulled)
	w.run(Minute)
	if got := w.called(RPCConfigure); len(got) != 1 || !acked() {
		t.Errorf("configured %v, acknowledged: %v", got, acked())
	}
}

// COORD-9.1 to 9.3: a view gives domains; machines of other domains are absent from every decision.
func TestViewsPartitionMachines(t *testing.T) {
	w := newWorld(t, coordinated, zoned("a1", "za", inventory.Speculative, ""), zoned("b1", "zb", inventory.Speculative, ""), zoned("c1", "zc", inventory.Speculative, ""))
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 12))
	view := &View{Term: 3, Index: 7, PartitionKeys: []string{labelZone}, Owned: []DomainRef{{labelZone, "za"}}}
	w.step(CoordinatorReplied{Term: 3, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 3, SetView: view}}})
	w.run(Minute)
	if got := w.called(RPCCreate); len(got) != 1 || got[0] != "a1" {
		t.Errorf("bought %v", got)
	}
	old := &View{Term: 3, Index: 6, OnlyShard: true}
	w.step(CoordinatorReplied{Term: 3, UUID: "u", Instructions: []Instruction{{ID: "v0", Term: 3, SetView: old}}})
	w.run(Minute)
	if got := w.called(RPCCreate); len(got) != 1 {
		t.Errorf("an older view was obeyed: %v", got)
	}
	more := &View{Term: 4, Index: 1, PartitionKeys: []string{labelZone}, DefaultOwner: true, ForeignOwned: []DomainRef{{labelZone, "zb"}}}
	w.step(CoordinatorReplied{Term: 4, UUID: "u", Instructions: []Instruction{{ID: "v2", Term: 4, SetView: more}}})
	w.run(Minute)
	if got := w.called(RPCCreate); len(got) != 2 || got[1] != "c1" {
		t.Errorf("as default owner bought %v", got)
	}
	if n := w.c.coord.foreign; n != 1 {
		t.Errorf("%d machines are another shard's", n)
	}
}

// COORD-9.9f: a view that takes a machine away is acked only when no operation of ours is open on it.
func TestViewWaitsForOpenOperations(t *testing.T) {
	w := newWorld(t, coordinated, slotsOf(1)...)
	w.dwell = 2 * Minute
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: &View{Term: 1, Index: 1, OnlyShard: true}}}})
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Second)
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v2", Term: 1, SetView: &View{Term: 1, Index: 2}}}})
	if n := len(w.acks); n != 1 {
		t.Fatalf("%d acks while a Create is open", n)
	}
	w.run(5 * Minute)
	if n := len(w.acks); n != 2 || w.acks[1].Outcome != InstructionAccepted {
		t.Errorf("acks %+v", w.acks)
	}
	if len(w.called(RPCConfigure)) != 0 {
		t.Error("a machine that was lost was configured")
	}
	if len(w.c.coord.relabels) != 0 {
		t.Errorf("COORD-9.9d: a view took the machine, its labels did not change: Creates pause for %v", w.c.coord.relabels)
	}
}

// COORD-12.14, 12.18: a leader that withdraws a move sends a view made before it heard of the adoption. The shard keeps what
// it adopted and says so; once the leader decided otherwise, a view that knows no such move takes the machine away.
func TestWithdrawalFindsWhatWasAdopted(t *testing.T) {
	w := newWorld(t, coordinated, zoned("a1", "za", inventory.Speculative, ""))
	partition := func(index uint64, arriving ...string) Instruction {
		return Instruction{ID: fmt.Sprint("v", index), Term: 1, SetView: &View{Term: 1, Index: index, PartitionKeys: []string{labelZone}, Arriving: arriving}}
	}
	w.order(partition(1, "m1"))
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.order(Instruction{ID: "t1", Term: 1, Transfer: &TransferInstruction{Move: "m1", From: "other", To: w.c.cfg.ShardID, Machines: []string{"a1"}, Speculative: true}})
	w.dwell = Minute
	w.run(10 * Second)
	if got := w.called(RPCCreate); len(got) != 1 {
		t.Fatalf("the adopted slot was not used: %v", w.acks)
	}
	w.order(partition(2, "m1"))
	w.order(Instruction{ID: "c1", Term: 1, CancelMove: "m1"})
	if a := w.acks[len(w.acks)-1]; a.ID != "c1" || !slices.Equal(a.Machines, []string{"a1"}) {
		t.Fatalf("the answer to the withdrawal: %+v", a)
	}
	w.order(partition(3))
	w.run(5 * Minute)
	if i, _ := w.c.world.Inventory.Find("a1"); !w.c.world.Inventory.Foreign(i) {
		t.Error("a view without the move leaves the machine here")
	}
}

// SHARD-21.5, COORD-8.4, 7.12: duplicates, stale terms, unknown payloads; a reply of a lower term is dropped whole.
func TestInstructionRules(t *testing.T) {
	w := newWorld(t, coordinated, slotsOf(1)...)
	send := func(term int64, x Instruction) *AckInstruction {
		n := len(w.acks)
		w.step(CoordinatorReplied{Term: term, UUID: "u", Instructions: []Instruction{x}})
		if len(w.acks) == n {
			return nil
		}
		return &w.acks[len(w.acks)-1]
	}
	if a := send(5, Instruction{ID: "i1", Term: 5, Assign: &DomainRef{"k", "v"}}); a == nil || a.Outcome != InstructionAccepted || len(a.Store) == 0 {
		t.Errorf("assign: %+v", a)
	}
	if a := send(5, Instruction{ID: "i1", Term: 5, Assign: &DomainRef{"k", "v"}}); a == nil || a.Reason != "duplicate" {
		t.Errorf("again: %+v", a)
	}
	if a := send(5, Instruction{ID: "i2", Term: 4, Assign: &DomainRef{"k", "w"}}); a == nil || a.Outcome != InstructionStale {
		t.Errorf("stale: %+v", a)
	}
	if a := send(5, Instruction{ID: "i3", Term: 5, Invalid: "unsupported"}); a == nil || a.Outcome != InstructionInvalid {
		t.Errorf("unknown: %+v", a)
	}
	if a := send(4, Instruction{ID: "i4", Term: 4, Assign: &DomainRef{"k", "x"}}); a != nil {
		t.Errorf("a reply of the past was answered: %+v", a)
	}
	if a := send(5, Instruction{Term: 5}); a != nil {
		t.Errorf("no id: %+v", a)
	}
}

// COORD-12.12, 12.15, 12.16: a donor reserves beyond its margin, keeps the reservation, and lets go of what was adopted.
func TestReserveAndRelease(t *testing.T) {
	machines := []inventory.Machine{}
	for _, id := range []string{"i1", "i2", "i3", "i4"} {
		m := host(id, inventory.Idle, "")
		m.CapacityType = inventory.Reserved
		machines = append(machines, m)
	}
	w := newWorld(t, coordinated, machines...)
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: &View{Term: 1, Index: 1, OnlyShard: true}}}})
	w.run(Second)
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "r1", Term: 1, Reserve: &ReserveInstruction{Move: "m1", To: "other", InstanceType: "m4", Count: 3, Tier: 1}}}})
	a := w.acks[len(w.acks)-1]
	if a.Outcome != InstructionAccepted || len(a.Machines) != 3 {
		t.Fatalf("reserved %+v", a)
	}
	w.connect("red")
	w.rollup("red", needs(0, 16))
	w.run(Minute)
	if n := w.state(inventory.Configured); n != 1 {
		t.Errorf("%d machines were used; three are reserved", n)
	}
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "t1", Term: 1, Transfer: &TransferInstruction{Move: "m1", From: "shard-0", To: "other", Machines: a.Machines[:2]}}}})
	w.run(Minute)
	if n := w.state(inventory.Configured); n != 2 {
		t.Errorf("%d machines are used after one came back from the reservation", n)
	}
	if w.c.coord.foreign != 2 {
		t.Errorf("%d machines were let go", w.c.coord.foreign)
	}
}

// COORD-12.12: a tenth of the idle machines stays with the donor, rounded down: three of three may go.
func TestMarginOfADonor(t *testing.T) {
	for idle, want := range map[int]int{1: 1, 3: 3, 20: 18} {
		machines := []inventory.Machine{}
		for i := range idle {
			m := host(fmt.Sprint("i", i), inventory.Idle, "")
			m.CapacityType = inventory.Reserved
			machines = append(machines, m)
		}
		w := newWorld(t, coordinated, machines...)
		w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: &View{Term: 1, Index: 1, OnlyShard: true}}}})
		w.run(Second)
		w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "r1", Term: 1, Reserve: &ReserveInstruction{Move: "m1", To: "other", InstanceType: "m4", Count: 99, Tier: 1}}}})
		if a := w.acks[len(w.acks)-1]; a.Outcome != InstructionAccepted || len(a.Machines) != want {
			t.Errorf("of %d idle machines it reserves %d, want %d", idle, len(a.Machines), want)
		}
	}
}

// COORD-12.14: a recipient adopts only what the provider shows as free.
func TestAdopt(t *testing.T) {
	w := newWorld(t, coordinated, zoned("b1", "zb", inventory.Idle, ""), zoned("b2", "zb", inventory.Configured, "blue"))
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: &View{Term: 1, Index: 1, PartitionKeys: []string{labelZone}}}}})
	w.run(Second)
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "t1", Term: 1, Transfer: &TransferInstruction{Move: "m1", From: "other", To: "shard-0", Machines: []string{"b1", "b2", "gone"}}}}})
	w.run(10 * Second)
	a := w.acks[len(w.acks)-1]
	if a.Outcome != InstructionAccepted || len(a.Machines) != 1 || a.Machines[0] != "b1" {
		t.Fatalf("adopted %+v", a)
	}
	w.connect("red")
	w.rollup("red", needs(0, 4))
	w.run(Minute)
	if w.provider["b1"].Cluster != "red" {
		t.Error("the adopted machine was not used")
	}
}

// COORD-11.4: a slice bounds the elastic machines of a region; it drains nothing.
func TestQuota(t *testing.T) {
	w := newWorld(t, coordinated, slotsOf(6)...)
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: &View{Term: 1, Index: 1, OnlyShard: true,
		Quotas: []Quota{{Provider: "p", Machines: 2}}}}}})
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 24))
	w.run(5 * Minute)
	if n := w.state(inventory.Configured); n != 2 {
		t.Errorf("%d machines with a slice of 2", n)
	}
}

// SHARD-21.7: a removed shard starts nothing until it is admitted again.
func TestDecommissioned(t *testing.T) {
	w := newWorld(t, coordinated, slotsOf(2)...)
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: &View{Term: 1, Index: 1, OnlyShard: true}}}})
	w.step(CoordinatorReplied{Failed: true, Decommissioned: true, Text: "removed"})
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(5 * Minute)
	if len(w.calls) != 0 {
		t.Errorf("%d calls", len(w.calls))
	}
	w.step(CoordinatorReplied{Term: 1, UUID: "u"})
	w.run(Minute)
	if w.state(inventory.Configured) != 1 {
		t.Error("nothing happened after the next normal answer")
	}
}

// SHARD-21.7: a removed shard is still removed after a restart without a coordinator.
func TestRemovedShardRemembersIt(t *testing.T) {
	w := newWorld(t, coordinated, slotsOf(2)...)
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: &View{Term: 1, Index: 1, OnlyShard: true}}}})
	w.step(CoordinatorReplied{Failed: true, Decommissioned: true, Text: "removed by ann"})
	if w.c.ctl.Removed != "removed by ann" {
		t.Fatalf("the core keeps %q", w.c.ctl.Removed)
	}
	w = worldWith(t, Control{Coordinator: w.c.ctl.Coordinator, View: w.c.ctl.View, Removed: w.c.ctl.Removed}, coordinated, slotsOf(2)...)
	w.step(CoordinatorReplied{Failed: true, Text: "no answer in time"})
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(5 * Minute)
	if len(w.calls) != 0 {
		t.Errorf("%d calls after a restart of a removed shard", len(w.calls))
	}
	w.step(CoordinatorReplied{Term: 1, UUID: "u"})
	if w.c.ctl.Removed != "" {
		t.Error("it was admitted again and keeps that it was removed")
	}
}

// SHARD-21.7: a coordinator that has seen a higher epoch of this shard freezes it: another process acts under its id.
func TestDisputedEpochFreezes(t *testing.T) {
	w := newWorld(t, coordinated, slotsOf(2)...)
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: &View{Term: 1, Index: 1, OnlyShard: true}}}})
	w.step(CoordinatorReplied{Failed: true, EpochDisputed: true, Text: "epoch 9 was seen, this is 8"})
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.step(CoordinatorReplied{Failed: true, Text: "no answer in time"})
	w.run(5 * Minute)
	if len(w.calls) != 0 {
		t.Errorf("%d calls of a process whose epoch is disputed", len(w.calls))
	}
	w.step(CoordinatorReplied{Term: 1, UUID: "u"})
	w.run(Minute)
	if w.state(inventory.Configured) != 1 {
		t.Error("nothing happened after its epoch was accepted")
	}
}

// COORD-8.5: 4,096 answers are remembered, and what was asked for again is forgotten last.
func TestDoneInstructionsAreForgottenInOrder(t *testing.T) {
	w := newWorld(t, coordinated)
	do := func(n int) {
		w.order(Instruction{ID: fmt.Sprint("i", n), Term: 1, Assign: &DomainRef{"k", "v"}})
	}
	for n := range instructionsDone {
		do(n)
	}
	do(0)
	do(instructionsDone)
	done := w.c.ctl.Done
	if len(done) != instructionsDone || done[0].ID != "i2" || done[len(done)-2].ID != "i0" {
		t.Errorf("%d are remembered, from %s to %s and %s", len(done), done[0].ID, done[len(done)-2].ID, done[len(done)-1].ID)
	}
}

// SHARD-21.6, COORD-9.9b: the reply to a Drain is lost, and the shard that owns the domain of the Idle machine configures it
// for a cluster of its own. The Drain has had its effect: it is not sent again, at a machine that serves somebody else.
func TestLostDrainIsNotRepeatedAtAnothersMachine(t *testing.T) {
	w := newWorld(t, coordinated, zoned("a1", "za", inventory.Configured, "red"))
	w.attributions["a1"] = Attribution{Fingerprint: "f", Priority: 1}
	view := &View{Term: 1, Index: 1, PartitionKeys: []string{labelZone}, Clusters: []string{"red"}}
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: view}}})
	w.reply = func(Command) (Code, bool) { return CodeDeadlineExceeded, true }
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Second)
	w.rollup("red", nil)
	for range 1000 {
		if w.run(10 * Millisecond); w.provider["a1"].State == inventory.Idle {
			break
		}
	}
	w.provider["a1"].State, w.provider["a1"].Cluster = inventory.Configured, "blue"
	w.owner = "shard-1"
	w.attributions["a1"] = Attribution{Fingerprint: "g", Priority: 2}
	w.run(5 * Minute)
	if n := len(w.called(RPCDrain)); n != 1 {
		t.Errorf("%d Drains were sent", n)
	}
	if got := w.outcomes(KindReclaim); got["stale_state"] != 1 || len(got) != 1 {
		t.Errorf("the reclaim ended %v", got)
	}
	if m := w.provider["a1"]; m.State != inventory.Configured || m.Cluster != "blue" {
		t.Errorf("the machine is %s for %q", m.State, m.Cluster)
	}
}

// SHARD-21.6, SHARD-12.5: shards that share a provider see each other's machines, and count, pace and miss only their own: another
// shard's cluster is none of this one's, whatever it has and however long it says nothing here.
func TestAnotherShardsClusterIsNoneOfOurs(t *testing.T) {
	w := newWorld(t, coordinated, zoned("a1", "za", inventory.Configured, "red"), zoned("b1", "zb", inventory.Configured, "blue"), zoned("b2", "zb", inventory.Speculative, ""))
	view := func(index uint64, clusters ...string) *View {
		return &View{Term: 3, Index: index, PartitionKeys: []string{labelZone}, Owned: []DomainRef{{labelZone, "za"}}, Clusters: clusters}
	}
	w.step(CoordinatorReplied{Term: 3, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 3, SetView: view(1, "red")}}})
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 1))
	w.run(w.c.cfg.SilentAfter + Minute)
	w.rollup("red", needs(0, 1))
	w.run(Minute)
	p := w.view
	if s := p.Status; s.Silent != 0 || s.Foreign != 2 || s.States[inventory.Configured] != 1 || s.States[inventory.Speculative] != 0 {
		t.Errorf("%d clusters silent, %d machines of other shards, of ours %v", s.Silent, s.Foreign, s.States)
	}
	if len(p.Clusters) != 1 || p.Clusters[0].Name != "red" {
		t.Errorf("%d clusters are shown, want red", len(p.Clusters))
	}
	// What the other shard does with its machines is explained there (SHARD-14.2).
	w.provider["b2"].State, w.provider["b2"].Cluster, w.provider["b2"].HostProvider, w.provider["b2"].HostRef = inventory.Configured, "blue", "p", "ref-b2"
	w.run(Minute)
	if got := w.recorded(RecordUnexpectedEdge); len(got) != 0 || w.view.Status.Foreign != 2 {
		t.Errorf("%d machines of other shards; recorded here: %+v", w.view.Status.Foreign, got)
	}
	// Orders about them are for the shard that they belong to.
	for ask, order := range []AdminCommand{AdminForget, AdminRetry} {
		w.step(AdminAsked{Ask: int64(ask + 1), Command: order, Machine: "b1", Reason: "x"})
	}
	if len(w.answers) != 2 || w.answers[0].Code != CodeNotFound || w.answers[1].Code != CodeNotFound {
		t.Errorf("orders about another shard's machine: %+v", w.answers)
	}
	// The cluster comes over with its machines: now the one without a session is this shard's to miss.
	w.step(CoordinatorReplied{Term: 3, UUID: "u", Instructions: []Instruction{{ID: "v2", Term: 3, SetView: view(2, "red", "blue")}}})
	w.run(Minute)
	if p := w.view; p.Status.Silent != 1 || len(p.Clusters) != 2 || p.Status.States[inventory.Configured] != 3 {
		t.Errorf("after the cluster came: %d silent, %d clusters, machines %v", p.Status.Silent, len(p.Clusters), p.Status.States)
	}
	w.step(CoordinatorReplied{Term: 3, UUID: "u", Instructions: []Instruction{{ID: "v3", Term: 3, SetView: view(3, "red")}}})
	w.run(Minute)
	if p := w.view; p.Status.Silent != 0 || len(p.Clusters) != 1 || w.c.Broken() != "" {
		t.Errorf("after it went: %d silent, %d clusters, %s", p.Status.Silent, len(p.Clusters), w.c.Broken())
	}
}

// SHARD-21.7: that a shard was removed from the fleet is a pause of everything until the next normal answer. A coordinator that does
// not answer, or answers from the past, takes it back no more than one that says it again.
func TestRemovedShardWaitsForANormalAnswer(t *testing.T) {
	w := newWorld(t, coordinated, host("h1", inventory.Idle, ""))
	everything := &View{Term: 2, Index: 1, OnlyShard: true}
	w.step(CoordinatorReplied{Term: 2, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 2, SetView: everything}}})
	w.step(CoordinatorReplied{Failed: true, Decommissioned: true, Text: "removed"})
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(1, 4))
	w.run(Minute)
	w.step(CoordinatorReplied{Failed: true, Text: "no answer in time"})
	w.run(Minute)
	w.step(CoordinatorReplied{Failed: true, EpochDisputed: true, Text: "a higher epoch is known"})
	w.step(CoordinatorReplied{Term: 1, UUID: "u"})
	w.run(Minute)
	if n := len(w.calls); n != 0 {
		t.Fatalf("%d calls of a shard that was removed", n)
	}
	w.step(CoordinatorReplied{Term: 2, UUID: "u"})
	w.run(Minute)
	if got := w.called(RPCConfigure); len(got) != 1 {
		t.Errorf("configured %v after it was admitted again", got)
	}
}
