package workload

import (
	"fmt"
	"math/rand/v2"
)

// The shape of W-gangs(k).
const (
	gangClusters      = 20 // per k
	gangPlain         = 3  // rows per cluster
	gangSmall         = 95
	gangSmallSize     = 4
	gangGPU           = 32
	gangGPUSize       = 5
	gangPlainMachines = 20
	gangConfigured    = 5_000 // per k
	gangIdle          = 1_000
	gangSpeculative   = 12_000
)

// Gangs is W-gangs(k): k x 20 clusters, each with 3 plain needs, 95 gangs of 4 machines and 32 gangs of 5 GPU
// machines; per k 5,000 Configured, 1,000 Idle and 12,000 Speculative machines in 400 racks. Members take a whole
// machine. What is Configured is bound for whole gangs and plain rows; the other gangs are open, and a place in one
// rack exists for each.
func Gangs(k int, seed uint64) *World { return gangsOn(k, k, seed, true) }

// GangFlood is the demand of W-gangs(k) on the fleet of W-gangs(fleet): far more gangs than machines. GangFlood(300, 28)
// is 780,000 needs on 504,000 machines. Gangs that find no rack with room are open and cannot be met.
func GangFlood(k, fleet int, seed uint64) *World { return gangsOn(k, fleet, seed, false) }

func gangsOn(k, fleet int, seed uint64, all bool) *World {
	kinds := []Kind{kind("m", "amd64", 16, 4, 100), kind("g", "amd64", 96, 4, 700)}
	f := newFleet(fleet*(gangConfigured+gangIdle+gangSpeculative), seed, racksMax, kinds, []int{75, 25})
	for i := range f.State {
		f.State[i] = Speculative
	}
	counts := make([]int, k*gangClusters)
	for c := range counts {
		counts[c] = gangPlain + gangSmall + gangGPU
	}
	w := &World{Fleet: f, Demand: newDemand(counts), churn: Stream(seed, "churn")}
	g := &gangs{w: w, r: Stream(seed, "gangs/place"), toBind: fleet * gangConfigured, all: all, free: make([][2][]int32, f.Racks)}
	g.place()
	g.idle(fleet * gangIdle)
	return w
}

type gangs struct {
	w      *World
	r      *rand.Rand
	toBind int
	all    bool // every gang must find room
	full   [2]int
	free   [][2][]int32 // by rack and kind
}

func (g *gangs) place() {
	f, d := g.w.Fleet, g.w.Demand
	for _, i := range g.r.Perm(f.Len()) {
		rack := &g.free[f.Rack[i]]
		rack[f.Kind[i]] = append(rack[f.Kind[i]], int32(i))
	}
	order := g.r.Perm(d.Rows())
	// Plain rows first, then gangs in random order, bound as long as there is something to bind.
	for _, plain := range []bool{true, false} {
		for _, row := range order {
			c := d.ClusterOf(int32(row))
			n := row - int(d.First[c])
			switch {
			case plain != (n < gangPlain):
			case plain:
				d.combine(row, 73*n+g.r.IntN(2))
				g.fill(int32(row), Plain, g.anywhere(gangPlainMachines), 0)
			case n < gangPlain+gangSmall:
				g.gang(int32(row), 0, gangSmallSize)
			default:
				g.gang(int32(row), 1, gangGPUSize)
			}
		}
	}
}

// anywhere takes n machines of the plain kind from random racks; fewer when they are hard to find.
func (g *gangs) anywhere(n int) []int32 {
	var out []int32
	for tries := 0; len(out) < n && tries < 100*n; tries++ {
		rack := &g.free[g.r.IntN(len(g.free))][0]
		if len(*rack) > 0 {
			out = append(out, (*rack)[len(*rack)-1])
			*rack = (*rack)[:len(*rack)-1]
		}
	}
	return out
}

// gang takes size machines of one kind from one rack. Gangs of a cluster are of four classes, as jobs of a few teams are.
func (g *gangs) gang(row int32, kind, size int) {
	d := g.w.Demand
	d.combine(int(row), 50+31*g.r.IntN(4))
	d.Group[row] = fmt.Sprintf("job-%d", row)
	from := g.r.IntN(len(g.free))
	for n := g.full[kind]; n < len(g.free); n++ { // once no rack has room, none is looked at again
		rack := &g.free[(from+n)%len(g.free)][kind]
		if len(*rack) >= size {
			members := (*rack)[len(*rack)-size:]
			*rack = (*rack)[:len(*rack)-size]
			g.fill(row, Same, members, g.w.Fleet.Kinds[kind].GPU)
			return
		}
	}
	if g.all {
		panic(fmt.Sprintf("workload: no rack has room for gang %d: the shape of W-gangs does not hold", row))
	}
	g.full[kind] = len(g.free)
	g.ask(row, Same, kind, int64(size), g.w.Fleet.Kinds[kind].GPU)
}

// fill makes the row ask for the machines, and binds them while there is something to bind.
func (g *gangs) fill(row int32, form Form, machines []int32, gpus int64) {
	f := g.w.Fleet
	if len(machines) == 0 {
		g.ask(row, form, 0, gangPlainMachines, gpus)
		return
	}
	g.ask(row, form, int(f.Kind[machines[0]]), int64(len(machines)), gpus)
	if g.toBind < len(machines) {
		return
	}
	g.toBind -= len(machines)
	for _, i := range machines {
		f.State[i], f.Cluster[i], f.Need[i] = Configured, g.w.Demand.ClusterOf(row), row
	}
}

// ask makes the row want n units of 90 % of a machine of the kind.
func (g *gangs) ask(row int32, form Form, kind int, n, gpus int64) {
	d, k := g.w.Demand, g.w.Fleet.Kinds[kind]
	d.Form[row] = form
	d.UnitCPU[row], d.UnitMemory[row], d.UnitGPU[row] = k.CPU*9/10, k.Memory/10*9, gpus
	d.CPU[row], d.Memory[row], d.GPU[row] = n*d.UnitCPU[row], n*d.UnitMemory[row], n*gpus
}

// idle makes n of the machines that are not bound Idle.
func (g *gangs) idle(n int) {
	f := g.w.Fleet
	for _, i := range g.r.Perm(f.Len()) {
		if n > 0 && f.State[i] == Speculative {
			f.State[i] = Idle
			n--
		}
	}
}

const oneRowsMax = 1000 // rows of one cluster; a priority each makes them distinct

// One is W-one(n): n Idle machines of one kind and n needs of exactly one machine each, all new.
func One(n int, seed uint64) *World {
	f := newFleet(n, seed, min(racksMax, max(1, n/rackMin)), []Kind{kind("m", "amd64", 8, 4, 100)}, []int{1})
	for i := range f.State {
		f.State[i] = Idle
	}
	var counts []int
	for left := n; left > 0; left -= oneRowsMax {
		counts = append(counts, min(left, oneRowsMax))
	}
	d := newDemand(counts)
	for c := range d.Clusters() {
		for row := d.First[c]; row < d.First[c+1]; row++ {
			d.Priority[row], d.Interruption[row], d.Reclamation[row] = row-d.First[c], buckets[0], worth[0]
			d.CPU[row], d.UnitCPU[row] = f.Kinds[0].CPU, f.Kinds[0].CPU
			d.Memory[row], d.UnitMemory[row] = f.Kinds[0].Memory, f.Kinds[0].Memory
		}
	}
	return &World{Fleet: f, Demand: d, churn: Stream(seed, "churn")}
}
