package core

import (
	"strings"
	"testing"
)

// SHARD-25.5: before the coordinator has said what this shard owns, nobody is told that others hold the machines: that is no verdict on
// their demand, and an owner of Pods would read it as a lack of capacity.
func TestNobodyIsToldOfOthersBeforeTheFirstView(t *testing.T) {
	w := newWorld(t, func(c *Config) { c.Coordinated = true }, slotsOf(2)...)
	w.connect("red")
	w.run(Second)
	w.rollup("red", needs(0, 4))
	w.run(Second)
	said := sentOf[SendNeedStatus](w)
	if len(said) != 1 || said[0].Satisfied || said[0].Detail != DetailNewCluster || !strings.Contains(said[0].Text, "coordinator has not said yet") {
		t.Fatalf("said %+v", said)
	}
	w.step(CoordinatorReplied{Term: 1, UUID: "u", Instructions: []Instruction{{ID: "v1", Term: 1, SetView: &View{Term: 1, Index: 1, OnlyShard: true}}}})
	w.run(10 * Second)
	if said = sentOf[SendNeedStatus](w); !said[len(said)-1].Satisfied {
		t.Errorf("after the view: %+v", said[len(said)-1])
	}
}
