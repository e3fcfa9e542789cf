package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// zones is a view of a shard that owns zone za, with machines of zone zb by exception.
func zones(index uint64, in ...string) *View {
	v := &View{Term: 1, Index: index, Provider: "p", PartitionKeys: []string{labelZone}, Owned: []DomainRef{{labelZone, "za"}}}
	for _, id := range in {
		v.In = append(v.In, Exception{Machine: id, Owner: "shard-0", Move: "m-" + id})
	}
	return v
}

func viewOrder(v *View) Instruction {
	return Instruction{ID: fmt.Sprint("view-", v.Index), Term: 1, SetView: v}
}

func (w *world) givenBack() (out []string) {
	for _, n := range w.notices {
		out = append(out, n.GivenBack...)
	}
	return out
}

func (w *world) foreign(id string) bool {
	i, ok := w.c.world.Inventory.Find(id)
	return ok && w.c.world.Inventory.Foreign(i)
}

// COORD-9.7: an exception ends when the host is a slot again. The shard stops acting on the machine before it says so, keeps
// to that while views still list the exception, and forgets it with the first view that does not.
func TestExceptionEndsWithTheHost(t *testing.T) {
	w := newWorld(t, coordinated, zoned("b1", "zb", inventory.Idle, ""), zoned("b2", "zb", inventory.Speculative, ""))
	w.order(viewOrder(zones(1, "b1", "b2")))
	w.run(Second)
	if got := w.givenBack(); len(got) != 0 || w.foreign("b1") || w.foreign("b2") {
		t.Fatalf("given back %v", got)
	}
	w.provider["b1"].State, w.provider["b1"].HostProvider, w.provider["b1"].HostRef = inventory.Speculative, "", ""
	w.run(20 * Minute) // a List shows it
	if got := w.givenBack(); !slices.Equal(got, []string{"b1"}) || !w.foreign("b1") || w.foreign("b2") {
		t.Fatalf("given back %v, b1 foreign %v, b2 foreign %v", got, w.foreign("b1"), w.foreign("b2"))
	}
	var stored View
	if n := w.notices[0]; len(n.Store) != 1 || codec.Unmarshal(n.Store[0].Value, &stored) != nil || len(stored.In) != 1 || len(stored.Returned) != 1 {
		t.Fatalf("to be stored before the coordinator hears of it: %+v", stored)
	}
	w.order(viewOrder(zones(2, "b1", "b2"))) // made before the leader heard
	if v := w.c.ctl.View; !w.foreign("b1") || len(v.Returned) != 1 || len(v.In) != 1 {
		t.Errorf("a view of before takes it again: %+v", v)
	}
	w.order(viewOrder(zones(3, "b2")))
	if v := w.c.ctl.View; !w.foreign("b1") || len(v.Returned) != 0 || len(v.In) != 1 {
		t.Errorf("once the leader heard: %+v", v)
	}
	w.order(Instruction{ID: "t", Term: 1, Transfer: &TransferInstruction{Move: "again", From: "other", To: "shard-0", Machines: []string{"b1"}, Speculative: true}})
	w.run(Minute)
	if w.foreign("b1") {
		t.Error("the same machine does not come with a later move")
	}
}

// COORD-9.7: a slot whose Create failed is kept; it was moved to be created.
func TestFailedCreateKeepsTheException(t *testing.T) {
	w := newWorld(t, coordinated, zoned("b1", "zb", inventory.Speculative, ""))
	w.order(viewOrder(zones(1, "b1")))
	w.dwell = 10 * Minute
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Second)
	if w.provider["b1"].State != inventory.Creating {
		t.Fatalf("b1 is %s", w.provider["b1"].State)
	}
	w.provider["b1"].State = inventory.Speculative
	w.run(9 * Minute)
	if got := w.givenBack(); len(got) != 0 || w.foreign("b1") {
		t.Errorf("given back %v", got)
	}
}

// COORD-9.7, 9.9a: after a start nothing is called gone before every provider has shown what there is; what was given back
// before is said again.
func TestExceptionsAfterAStart(t *testing.T) {
	stored := zones(1, "b1", "gone")
	stored.Returned = []Exception{{Machine: "old", Owner: "shard-0", Move: "m-old"}}
	w := &world{t: t, c: New(nil), mono: Second, wall: 1_800_000_000 * Second, provider: map[string]*inventory.Machine{}, attributions: map[string]Attribution{},
		samples: map[string]int64{}, sessions: map[string]int64{}, deleted: map[string]bool{}}
	m := cheap(zoned("b1", "zb", inventory.Idle, ""))
	w.provider["b1"], w.listErr = &m, true
	w.step(Started{Config: Config{ShardID: "shard-0", Providers: []string{"p"}, Coordinated: true, ReclaimCapOff: true}, Epoch: 8,
		Control: Control{View: stored, Coordinator: Lineage{Term: 1, UUID: "u"}}})
	w.run(10 * Minute)
	if got := w.givenBack(); !slices.Equal(got, []string{"old"}) {
		t.Fatalf("said without a List: %v", got)
	}
	w.listErr = false
	w.run(10 * Minute)
	if got := w.givenBack(); !slices.Equal(got, []string{"old", "gone"}) || w.foreign("b1") {
		t.Errorf("said after the List: %v, b1 foreign %v", got, w.foreign("b1"))
	}
}

// COORD-9.7: a machine that is this shard's by its domain needs no exception, as after a move back.
func TestMovedBack(t *testing.T) {
	w := newWorld(t, coordinated, zoned("a1", "za", inventory.Idle, ""), zoned("b1", "zb", inventory.Idle, ""))
	w.run(Second)
	w.order(viewOrder(zones(1, "a1", "b1")))
	if got := w.givenBack(); !slices.Equal(got, []string{"a1"}) || w.foreign("a1") || w.foreign("b1") {
		t.Errorf("given back %v, a1 foreign %v, b1 foreign %v", got, w.foreign("a1"), w.foreign("b1"))
	}
}

// COORD-12.19: a refused Configure on a machine that came by a move is counted and reported to the coordinator; without an
// exception it is an ordinary refusal.
func TestRefusedConfigureAfterAMove(t *testing.T) {
	for _, in := range [][]string{{"b1"}, nil} {
		w := newWorld(t, coordinated, zoned("b1", "zb", inventory.Idle, ""))
		v := zones(1, in...)
		v.DefaultOwner = in == nil
		w.order(viewOrder(v))
		w.connect("red")
		w.run(Second)
		w.reply = func(c Command) (Code, bool) {
			if c.RPC == RPCConfigure {
				return CodeAlreadyExists, false
			}
			return CodeOK, true
		}
		w.rollup("red", needs(0, 4))
		w.run(Second)
		reported := slices.ContainsFunc(w.notices, func(n Notice) bool { return n.Violated == "b1" })
		if want := in != nil; reported != want || (w.count(MetricOwnershipViolations) > 0) != want {
			t.Errorf("exceptions %v: reported %v, counted %d", in, reported, w.count(MetricOwnershipViolations))
		}
	}
}

// COORD-11.2, 11.3: fixed capacity is never counted; a machine without a region label counts in the region of its provider; one with a label in its own.
func TestRegionOfTheProvider(t *testing.T) {
	machines := slotsOf(5)
	machines[4].CapacityType = inventory.Reserved
	machines[3].Labels = append(machines[3].Labels, inventory.Label{Key: labelRegion, Value: "us"})
	w := newWorld(t, coordinated, machines...)
	w.order(viewOrder(&View{Term: 1, Index: 1, OnlyShard: true, Region: "eu", Quotas: []Quota{{Provider: "p", Region: "eu", Machines: 1}}}))
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 20))
	w.run(5 * Minute)
	if n := w.state(inventory.Configured); n != 3 || w.provider["m04"].Cluster != "red" || w.provider["m05"].Cluster != "red" {
		t.Errorf("%d machines serve with a slice of 1 in the provider's region, none for another, and one that is reserved", n)
	}
}
