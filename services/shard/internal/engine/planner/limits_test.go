package planner_test

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
)

// ENG-3.8, ENG-6.2: what a kubelet and CSI drivers limit counts, stated by the provider or not; what a cluster has learnt of an instance type
// counts in the place of what the provider says, for that cluster alone; labels are compared as numbers.
func TestLimitsOfNodes(t *testing.T) {
	for name, c := range map[string]struct {
		world    string
		machines int // that are taken
		short    bool
	}{
		"the default of the kubelet's maxPods": {`
			need red/web cpu=50 pods=500 unit=cpu:100m,pods:1
			machines m1..m9 idle type=big cpu=64`, 5, false},
		"maxPods that the provider states": {`
			need red/web cpu=50 pods=500 unit=cpu:100m,pods:1
			machines m1..m9 idle type=big cpu=64 pods=250`, 2, false},
		"a row that counts by its sum": {`
			need red/web cpu=50 pods=500 unit=cpu:300m,pods:1
			machines m1..m9 idle type=big cpu=64`, 5, false},
		"Pods of DaemonSets": {`
			cluster red overhead=pods:10
			need red/web cpu=50 pods=500 unit=cpu:100m,pods:1
			machines m1..m9 idle type=big cpu=64`, 5, false},
		"Pods of very many DaemonSets": {`
			cluster red overhead=pods:11
			need red/web cpu=50 pods=500 unit=cpu:100m,pods:1
			machines m1..m9 idle type=big cpu=64`, 6, false},
		"maxPods as learnt": {`
			cluster red room=big:pods:50
			need red/web cpu=50 pods=500 unit=cpu:100m,pods:1
			machines m1..m9 idle type=big cpu=64`, 9, true},
		"learnt by another cluster": {`
			cluster blue room=big:pods:50
			need red/web cpu=50 pods=500 unit=cpu:100m,pods:1
			machines m1..m9 idle type=big cpu=64`, 5, false},
		"learnt of another type": {`
			cluster red room=small:pods:50
			need red/web cpu=50 pods=500 unit=cpu:100m,pods:1
			machines m1..m9 idle type=big cpu=64`, 5, false},
		"allocatable below what was offered": {`
			cluster red room=big:cpu:3920m
			need red/web cpu=8 unit=cpu:2
			machines m1..m9 idle type=big cpu=4`, 4, false},
		"allocatable above it": {`
			cluster red overhead=cpu:1 room=big:cpu:4
			need red/web cpu=8 unit=cpu:2
			machines m1..m9 idle type=big cpu=4`, 2, false},
		"volumes without a known limit": {`
			need red/web cpu=4 attachable-volumes-csi-x=40 unit=cpu:100m,attachable-volumes-csi-x:1
			machines m1..m9 idle type=big cpu=64`, 1, false},
		"volumes with a learnt limit": {`
			cluster red room=big:attachable-volumes-csi-x:15
			need red/web cpu=4 attachable-volumes-csi-x=40 unit=cpu:100m,attachable-volumes-csi-x:1
			machines m1..m9 idle type=big cpu=64`, 3, false},
		"volumes with a declared limit": {`
			need red/web cpu=4 attachable-volumes-csi-x=40 unit=cpu:100m,attachable-volumes-csi-x:1
			machines m1..m9 idle type=big cpu=64 attachable-volumes-csi-x=20`, 2, false},
		"greater than": {`
			need red/web cpu=4 unit=cpu:4 gt=gen:3
			machine m1 idle cpu=4 label.gen=3
			machine m2 idle cpu=4 label.gen=new
			machine m3 idle cpu=4
			machine m4 idle cpu=4 label.gen=12`, 1, false},
		"greater than what there is": {`
			need red/web cpu=4 unit=cpu:4 gt=gen:12
			machine m1 idle cpu=4 label.gen=12
			machine m2 idle cpu=4 label.gen=-13`, 0, true},
		"less than": {`
			need red/web cpu=8 unit=cpu:4 lt=gen:3
			machine m1 idle cpu=4 label.gen=-3
			machine m2 idle cpu=4 label.gen=2
			machine m3 idle cpu=4 label.gen=3`, 2, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScript()
			s.lines(c.world)
			r := planner.Plan(engine.Input{World: s.w})
			short := false
			for _, b := range r.Blocks {
				for _, v := range b.Verdicts {
					short = short || v.Status == engine.Short
				}
			}
			if len(r.Actions) != c.machines || short != c.short {
				t.Errorf("%d machines, short %v; want %d, %v: %v", len(r.Actions), short, c.machines, c.short, r.Actions)
			}
			sameBytes(t, s.w, r, reference.Plan(engine.Input{World: s.w}))
		})
	}
}

// ENG-3.8, ENG-13.1: what is learnt while the shard runs counts in the next plan, and is forgotten with it.
func TestLearningIsIncremental(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/web cpu=8 unit=cpu:2
		need blue/web cpu=8 unit=cpu:2
		machines m1..m9 idle type=big cpu=4`)
	p := planner.NewPlanner()
	for _, step := range []struct {
		line string
		want int
	}{{"cluster red", 4}, {"cluster red room=big:cpu:3900m", 6}, {"cluster blue room=big:cpu:3900m", 8}, {"cluster red room=twin:cpu:3900m", 6},
		{"cluster blue room=twin:cpu:1", 4}} {
		s.do(step.line)
		r := p.Plan(engine.Input{World: s.w})
		if len(r.Actions) != step.want {
			t.Errorf("%s: %d actions, want %d: %v", step.line, len(r.Actions), step.want, r.Actions)
		}
		sameBytes(t, s.w, r, reference.Plan(engine.Input{World: s.w}))
	}
}
