package workload

import "fmt"

// Bounds of W-small, fit for brute force.
const (
	SmallMachinesMax = 9
	SmallNeedsMax    = 5
)

// Small is instance i of W-small: 1 to 9 machines of 3 kinds in 4 racks and zones, 1 to 5 needs of 1 to 3 clusters, all
// forms, machines in any state; bound ones are bound for any row, rightly or not.
func Small(i int, seed uint64) *World {
	r := Stream(seed, fmt.Sprintf("small/%d", i))
	kinds := []Kind{kind("c", "amd64", 2, 2, 90), kind("m", "amd64", 4, 4, 100), kind("g", "amd64", 16, 4, 700)}
	f := newFleet(1+r.IntN(SmallMachinesMax), r.Uint64(), 4, kinds, []int{4, 4, 1})
	counts := []int{1}
	for range r.IntN(SmallNeedsMax) {
		if len(counts) < 3 && r.IntN(2) == 0 {
			counts = append(counts, 1)
		} else {
			counts[r.IntN(len(counts))]++
		}
	}
	w := &World{Fleet: f, Demand: newDemand(counts), churn: Stream(r.Uint64(), "churn")}
	d := w.Demand
	first := r.IntN(combinations)
	for row := range d.Rows() {
		d.combine(row, (first+73*row)%combinations)
		d.Form[row] = [...]Form{Plain, Plain, Plain, Typed, Spread, Same}[r.IntN(6)]
		d.UnitCPU[row], d.UnitMemory[row] = 500<<r.IntN(4), 1<<30<<r.IntN(3)
		members := int64(1 + r.IntN(6))
		d.CPU[row], d.Memory[row] = members*d.UnitCPU[row], members*d.UnitMemory[row]
		switch d.Form[row] {
		case Typed:
			d.Types[row] = 1 + uint64(r.IntN(1<<len(kinds)-1))
			if d.Types[row] == 4 {
				d.UnitGPU[row], d.GPU[row] = 1, members
			}
		case Same:
			d.Group[row] = fmt.Sprintf("gang-%d", row)
		}
	}
	states := [...]uint8{Speculative, Speculative, Speculative, Idle, Idle, Configured, Configured, Configured, Creating, Configuring, Draining, Deleting}
	for m := range f.State {
		f.State[m] = states[r.IntN(len(states))]
		switch f.State[m] {
		case Configured, Configuring, Draining:
			row := int32(r.IntN(d.Rows()))
			f.Cluster[m], f.Need[m] = d.ClusterOf(row), row
		}
	}
	return w
}
