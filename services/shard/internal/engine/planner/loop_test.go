package planner_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"pgregory.net/rapid"
)

// loop is the closed-loop harness of ENG-26.2: Pods that are evicted, made again and bound, a packing scheduler in each
// cluster, machines that take their time in every state and finish in any order, losses, attributions that are missing, and
// several clusters on one pool. What the clusters ask for follows from their Pods alone, and the engine acts on it.
type loop struct {
	*stage
	rng          *rand.Rand
	clusters     []*yard
	pending      bool             // rows are made of pending Pods only, which ENG-4.11 forbids
	unattributed int              // per cent of bound machines whose attribution gets lost
	scatter      bool             // Pods of one priority are bound in any order, each to the emptiest node
	every        int              // engines and invariants are compared in each so many cycles
	bought       int              // Bootstraps of free Idle machines and Provisions
	drained      map[string]int   // by cluster: Reclaims of machines that carry an attribution, but for those that a cheaper purchase made excess (ENG-16.5)
	prices       map[string]int64 // by cluster and row: the cheapest machine acquired since drained was cleared
	broken       []inventory.Index
	actions      []engine.Action // of the last cycle
}

// yard is one cluster: its workloads and what runs where.
type yard struct {
	name  string
	loads []*load
	pods  map[inventory.Index][]*pod
	last  string // what was said last, so that nothing is sent twice
}

// load is a set of equal Pods.
type load struct {
	name     string
	profile  demand.Profile
	unit     amounts3
	replicas int
	gang     bool // one row of its own, all Pods under one value of rack
	pods     []*pod
}

type pod struct {
	of     *load
	placed bool
	on     inventory.Index
}

// amounts3 are cpu, mem and gpu in whole units.
type amounts3 [3]int64

var amountNames = [3]string{"cpu", "mem", "gpu"}

func (a amounts3) fits(room amounts3) bool {
	return a[0] <= room[0] && a[1] <= room[1] && a[2] <= room[2]
}

func (a amounts3) minus(b amounts3) amounts3 { return amounts3{a[0] - b[0], a[1] - b[1], a[2] - b[2]} }

func (a amounts3) quantities(times int) []resource.Quantity {
	var out []resource.Quantity
	for i, v := range a {
		if v > 0 {
			out = append(out, resource.Quantity{Name: amountNames[i], Milli: v * int64(times) * 1000})
		}
	}
	return out
}

func newLoop(seed uint64) *loop {
	l := &loop{stage: newStage(), rng: rand.New(rand.NewPCG(seed, 26)), every: 1, drained: map[string]int{}, prices: map[string]int64{}}
	many := *l.policy
	many.Workers, many.ParallelMin = 16, 1
	l.engines = append(l.engines, func(in engine.Input) *engine.Result { in.Policy = &many; return planner.Plan(in) })
	return l
}

// yard adds a cluster that has been heard.
func (l *loop) yard(name string) *yard {
	y := &yard{name: name, pods: map[inventory.Index][]*pod{}}
	l.clusters = append(l.clusters, y)
	l.w.Demand.SetFacts(name, demand.Facts{Heard: true, SharingPerMille: 1000})
	return y
}

// run adds a workload.
func (y *yard) run(name string, priority int32, unit amounts3, replicas int) *load {
	ld := &load{name: name, unit: unit, profile: demand.Profile{Priority: priority}}
	y.loads = append(y.loads, ld)
	ld.scale(y, replicas)
	return ld
}

// scale changes the number of Pods; the last ones go first.
func (ld *load) scale(y *yard, replicas int) {
	ld.replicas = replicas
	for len(ld.pods) < replicas {
		ld.pods = append(ld.pods, &pod{of: ld})
	}
	for _, p := range ld.pods[replicas:] {
		y.unplace(p)
	}
	ld.pods = ld.pods[:replicas]
}

func (y *yard) unplace(p *pod) {
	if p.placed {
		y.pods[p.on] = slices.DeleteFunc(y.pods[p.on], func(x *pod) bool { return x == p })
		p.placed = false
	}
}

// cycle is ten seconds: what is under way goes on, Pods are bound, clusters report, a plan is made and carried out.
func (l *loop) cycle(t rapid.TB) {
	l.stage.cycle++
	l.now += ledger.NominalCycle
	l.finishSome()
	for _, y := range l.clusters {
		l.evict(y)
		l.schedule(y)
		l.report(y)
	}
	l.w.Inventory.Advance(l.now)
	l.holds()
	if l.stage.cycle%int64(l.every) == 0 {
		l.plan(t)
	} else {
		l.last = l.planner.Plan(l.input())
	}
	l.parking.Observe(l.last, l.stage.cycle)
	l.actions = l.last.Actions
	for _, a := range l.last.Actions {
		if a.Cause == engine.CauseIdle || a.Cause == engine.CauseSpeculative {
			l.bought++
			n, cluster := l.last.Need(a.Need)
			key, price := cluster+n.Form.Fingerprint+n.Group, l.w.Inventory.Price(a.Machine)
			if old, has := l.prices[key]; !has || price < old {
				l.prices[key] = price
			}
		}
		if s, ok := l.w.Inventory.Attribution(a.Machine); ok && a.Kind == engine.Reclaim {
			cluster := l.w.Inventory.Cluster(a.Machine)
			if cheapest, bought := l.prices[cluster+s.Fingerprint+s.Group]; !bought || cheapest >= l.w.Inventory.Price(a.Machine) {
				l.drained[cluster]++
			}
		}
	}
	l.execute(l.last)
	l.loseAttributions()
}

// finishSome ends what is due, in any order, and some of it late.
func (l *loop) finishSome() {
	var list []inventory.Index
	for _, i := range slices.Sorted(maps.Keys(l.due)) {
		if l.due[i] <= l.now && (l.due[i] <= l.now-3*ledger.NominalCycle || l.rng.IntN(4) > 0) {
			list = append(list, i)
		}
	}
	l.rng.Shuffle(len(list), func(a, b int) { list[a], list[b] = list[b], list[a] })
	for _, i := range list {
		l.arrive(i)
	}
	for _, i := range l.broken { // repaired as a slot
		if l.w.Inventory.State(i) == inventory.Failed && l.rng.IntN(5) == 0 {
			l.w.Inventory.Move(i, inventory.Speculative, "")
		}
	}
	l.broken = slices.DeleteFunc(l.broken, func(i inventory.Index) bool { return l.w.Inventory.State(i) != inventory.Failed })
}

// loseAttributions makes some bound machines look as if another version had bound them.
func (l *loop) loseAttributions() {
	if l.unattributed == 0 {
		return
	}
	for _, a := range l.actions {
		if (a.Kind == engine.Bootstrap) && l.rng.IntN(100) < l.unattributed {
			l.w.Inventory.SetAttribution(a.Machine, nil)
		}
	}
}

// lose breaks a Configured machine of a cluster, if it has one.
func (l *loop) lose(y *yard) bool {
	nodes := l.nodes(y)
	if len(nodes) == 0 {
		return false
	}
	i := nodes[l.rng.IntN(len(nodes))]
	delete(l.due, i)
	l.w.Inventory.Move(i, inventory.Failed, "")
	l.w.Inventory.SetAttribution(i, nil)
	l.broken = append(l.broken, i)
	return true
}

// nodes lists the machines that have joined a cluster, by id.
func (l *loop) nodes(y *yard) []inventory.Index {
	var out []inventory.Index
	for i := range l.w.Inventory.All() {
		if l.w.Inventory.State(i) == inventory.Configured && l.w.Inventory.Cluster(i) == y.name {
			out = append(out, i)
		}
	}
	slices.SortFunc(out, func(a, b inventory.Index) int { return strings.Compare(l.w.Inventory.ID(a), l.w.Inventory.ID(b)) })
	return out
}

// evict makes the Pods again whose node is gone.
func (l *loop) evict(y *yard) {
	for _, i := range slices.Sorted(maps.Keys(y.pods)) {
		if l.w.Inventory.State(i) == inventory.Configured && l.w.Inventory.Cluster(i) == y.name {
			continue
		}
		for _, p := range y.pods[i] {
			p.placed = false
		}
		delete(y.pods, i)
	}
}

func (l *loop) room(i inventory.Index, y *yard) amounts3 {
	var room amounts3
	for _, q := range l.w.Inventory.Machine(i).Resources {
		if at := slices.Index(amountNames[:], q.Name); at >= 0 {
			room[at] = q.Milli / 1000
		}
	}
	for _, p := range y.pods[i] {
		room = room.minus(p.of.unit)
	}
	return room
}

// schedule binds Pods by priority, each to the fullest node that has room, or the emptiest; a Pod without one evicts Pods of lower priority.
func (l *loop) schedule(y *yard) {
	nodes := l.nodes(y)
	loads := slices.Clone(y.loads)
	if l.scatter {
		l.rng.Shuffle(len(loads), func(a, b int) { loads[a], loads[b] = loads[b], loads[a] })
	}
	slices.SortStableFunc(loads, func(a, b *load) int { return cmp.Compare(b.profile.Priority, a.profile.Priority) })
	for _, ld := range loads {
		allowed := l.allowed(y, ld, nodes)
		for _, p := range ld.pods {
			if p.placed {
				continue
			}
			at := -1
			var least int64
			for k, i := range allowed {
				if room := l.room(i, y); ld.unit.fits(room) && (at < 0 || room[0] < least != l.scatter) {
					at, least = k, room[0]
				}
			}
			if at >= 0 {
				p.placed, p.on = true, allowed[at]
				y.pods[allowed[at]] = append(y.pods[allowed[at]], p)
			} else if !l.preempt(y, p, allowed) {
				break
			}
		}
	}
}

// allowed lists the nodes that a load may use: those that match, and for a gang those of one rack.
func (l *loop) allowed(y *yard, ld *load, nodes []inventory.Index) []inventory.Index {
	need := &reference.Need{Need: demand.Need{Form: &demand.Form{Profile: ld.profile}}}
	var out []inventory.Index
	for _, i := range nodes {
		if (&reference.State{}).Match(need, &reference.Machine{Machine: l.w.Inventory.Machine(i)}) {
			out = append(out, i)
		}
	}
	if !ld.gang {
		return out
	}
	rack := func(i inventory.Index) string { m := l.w.Inventory.Machine(i); return explain.LabelOf(&m, "rack") }
	in := ""
	for _, p := range ld.pods {
		if p.placed {
			in = rack(p.on)
		}
	}
	for _, v := range []string{"r1", "r2", "r3", "r4", "r5", "r6"} {
		n := 0
		for _, i := range out {
			if rack(i) == v && ld.unit.fits(l.room(i, y)) {
				n++
			}
		}
		if in == "" && n >= ld.replicas {
			in = v
		}
	}
	return slices.DeleteFunc(out, func(i inventory.Index) bool { return in == "" || rack(i) != in })
}

// preempt evicts Pods of lower priority from one node, as kube-scheduler does.
func (l *loop) preempt(y *yard, p *pod, nodes []inventory.Index) bool {
	for _, i := range nodes {
		room := l.room(i, y)
		var out []*pod
		for _, o := range y.pods[i] {
			if o.of.profile.Priority < p.of.profile.Priority && !p.of.unit.fits(room) {
				room = room.minus(amounts3{-o.of.unit[0], -o.of.unit[1], -o.of.unit[2]})
				out = append(out, o)
			}
		}
		if p.of.unit.fits(room) {
			for _, o := range out {
				y.unplace(o)
			}
			p.placed, p.on = true, i
			y.pods[i] = append(y.pods[i], p)
			return true
		}
	}
	return false
}

// report sends the demand of a cluster if it is another one than last time.
func (l *loop) report(y *yard) {
	var rows []demand.Row
	for _, ld := range y.loads {
		n := ld.replicas
		if l.pending {
			n = 0
			for _, p := range ld.pods {
				if !p.placed {
					n++
				}
			}
		}
		if n == 0 {
			continue
		}
		row := demand.Row{Profile: ld.profile, RowID: y.name + "/" + ld.name, Group: ld.name, Aggregate: ld.unit.quantities(n), MinUnit: ld.unit.quantities(1)}
		if ld.gang {
			row.Profile.Requirements = append(slices.Clone(row.Profile.Requirements), demand.Requirement{Key: "rack", Op: demand.Same})
		}
		rows = append(rows, row)
	}
	said := fmt.Sprint(rows)
	if said == y.last {
		return
	}
	y.last = said
	l.w.Demand.Replace(y.name, rows, nil, l.now)
}

// moves are the actions that matter for churn: everything but the end of a hold.
func (l *loop) moves() []string {
	var out []string
	for _, a := range l.actions {
		if a.Kind != engine.Delete {
			v := l.last.View(l.w, a)
			out = append(out, fmt.Sprintf("cycle %d: %s %s of %s for %s (%s)", l.stage.cycle, v.Kind, v.Machine, v.Cluster, v.RowID, v.Cause))
		}
	}
	return out
}

// settle runs until nothing has happened for a while, at most most cycles, and then requires silence for quiet more
// (ENG-P12).
func (l *loop) settle(t rapid.TB, most, quiet int) {
	t.Helper()
	still := 0
	var recent []string
	for n := 0; still < 3+l.longest()+l.probe(); n++ {
		l.cycle(t)
		if len(l.moves())+len(l.due)+len(l.broken) == 0 {
			still++
			continue
		}
		still = 0
		recent = append(recent, l.moves()...)
		if n > most {
			t.Fatalf("not settled after %d cycles:\n%s", most, strings.Join(recent[max(0, len(recent)-20):], "\n"))
		}
	}
	for range quiet {
		l.cycle(t)
		if m := l.moves(); len(m) > 0 {
			t.Fatalf("settled, and then %v", m)
		}
	}
}

// probe is how long a parked gang may wait until it looks again (ENG-18.3). What it finds then may have come free since it was
// parked, so that nothing is settled before.
func (l *loop) probe() int {
	if l.last == nil {
		return 0
	}
	for _, b := range l.last.Blocks {
		if slices.ContainsFunc(b.Verdicts, func(v engine.Verdict) bool { return v.Hold == demand.HeldParked }) {
			return int(l.policy.ParkReprobe)
		}
	}
	return 0
}

func (l *loop) longest() int {
	n := 0
	for _, d := range l.dwell {
		n = max(n, d)
	}
	return n
}

// running counts the Pods that are bound, and all.
func (l *loop) running() (placed, all int) {
	for _, y := range l.clusters {
		for _, ld := range y.loads {
			for _, p := range ld.pods {
				all++
				if p.placed {
					placed++
				}
			}
		}
	}
	return placed, all
}

// slots adds machines that can be bought.
func (l *loop) slots(prefix string, n int, words string) {
	for i := range n {
		l.do(fmt.Sprintf("machine %s%03d speculative %s", prefix, i, words))
	}
}
