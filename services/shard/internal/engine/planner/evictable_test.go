package planner_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine/planner"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// COORD-12.13, ENG-15.9: what a Need of another shard may have drained, best first: claimed machines of heard clusters, below it in priority and in
// interruption penalty, by what serves on them now and by their attributions.
func TestEvictableMachines(t *testing.T) {
	s := newScript()
	s.lines(`
		need red/low cpu=8 priority=10
		need red/high cpu=4 priority=500
		need red/soon cpu=4 priority=10
		need blue/low cpu=4 priority=20
		need green/low cpu=4 priority=10
		machine m1 configured=red for=low cpu=4 price=2
		machine m2 configured=red for=low cpu=4 price=1
		machine m3 configured=red for=high cpu=4 price=1
		machine m4 configured=blue for=low cpu=4 price=1
		machine m5 configured=green for=low cpu=4 price=1
		machine m6 cpu=4 price=1
		machine m7 configuring=red for=soon cpu=4 price=1
	`)
	s.w.Demand.SetFacts("green", demand.Facts{SharingPerMille: 1000}) // not heard
	list := func(priority int32, interruption demand.Bucket) string {
		r := planner.Plan(engine.Input{World: s.w})
		var names []string
		for _, v := range planner.Evictable(s.w, nil, r, priority, interruption) {
			names = append(names, s.w.Inventory.ID(v.Machine))
			if v.Score != v.Terms.Sum() || v.Grace <= 0 {
				t.Errorf("%s: score %d, terms %+v, grace %d", names[len(names)-1], v.Score, v.Terms, v.Grace)
			}
		}
		return fmt.Sprint(names)
	}
	check := func(priority int32, interruption demand.Bucket, want string) {
		t.Helper()
		if got := list(priority, interruption); got != want {
			t.Errorf("at priority %d and penalty %d: %s, want %s", priority, interruption, got, want)
		}
	}
	penalty := demand.BucketOf(20)
	check(1000, penalty, "[m2 m1 m4 m3]")
	check(500, penalty, "[m2 m1 m4]") // not above
	check(11, penalty, "[m2 m1]")
	check(10, penalty, "[]")
	check(1000, demand.BucketOf(0), "[]") // no penalty is below that of the requester

	change := func(id string, attribution inventory.Attribution) {
		i, _ := s.w.Inventory.Find(id)
		s.w.Inventory.SetAttribution(i, &attribution)
	}
	k := s.w.Demand.Cluster("red").Needs
	low := slices.IndexFunc(k, func(n demand.Need) bool { return n.Form.Priority == 10 })
	change("m2", inventory.Attribution{Fingerprint: k[low].Form.Fingerprint, Priority: 600}) // it serves less than it was bought for
	check(500, penalty, "[m1 m4]")
	change("m2", inventory.Attribution{Fingerprint: k[low].Form.Fingerprint, Priority: 10, Interruption: 27})
	check(500, penalty, "[m1 m4]")
	i, _ := s.w.Inventory.Find("m1")
	s.w.Inventory.SetPromise(i, &inventory.Promise{Cluster: "blue", Expires: 1 << 62})
	check(500, penalty, "[m4]")
}
