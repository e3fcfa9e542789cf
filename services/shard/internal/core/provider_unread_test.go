package core

import (
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// restarted is a shard that starts while provider p does not answer and q does. Cluster red has five machines at p, which nothing in the shard knows.
func restarted(t *testing.T) *world {
	var machines []inventory.Machine
	for _, id := range []string{"p1", "p2", "p3", "p4", "p5"} {
		machines = append(machines, host(id, inventory.Configured, "red"))
	}
	for _, id := range []string{"q1", "q2", "q3", "q4", "q5", "q6", "q7"} {
		q := slot(id)
		q.Provider, q.Price = "q", 2_000_000
		machines = append(machines, q)
	}
	w := newWorld(t, func(c *Config) { c.Providers = []string{"p", "q"} }, machines...)
	w.dead = map[string]bool{"p": true}
	w.connect("red")
	w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], LastOfFullSet: true})
	return w
}

// waiting says how many Pods of row0 find no Node.
func (w *world) waiting(pods int64) {
	x := UnplacedReported{Cluster: "red", Session: w.sessions["red"]}
	if pods > 0 {
		x.Rows = []UnplacedRow{{RowID: "row0", Pods: pods}}
	}
	w.step(x)
}

// SHARD-6.6, 23.8: a shard that starts while one of its providers does not answer says so of each need, buys nothing again that may run there, and
// still serves Pods that find no Node from the healthy provider, a machine at a time.
func TestAProviderThatDoesNotAnswerAtTheStart(t *testing.T) {
	w := restarted(t)
	w.rollup("red", needs(0, 28))
	w.run(Minute)
	row := w.view.Needs[0].Rows[0]
	if !row.Unmet() || row.Detail() != DetailProviderDown || !strings.Contains(row.Text(), "provider p has not answered since ") {
		t.Errorf("the row says %d, %q; unmet: %v", row.Detail(), row.Text(), row.Unmet())
	}
	if s := &w.view.Status; s.Short != 1 || s.OldestAge < 30*Second || s.Listed {
		t.Errorf("%d needs are unmet, the oldest for %d s; all providers are listed: %v", s.Short, s.OldestAge/Second, s.Listed)
	}
	if s := w.lastStatus("red", "row0"); s.Satisfied || s.Text != row.Text() {
		t.Errorf("the operator heard %+v, readers %q", s, row.Text())
	}
	if len(w.calls) != 0 {
		t.Errorf("no Pod is said to wait, and %v was asked for", w.calls)
	}

	w.waiting(8)
	for before, pods := range []int64{8, 4, 0} {
		w.run(Minute) // its Node does not come meanwhile
		want := min(before+1, 2)
		if n := w.bound("q"); n != want {
			t.Errorf("%d machines of q serve while %d Pods find no Node, want %d", n, pods, want)
		}
		for id, m := range w.provider {
			if m.Provider == "q" && m.State == inventory.Configured {
				w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], Machine: id, Node: "n-" + id, Present: true, Ready: true})
			}
		}
		w.waiting(max(pods-4, 0))
	}
	w.run(5 * Minute)
	if n := w.bound("q"); n != 2 {
		t.Errorf("%d machines of q serve although no Pod waits", n)
	}

	w.dead["p"] = false
	w.run(Minute)
	if row := w.view.Needs[0].Rows[0]; row.Unmet() || row.Detail() != 0 {
		t.Errorf("all 7 machines are known, and the row says %d, %q", row.Detail(), row.Text())
	}
	w.run(10 * Minute)
	if p, q := w.bound("p"), w.bound("q"); p != 5 || q != 2 {
		t.Errorf("in the end %d machines of p and %d of q serve", p, q)
	}
}

// SHARD-6.6: nothing is drained for a need while the machines of a provider are not known.
func TestNothingIsPreemptedBesideAnUnreadProvider(t *testing.T) {
	w := restarted(t)
	for _, id := range []string{"q1", "q2", "q3", "q4", "q5", "q6", "q7"} {
		m := host(id, inventory.Configured, "blue")
		m.Provider = "q"
		w.provider[id] = &m
	}
	w.connect("blue")
	w.rollup("blue", needs(0, 28))
	w.rollup("red", needs(1000, 8))
	w.waiting(8)
	w.run(5 * Minute)
	if len(w.calls) != 0 || len(sentOf[SendReclaim](w)) != 0 {
		t.Errorf("asked for %v, instructed %v", w.calls, sentOf[SendReclaim](w))
	}
	w.dead["p"] = false
	w.run(Minute)
	if n := w.bound("q"); n != 7 {
		t.Errorf("%d of 7 machines of blue are left although red has machines enough", n)
	}
}

// SHARD-23.8: needs are seen while no provider was ever listed.
func TestTheOnlyProviderDoesNotAnswerAtTheStart(t *testing.T) {
	w := newWorld(t, nil, slotsOf(2)...)
	w.dead = map[string]bool{"p": true}
	w.connect("red")
	w.rollup("red", needs(0, 4))
	w.run(Minute)
	if len(w.view.Needs) != 1 {
		t.Fatalf("%d clusters are seen", len(w.view.Needs))
	}
	if row := w.view.Needs[0].Rows[0]; !row.Unmet() || row.Detail() != DetailProviderDown {
		t.Errorf("the row says %d, %q; unmet: %v", row.Detail(), row.Text(), row.Unmet())
	}
	w.dead["p"] = false
	w.run(Minute)
	if row := w.view.Needs[0].Rows[0]; row.Unmet() {
		t.Errorf("the provider is back, and the row says %d, %q", row.Detail(), row.Text())
	}
}
