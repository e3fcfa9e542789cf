package ingest

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// drawRollup draws a roll-up of which each part is good most of the time, and at the edge of what is allowed or past it now and then.
func drawRollup(t *rapid.T) *pb.ClusterCapacityNeeds {
	odd := func(name string) bool { return rapid.IntRange(0, 60).Draw(t, name) == 0 }
	text := func(name string, most int) string {
		if odd("edge of " + name) {
			return strings.Repeat("x", most+rapid.IntRange(0, 1).Draw(t, "over "+name))
		}
		return rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, name)
	}
	amounts := func(name string) map[string]string {
		m := map[string]string{}
		for range rapid.IntRange(0, 2).Draw(t, name) {
			value := "500m"
			if odd("amount") {
				value = rapid.SampledFrom([]string{"", "-1", "1.5", "1e3", "x", "7Ei", "99999999999999999999", "1Gi ", "Gi"}).Draw(t, "value")
			}
			m[text("resource", 317)] = value
		}
		return m
	}
	bucket := func(name string) pb.PenaltyBucket {
		if odd("edge of " + name) {
			return pb.PenaltyBucket(rapid.SampledFrom([]int32{-1, 27, 28, 1 << 30}).Draw(t, name))
		}
		return pb.PenaltyBucket(rapid.Int32Range(0, 27).Draw(t, name))
	}
	m := &pb.ClusterCapacityNeeds{ClusterId: "red", NodeOverhead: amounts("overhead")}
	if odd("id") {
		m.ClusterId = rapid.SampledFrom([]string{"", "-red", "red/blue:1@x", "r d", "röd", strings.Repeat("r", 253), strings.Repeat("r", 254), "red\n"}).Draw(t, "cluster")
	}
	for range rapid.IntRange(0, 3).Draw(t, "needs") {
		n := &pb.CapacityNeed{AggregateResources: amounts("aggregate"), MinUnit: amounts("unit"), Group: text("group", 4096), RowId: text("row", 128),
			InterruptionPenaltyBucket: bucket("interruption"), ReclamationPenaltyBucket: bucket("reclamation")}
		for range rapid.IntRange(0, 3).Draw(t, "requirements") {
			r := &pb.NodeSelectorRequirement{Key: text("key", 317), Operator: pb.NodeSelectorRequirement_Operator(rapid.Int32Range(1, 5).Draw(t, "operator"))}
			if odd("operator") {
				r.Operator = pb.NodeSelectorRequirement_Operator(rapid.SampledFrom([]int32{-1, 0, 6}).Draw(t, "bad operator"))
			}
			for range rapid.IntRange(0, 2).Draw(t, "values") {
				r.Values = append(r.Values, text("value", 253))
			}
			n.Requirements = append(n.Requirements, r)
		}
		for range rapid.IntRange(0, 1).Draw(t, "spread") {
			s := &pb.TopologySpread{TopologyKey: text("topology", 317), MaxSkew: rapid.Int32Range(-1, 2).Draw(t, "skew"), WhenUnsatisfiable: 1}
			if odd("spread") {
				s.WhenUnsatisfiable = pb.TopologySpread_WhenUnsatisfiable(rapid.Int32Range(-1, 3).Draw(t, "when"))
			}
			n.Spread = append(n.Spread, s)
		}
		for range rapid.IntRange(0, 1).Draw(t, "tolerations") {
			n.Tolerations = append(n.Tolerations, &pb.Toleration{Key: text("key", 317), Operator: text("operator", 16), Value: text("value", 253), Effect: text("effect", 32)})
		}
		if odd("many") {
			for range 65 {
				n.Requirements = append(n.Requirements, &pb.NodeSelectorRequirement{Operator: 1})
			}
		}
		m.Needs = append(m.Needs, n)
	}
	return m
}

// SHARD-10.1, WIRE-3.9: a roll-up that passes without parsing and rules is one that both pass.
func TestPlainRollupsPassTheRules(t *testing.T) {
	g := newGate(t)
	seen := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			m := drawRollup(t)
			is := plainRollup(m)
			seen[is]++
			if !is {
				continue
			}
			if err := g.rules.Validate(m); err != nil {
				t.Fatalf("%v is taken for plain: %v", m, err)
			}
			if r := parses(m); r != nil {
				t.Fatalf("%v is taken for plain: %+v", m, r)
			}
		}
	})
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("plain or not: %v", seen)
	}
}

// What the operator sends is plain, or nothing is gained.
func TestUsualRollupsArePlain(t *testing.T) {
	m := &pb.ClusterCapacityNeeds{ClusterId: "eu-1.prod", NodeOverhead: map[string]string{"cpu": "250m", "memory": "300Mi"}, Needs: []*pb.CapacityNeed{{
		AggregateResources: map[string]string{"cpu": "4", "memory": "16Gi"}, MinUnit: map[string]string{"cpu": "500m"}, Group: "g", RowId: "r",
		Requirements: []*pb.NodeSelectorRequirement{{Key: "zone", Operator: 1, Values: []string{"a"}}}, InterruptionPenaltyBucket: 3}}}
	if !plainRollup(m) {
		t.Error("not plain")
	}
}
