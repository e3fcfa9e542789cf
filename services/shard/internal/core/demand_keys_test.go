package core

import (
	"fmt"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
)

// keyed is a roll-up whose rows name keys, in so many rows.
func (w *world) keyed(cluster string, op demand.Operator, rows int, keys ...string) *Rollup {
	list := needs(0, make([]int64, rows)...)
	for i := range list {
		list[i].Profile.Requirements = []demand.Requirement{{Key: keys[i%len(keys)], Op: op}}
		list[i].Group = fmt.Sprint(i)
		list[i].Seal()
	}
	w.arrival++
	from := len(w.sent)
	e := RollupArrived{Cluster: cluster, Session: w.sessions[cluster], Arrival: w.arrival, Rows: list, Hash: fmt.Sprint(op, rows, keys), RowCount: int64(rows)}
	e.LabelKeys, e.TopologyKeys = demand.KeysOf(list)
	w.step(e)
	w.run(Second)
	for _, x := range w.sent[from:] {
		if a, ok := x.(SendAck); ok && a.Rollup != nil {
			return a.Rollup
		}
	}
	w.t.Fatalf("%s has no answer", cluster)
	return nil
}

func keysNamed(mark string, n int) (out []string) {
	for k := range n {
		out = append(out, fmt.Sprintf("example.com/%s-%d", mark, k))
	}
	return out
}

// SHARD-10.10: what the clusters of a shard name together has a limit for topology keys and for label keys. At it, a cluster with few keys, one whose keys are named
// already, and one that names fewer than before are served as ever; one with many keys of its own is refused. Room comes back when others name fewer.
func TestKeysOfAllClustersTogetherAreBounded(t *testing.T) {
	for _, x := range []struct {
		kind            string
		op              demand.Operator
		each, few, most int
	}{{"topology", demand.Same, 64, fewTopologyKeys, allTopologyKeysMax}, {"label", demand.Exists, 1024, fewLabelKeys, allLabelKeysMax}} {
		t.Run(x.kind, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.RollupGuardOff = true }, slotsOf(2)...)
			named := func() int {
				labels, topology := w.c.world.Demand.KeyTotals()
				if x.op == demand.Same {
					return topology
				}
				return labels
			}
			say := func(cluster string, want Disposition, keys ...string) {
				t.Helper()
				w.connect(cluster)
				got := w.keyed(cluster, x.op, len(keys), keys...)
				if got.Disposition != want {
					t.Fatalf("%s with %d keys: %v %s %s", cluster, len(keys), got.Disposition, got.Reason, got.Message)
				}
				if said := fmt.Sprintf("%d of at most %d; name at most %d", x.most, x.most, x.few); want == DispositionRejected && (got.Reason != "too_large" || !strings.Contains(got.Message, said)) {
					t.Errorf("the refusal is %q", got.Message)
				}
			}
			for i := range x.most / x.each {
				say(fmt.Sprint("many-", i), DispositionAccepted, keysNamed(fmt.Sprint(i), x.each)...)
			}
			if n := named(); n != x.most {
				t.Fatalf("%d keys are named, want the most", n)
			}
			say("one more", DispositionRejected, keysNamed("more", x.few+1)...)
			say("few", DispositionAccepted, keysNamed("few", x.few)...)
			say("known", DispositionAccepted, keysNamed("0", x.each)...)
			say("many-1", DispositionAccepted, keysNamed("1", x.few+1)...) // fewer, and none that is new
			say("one more", DispositionAccepted, keysNamed("more", x.few+1)...)
			if n := named(); n > x.most {
				t.Errorf("%d keys are named", n)
			}
		})
	}
}

// Roll-ups that are being taken in at the same time count before their rows do.
func TestKeysOfStagedRollupsCount(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	for i := range allTopologyKeysMax/64 + 1 {
		w.connect(fmt.Sprint("many-", i))
	}
	w.run(Minute)
	for i := range allTopologyKeysMax/64 + 1 {
		rows := manyNeeds(demand.PartRows+1, fmt.Sprint("a", i))
		keys := keysNamed(fmt.Sprint(i), 64)
		for k := range keys {
			rows[k].Profile.Requirements = []demand.Requirement{{Key: keys[k], Op: demand.Same}}
			rows[k].Seal()
		}
		w.arrival++
		name := fmt.Sprint("many-", i)
		w.step(RollupArrived{Cluster: name, Session: w.sessions[name], Arrival: w.arrival, Rows: rows, Hash: name, RowCount: int64(len(rows)), LabelKeys: keys, TopologyKeys: keys})
	}
	w.run(Minute)
	if _, n := w.c.world.Demand.KeyTotals(); n != allTopologyKeysMax {
		t.Errorf("%d topology keys are named, want the most", n)
	}
	last := fmt.Sprint("many-", allTopologyKeysMax/64)
	if got := w.c.clusters.get(last); got.Disposition != DispositionRejected {
		t.Errorf("the one too many is %v", got.Disposition)
	}
}
