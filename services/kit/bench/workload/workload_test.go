package workload_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
)

// A changed generator, or a changed random package, starts a new history of results: these sums say so.
func TestGeneratorsArePinned(t *testing.T) {
	sums := map[string]string{}
	for name, sum := range map[string]func() string{
		"fleet/1k":         func() string { return workload.NewFleet(1_000, 1).Sum() },
		"fleet/50k":        func() string { return workload.NewFleet(50_000, 1).Sum() },
		"steady/1k":        func() string { return steady(1_000, 100, 20, 1).Sum() },
		"steady/50k":       func() string { return steady(50_000, 5_000, 500, 1).Sum() },
		"churn/50k":        func() string { w := steady(50_000, 5_000, 500, 1); w.Churn(0.01); w.Churn(0.01); return w.Sum() },
		"churn/1k":         func() string { w := steady(1_000, 100, 20, 1); w.Churn(0.1); w.Churn(0.1); return w.Sum() },
		"pages/1k":         func() string { return pagesSum(t, steady(1_000, 100, 20, 1)) },
		"pages/5k":         func() string { return pagesSum(t, steady(5_000, 500, 50, 1)) },
		"gangs/1":          func() string { return workload.Gangs(1, 1).Sum() },
		"gangs/3":          func() string { return workload.Gangs(3, 1).Sum() },
		"gangflood/6":      func() string { return workload.GangFlood(6, 1, 1).Sum() },
		"gangflood/12":     func() string { return workload.GangFlood(12, 2, 1).Sum() },
		"one/1k":           func() string { return workload.One(1_000, 1).Sum() },
		"one/50k":          func() string { return workload.One(50_000, 1).Sum() },
		"small/0":          func() string { return workload.Small(0, 1).Sum() },
		"small/999":        func() string { return workload.Small(999, 1).Sum() },
		"requests/1k":      func() string { return workload.NewRequests(1_000, 1).Sum() },
		"requests/25k":     func() string { return workload.NewRequests(25_000, 1).Sum() },
		"gangrequests/1k":  func() string { return workload.NewGangRequests(1_000, 1).Sum() },
		"gangrequests/25k": func() string { return workload.NewGangRequests(25_000, 1).Sum() },
		"sessions/100":     func() string { return workload.NewSessions(100, 1).Sum() },
		"sessions/1k":      func() string { return workload.NewSessions(1_000, 1).Sum() },
	} {
		sums[name] = sum()
		if again := sum(); again != sums[name] {
			t.Errorf("%s differs from run to run", name)
		}
	}
	var got []string
	for name, sum := range sums {
		got = append(got, name+" "+sum)
	}
	slices.Sort(got)
	if want := strings.TrimSpace(pinned); strings.Join(got, "\n") != want {
		t.Errorf("generators changed; if that is meant, results before and after cannot be compared:\n%s", strings.Join(got, "\n"))
	}
}

// pagesSum is the SHA-256 of what W-pages says, decoded: the bytes of a message are not promised to stay.
func pagesSum(t *testing.T, w *workload.World) string {
	t.Helper()
	sum := sha256.New()
	for _, page := range w.PageBytes(400) {
		var l pb.MachineList
		if err := proto.Unmarshal(page, &l); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(sum, len(l.Machines), l.More, l.Complete, l.Revision)
		for _, m := range l.Machines {
			fmt.Fprintln(sum, m.Id, int32(m.State), m.InstanceType, m.Zone, int32(m.CapacityType), m.PricePerHour, m.InterruptionProbability, m.Cluster,
				m.GetHost().GetProvider(), m.GetHost().GetRef(), m.Labels, m.GetResources().GetResources(), m.GetAllocatable().GetResources(), m.ShardMetadata) // fmt sorts maps
		}
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func steady(machines, needs, clusters int, seed uint64) *workload.World {
	return workload.Steady(workload.Size{Machines: machines, Needs: needs, Clusters: clusters}, seed)
}

// Another seed is another workload of the same shape.
func TestSeedMatters(t *testing.T) {
	if steady(1_000, 100, 20, 1).Sum() == steady(1_000, 100, 20, 2).Sum() {
		t.Error("two seeds, one workload")
	}
}

// W-fleet as the table has it.
func TestFleetShape(t *testing.T) {
	const n = 50_000
	f := workload.NewFleet(n, 1)
	if len(f.Kinds) != 40 || len(f.Zones) != 8 || f.Racks != 400 || f.Len() != n {
		t.Fatalf("%d kinds, %d zones, %d racks, %d machines", len(f.Kinds), len(f.Zones), f.Racks, f.Len())
	}
	states, capacities, ids, racks := map[uint8]int{}, map[uint8]int{}, map[string]bool{}, map[uint16]bool{}
	for i := range n {
		states[f.State[i]]++
		capacities[f.Capacity[i]]++
		ids[f.ID[i]] = true
		racks[f.Rack[i]] = true
		k := f.Kinds[f.Kind[i]]
		if k.VCPU < 2 || k.VCPU > 96 || len(f.ID[i]) != 24 {
			t.Fatalf("machine %d: %+v, id %q", i, k, f.ID[i])
		}
		spot := f.Capacity[i] == workload.Spot
		if p := f.Probability[i]; spot && (p < 5_000 || p > 80_000) || !spot && p != 0 {
			t.Fatalf("machine %d: capacity %d, probability %d", i, f.Capacity[i], p)
		}
		low, high := k.Price, k.Price*110/100
		if spot {
			low, high = low*35/100, high*35/100
		}
		if f.Price[i] < low || f.Price[i] > high {
			t.Fatalf("machine %d: price %d, want %d to %d", i, f.Price[i], low, high)
		}
	}
	if len(ids) != n || len(racks) != 400 || slices.IsSorted(f.ID) {
		t.Errorf("%d ids, %d racks, sorted %v", len(ids), len(racks), slices.IsSorted(f.ID))
	}
	share := func(what string, got int, want float64) {
		t.Helper()
		if math.Abs(float64(got)/n-want) > 0.001 {
			t.Errorf("%s: %d of %d, want %v", what, got, n, want)
		}
	}
	share("configured", states[workload.Configured], 0.30)
	share("idle", states[workload.Idle], 0.10)
	share("speculative", states[workload.Speculative], 0.58)
	share("in motion", states[workload.Creating]+states[workload.Configuring]+states[workload.Draining]+states[workload.Deleting], 0.02)
	for capacity, want := range map[uint8]float64{workload.BareMetal: 0.10, workload.Reserved: 0.20, workload.OnDemand: 0.45, workload.Spot: 0.25} {
		share(fmt.Sprint("capacity ", capacity), capacities[capacity], want)
	}
}

// W-demand as the table has it, and the promise of Steady: who shall be met is covered by machines that suit.
func TestSteadyShape(t *testing.T) {
	for _, size := range []workload.Size{{Machines: 50_000, Needs: 5_000, Clusters: 500}, {Machines: 1_000, Needs: 100, Clusters: 20}, {Machines: 200, Needs: 300, Clusters: 30}} {
		t.Run(fmt.Sprint(size), func(t *testing.T) { checkSteady(t, size) })
	}
}

func checkSteady(t *testing.T, size workload.Size) {
	w := workload.Steady(size, 1)
	d, f := w.Demand, w.Fleet
	if d.Rows() != size.Needs || d.Clusters() != size.Clusters {
		t.Fatalf("%d rows, %d clusters", d.Rows(), d.Clusters())
	}
	forms, keys := map[workload.Form]int{}, map[string]bool{}
	most := 0
	for c := range int32(d.Clusters()) {
		rows := int(d.First[c+1] - d.First[c])
		most = max(most, rows)
		if rows < 1 || rows > 200 {
			t.Errorf("cluster %d has %d rows", c, rows)
		}
		for row := d.First[c]; row < d.First[c+1]; row++ {
			if d.ClusterOf(row) != c {
				t.Fatalf("row %d is of cluster %d, not %d", row, d.ClusterOf(row), c)
			}
			forms[d.Form[row]]++
			key := fmt.Sprint(c, d.Form[row] == workload.Spread, d.Types[row], d.Priority[row], d.Interruption[row], d.Reclamation[row], d.Group[row])
			if keys[key] {
				t.Errorf("cluster %d has two rows of one profile and group", c)
			}
			keys[key] = true
			if d.UnitCPU[row] > d.CPU[row] || d.UnitMemory[row] > d.Memory[row] || d.UnitCPU[row] <= 0 || d.UnitMemory[row] <= 0 {
				t.Errorf("row %d: unit %d of %d, %d of %d", row, d.UnitCPU[row], d.CPU[row], d.UnitMemory[row], d.Memory[row])
			}
		}
	}
	if most <= 2*size.Needs/size.Clusters {
		t.Errorf("the largest cluster has %d rows: no Zipf", most)
	}
	for form, want := range map[workload.Form]float64{workload.Impossible: 0.05, workload.Plain: 0.70 * 0.95, workload.Typed: 0.15 * 0.95, workload.Spread: 0.10 * 0.95, workload.Same: 0.05 * 0.95} {
		if got := float64(forms[form]) / float64(size.Needs); math.Abs(got-want) > 0.03 {
			t.Errorf("form %d: share %.3f, want %.3f", form, got, want)
		}
	}
	checkCover(t, w)
	for i, state := range f.State {
		bound := state == workload.Configured || state == workload.Configuring
		if bound != (f.Need[i] >= 0) || (bound || state == workload.Draining) != (f.Cluster[i] >= 0) {
			t.Fatalf("machine %d in state %d has cluster %d, need %d", i, state, f.Cluster[i], f.Need[i])
		}
		if bound && f.Cluster[i] != d.ClusterOf(f.Need[i]) {
			t.Fatalf("machine %d is bound to another cluster than its row", i)
		}
	}
}

// checkCover adds up what each row was given.
func checkCover(t *testing.T, w *workload.World) {
	t.Helper()
	d, f := w.Demand, w.Fleet
	cpu, memory, count := make([]int64, d.Rows()), make([]int64, d.Rows()), make([]int, d.Rows())
	rack := make([]int, d.Rows())
	for i := range f.ID {
		row := f.Need[i]
		if row < 0 {
			continue
		}
		k := f.Kinds[f.Kind[i]]
		cpu[row], memory[row] = cpu[row]+k.CPU, memory[row]+k.Memory
		if k.CPU < d.UnitCPU[row] || k.Memory < d.UnitMemory[row] {
			t.Fatalf("machine %d does not host one unit of row %d", i, row)
		}
		if d.Types[row] != 0 && d.Types[row]>>f.Kind[i]&1 == 0 {
			t.Fatalf("machine %d has the wrong type for row %d", i, row)
		}
		if d.Form[row] == workload.Same && count[row] > 0 && rack[row] != int(f.Rack[i]) {
			t.Fatalf("row %d stands in two racks", row)
		}
		rack[row] = int(f.Rack[i])
		count[row]++
	}
	short := 0
	for row := range d.Rows() {
		if cpu[row] < d.CPU[row] || memory[row] < d.Memory[row] {
			short++
		}
		if d.Form[row] == workload.Impossible && count[row] > 0 {
			t.Errorf("impossible row %d has machines", row)
		}
	}
	bound := 0
	for _, n := range count {
		bound += n
	}
	if bound >= d.Rows() && float64(short) > 0.06*float64(d.Rows()) {
		t.Errorf("%d of %d rows are not covered, want 5 %%", short, d.Rows())
	}
}

// The cold form: hosts stay, bindings go.
func TestUnbind(t *testing.T) {
	w := steady(1_000, 100, 20, 1)
	w.Unbind()
	for i, state := range w.Fleet.State {
		if state == workload.Configured || w.Fleet.Cluster[i] >= 0 || w.Fleet.Need[i] >= 0 {
			t.Fatalf("machine %d is still bound", i)
		}
	}
}

// W-churn: as many clusters and machines as asked for, by 1 to 10 % around what was generated, forever.
func TestChurn(t *testing.T) {
	w := steady(10_000, 1_000, 200, 1)
	base := slices.Clone(w.Demand.CPU)
	for range 200 {
		before, states := slices.Clone(w.Demand.CPU), slices.Clone(w.Fleet.State)
		change := w.Churn(0.05)
		if len(change.Clusters) != 10 || len(change.Rows) != 10 {
			t.Fatalf("%d clusters, %d rows", len(change.Clusters), len(change.Rows))
		}
		changed := 0
		for row := range base {
			if before[row] != w.Demand.CPU[row] {
				changed++
				if !slices.Contains(change.Rows, int32(row)) {
					t.Fatalf("row %d changed unsaid", row)
				}
			}
			if now := float64(w.Demand.CPU[row]); w.Demand.CPU[row] > w.Demand.UnitCPU[row]+1 && math.Abs(now-float64(base[row])) > 0.1*float64(base[row])+1 {
				t.Fatalf("row %d drifted from %d to %v", row, base[row], now)
			}
		}
		if changed != 10 {
			t.Fatalf("%d rows changed", changed)
		}
		for i := range states {
			if moved := states[i] != w.Fleet.State[i]; moved != slices.Contains(change.Machines, int32(i)) {
				t.Fatalf("machine %d: moved %v, said otherwise", i, moved)
			}
			if states[i] == workload.Configured && w.Fleet.State[i] != workload.Configured {
				t.Fatalf("machine %d was unbound by churn", i)
			}
		}
		if len(change.Machines) > 50 {
			t.Fatalf("%d machines moved, want at most 50", len(change.Machines))
		}
	}
}

// W-gangs as the table has it.
func TestGangsShape(t *testing.T) {
	for _, k := range []int{1, 3} {
		w := workload.Gangs(k, 1)
		d, f := w.Demand, w.Fleet
		if d.Clusters() != 20*k || d.Rows() != 2_600*k || f.Len() != 18_000*k || f.Racks != 400 {
			t.Fatalf("%d clusters, %d rows, %d machines, %d racks", d.Clusters(), d.Rows(), f.Len(), f.Racks)
		}
		states := map[uint8]int{}
		for _, s := range f.State {
			states[s]++
		}
		// A gang is bound as a whole, so the last few of the 5,000 may stay unbound.
		if c := states[workload.Configured]; c > 5_000*k || c < 5_000*k-20 || states[workload.Idle] != 1_000*k {
			t.Errorf("k=%d: %v", k, states)
		}
		same := 0
		for row := range d.Rows() {
			if d.Form[row] == workload.Same {
				same++
				if d.Group[row] == "" {
					t.Errorf("gang %d has no name", row)
				}
			}
		}
		if same != 20*k*127 {
			t.Errorf("%d gangs", same)
		}
		checkBound(t, w)
	}
}

// The flood has more gangs than room; what is bound is bound rightly.
func TestGangFloodShape(t *testing.T) {
	w := workload.GangFlood(6, 1, 1)
	if w.Demand.Rows() != 15_600 || w.Fleet.Len() != 18_000 {
		t.Fatalf("%d rows, %d machines", w.Demand.Rows(), w.Fleet.Len())
	}
	for row := range w.Demand.Rows() {
		if w.Demand.CPU[row] <= 0 {
			t.Fatalf("row %d asks for nothing", row)
		}
	}
	configured := 0
	for _, s := range w.Fleet.State {
		if s == workload.Configured {
			configured++
		}
	}
	if configured < 4_900 {
		t.Errorf("%d machines are bound", configured)
	}
	checkBound(t, w)
}

func checkBound(t *testing.T, w *workload.World) {
	t.Helper()
	rack := map[int32]uint16{}
	for i, row := range w.Fleet.Need {
		if row < 0 || w.Demand.Form[row] != workload.Same {
			continue
		}
		if at, seen := rack[row]; seen && at != w.Fleet.Rack[i] {
			t.Fatalf("gang %d stands in two racks", row)
		}
		rack[row] = w.Fleet.Rack[i]
	}
}

// W-one: one machine each, no two rows of a cluster alike.
func TestOneShape(t *testing.T) {
	w := workload.One(2_500, 1)
	d := w.Demand
	if d.Rows() != 2_500 || w.Fleet.Len() != 2_500 || d.Clusters() != 3 {
		t.Fatalf("%d rows, %d machines, %d clusters", d.Rows(), w.Fleet.Len(), d.Clusters())
	}
	seen := map[string]bool{}
	for row := range int32(d.Rows()) {
		key := fmt.Sprint(d.ClusterOf(row), d.Priority[row])
		if seen[key] || d.CPU[row] != w.Fleet.Kinds[0].CPU || d.UnitCPU[row] != d.CPU[row] {
			t.Fatalf("row %d", row)
		}
		seen[key] = true
	}
}
