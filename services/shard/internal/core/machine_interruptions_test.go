package core

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

func spots(n int) []inventory.Machine {
	out := slotsOf(n)
	for i := range out {
		out[i].CapacityType, out[i].Probability = inventory.Spot, 20_000
	}
	return out
}

// serving is the id of a machine that serves and is none of those.
func (w *world) serving(but ...string) string {
	w.t.Helper()
next:
	for id, m := range w.provider {
		if m.State != inventory.Configured {
			continue
		}
		for _, x := range but {
			if id == x {
				continue next
			}
		}
		return id
	}
	w.t.Fatal("no machine serves")
	return ""
}

// SHARD-13.19: a host that its provider announces to take back is replaced while it still serves, once; when it is gone nothing more is
// bought. It is recorded and counted, beside the hours that hosts of its pool were there (SHARD-23.7).
func TestAnAnnouncedHostIsReplacedBeforeItGoes(t *testing.T) {
	w := newWorld(t, nil, spots(6)...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(29 * Minute)
	lost := w.serving()
	w.provider[lost].Probability = certain
	w.run(Minute)
	if n := w.state(inventory.Configured); n != 2 {
		t.Fatalf("%d machines serve after the announcement, want the one that goes and its replacement", n)
	}
	if n := len(w.called(RPCCreate)); n != 2 {
		t.Errorf("%d Creates, want 2", n)
	}
	if n := len(w.called(RPCDrain)); n != 0 {
		t.Errorf("%d Drains that no order asked for", n)
	}
	gone := w.provider[lost]
	gone.State, gone.Failure, gone.LastError, gone.Cluster = inventory.Failed, failureHostLost, "taken back", ""
	w.run(5 * Minute)
	if n := len(w.called(RPCCreate)); n != 2 {
		t.Errorf("%d Creates after it was gone, want 2", n)
	}
	if n := len(w.recorded(RecordInterruption)); n != 1 {
		t.Errorf("%d records of it, want 1", n)
	}
	if n := w.count(MetricInterruptions, "p", "spot"); n != 1 {
		t.Errorf("counted %d times, want once: %v", n, w.samples)
	}
	seen, ok := w.c.SeenInterruptions(w.serving(lost))
	if !ok || seen.Taken != 1 || seen.Hours < 0.5 || seen.Hours > 0.7 {
		t.Errorf("seen %+v, %v; want 1 in 35 minutes of one machine", seen, ok)
	}
}

// SHARD-13.19: a host that goes without a word is counted as well, and one that was announced and stays counts again: its replacement
// is given back, and no host is lost for good to a provider that cries wolf.
func TestAnAnnouncementThatCameToNothing(t *testing.T) {
	w := newWorld(t, nil, spots(6)...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Minute)
	first := w.serving()
	w.provider[first].Probability = certain
	w.run(Minute)
	w.rollup("red", needs(0, 4))
	if n := w.state(inventory.Configured); n != 2 {
		t.Fatalf("%d machines serve, want 2", n)
	}
	for range 20 {
		w.run(Minute)
		w.rollup("red", needs(0, 4))
	}
	if n := w.state(inventory.Configured); n != 1 {
		t.Errorf("%d machines serve after the announcement has lapsed, want 1", n)
	}
	if n := len(w.called(RPCCreate)); n != 2 {
		t.Errorf("%d Creates, want 2", n)
	}
	silent := w.provider[w.serving()]
	before := w.count(MetricInterruptions, "p", "spot")
	silent.State, silent.Failure, silent.LastError, silent.Cluster, silent.Probability = inventory.Failed, failureHostLost, "gone", "", 20_000
	w.run(Minute)
	want := before + 1
	if silent.ID == first { // it was announced, and counted then
		want = before
	}
	if n := w.count(MetricInterruptions, "p", "spot"); n != want {
		t.Errorf("counted %d, want %d", n, want)
	}
}

// SHARD-13.19: a provider that declares 1.0 of every host is bought from once: only a probability that rises is an announcement.
func TestAProviderThatAlwaysDeclaresOneIsNoAnnouncement(t *testing.T) {
	machines := spots(6)
	w := newWorld(t, nil, machines...)
	w.connect("red")
	w.run(Second)
	for i := range machines {
		machines[i].Probability = certain
	}
	w.run(Minute)
	w.rollup("red", needs(0, 4))
	w.run(Hour)
	if n := len(w.called(RPCCreate)); n != 1 {
		t.Errorf("%d Creates, want 1", n)
	}
	if n := w.count(MetricInterruptions, "p", "spot"); n != 0 {
		t.Errorf("%d interruptions counted", n)
	}
}
