package ingest

import (
	"slices"
	"strings"
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

// ENG-7.4a, WIRE-14.1: preferences are part of the profile, in canonical form; one that says nothing is left out, with a warning, and a row without any
// has the fingerprint that it always had.
func TestPreferencesAreRead(t *testing.T) {
	read := func(list ...*pb.NodePreference) core.RollupArrived {
		e := newGate(t).Rollup(&pb.ClusterCapacityNeeds{ClusterId: "red", Needs: []*pb.CapacityNeed{{
			AggregateResources: map[string]string{"cpu": "4"}, Preferences: list}}}, "red", 0, time.Time{})
		if e.Reject != nil || len(e.Rows) != 1 {
			t.Fatalf("%+v", e.Reject)
		}
		return e
	}
	of := func(op pb.NodeSelectorRequirement_Operator, weight int32) *pb.NodePreference {
		return &pb.NodePreference{Weight: weight, Requirements: []*pb.NodeSelectorRequirement{{Key: "disk", Operator: op}}}
	}
	none, one, two := read(), read(of(pb.NodeSelectorRequirement_OPERATOR_EXISTS, 7)), read(of(pb.NodeSelectorRequirement_OPERATOR_EXISTS, 70))
	if p := one.Rows[0].Profile.Preferences; len(p) != 1 || p[0].Weight != 7 || p[0].Requirements[0].Key != "disk" || one.Rows[0].Fingerprint == none.Rows[0].Fingerprint ||
		one.Rows[0].Fingerprint == two.Rows[0].Fingerprint ||
		slices.ContainsFunc(one.Warnings, func(w core.Warning) bool { return strings.HasPrefix(w.Rule, "preference") }) {
		t.Errorf("%+v, %v", one.Rows[0], one.Warnings)
	}
	for _, nothing := range []*pb.NodePreference{{Weight: 1}, of(pb.NodeSelectorRequirement_OPERATOR_SAME, 1)} {
		e := read(nothing)
		if e.Rows[0].Fingerprint != none.Rows[0].Fingerprint || !slices.ContainsFunc(e.Warnings, func(w core.Warning) bool { return w.Rule == "preference" }) {
			t.Errorf("%v is %+v with %+v", nothing, e.Rows[0], e.Warnings)
		}
	}
	heavy := read(of(pb.NodeSelectorRequirement_OPERATOR_EXISTS, 700))
	if heavy.Rows[0].Profile.Preferences[0].Weight != 100 || !slices.ContainsFunc(heavy.Warnings, func(w core.Warning) bool { return w.Rule == "preference_weight" }) {
		t.Errorf("%+v with %+v", heavy.Rows[0], heavy.Warnings)
	}
	if e := newGate(t).Rollup(&pb.ClusterCapacityNeeds{ClusterId: "red", Needs: []*pb.CapacityNeed{{Preferences: make([]*pb.NodePreference, 9)}}}, "red", 0, time.Time{}); e.Reject == nil {
		t.Error("nine preferences are taken")
	}
}
