package planner_test

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/ledger"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"pgregory.net/rapid"
)

// stage is a world in which plans are carried out: what the core and the providers do, without failures.
type stage struct {
	*script
	now     int64
	cycle   int64
	dwell   map[string]int // cycles a create, configure, drain or delete takes; 0 is at once
	due     map[inventory.Index]int64
	last    *engine.Result
	planner *planner.Planner
	join    ledger.Join
	engines []func(engine.Input) *engine.Result // further engines that must give the same bytes
	moved   map[engine.Kind]int                 // actions carried out
}

func newStage() *stage {
	return &stage{script: newScript(), dwell: map[string]int{}, due: map[inventory.Index]int64{}, planner: planner.NewPlanner(),
		moved: map[engine.Kind]int{}, engines: []func(engine.Input) *engine.Result{planner.Plan}}
}

func (s *stage) input() engine.Input {
	return engine.Input{World: s.w, Cycle: s.cycle, Policy: s.policy}
}

// plan plans the present world with every engine and checks what must always hold.
func (s *stage) plan(t rapid.TB) *engine.Result {
	s.w.Inventory.Advance(s.now)
	s.last = s.planner.Plan(s.input())
	for _, e := range s.engines {
		sameBytes(t, s.w, s.last, e(s.input()))
	}
	if err := invariants(s.w, s.policy, s.last); err != nil {
		t.Fatal(err)
	}
	return s.last
}

// step is one cycle of 10 s: things finish, a plan is made and carried out. It returns the actions in words.
func (s *stage) step(t rapid.TB) []string {
	s.cycle++
	s.now += ledger.NominalCycle
	s.finish()
	s.holds()
	s.joins()
	r := s.plan(t)
	s.parking.Observe(r, s.cycle)
	var out []string
	for _, l := range s.show(r, true) {
		if !strings.HasSuffix(l, " short") {
			out = append(out, l)
		}
	}
	s.execute(r)
	return out
}

func (s *stage) holds() {
	for _, c := range s.w.Demand.Clusters() {
		s.w.Demand.SetHolds(c.Name, func(n *demand.Need) demand.Hold {
			for _, a := range s.names[n.RowKey()] {
				if r := s.rows[a]; r != nil && r.cluster == c.Name && r.hold != demand.NotHeld {
					return r.hold
				}
			}
			if s.parking.Parked(c.Name, n.RowKey(), s.policy) {
				return demand.HeldParked
			}
			return demand.NotHeld
		})
	}
}

// joins says what the shell remembers of Nodes that never joined, beside what the script says of it.
func (s *stage) joins() {
	for name, f := range s.facts {
		drained, failures := s.join.Counters(name, s.now, s.policy)
		f.JoinDrained, f.JoinFailures = f.JoinDrained+drained, f.JoinFailures+failures
		s.w.Demand.SetFacts(name, f)
	}
}

// run makes n cycles and says what was done in those that did something.
func (s *stage) run(t rapid.TB, n int) []string {
	var out []string
	quiet := 0
	for range n {
		did := s.step(t)
		if len(did) == 0 {
			quiet++
			continue
		}
		quiet = 0
		for _, d := range did {
			out = append(out, fmt.Sprintf("cycle %d: %s", s.cycle, d))
		}
	}
	return append(out, fmt.Sprintf("quiet for %d cycles: %s", quiet, s.summary(s.last)))
}

// execute starts every action of a plan.
func (s *stage) execute(r *engine.Result) {
	inv := s.w.Inventory
	for _, p := range r.Promised {
		inv.SetPromise(p.Machine, &p.To)
	}
	for _, a := range r.Actions {
		s.moved[a.Kind]++
		i := a.Machine
		switch a.Kind {
		case engine.Bootstrap:
			_, cluster := r.Need(a.Need)
			attribution := r.Attribution(a.Need)
			s.bind(i, cluster, attribution)
		case engine.Provision:
			p, _ := r.Promise(a, s.now, s.policy)
			inv.Move(i, inventory.Creating, "")
			inv.SetPromise(i, &p)
			s.start(i, "create")
		case engine.Preempt, engine.Reclaim:
			if p, ok := r.Promise(a, s.now, s.policy); ok {
				inv.SetPromise(i, &p)
			}
			if a.Cause == engine.CauseNotJoined {
				s.join.Drained(inv.Cluster(i), s.now)
				inv.Withhold(i, inventory.Withheld{Reason: inventory.WithheldNotJoined, Cluster: inv.Cluster(i), Until: s.now + s.policy.JoinRetryHold})
			}
			inv.Move(i, inventory.Draining, inv.Cluster(i))
			s.start(i, "drain")
		case engine.Delete:
			inv.Move(i, inventory.Deleting, "")
			s.start(i, "delete")
		}
	}
}

func (s *stage) bind(i inventory.Index, cluster string, attribution inventory.Attribution) {
	inv := s.w.Inventory
	inv.SetPromise(i, nil)
	inv.Move(i, inventory.Configuring, cluster)
	inv.SetAttribution(i, &attribution)
	inv.SetReadiness(i, inventory.NoReport)
	s.start(i, "configure")
}

func (s *stage) start(i inventory.Index, what string) {
	s.due[i] = s.now + int64(s.dwell[what])*ledger.NominalCycle
	if s.dwell[what] == 0 {
		s.arrive(i)
	}
}

// finish ends what is due, by id.
func (s *stage) finish() {
	var list []inventory.Index
	for i, at := range s.due {
		if at <= s.now {
			list = append(list, i)
		}
	}
	slices.SortFunc(list, func(a, b inventory.Index) int { return strings.Compare(s.w.Inventory.ID(a), s.w.Inventory.ID(b)) })
	for _, i := range list {
		s.arrive(i)
	}
}

func (s *stage) arrive(i inventory.Index) {
	inv := s.w.Inventory
	delete(s.due, i)
	switch inv.State(i) {
	case inventory.Creating, inventory.Draining:
		inv.Move(i, inventory.Idle, "")
		inv.SetAttribution(i, nil)
		inv.SetSince(i, s.now)
		if p, ok := inv.Promise(i); ok {
			if ref, ok := s.last.HandsOver(i, p); ok {
				s.bind(i, p.Cluster, s.last.Attribution(ref))
			} else {
				inv.SetPromise(i, nil)
			}
		}
	case inventory.Configuring:
		inv.Move(i, inventory.Configured, inv.Cluster(i))
		inv.SetSince(i, s.now)
	case inventory.Deleting:
		inv.Move(i, inventory.Speculative, "")
	}
}
