package replica

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// COORD-21.24, 13.10, 15.11: after a restore elsewhere, a replica of the lost group with its old disk meets one with an
// empty disk that has not joined anything yet. Together they would be a majority of the lost group; they must not form it.
func TestALostGroupIsNotFormedWithAnEmptyReplica(t *testing.T) {
	r := three(t)
	r.commit(addShard("shard-0"))
	r.agree()
	for _, id := range []string{"node-0", "node-1", "node-2"} {
		r.stop(id)
	}
	r.dirs["node-2"] = "" // its disk is lost, or emptied as the guide says
	old, empty := r.start("node-1", nil), r.start("node-2", nil)
	refused := func() float64 {
		return testutil.ToFloat64(empty.config.Metrics.Handshakes.WithLabelValues("no-group"))
	}
	eventually(t, "the old replica is turned away, or leads", func() bool { return refused() >= 4 || old.Leadership() != nil })
	if old.Leadership() != nil {
		t.Fatal("the lost group lives again beside the restored one")
	}
	if empty.UUID() != "" || len(empty.Servers()) != 0 || empty.HasState() {
		t.Fatalf("the empty replica took something from the lost group: %q, %v", empty.UUID(), empty.Servers())
	}
}

// COORD-13.8, 15.13: a voter that lost its disk also lost what it voted for and what it acknowledged. It is a non-voter
// until it has caught up, so that it cannot help an old log to win.
func TestAVoterWithoutItsDiskDoesNotVoteBeforeItCaughtUp(t *testing.T) {
	r := three(t)
	r.commit(addShard("shard-0"))
	lost := "node-2"
	if r.leader().NodeID() == lost {
		lost = "node-1"
	}
	r.stop(lost)
	r.dirs[lost] = ""
	n := r.start(lost, nil)
	suffrage, err := r.leader().Join(t.Context(), joinRequest(n))
	if err != nil || suffrage != "nonvoter" {
		t.Fatalf("%q, %v", suffrage, err)
	}
	r.join(lost)
	r.agree()
}
