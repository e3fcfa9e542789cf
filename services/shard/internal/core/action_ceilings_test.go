package core

import (
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-19.11: whatever priority a cluster states, it takes no more machines than its ceiling, and no machine of others for what
// it may not have; its needs say which ceiling holds them back.
func TestClusterCeilings(t *testing.T) {
	for name, edit := range map[string]func(*Config){
		"machines": func(c *Config) { c.ClusterMachinesMax = 3 },
		"spend":    func(c *Config) { c.ClusterSpendMax = 3_500_000 },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, edit, append(hostsOf(3, "blue"), slotsOf(6)...)...)
			w.connect("blue")
			w.connect("red")
			w.run(Second)
			w.rollup("blue", needs(0, 12))
			w.run(Second)
			w.rollup("red", needs(2_147_483_647, 400))
			w.run(10 * Minute)
			serves := map[string]int{}
			for _, m := range w.provider {
				if m.State == inventory.Configured {
					serves[m.Cluster]++
				}
			}
			if serves["red"] != 3 || serves["blue"] != 3 {
				t.Errorf("machines serve %v; red may have three and take none of blue's", serves)
			}
			for _, b := range w.view.Needs {
				if r := &b.Rows[0]; b.Cluster == "red" && (!r.Unmet() || name == "machines" && r.Detail() == DetailLimit && !strings.Contains(r.Text(), "at most 3 machines")) {
					t.Errorf("red's need says %d, %q; unmet: %v", r.Detail(), r.Text(), r.Unmet())
				}
			}
		})
	}
}

// SHARD-19.11: a need that its cluster's ceiling holds back says so.
func TestCeilingIsNamed(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.ClusterMachinesMax = 2 }, slotsOf(6)...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 20))
	w.run(Minute)
	r := &w.view.Needs[0].Rows[0]
	if !r.Unmet() || r.Detail() != DetailLimit || !strings.Contains(r.Text(), "at most 2 machines (--cluster-machines-max)") {
		t.Errorf("the need says %d, %q; unmet: %v", r.Detail(), r.Text(), r.Unmet())
	}
}

// SHARD-19.11: preemptions keep to a rate, so that people have time to see what takes their machines.
func TestPreemptRate(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.PreemptRate = 2 }, hostsOf(10, "red")...)
	w.connect("red")
	w.connect("blue")
	w.run(Second)
	w.rollup("red", needs(0, 40))
	w.run(Second)
	w.rollup("blue", needs(1000, 40))
	w.run(10 * Second)
	if n := len(w.called(RPCDrain)); n != 2 {
		t.Errorf("%d Drains in ten seconds at 2 a minute", n)
	}
	w.run(2 * Minute)
	if n := len(w.called(RPCDrain)); n < 5 || n > 7 {
		t.Errorf("%d Drains after two minutes more", n)
	}
}
