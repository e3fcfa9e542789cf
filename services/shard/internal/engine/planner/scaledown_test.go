package planner_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"pgregory.net/rapid"
)

// scaleDown is a fleet in a closed loop that settles, loses half of its demand, and settles again.
type scaleDown struct {
	clusters, slots int
	dwell           int    // cycles that a drain takes
	seed            uint64 // of demand and machines; 0 is that of the law
	order           uint64 // machines and clusters come in another order for each

	stage    *stage
	before   int // Configured machines
	moves    int // after demand fell
	net      int // Configured machines that are gone
	sequence string
}

// run plays it and keeps the SHA-256 of all plans.
func (x *scaleDown) run(t rapid.TB) *scaleDown {
	t.Helper()
	s := newStage()
	x.stage = s
	s.engines = nil
	s.dwell["drain"] = x.dwell
	r, order := rand.New(rand.NewPCG(50+x.seed, uint64(x.dwell))), rand.New(rand.NewPCG(x.order, 51))
	rows := x.draw(r)
	var machines []string
	for i := range x.slots {
		size := []string{"cpu=4 mem=8 price=1", "cpu=16 mem=32 price=3.9", "cpu=8 mem=16 price=2.1 spot risk=0.01"}[r.IntN(3)]
		machines = append(machines, fmt.Sprintf("machine m%05d %s speculative", i, size))
	}
	if x.order > 0 {
		order.Shuffle(len(machines), func(i, j int) { machines[i], machines[j] = machines[j], machines[i] })
	}
	x.send(rows, order)
	for _, line := range machines {
		s.do(line)
	}
	sum := sha256.New()
	quiet := func(most int) {
		for n, still := 0, 0; still < 4; n++ {
			if n > most {
				t.Fatalf("not settled after %d cycles", most)
			}
			s.now += ledger.NominalCycle
			s.finish()
			s.w.Inventory.Advance(s.now)
			s.last = s.planner.Plan(s.input())
			sum.Write([]byte(render(s.w, s.last)))
			s.execute(s.last)
			still++
			for _, a := range s.last.Actions {
				if a.Kind != engine.Delete {
					still = 0
				}
			}
		}
	}
	quiet(40)
	x.before = s.w.Inventory.Count(inventory.Configured)
	clear(s.moved)
	for _, list := range rows {
		for i := range list {
			for j := range list[i].Aggregate {
				list[i].Aggregate[j].Milli /= 2
			}
		}
	}
	x.send(rows, order)
	quiet(40)
	x.net = x.before - s.w.Inventory.Count(inventory.Configured)
	x.moves = s.moved[engine.Reclaim] + s.moved[engine.Preempt] + s.moved[engine.Bootstrap] + s.moved[engine.Provision]
	x.sequence = hex.EncodeToString(sum.Sum(nil))
	return x
}

// draw makes five rows for each cluster.
func (x *scaleDown) draw(r *rand.Rand) [][]demand.Row {
	out := make([][]demand.Row, x.clusters)
	for c := range out {
		x.stage.w.Demand.SetFacts(fmt.Sprintf("c%03d", c), demand.Facts{Heard: true, SharingPerMille: 1000})
		for k := range 5 {
			n := int64(4 * (1 + r.IntN(10)))
			out[c] = append(out[c], demand.Row{Profile: demand.Profile{Priority: int32(10 * (k % 3)), Interruption: demand.Bucket(r.IntN(8))},
				Group: fmt.Sprint("w", k), Aggregate: amounts3{4 * n, 8 * n}.quantities(1), MinUnit: amounts3{2, 4}.quantities(1)})
		}
	}
	return out
}

// send makes rows the demand of their clusters.
func (x *scaleDown) send(rows [][]demand.Row, order *rand.Rand) {
	turns := make([]int, len(rows))
	for i := range turns {
		turns[i] = i
	}
	if x.order > 0 {
		turns = order.Perm(len(rows))
	}
	for _, c := range turns {
		x.stage.w.Demand.Replace(fmt.Sprintf("c%03d", c), rows[c], nil, 1)
	}
}

// ENG-23.10, ENG-P12: demand of thousands of machines falls to a half: as many machines go as are not needed any more, and
// after that nothing moves, for a year.
func TestScaleDownIsNotAmplified(t *testing.T) {
	for _, dwell := range []int{0, 2} {
		x := (&scaleDown{clusters: 20, slots: times(1) * 4000, dwell: dwell}).run(t)
		if x.net < x.before/3 || 100*x.moves > 105*x.net {
			t.Fatalf("%d moves for a net change of %d of %d machines", x.moves, x.net, x.before)
		}
		t.Logf("dwell %d: %d moves for a net change of %d of %d machines", dwell, x.moves, x.net, x.before)
		x.stage.staysSettled(t, times(1000), ledger.NominalCycle)
		x.stage.staysSettled(t, 365*24, 3600*engine.Second) // the rest of a year: what is due within an hour is due at its end
	}
}

// staysSettled plans again and again. Idle machines that expire may go, and nothing else may happen.
func (s *stage) staysSettled(t *testing.T, plans int, step int64) {
	for range plans {
		s.now += step
		s.w.Inventory.Advance(s.now)
		for _, a := range s.planner.Plan(s.input()).Actions {
			if a.Kind != engine.Delete {
				t.Fatalf("settled, and then %+v", a)
			}
		}
	}
}

// ENG-23.8: the same fleet in another input order makes the same plans, from the first purchase to the last drain.
func TestInputOrderDecidesNothing(t *testing.T) {
	want := (&scaleDown{clusters: 6, slots: 1200}).run(t).sequence
	for order := range uint64(3) {
		if got := (&scaleDown{clusters: 6, slots: 1200, order: order}).run(t).sequence; got != want {
			t.Errorf("order %d gives other plans", order)
		}
	}
}
