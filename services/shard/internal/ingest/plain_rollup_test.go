package ingest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
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
				value = rapid.SampledFrom([]string{"", "-1", "1.5", "1e3", "x", "7Ei", "99999999999999999999", "1Gi ", "Gi", "+.5", "5.", "100n", "1E", "1e1.5", "1e-3", strings.Repeat("9", 128), strings.Repeat("9", 129)}).Draw(t, "value")
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
		for range rapid.IntRange(0, 1).Draw(t, "preferences") {
			f := &pb.NodePreference{Weight: rapid.Int32Range(-1, 101).Draw(t, "weight")}
			for range rapid.SampledFrom([]int{0, 1, 16, 17}).Draw(t, "preferred") {
				f.Requirements = append(f.Requirements, &pb.NodeSelectorRequirement{Key: "k", Operator: 3, Comparison: &pb.LabelComparison{Bound: 4}})
			}
			n.Preferences = append(n.Preferences, f)
		}
		if odd("many preferences") {
			n.Preferences = slices.Repeat(n.Preferences, 9)
		}
		m.Needs = append(m.Needs, n)
	}
	for range rapid.IntRange(0, 1).Draw(t, "out of service") {
		m.OutOfService = append(m.OutOfService, &pb.MachineOutOfService{MachineId: text("machine", 1024), Detail: text("detail", 317), Reason: pb.MachineOutOfService_Reason(rapid.Int32Range(-1, 4).Draw(t, "reason"))})
	}
	for range rapid.IntRange(0, 1).Draw(t, "rooms") {
		m.NodeRooms = append(m.NodeRooms, &pb.NodeRoom{InstanceType: text("type", 253), Resources: amounts("room")})
	}
	if odd("many rooms") {
		m.NodeRooms = slices.Repeat([]*pb.NodeRoom{{InstanceType: "t"}}, rapid.IntRange(512, 513).Draw(t, "number of rooms"))
	}
	return m
}

// whole is what the parser and the rules say of a roll-up if they see all of it: the first that cannot be parsed, or all violations of the first reason.
func (g *Gate) whole(m *pb.ClusterCapacityNeeds) (all []core.Rejection) {
	parts := []part{{need: -1, amounts: []amounts{{"node_overhead", m.NodeOverhead}}}}
	for i, n := range m.Needs {
		parts = append(parts, part{need: int64(i), path: fmt.Sprintf("needs[%d]", i), amounts: []amounts{{"aggregate_resources", n.AggregateResources}, {"min_unit", n.MinUnit}}})
	}
	for i, n := range m.NodeRooms {
		parts = append(parts, part{need: -1, path: fmt.Sprintf("node_rooms[%d]", i), amounts: []amounts{{"resources", n.Resources}}})
	}
	for i := range parts {
		if r := parts[i].parses(); r != nil {
			return []core.Rejection{*r}
		}
	}
	var bad *protovalidate.ValidationError
	if !errors.As(g.rules.Validate(m), &bad) {
		return nil
	}
	for _, v := range bad.Violations {
		r := (&part{need: -1}).broken(&protovalidate.ValidationError{Violations: []*protovalidate.Violation{v}})
		_, _ = fmt.Sscanf(r.FieldPath, "needs[%d]", &r.NeedIndex)
		if len(all) > 0 && before(r, &all[0]) {
			all = nil
		}
		if len(all) == 0 || all[0].Reason == r.Reason {
			all = append(all, *r)
		}
	}
	return all
}

// SHARD-10.1, WIRE-3.9: a roll-up whose odd parts alone are checked is accepted, or refused with the same words, as if parser and rules had seen all of it.
func TestPlainPartsPassTheRules(t *testing.T) {
	g := newGate(t)
	seen := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		for range 20 {
			m := drawRollup(t)
			seen[len(oddParts(m)) == 0]++
			if got, want := g.inParts(m), g.whole(m); (got == nil) != (len(want) == 0) || got != nil && !slices.Contains(want, *got) {
				t.Fatalf("%v in parts: %+v; as a whole: %+v", m, got, want)
			}
			if odd := oddParts(m); len(odd) > 0 && g.inParts(m) == nil {
				t.Fatalf("%v: the rules see %d parts in vain", m, len(odd))
			}
		}
	})
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("plain or not: %v", seen)
	}
}

// counting counts what the rules see.
type counting struct {
	protovalidate.Validator
	seen int
}

func (c *counting) Validate(m proto.Message, o ...protovalidate.ValidationOption) error {
	c.seen++
	return c.Validator.Validate(m, o...)
}

// SHARD-10.11: however many parts of a roll-up are unusual, the rules see a few of them: 50,000 rows took 0.4 s of the worker that large roll-ups of all
// clusters share.
func TestRulesSeeFewParts(t *testing.T) {
	g := newGate(t)
	rules := &counting{Validator: g.rules}
	g.rules = rules
	for what, edit := range map[string]func(n *pb.CapacityNeed){
		"unusual quantities": func(n *pb.CapacityNeed) { n.AggregateResources = map[string]string{"cpu": "1.5"} },
		"long names":         func(n *pb.CapacityNeed) { n.RowId = strings.Repeat("x", 129) },
		"two Sames": func(n *pb.CapacityNeed) {
			n.Requirements = slices.Repeat([]*pb.NodeSelectorRequirement{{Key: "k", Operator: pb.NodeSelectorRequirement_OPERATOR_SAME}}, 2)
		},
		"long quantities": func(n *pb.CapacityNeed) { n.AggregateResources = map[string]string{"cpu": strings.Repeat("9", 129)} },
	} {
		m := &pb.ClusterCapacityNeeds{ClusterId: "red"}
		for range 10_000 {
			n := &pb.CapacityNeed{AggregateResources: map[string]string{"cpu": "1"}}
			edit(n)
			m.Needs = append(m.Needs, n)
		}
		rules.seen = 0
		if r := g.inParts(m); (r == nil) != (what == "unusual quantities") || rules.seen > 1 {
			t.Errorf("%s: %+v after %d parts", what, r, rules.seen)
		}
	}
}

// What the operator sends is plain, or nothing is gained.
func TestUsualRollupsArePlain(t *testing.T) {
	m := &pb.ClusterCapacityNeeds{ClusterId: "eu-1.prod", NodeOverhead: map[string]string{"cpu": "250m", "memory": "300Mi"}, Needs: []*pb.CapacityNeed{{
		AggregateResources: map[string]string{"cpu": "4", "memory": "16Gi"}, MinUnit: map[string]string{"cpu": "500m"}, Group: "g", RowId: "r",
		Requirements: []*pb.NodeSelectorRequirement{{Key: "zone", Operator: 1, Values: []string{"a"}}}, InterruptionPenaltyBucket: 3}}}
	m.Needs[0].Preferences = []*pb.NodePreference{{Weight: 1, Requirements: []*pb.NodeSelectorRequirement{{Key: "zone", Operator: 3, Comparison: &pb.LabelComparison{Bound: 4}}}}}
	m.OutOfService = []*pb.MachineOutOfService{{MachineId: "m1", Reason: pb.MachineOutOfService_REASON_TAINTED, Detail: "maintenance"}}
	m.NodeRooms = []*pb.NodeRoom{{InstanceType: "m5.large", Resources: map[string]string{"cpu": "1930m"}}}
	if len(oddParts(m)) > 0 {
		t.Error("not plain")
	}
}
