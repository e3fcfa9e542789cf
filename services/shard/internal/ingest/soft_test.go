package ingest

import (
	"slices"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// ENG-4.2: a soft spread is dropped before anything else, with a warning: the profile, and with it the fingerprint, is that of
// the row without it. A hard one stays.
func TestSoftSpreadsAreDropped(t *testing.T) {
	spread := func(when pb.TopologySpread_WhenUnsatisfiable) *pb.TopologySpread {
		return &pb.TopologySpread{TopologyKey: "topology.kubernetes.io/zone", MaxSkew: 1, WhenUnsatisfiable: when}
	}
	read := func(terms ...*pb.TopologySpread) core.RollupArrived {
		e := newGate(t).Rollup(&pb.ClusterCapacityNeeds{ClusterId: "red", Needs: []*pb.CapacityNeed{{
			AggregateResources: map[string]string{"cpu": "4"}, Spread: terms}}}, "red", 0, time.Time{})
		if e.Reject != nil || len(e.Rows) != 1 {
			t.Fatalf("%+v", e.Reject)
		}
		return e
	}
	hard := spread(pb.TopologySpread_WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE)
	soft := spread(pb.TopologySpread_WHEN_UNSATISFIABLE_SCHEDULE_ANYWAY)
	none, softOnly, one, both := read(), read(soft), read(hard), read(soft, hard)
	if got := softOnly.Rows[0]; got.Fingerprint != none.Rows[0].Fingerprint || len(got.Profile.Spread) != 0 {
		t.Errorf("a soft spread leaves %+v", got.Profile)
	}
	if got := both.Rows[0]; got.Fingerprint != one.Rows[0].Fingerprint || len(got.Profile.Spread) != 1 || got.Fingerprint == none.Rows[0].Fingerprint {
		t.Errorf("a hard and a soft spread leave %+v", got.Profile)
	}
	if !slices.ContainsFunc(softOnly.Warnings, func(w core.Warning) bool { return w.Rule == "soft_spread" }) {
		t.Errorf("warnings %+v", softOnly.Warnings)
	}
}

// ENG-4.12a, WIRE-14.1: the limit per host is part of the profile; a negative one is read as none, with a warning. A row without a limit
// has the fingerprint that it always had.
func TestLimitPerHost(t *testing.T) {
	read := func(limit int32) core.RollupArrived {
		return newGate(t).Rollup(&pb.ClusterCapacityNeeds{ClusterId: "red", Needs: []*pb.CapacityNeed{{
			AggregateResources: map[string]string{"cpu": "4"}, MinUnit: map[string]string{"cpu": "1"}, MaxPerHost: limit}}}, "red", 0, time.Time{})
	}
	none, one, two, negative := read(0), read(1), read(2), read(-1)
	if one.Rows[0].Profile.MaxPerHost != 1 || one.Rows[0].Fingerprint == two.Rows[0].Fingerprint || one.Rows[0].Fingerprint == none.Rows[0].Fingerprint {
		t.Errorf("limits are %+v and %+v", one.Rows[0], two.Rows[0])
	}
	if negative.Rows[0].Fingerprint != none.Rows[0].Fingerprint || !slices.ContainsFunc(negative.Warnings, func(w core.Warning) bool { return w.Rule == "max_per_host" }) {
		t.Errorf("a negative limit is %+v with %+v", negative.Rows[0], negative.Warnings)
	}
}
