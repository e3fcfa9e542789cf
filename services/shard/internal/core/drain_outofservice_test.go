package core

import (
	"fmt"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// rollupWith sends demand together with the machines that take no Pods.
func (w *world) rollupWith(cluster string, cpus int64, hash string, out ...OutOfService) Disposition {
	w.arrival++
	from := len(w.sent)
	rows := needs(0, cpus)
	w.step(RollupArrived{Cluster: cluster, Session: w.sessions[cluster], Arrival: w.arrival, Rows: rows, Hash: hash, RowCount: 1, OutOfService: out})
	for _, x := range w.sent[from:] {
		if a, ok := x.(SendAck); ok && a.Rollup != nil {
			return a.Rollup.Disposition
		}
	}
	return DispositionNone
}

// SHARD-18.9: a cordoned machine is not supply for Pods that are elsewhere and is kept by those on it; when they have left it is
// surplus, and when it serves again it counts again.
func TestCordonedMachineIsNoSupply(t *testing.T) {
	w := newWorld(t, nil, append(hostsOf(2, "red"), slotsOf(4)...)...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 8))
	w.run(Second)
	cordoned := OutOfService{Machine: "red-001", Reason: 1, Since: 1_800_000_000 * Second, Pods: 3}
	if d := w.rollupWith("red", 8, "h1", cordoned); d != DispositionAccepted {
		t.Fatalf("the roll-up is %v", d)
	}
	w.run(Minute)
	if n := w.state(inventory.Configured); n != 3 {
		t.Errorf("%d machines serve; the pending Pods need one beside the cordoned one", n)
	}
	if got := w.called(RPCDrain); len(got) != 0 {
		t.Errorf("drained %v with Pods on it", got)
	}
	k, _ := w.c.Why("red-001")
	if k.Out == nil || k.Out.Pods != 3 || k.Out.String() != "cordoned since 08:00 UTC" {
		t.Errorf("kept: %v", k.Out)
	}
	cordoned.Pods = 0
	w.rollupWith("red", 8, "h2", cordoned)
	w.run(Minute)
	if got := w.called(RPCDrain); len(got) != 1 || got[0] != "red-001" {
		t.Errorf("drained %v once it is empty", got)
	}
	if !slices.ContainsFunc(w.recorded(RecordStarted), func(r Record) bool {
		return r.Machine == "red-001" && r.Kind == KindReclaim && r.Detail == "Its Node took no Pods: cordoned since 08:00 UTC."
	}) {
		t.Errorf("no record says why it is drained: %+v", w.recorded(RecordStarted))
	}
}

// SHARD-18.9: a machine that takes Pods again is supply again, and its surplus goes.
func TestUncordonedMachineIsSupplyAgain(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ReleaseDelay = 5 * Minute }, append(hostsOf(2, "red"), slotsOf(4)...)...)
	w.connect("red")
	w.run(Second)
	w.rollupWith("red", 4, "h1", OutOfService{Machine: "red-001", Reason: 1})
	w.run(Minute)
	w.rollupWith("red", 8, "h2")
	w.run(Minute)
	if n := w.state(inventory.Configured); n != 2 || len(w.called(RPCDrain)) != 0 {
		t.Errorf("%d machines serve, drained %v", n, w.called(RPCDrain))
	}
}

// SHARD-11.3, 18.9: Pods that leave a roll-up with their nodes are no loss of demand; half of a cluster that goes at once is held.
func TestOutOfServiceAndTheGuard(t *testing.T) {
	var list []OutOfService
	w := newWorld(t, nil, hostsOf(20, "red")...)
	w.connect("red")
	w.run(Second)
	w.rollupWith("red", 80, "h0")
	w.run(Second)
	for i, m := range hostsOf(20, "red") {
		if list = append(list, OutOfService{Machine: m.ID, Reason: 1, Pods: 4}); i == 9 {
			if d := w.rollupWith("red", 40, "h1", list...); d != DispositionAccepted {
				t.Errorf("ten of twenty cordoned: %v", d)
			}
		}
	}
	w.run(Second)
	if d := w.rollupWith("red", 4, "h2", list[:19]...); d != DispositionAccepted {
		t.Errorf("nine more of twenty: %v", d)
	}
	w = newWorld(t, nil, hostsOf(20, "red")...)
	w.connect("red")
	w.run(Second)
	w.rollupWith("red", 80, "h0")
	w.run(Second)
	if d := w.rollupWith("red", 4, "h3", list...); d != DispositionHeld {
		t.Errorf("all of twenty at once: %v", d)
	}
}

// SHARD-18.11: a machine that a person drains stays out for an hour. Its marks and records say so, and a retry ends it.
func TestDrainedMachineStaysOut(t *testing.T) {
	drained := func(t *testing.T, out OutOfService) *world {
		hosts := hostsOf(2, "red")
		for i := range hosts {
			hosts[i].CapacityType = inventory.BareMetal
		}
		w := newWorld(t, nil, hosts...)
		w.connect("red")
		w.connect("blue")
		w.run(Second)
		w.rollupWith("red", 8, "h1", out)
		w.rollup("blue", needs(0, 4))
		w.run(Minute)
		if got := w.called(RPCDrain); !slices.Equal(got, []string{"red-001"}) {
			t.Fatalf("drained %v", got)
		}
		w.rollupWith("red", 8, "h2")
		w.run(Minute)
		return w
	}
	repair := OutOfService{Machine: "red-001", Reason: cordoned, Since: 1_800_000_000 * Second, Detail: "disk errors, by alice"}
	held := func(w *world) bool {
		v, _ := w.c.Machine("red-001")
		return v.Machine.State == inventory.Idle && v.Withheld == "drained"
	}
	t.Run("an hour", func(t *testing.T) {
		w := drained(t, repair)
		if !held(w) {
			v, _ := w.c.Machine("red-001")
			t.Fatalf("it is %v in cluster %q, withheld %q", v.Machine.State, v.Machine.Cluster, v.Withheld)
		}
		k, _ := w.c.Why("red-001")
		if left := k.Keep.Until - w.mono; k.Keep.Mark != inventory.WithheldDrained || left < 55*Minute || left > Hour {
			t.Errorf("kept: %+v", k.Keep)
		}
		started := w.recorded(RecordStarted)
		if !slices.ContainsFunc(started, func(r Record) bool {
			return r.Machine == "red-001" && r.Cause == engine.CauseDrained && r.Detail == "Its Node took no Pods: cordoned since 08:00 UTC: disk errors, by alice."
		}) {
			t.Errorf("no record says why: %+v", started)
		}
		w.run(50 * Minute)
		if !held(w) {
			t.Error("it was used again within the hour")
		}
		w.run(15 * Minute)
		if held(w) {
			t.Error("it is withheld for longer than an hour")
		}
	})
	t.Run("until somebody lifts it", func(t *testing.T) {
		w := drained(t, repair)
		w.step(AdminAsked{Command: AdminRetry, Machine: "red-001", Ask: 7})
		w.run(Minute)
		if held(w) {
			t.Error("it is still withheld after a retry")
		}
	})
	t.Run("cordoned without a reason", func(t *testing.T) { // as an agent does that reboots nodes
		repair := repair
		repair.Detail = ""
		if held(drained(t, repair)) {
			t.Error("it is withheld")
		}
	})
}

// The hour is the host's: a slot that is free again gives another one.
func TestSlotOfADrainedHostIsOffered(t *testing.T) {
	w := newWorld(t, nil, slotsOf(1)...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Minute)
	id := w.called(RPCCreate)[0]
	w.rollupWith("red", 4, "h1", OutOfService{Machine: id, Reason: cordoned, Detail: "disk errors"})
	w.run(2 * Minute)
	v, _ := w.c.Machine(id)
	if v.Withheld != "drained" {
		t.Fatalf("it is %v, withheld %q", v.Machine.State, v.Withheld)
	}
	w.run(30 * Minute)
	if n := len(w.called(RPCCreate)); n != 2 {
		t.Errorf("its slot gave %d hosts; red is short of one", n-1)
	}
}

// SHARD-18.11: the owner of a cluster who cordons Nodes with a reason, one after the other or many at once, keeps a bounded number of machines out of
// use, and no more drains say that they do.
func TestFewMachinesAreKeptOutForPersons(t *testing.T) {
	for _, atOnce := range []int{1, 10} {
		t.Run(fmt.Sprint(atOnce, " at once"), func(t *testing.T) {
			hosts := hostsOf(20, "red")
			for i := range hosts {
				hosts[i].CapacityType = inventory.BareMetal
			}
			w := newWorld(t, nil, hosts...)
			w.connect("red")
			w.run(Second)
			for i := 0; i < 20; i += atOnce {
				var out []OutOfService
				for _, h := range hosts[i : i+atOnce] {
					out = append(out, OutOfService{Machine: h.ID, Reason: cordoned, Detail: "disk errors"})
				}
				w.rollupWith("red", 4*16, fmt.Sprint("h", i), out...)
				w.run(Minute)
			}
			kept := 0
			for i := range hosts {
				if v, _ := w.c.Machine(hosts[i].ID); v.Withheld == "drained" {
					kept++
				}
			}
			said := 0
			for _, r := range w.recorded(RecordStarted) {
				if r.Cause == engine.CauseDrained {
					said++
				}
			}
			if kept != 8 || said != 8 {
				t.Errorf("%d of 20 machines are kept out and %d drains say so, want 8; drained %v", kept, said, w.called(RPCDrain))
			}
		})
	}
}
