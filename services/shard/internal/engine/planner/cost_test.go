package planner_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
)

// market9 is a small world in which everything can be tried: at most 9 free machines and 5 Needs.
type market9 struct {
	s     *script
	needs int
}

func drawMarket(seed uint64) *market9 {
	r := rand.New(rand.NewPCG(seed, 239))
	m := &market9{s: newScript(), needs: 1 + r.IntN(5)}
	kinds := []struct {
		name          string
		cpu, mem, gpu int64
		price         float64
	}{{"small", 4, 8, 0, 1}, {"wide", 8, 8, 0, 1.7}, {"mid", 8, 16, 0, 2}, {"large", 16, 32, 0, 3.8}, {"device", 4, 8, 1, 4}}
	for i := range 3 + r.IntN(7) {
		k := kinds[r.IntN(len(kinds))]
		line := fmt.Sprintf("machine m%d type=%s cpu=%d mem=%d price=%.3f speculative", i, k.name, k.cpu, k.mem, k.price*(0.6+0.8*r.Float64()))
		if k.gpu > 0 {
			line += fmt.Sprintf(" gpu=%d", k.gpu)
		}
		if r.IntN(3) == 0 {
			line += fmt.Sprintf(" spot risk=%.3f", 0.001*float64(1+r.IntN(60)))
		}
		m.s.do(line)
	}
	m.s.do("cluster red sharing=0")
	for i := range m.needs {
		n := int64(1 + r.IntN(6))
		line := fmt.Sprintf("need red/n%d cpu=%d mem=%d unit=cpu:%d,mem:%d priority=%d interruption=%d", i, 2*n, 2*n*int64(1+r.IntN(2)), 1+r.IntN(2), 1+r.IntN(2),
			10*r.IntN(3), []int{1, 3, 6, 10}[r.IntN(4)])
		if r.IntN(2) == 0 { // Pods that are all alike, together as large as the others (ENG-4.12)
			k, cpu := int64(1+r.IntN(4)), int64(1+r.IntN(3))
			mem := cpu * int64(1+r.IntN(2))
			line = fmt.Sprintf("need red/n%d cpu=%d mem=%d unit=cpu:%d,mem:%d priority=%d interruption=%d", i, k*cpu, k*mem, cpu, mem,
				10*r.IntN(3), []int{1, 3, 6, 10}[r.IntN(4)])
		}
		switch r.IntN(6) {
		case 0:
			line += " gpu=1"
		case 1:
			line += " in=type:mid,large,wide"
		}
		m.s.do(line)
	}
	return m
}

// world9 is what brute force needs to know.
type world9 struct {
	view *views
	free []*reference.Machine
	want []*reference.Need // in allocation order
	took [][]*reference.Machine
	left []bool // short
}

func (m *market9) solve(policy *engine.Policy) *world9 {
	w := m.s.w
	w.Inventory.Advance(1)
	r := planner.Plan(engine.Input{World: w, Policy: policy})
	o := &world9{view: newViews(w)}
	o.free = append(o.free, o.view.n.Machines...)
	for i := range r.Blocks[0].Needs {
		d := o.view.need(r, engine.Ref{Block: 0, Row: int32(i)})
		o.want = append(o.want, d)
		var took []*reference.Machine
		for _, c := range r.Blocks[0].Claims {
			if c.Row == int32(i) {
				took = append(took, o.view.by[c.Machine])
			}
		}
		o.took = append(o.took, took)
		o.left = append(o.left, r.Blocks[0].Verdicts[i].Status == engine.Short)
	}
	return o
}

// price is the cost of ENG-23.9.
func (o *world9) price(d *reference.Need, m *reference.Machine) int64 { return o.view.n.Cost(d, m) }

// covers reports whether a set of machines leaves d no shorter than the set that the plan gave it.
func (o *world9) covers(d *reference.Need, mask int, took []*reference.Machine) (bool, int64) {
	rest, was, cost := d.Need.Aggregate, d.Need.Aggregate, int64(0)
	for _, m := range took {
		was = was.Sub(o.view.n.Yields(d, m))
	}
	for i, m := range o.free {
		if mask&(1<<i) == 0 {
			continue
		}
		if !o.view.n.Usable(d, m) {
			return false, 0
		}
		rest = rest.Sub(o.view.n.Yields(d, m))
		cost += o.price(d, m)
	}
	for i := range rest.Len() {
		if rest.Val(i) > was.Get(rest.Dim(i)) {
			return false, 0
		}
	}
	return true, cost
}

// quantile of ratios in ten-thousandths.
func quantile(list []int64, perMille int) int64 {
	slices.Sort(list)
	return list[min(len(list)-1, len(list)*perMille/1000)]
}

// ratio is a ÷ b in ten-thousandths; of two costs of nothing it is 1.
func ratio(a, b int64) int64 {
	if b == 0 {
		if a == 0 {
			return 10_000
		}
		return 1 << 40
	}
	return a * 10_000 / b
}

// ENG-23.9a, ENG-13.8: each Need's cover against the cheapest cover of the machines it could choose from.
func TestCoversAreCheap(t *testing.T) { report(t, "cover", coverCosts(0, times(1000))) }

// coverCosts are the costs of covers over the cheapest, in ten-thousandths, of n instances from one on.
func coverCosts(from uint64, n int) (ratios []int64) {
	policy := engine.DefaultPolicy()
	policy.ExchangeTries = 0
	for seed := from; seed < from+uint64(n); seed++ {
		o := drawMarket(seed).solve(policy)
		gone := 0 // taken by Needs before
		for i, d := range o.want {
			mine, cost := 0, int64(0)
			for k, m := range o.free {
				if slices.Contains(o.took[i], m) {
					mine |= 1 << k
					cost += o.price(d, m)
				}
			}
			if !o.left[i] && mine != 0 {
				best := int64(-1)
				for mask := range 1 << len(o.free) {
					if mask&gone != 0 {
						continue
					}
					if ok, c := o.covers(d, mask, o.took[i]); ok && (best < 0 || c < best) {
						best = c
					}
				}
				ratios = append(ratios, ratio(cost, best))
			}
			gone |= mine
		}
	}
	return ratios
}

// ENG-23.9b, ENG-13.10: the whole plan against the cheapest plan that leaves no Need shorter: gated where the plan covers
// everybody, and measured where somebody is short.
func TestPlansAreCheap(t *testing.T) {
	ratios, short, err := planCosts(0, times(1000))
	if err != nil {
		t.Fatal(err)
	}
	report(t, "plan", ratios)
	t.Logf("with short Needs: %d instances, median %.4f, p99 %.4f", len(short), float64(quantile(short, 500))/1e4, float64(quantile(short, 990))/1e4)
}

// planCosts are the costs of plans over the cheapest that leave no Need shorter, in ten-thousandths: n that cover everybody,
// and those met on the way in which somebody is short.
func planCosts(from uint64, n int) (ratios, short []int64, err error) {
	for seed := from; len(ratios) < n; seed++ {
		o := drawMarket(seed).solve(nil)
		cost := int64(0)
		full := 1<<len(o.free) - 1
		// best[mask] is the least cost of the Needs so far that take exactly the machines of mask.
		best := make([]int64, full+1)
		for mask := range best {
			best[mask] = -1
		}
		best[0] = 0
		for i, d := range o.want {
			for _, m := range o.took[i] {
				cost += o.price(d, m)
			}
			type option struct {
				mask int
				cost int64
			}
			var options []option
			for mask := range full + 1 {
				if ok, c := o.covers(d, mask, o.took[i]); ok {
					options = append(options, option{mask, c})
				}
			}
			next := make([]int64, full+1)
			for mask := range next {
				next[mask] = -1
			}
			for mask, c := range best {
				if c < 0 {
					continue
				}
				for _, x := range options {
					if mask&x.mask == 0 && (next[mask|x.mask] < 0 || c+x.cost < next[mask|x.mask]) {
						next[mask|x.mask] = c + x.cost
					}
				}
			}
			best = next
		}
		least := int64(-1)
		for _, c := range best {
			if c >= 0 && (least < 0 || c < least) {
				least = c
			}
		}
		if least < 0 {
			return nil, nil, fmt.Errorf("seed %d: brute force does not find the plan itself", seed)
		}
		switch {
		case cost+least == 0:
		case slices.Contains(o.left, true):
			short = append(short, ratio(cost, least))
		default:
			ratios = append(ratios, ratio(cost, least))
		}
	}
	return ratios, short, nil
}

func report(t *testing.T, what string, ratios []int64) {
	t.Helper()
	median, p99, worst := quantile(ratios, 500), quantile(ratios, 990), ratios[len(ratios)-1]
	optimal := 0
	for _, r := range ratios {
		if r < 10_000 {
			t.Errorf("%s: cheaper than the cheapest", what)
		}
		if r == 10_000 {
			optimal++
		}
	}
	t.Logf("%s: %d instances, median %.4f, p99 %.4f, worst %.4f, %.1f%% optimal", what, len(ratios), float64(median)/1e4, float64(p99)/1e4,
		float64(worst)/1e4, 100*float64(optimal)/float64(len(ratios)))
	if median != 10_000 || p99 > 10_500 {
		t.Errorf("%s: median %d, p99 %d ten-thousandths; want 10000 and at most 10500", what, median, p99)
	}
}
