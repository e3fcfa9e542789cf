package core

import (
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// SHARD-6.7, 5.3: what a step of a cycle gives stands in the order in which it has to be done: what starts, then the words to
// operators about it, then what readers see.
func TestOrderInsideACycle(t *testing.T) {
	w := newWorld(t, nil, host("h1", inventory.Idle, ""), slot("m1"))
	var cycles, heard int
	last := int64(0)
	w.watch = func(effects []Effect) {
		if w.c.cycle.N == last {
			return
		}
		last = w.c.cycle.N
		started, words, shown := -1, -1, -1
		for i, x := range effects {
			switch x := x.(type) {
			case Record:
				if x.Type == RecordStarted {
					started = i
				}
			case SendHint, SendNeedStatus:
				if words < 0 {
					words = i
				}
			case *Publish:
				shown = i
			}
		}
		switch {
		case started >= 0 && words >= 0 && words < started:
			t.Errorf("cycle %d: operators hear at %d of what starts at %d", last, words, started)
		case shown >= 0 && (shown < started || shown < words):
			t.Errorf("cycle %d is shown at %d, before what it starts (%d) and tells (%d)", last, shown, started, words)
		case started >= 0 && shown >= 0:
			cycles++
		}
		if words >= 0 {
			heard++
		}
	}
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(1, 12))
	w.run(Minute)
	if cycles == 0 || heard == 0 {
		t.Errorf("%d cycles started something, %d sent something", cycles, heard)
	}
}

// SHARD-24.1: a machine that failed in its cluster, at a provider that keeps it so, is forgotten for a person who names the cluster:
// the cluster hears that it is released, and its need is served by another machine.
func TestFailedAndBoundMachineIsForgotten(t *testing.T) {
	w := newWorld(t, nil, append(hostsOf(1, "red"), slotsOf(1)...)...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Minute)
	var id string
	for _, m := range w.provider {
		if m.Cluster == "red" {
			id, m.State, m.LastError = m.ID, inventory.Failed, "the disk is broken"
		}
	}
	w.run(2 * Minute)
	var answers []AdminAnswer
	var released []string
	w.watch = func(effects []Effect) {
		for _, x := range effects {
			switch x := x.(type) {
			case AdminAnswer:
				answers = append(answers, x)
			case SendNodeState:
				if x.Released && x.Machine.ID == id {
					released = append(released, x.Cluster)
				}
			}
		}
	}
	ask := int64(0)
	order := func(cluster string, check bool) AdminAnswer {
		t.Helper()
		ask++
		w.step(AdminAsked{Ask: ask, Command: AdminForget, Machine: id, Cluster: cluster, Check: check})
		w.run(5 * Second)
		if len(answers) != int(ask) {
			t.Fatalf("%d answers to %d orders", len(answers), ask)
		}
		return answers[ask-1]
	}
	if a := order("", false); a.Code != CodeAborted || !strings.Contains(a.Text, "cluster red") {
		t.Errorf("without the cluster: %s %q", a.Code, a.Text)
	}
	if a := order("blue", false); a.Code != CodeAborted || !strings.Contains(a.Text, "not in blue") {
		t.Errorf("with another cluster: %s %q", a.Code, a.Text)
	}
	if a := order("red", true); a.Code != CodeOK || len(released) > 0 {
		t.Errorf("only checked: %s %q, released to %v", a.Code, a.Text, released)
	}
	a := order("red", false)
	if cost, _ := a.Answer.(ForgottenCost); a.Code != CodeOK || cost.PriceMicro <= 0 {
		t.Errorf("with the cluster: %s %q, cost %+v", a.Code, a.Text, a.Answer)
	}
	w.run(5 * Minute) // Lists go on showing it
	if _, known := w.c.world.Inventory.Find(id); known || len(released) != 1 {
		t.Errorf("known: %v, released to %v", known, released)
	}
	if n := w.bound("p"); n != 1 {
		t.Errorf("%d machines serve", n)
	}
}
