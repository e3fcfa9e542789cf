package core

import (
	"fmt"
	"strings"
	"testing"
)

// SHARD-25.5: before the coordinator has said what this shard owns, no cluster hears that others hold the machines: that is no verdict on
// their demand, and an owner of Pods would read it as a lack of capacity.
func TestNoClusterHearsOfOthersBeforeTheFirstView(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Coordinated = true }, slotsOf(2)...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Second)
	said := sentOf[SendNeedStatus](w)
	if len(said) != 1 || said[0].Satisfied || said[0].Detail != DetailNewCluster || !strings.Contains(said[0].Text, "coordinator has not yet assigned machines to this shard") {
		t.Fatalf("said %+v", said)
	}
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: &View{Term: 1, Index: 1, OnlyShard: true}}}})
	w.run(10 * Second)
	if said = sentOf[SendNeedStatus](w); !said[len(said)-1].Satisfied {
		t.Errorf("after the view: %+v", said[len(said)-1])
	}
}

// COORD-9.10: without a view a shard waits for its coordinator, unless it may be alone after a while: then it owns all machines
// of its provider but those that another shard's name stands on, and the first view decides.
func TestShardWithoutAViewIsAloneAfterAWhile(t *testing.T) {
	for _, after := range []int64{0, 2 * Minute} {
		t.Run(fmt.Sprint(after/Second), func(t *testing.T) {
			w := newWorld(t, func(c *Config) { c.Coordinated, c.AloneAfter = true, after }, slotsOf(4)...)
			w.connect("red")
			w.run(Second)
			w.rollup("red", needs(0, 4))
			w.run(110 * Second)
			if n := len(w.called(RPCCreate)); n != 0 {
				t.Fatalf("%d Creates before anybody said what is whose", n)
			}
			w.run(Minute)
			if n := len(w.called(RPCCreate)); n != 0 != (after > 0) {
				t.Fatalf("%d Creates after three minutes", n)
			}
			w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: &View{Term: 1, Index: 1, PartitionKeys: []string{labelZone},
				ForeignOwned: []DomainRef{{labelZone, "a"}}}}}})
			before := len(w.called(RPCCreate))
			w.rollup("red", needs(0, 8))
			w.run(Minute)
			if n := len(w.called(RPCCreate)); n != before {
				t.Errorf("%d Creates after the view gave everything to another shard", n-before)
			}
		})
	}
	w := newWorld(t, func(c *Config) { c.Coordinated, c.AloneAfter = true, Minute }, slotsOf(2)...)
	w.connect("red")
	w.rollup("red", needs(0, 4))
	w.step(CoordinatorReplied{Term: 1, UUID: "u"}) // it lives, and has yet to decide
	w.run(10 * Minute)
	if n := len(w.called(RPCCreate)); n != 0 {
		t.Errorf("%d Creates although the coordinator has answered", n)
	}
}
