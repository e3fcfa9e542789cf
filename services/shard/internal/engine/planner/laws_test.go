package planner_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/explain"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/match"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/reference"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
	"pgregory.net/rapid"
)

// ENG-P14: without Same, without Pods that start together, and with sharing off, a Need of strictly lower priority that owns nothing, in a cluster with
// nothing left over, takes nothing from the others that are not held: as long as no promise is taken over, no residual of
// theirs grows in any dimension.
func TestALowerNeedTakesNothing(t *testing.T) {
	sh := shapes["mixed"]
	sh.plain, sh.same, sh.spread, sh.together = true, 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 14))
		f := drawFleet(r, sh)
		policy := *f.policy
		policy.Sharing = false
		f.policy = &policy
		w := f.build(straight)
		before := planner.Plan(engine.Input{World: w, Policy: f.policy})
		c := oneOf(r, f.clusters...)
		if leftOver(w, before, c.name) {
			return
		}
		row := drawRow(r, sh, &fleetCluster{}).row
		row.Group, row.Profile.Priority = "late", -1
		other := f.build(straight)
		if warning := (explain.AddRow{Cluster: c.name, Row: row}).Apply(other); warning != "" {
			return
		}
		after := planner.Plan(engine.Input{World: other, Policy: f.policy})
		if len(before.Promised)+len(after.Promised) > 0 {
			return
		}
		for _, b := range before.Blocks {
			for i := range b.Needs {
				if b.Verdicts[i].Hold != demand.NotHeld {
					continue
				}
				key := b.Needs[i].RowKey()
				v, ref := after.Verdict(b.Cluster, key)
				then := residualOf(other, after, ref, v)
				for name, milli := range then {
					if was := residualOf(w, before, engine.Ref{Block: block(before, b.Cluster), Row: int32(i)}, &b.Verdicts[i])[name]; milli > was {
						rt.Fatalf("%s of %s lacks %d of %s, and %d when a lower Need is there\n%s", b.Needs[i].RowID, b.Cluster, was, name, milli, f)
					}
				}
			}
		}
	})
}

// leftOver reports whether a cluster has machines, bound or in flight, that no Need of it claims.
func leftOver(w *engine.World, r *engine.Result, cluster string) bool {
	for i := range w.Inventory.All() {
		p, ok := w.Inventory.Promise(i)
		if w.Inventory.Cluster(i) != cluster && (!ok || p.Cluster != cluster) {
			continue
		}
		if _, claimed := r.Claim(cluster, i); !claimed {
			return true
		}
	}
	return false
}

func block(r *engine.Result, cluster string) int32 { _, at := r.Block(cluster); return at }

func residualOf(w *engine.World, r *engine.Result, ref engine.Ref, v *engine.Verdict) map[string]int64 {
	out := map[string]int64{}
	if v.Missing >= 0 {
		m := r.Blocks[ref.Block].Missing[v.Missing]
		for _, q := range m.Residual.Quantities(w.Space.Dimensions) {
			out[q.Name] = q.Milli
		}
	}
	return out
}

// ENG-P17, ENG-8.4: folding keeps what is asked for, folds nothing that no machine can hold, leaves rows without Same as
// they are, and has nothing to do when its own answer is asked for.
func TestFoldingKeepsTheDemand(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		w := f.build(straight)
		r := planner.Plan(engine.Input{World: w, Policy: f.policy})
		n := newViews(w).n
		for at, b := range r.Blocks {
			asked, planned := map[string]resource.Vector{}, map[string]resource.Vector{}
			folded := map[int32]bool{}
			for i := range b.Folded {
				x := &b.Folded[i]
				planned[x.Need.Form.Fingerprint] = planned[x.Need.Form.Fingerprint].Add(x.Need.Aggregate)
				if x.Need.Form.Same != nil || !strings.HasPrefix(x.Need.Group, "fold1-") {
					return fmt.Errorf("folded into %+v", x.Need)
				}
				for _, m := range x.Members {
					folded[m] = true
					if b.Needs[m].Form.Same == nil || b.Needs[m].Form.Stripped.Fingerprint != x.Need.Form.Fingerprint ||
						!b.Needs[m].Aggregate.Equal(&x.Need.MinUnit) || !n.Foldable(n.Clusters[at], &b.Needs[m]) {
						return fmt.Errorf("%s of %s must not be folded", b.Needs[m].RowID, b.Cluster)
					}
				}
			}
			for i := range b.Needs {
				fp := b.Needs[i].Form.Stripped.Fingerprint
				asked[fp] = asked[fp].Add(b.Needs[i].Aggregate)
				if !folded[int32(i)] {
					planned[fp] = planned[fp].Add(b.Needs[i].Aggregate)
				}
			}
			for fp, v := range asked {
				if p := planned[fp]; !p.Equal(&v) {
					return fmt.Errorf("%s of %s: asked %v, planned %v", fp, b.Cluster, v.Quantities(w.Space.Dimensions), p.Quantities(w.Space.Dimensions))
				}
			}
		}
		return foldsOnce(f, w, r)
	})
}

// foldsOnce asks for what folding answered.
func foldsOnce(f *fleet, w *engine.World, r *engine.Result) error {
	again := w.Clone()
	for _, b := range r.Blocks {
		var rows []demand.Row
		add := func(n *demand.Need) {
			rows = append(rows, demand.Row{Profile: n.Form.Profile, Group: n.Group, Aggregate: n.Aggregate.Quantities(w.Space.Dimensions),
				MinUnit: n.MinUnit.Quantities(w.Space.Dimensions), RowID: n.RowID})
		}
		for i := range b.Needs {
			if b.Verdicts[i].Fold < 0 {
				add(&b.Needs[i])
			}
		}
		for i := range b.Folded {
			add(&b.Folded[i].Need)
		}
		_, overhead := w.Demand.Save(b.Cluster)
		again.Demand.Replace(b.Cluster, rows, overhead, 1)
	}
	for _, b := range planner.Plan(engine.Input{World: again, Policy: f.policy}).Blocks {
		for i := range b.Folded {
			for _, m := range b.Folded[i].Members {
				if strings.HasPrefix(b.Needs[m].Group, "fold1-") {
					return fmt.Errorf("%s is folded twice", b.Needs[m].Group)
				}
			}
		}
	}
	return nil
}

// ENG-P19, ENG-7.4: effective cost is total and monotone with price 0, probability 0 and Pinned; Pinned times 0 is 0.
func TestEffectiveCost(t *testing.T) {
	prices := []int64{0, 1, 1_000_000, 1 << 40, 1<<63 - 1}
	chances := []int32{0, 1, 10_000, 1_000_000}
	for _, price := range prices {
		for at, chance := range chances {
			class := &inventory.Class{Price: price, Probability: chance}
			last := int64(-1)
			for b := demand.Zero; b <= demand.Pinned; b++ {
				cost := match.EffectiveCost(class, b)
				if cost < price || cost < last || chance == 0 && cost != price {
					t.Fatalf("price %d, chance %d, bucket %d: %d after %d", price, chance, b, cost, last)
				}
				last = cost
				if at > 0 && cost < match.EffectiveCost(&inventory.Class{Price: price, Probability: chances[at-1]}, b) {
					t.Fatalf("price %d, bucket %d: a larger chance is cheaper", price, b)
				}
			}
		}
	}
}

// ENG-P22, first half: at each sharing level, and with sharing off, the invariants hold and the engine gives the bytes of
// the literal one.
func TestEverySharingLevel(t *testing.T) {
	checkFleets(t, func(f *fleet) error {
		for _, level := range []int32{-1, 0, 500, 1000} {
			g, policy := *f, *f.policy
			g.clusters, policy.Sharing = slices.Clone(f.clusters), level >= 0
			for i := range g.clusters {
				g.clusters[i].facts.SharingPerMille = max(level, 0)
			}
			g.policy = &policy
			w := g.build(straight)
			in := engine.Input{World: w, Policy: g.policy}
			r := planner.Plan(in)
			if err := invariants(w, g.policy, r); err != nil {
				return fmt.Errorf("level %d: %w", level, err)
			}
			if d := difference(render(w, reference.Plan(in)), render(w, r)); d != "" {
				return fmt.Errorf("level %d: - naive, + engine\n%s", level, d)
			}
		}
		return nil
	})
}

// ENG-P22, second half, ENG-11.9, ENG-11.13: a fleet at rest drains nothing when the level goes down, and nothing when it
// goes up again. A machine without an attribution, and a cluster where a Need holds what is attributed to another, are the exceptions that the
// clause names. So is a machine that a cheaper purchase of its row makes excess (ENG-16.5).
func TestChangingTheLevelDrainsNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) { changeLevels(rt, rapid.Uint64().Draw(rt, "seed")) })
}

// ENG-P22: at level 0 a Need takes a machine of a lower priority by 12.5, whose row buys another; at level 1000 it has a share
// again, the row gets its own back, and what it bought is excess.
func TestRaisingTheLevelGivesBackWhatWasReattributed(t *testing.T) {
	if n := changeLevels(t, 0xcbf6897e); n != 1 {
		t.Errorf("%d machines drained in clusters that hold what is attributed to others, not 1", n)
	}
}

// ENG-16.5: a row that loses its share at level 500 buys a machine that is cheaper than one of its own and holds more, so that one is excess.
func TestAPurchaseForALostShareMayOutbidAMachine(t *testing.T) {
	if n := changeLevels(t, 0x26c0f55b); n != 0 {
		t.Errorf("%d machines drained beside it", n)
	}
}

// changeLevels returns how many machines were drained in clusters that are excepted.
func changeLevels(t rapid.TB, seed uint64) (excepted int) {
	l := drawLoop(seed)
	l.settle(t, 400, 3)
	levels, before := []int32{500, 0, 500, 1000}, int32(1000)
	for _, level := range levels[l.rng.IntN(2):] {
		borrows := map[string]bool{}
		for _, y := range l.clusters {
			borrows[y.name] = level > before && l.borrows(y.name)
			l.w.Demand.SetFacts(y.name, demand.Facts{Heard: true, SharingPerMille: level})
		}
		clear(l.drained)
		clear(l.prices)
		l.settle(t, 400, 20)
		for cluster, n := range l.drained {
			if !borrows[cluster] {
				t.Fatalf("%d drains in %s after the level became %d", n, cluster, level)
			}
			excepted += n
		}
		before = level
	}
	return excepted
}

// borrows reports whether a row of a cluster holds a machine that is attributed to another row of it.
func (l *loop) borrows(cluster string) bool {
	b, at := l.last.Block(cluster)
	return b != nil && slices.ContainsFunc(b.Claims, func(c engine.Claim) bool {
		s, ok := l.w.Inventory.Attribution(c.Machine)
		return ok && c.Kind == engine.ClaimBound && !l.last.Names(engine.Ref{Block: at, Row: c.Row}, s.Fingerprint, s.Group)
	})
}
