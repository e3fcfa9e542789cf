package core

import (
	"fmt"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-13.18: the machine of a node that its cluster reports gone is asked for at once, and replaced if it is gone as well. A node that
// somebody deleted takes no machine with it.
func TestANodeThatIsGoneIsAskedAbout(t *testing.T) {
	for name, lost := range map[string]bool{"the machine is gone": true, "only the node is gone": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.ReconcileInterval = Minute }, host("h1", inventory.Configured, "red"), slot("m1"))
			w.connect("red")
			w.rollup("red", needs(0, 4))
			w.run(Second) // the machines are listed
			w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], Machine: "h1", Node: "n1", Present: true, Ready: true, LastOfFullSet: true})
			w.run(Second)
			if len(w.calls) != 0 {
				t.Fatalf("%v before anything happened", w.calls)
			}
			if lost {
				delete(w.provider, "h1")
			}
			w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], Machine: "h1", Node: "n1"})
			w.run(Second)
			if _, known := w.c.world.Inventory.Find("h1"); known == lost {
				t.Errorf("known after a second: %v", known)
			}
			if got := len(w.called(RPCCreate)); lost && got != 1 || !lost && got != 0 {
				t.Errorf("%d machines are created", got)
			}
		})
	}
}

// SHARD-13.18: where many nodes go at a time, so many Gets wait and no more; the rest is left to the next List.
func TestManyNodesThatAreGoneAreAListsBusiness(t *testing.T) {
	const nodes = getConcurrency + nodeGoneGetsMax + 50
	var hosts []inventory.Machine
	for i := range nodes {
		hosts = append(hosts, host(fmt.Sprintf("h%03d", i), inventory.Configured, "red"))
	}
	w := newWorld(t, func(c *Config) { c.ReconcileInterval = Minute }, hosts...)
	w.connect("red")
	w.rollup("red", needs(0, 4*nodes))
	w.run(Second) // the machines are listed
	report := func(present bool) {
		for i := range nodes {
			w.step(NodeReported{Cluster: "red", Session: w.sessions["red"], Machine: hosts[i].ID, Node: hosts[i].ID, Present: present, Ready: present})
		}
	}
	report(true)
	w.run(Second)
	clear(w.provider)
	report(false)
	if p := w.c.providers[0]; p.Gets+len(p.asked) > getConcurrency+nodeGoneGetsMax {
		t.Errorf("%d Gets run and %d wait", p.Gets, len(p.asked))
	}
	w.run(Second)
	if left := w.c.world.Inventory.Len(); left == 0 || left == nodes {
		t.Errorf("%d of %d machines are known before the next List", left, nodes)
	}
	w.run(5 * Minute) // the guard of 13.11 takes three Lists
	if left := w.c.world.Inventory.Len(); left != 0 {
		t.Errorf("%d machines are known for ever", left)
	}
}
