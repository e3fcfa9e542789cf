package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// hints keeps what a world's core wants to find after a restart.
func hints(w *world) map[string]KeptRoom {
	kept := map[string]KeptRoom{}
	w.watch = func(effects []Effect) {
		for _, x := range effects {
			if p, is := x.(Persist); is && p.Bucket == BucketRoom {
				var k KeptRoom
				if err := codec.Unmarshal(p.Value, &k); p.Value != nil && err != nil {
					w.t.Fatal(err)
				}
				if kept[p.Key] = k; p.Value == nil {
					delete(kept, p.Key)
				}
			}
		}
	}
	return kept
}

// restarted is a new process over the same machines, with what the one before kept.
func (w *world) restarted(kept map[string]KeptRoom) *world {
	next := &world{t: w.t, c: New(nil), mono: Second, wall: w.wall + Minute, provider: map[string]*inventory.Machine{}, attributions: w.attributions,
		samples: map[string]int64{}, sessions: map[string]int64{}, deleted: map[string]bool{}}
	for id, m := range w.provider {
		copied := *m
		next.provider[id] = &copied
	}
	first := Started{Config: w.c.cfg, Epoch: 8}
	for _, name := range sortedKeys(kept) {
		first.Room = append(first.Room, kept[name])
	}
	next.step(first)
	w.t.Cleanup(next.replay)
	return next
}

var unboundFeatures = []string{"node-report", "node-contents", "unplaced-pods", "drain-report", "reclaim-cancel", "released"}

// SHARD-13.20, ENG-11.19: a restarted shard knows which units are served elsewhere: it buys no machine for them, and more demand buys
// exactly what is more. Before the cluster says what it asks for, nothing is forgotten.
func TestRestartBuysNothingTwice(t *testing.T) {
	w := newWorld(t, nil, append(hostsOf(2, "red"), slot("s1"), slot("s2"))...)
	kept := hints(w)
	rows := needs(0, 4, 4)
	say := func(w *world) {
		w.run(Second)
		w.connect("red", unboundFeatures...)
		w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], LastOfFullSet: true})
		w.holds("red", "red-000", &NodeContents{EmptySince: 1})
		w.holds("red", "red-001", &NodeContents{Pods: 8, CostCents: 8})
	}
	live := func(w *world, rows []demand.Row, d int64) {
		for end := w.mono + d; w.mono < end; w.run(10 * Second) {
			w.step(UnplacedReported{Cluster: "red", Session: w.sessions["red"], StatesUnbound: true})
			w.rollup("red", rows)
		}
	}
	say(w)
	live(w, rows, 8*Minute)
	if n := len(w.called(RPCDrain)); n != 1 {
		t.Fatalf("%d machines were given back, want the empty one", n)
	}
	if len(kept["red"].Rows) != 1 {
		t.Fatalf("kept for a restart: %v", kept)
	}
	next := w.restarted(kept)
	next.run(Minute) // no cluster has come back yet
	say(next)
	live(next, rows, 8*Minute)
	if n := len(next.called(RPCCreate)) + len(next.called(RPCConfigure)); n != 0 {
		t.Fatalf("the restarted shard took %d machines at constant demand", n)
	}
	live(next, needs(0, 8, 8), Minute)
	if n := len(next.called(RPCConfigure)); n != 2 {
		t.Errorf("%d machines for two more of them, want 2", n)
	}
}

// SHARD-13.20, ENG-11.17: a restarted shard knows the headroom that Pods run on, and does not drain it as excess.
func TestRestartKeepsRoom(t *testing.T) {
	w := newWorld(t, nil, append(hostsOf(1, "red"), slot("s1"), slot("s2"))...)
	kept := hints(w)
	rows := needs(0, 4)
	connect := func(w *world) {
		w.run(Second)
		w.connect("red", unboundFeatures...)
		w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], LastOfFullSet: true})
		for _, id := range sortedKeys(w.provider) {
			if w.provider[id].State == inventory.Configured {
				w.holds("red", id, &NodeContents{Pods: 2, CostCents: 2})
			}
		}
	}
	live := func(w *world, waits []UnplacedRow, d int64) {
		for end := w.mono + d; w.mono < end; w.run(10 * Second) {
			w.step(UnplacedReported{Cluster: "red", Session: w.sessions["red"], Rows: waits, StatesUnbound: true})
			w.rollup("red", rows)
		}
	}
	connect(w)
	live(w, []UnplacedRow{{RowID: rows[0].RowID, Pods: 1}}, Minute)
	connect(w)
	live(w, nil, Minute)
	if n := w.state(inventory.Configured); n != 2 || len(kept["red"].Rows) != 1 {
		t.Fatalf("%d machines with room, kept %v", n, kept)
	}
	next := w.restarted(kept)
	connect(next)
	live(next, nil, 10*Minute)
	if n := len(next.called(RPCDrain)); n != 0 {
		t.Errorf("the restarted shard drained %d machines in use at constant demand", n)
	}
}

// SHARD-13.20: what is kept of a cluster that does not come back goes with the cluster.
func TestKeptRoomOfNoCluster(t *testing.T) {
	w := newWorld(t, nil, slot("s1"))
	row := needs(0, 4)[0]
	kept := map[string]KeptRoom{"gone": {Cluster: "gone", Rows: []ledger.KeptRow{{Row: demand.RowKey{Fingerprint: row.Fingerprint}, Units: 4}}}}
	next := w.restarted(kept)
	left := hints(next)
	left["gone"] = kept["gone"]
	next.run(2 * Hour)
	if len(left) != 0 || next.c.clusters.get("gone") != nil {
		t.Errorf("two hours later %v is kept", left)
	}
}
