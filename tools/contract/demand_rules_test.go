package contract_test

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

func in(key string, values ...string) *v1.NodeSelectorRequirement {
	return &v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorRequirement_OPERATOR_IN, Values: values}
}

func same(key string) *v1.NodeSelectorRequirement {
	return &v1.NodeSelectorRequirement{Key: key, Operator: v1.NodeSelectorRequirement_OPERATOR_SAME}
}

// rollup is a conforming roll-up of two needs; tests change the second one.
func rollup() *v1.ClusterCapacityNeeds {
	need := func() *v1.CapacityNeed {
		return &v1.CapacityNeed{
			Requirements:              []*v1.NodeSelectorRequirement{in("node.kubernetes.io/instance-type", "m6i.large"), same("topology.kubernetes.io/zone")},
			AggregateResources:        map[string]string{"cpu": "3500m", "memory": "12Gi"},
			MinUnit:                   map[string]string{"cpu": "500m", "memory": "1Gi"},
			Priority:                  1000,
			Group:                     "ml/trainer\x00rank",
			InterruptionPenaltyBucket: v1.PenaltyBucket_PENALTY_BUCKET_64,
			Spread: []*v1.TopologySpread{{TopologyKey: "topology.kubernetes.io/zone", MaxSkew: 1,
				WhenUnsatisfiable: v1.TopologySpread_WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE}},
		}
	}
	return &v1.ClusterCapacityNeeds{ClusterId: "eks:eu-west-1/payments@blue", TimestampUnixNanos: 1, Needs: []*v1.CapacityNeed{need(), need()}}
}

// WIRE scenario 2, 3.8, 3.9: each hard rule is broken where it says, by path and rule, with the index of the need.
func TestRollupHardRules(t *testing.T) {
	v := validator(t)
	if found, _ := violations(t, v, rollup()); found != nil {
		t.Fatalf("the conforming roll-up is refused: %q", found)
	}
	for _, c := range []struct {
		what   string
		change func(r *v1.ClusterCapacityNeeds, n *v1.CapacityNeed)
		want   string
	}{
		{"bucket 28", func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.InterruptionPenaltyBucket = 28 }, "needs[1].interruption_penalty_bucket: enum.defined_only"},
		{"bucket -1", func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.ReclamationPenaltyBucket = -1 }, "needs[1].reclamation_penalty_bucket: enum.defined_only"},
		{"operator 0", func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.Requirements[0].Operator = 0 }, "needs[1].requirements[0].operator: enum.not_in"},
		{"operator 99", func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.Requirements[0].Operator = 99 }, "needs[1].requirements[0].operator: enum.defined_only"},
		{"quantity 12x", func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.AggregateResources["cpu"] = "12x" }, `needs[1].aggregate_resources["cpu"]: string.pattern`},
		{"empty quantity", func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.MinUnit["cpu"] = "" }, `needs[1].min_unit["cpu"]: string.pattern`},
		{"overhead quantity", func(r *v1.ClusterCapacityNeeds, _ *v1.CapacityNeed) { r.NodeOverhead = map[string]string{"cpu": "x"} }, `node_overhead["cpu"]: string.pattern`},
		{"two Same", func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) {
			n.Requirements = append(n.Requirements, same("rack"))
		}, "needs[1]: need.single_same"},
		{"empty cluster id", func(r *v1.ClusterCapacityNeeds, _ *v1.CapacityNeed) { r.ClusterId = "" }, "cluster_id: string.pattern"},
		{"cluster id with a space", func(r *v1.ClusterCapacityNeeds, _ *v1.CapacityNeed) { r.ClusterId = "a b" }, "cluster_id: string.pattern"},
		{"spread mode 7", func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.Spread[0].WhenUnsatisfiable = 7 }, "needs[1].spread[0].when_unsatisfiable: enum.defined_only"},
		{"65 requirements", func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) {
			n.Requirements = slices.Repeat([]*v1.NodeSelectorRequirement{in("k", "v")}, 65)
		}, "needs[1].requirements: repeated.max_items"},
		{"17 spreads", func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) {
			n.Spread = slices.Repeat([]*v1.TopologySpread{{TopologyKey: "z", MaxSkew: 1}}, 17)
		}, "needs[1].spread: repeated.max_items"},
		{"long key", func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.Requirements[0].Key = strings.Repeat("k", 318) }, "needs[1].requirements[0].key: string.max_bytes"},
		{"long value", func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) {
			n.Requirements[0].Values[0] = strings.Repeat("v", 254)
		}, "needs[1].requirements[0].values[0]: string.max_bytes"},
		{"long group", func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.Group = strings.Repeat("g", 4097) }, "needs[1].group: string.max_bytes"},
	} {
		r := rollup()
		c.change(r, r.Needs[1])
		if found, _ := violations(t, v, r); !slices.Equal(found, []string{c.want}) {
			t.Errorf("%s: %q, want %q alone", c.what, found, c.want)
		}
	}
}

// WIRE scenario 3, WIRE-3.2, 3.3: nothing that a conforming peer, or a user through it, can cause is a hard violation.
func TestRollupSoftRulesPass(t *testing.T) {
	v := validator(t)
	for what, change := range map[string]func(r *v1.ClusterCapacityNeeds, n *v1.CapacityNeed){
		"bucket 0":                 func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.InterruptionPenaltyBucket = 0 },
		"bucket 27":                func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.ReclamationPenaltyBucket = 27 },
		"empty resource key":       func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.AggregateResources[""] = "1" },
		"empty requirement key":    func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.Requirements[0].Key = "" },
		"In without values":        func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.Requirements[0].Values = nil },
		"negative quantity":        func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.AggregateResources["cpu"] = "-1" },
		"fractional exponent":      func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.AggregateResources["cpu"] = "1e1.5" },
		"huge quantity":            func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.AggregateResources["cpu"] = "9e99" },
		"min_unit above aggregate": func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.MinUnit["cpu"] = "64" },
		"min_unit outside it":      func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.MinUnit["nvidia.com/gpu"] = "8" },
		"skew 0":                   func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.Spread[0].MaxSkew = 0 },
		"mode 0":                   func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.Spread[0].WhenUnsatisfiable = 0 },
		"empty topology key":       func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.Spread[0].TopologyKey = "" },
		"group without Same":       func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.Requirements = n.Requirements[:1] },
		"Same without group":       func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.Group = "" },
		"two equal rows":           func(r *v1.ClusterCapacityNeeds, _ *v1.CapacityNeed) { r.Needs = append(r.Needs, r.Needs[0]) },
		"many rows":                func(r *v1.ClusterCapacityNeeds, _ *v1.CapacityNeed) { r.Needs = slices.Repeat(r.Needs[:1], 1001) },
		"no rows":                  func(r *v1.ClusterCapacityNeeds, _ *v1.CapacityNeed) { r.Needs = nil },
		"row without resources":    func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.AggregateResources = nil },
		"negative time":            func(r *v1.ClusterCapacityNeeds, _ *v1.CapacityNeed) { r.TimestampUnixNanos = -1 },
		"any priority":             func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) { n.Priority = -1 << 31 },
		"unknown toleration effect": func(_ *v1.ClusterCapacityNeeds, n *v1.CapacityNeed) {
			n.Tolerations = []*v1.Toleration{{Effect: "Perhaps"}}
		},
		"longest cluster id": func(r *v1.ClusterCapacityNeeds, _ *v1.CapacityNeed) { r.ClusterId = strings.Repeat("a", 253) },
	} {
		r := rollup()
		change(r, r.Needs[1])
		if found, _ := violations(t, v, r); found != nil {
			t.Errorf("%s is refused: %q", what, found)
		}
	}
}

// WIRE scenario 9, 3.6: a report is read leniently; entries over a limit are the coordinator's to ignore.
func TestOddReportsPass(t *testing.T) {
	v := validator(t)
	report := &v1.ShardReport{
		ShardId: "shard-0", ShardEpoch: -1, Summary: &v1.ShardSummary{TotalMachines: -1},
		Shortfalls:      slices.Repeat([]*v1.Shortfall{{InterruptionPenaltyBucket: 99}}, 101),
		Supply:          slices.Repeat([]*v1.SupplyBucket{{}}, 300),
		Clusters:        []*v1.ClusterLink{{ClusterId: "not an id"}},
		InstructionAcks: []*v1.InstructAck{{Outcome: 99}, {InstructionId: ""}},
		Holdings:        &v1.Holdings{},
	}
	if found, _ := violations(t, v, report); found != nil {
		t.Errorf("refused: %q", found)
	}
	report.ShardId = ""
	if found, _ := violations(t, v, report); !slices.Equal(found, []string{"shard_id: string.pattern"}) {
		t.Errorf("without shard id: %q", found)
	}
}

// WIRE scenario 8, 8.9: what makes an instruction invalid. Term and sequence are never part of it.
func TestInstructionRules(t *testing.T) {
	v := validator(t)
	reserve := func(change func(*v1.ReserveMachines)) *v1.CoordinatorInstruction {
		r := &v1.ReserveMachines{MoveId: "m", ToShardId: "b", Count: 1, Tier: v1.MoveTier_MOVE_TIER_IDLE,
			Requirements: []*v1.NodeSelectorRequirement{in("k", "v")}}
		change(r)
		return &v1.CoordinatorInstruction{InstructionId: "i", Payload: &v1.CoordinatorInstruction_ReserveMachines{ReserveMachines: r}}
	}
	for _, c := range []struct {
		what string
		m    proto.Message
		want []string
	}{
		{"no payload", &v1.CoordinatorInstruction{InstructionId: "i"}, []string{"payload: required"}},
		{"no id", &v1.CoordinatorInstruction{Payload: &v1.CoordinatorInstruction_AssignDomain{AssignDomain: &v1.AssignDomain{}}}, []string{"instruction_id: string.min_len"}},
		{"negative term", &v1.CoordinatorInstruction{InstructionId: "i", CoordinatorTerm: -1, SequenceNumber: -1,
			Payload: &v1.CoordinatorInstruction_AssignDomain{AssignDomain: &v1.AssignDomain{}}}, nil},
		{"a reservation", reserve(func(*v1.ReserveMachines) {}), nil},
		{"a reservation with Same", reserve(func(r *v1.ReserveMachines) { r.Requirements[0] = same("rack") }), []string{"reserve_machines.requirements[0]: reserve_machines.no_same"}},
		{"a reservation of none", reserve(func(r *v1.ReserveMachines) { r.Count = 0 }), []string{"reserve_machines.count: int32.gte"}},
		{"a reservation without tier", reserve(func(r *v1.ReserveMachines) { r.Tier = 0 }), []string{"reserve_machines.tier: enum.not_in"}},
	} {
		if found, _ := violations(t, v, c.m); !slices.Equal(found, c.want) {
			t.Errorf("%s: %q, want %q", c.what, found, c.want)
		}
	}
}

// Domain keys and values have Kubernetes label syntax where a domain is assigned, and only there (WIRE-2.7).
func TestDomainSyntax(t *testing.T) {
	v := validator(t)
	for value, ok := range map[string]bool{"eu-1a": true, "A": true, "": false, "-a": false, "a b": false, strings.Repeat("a", 63): true, strings.Repeat("a", 64): false} {
		found, _ := violations(t, v, &v1.AssignDomainRequest{TopologyKey: "topology.kubernetes.io/zone", TopologyValue: value, ShardId: "shard-0"})
		if (found == nil) != ok {
			t.Errorf("value %q: %q", value, found)
		}
	}
	for key, ok := range map[string]bool{"zone": true, "topology.bigfleet/rack": true, "": false, "UPPER.io/zone": false, "a/b/c": false, "/zone": false} {
		found, _ := violations(t, v, &v1.AssignDomainRequest{TopologyKey: key, TopologyValue: "a", ShardId: "shard-0"})
		if (found == nil) != ok {
			t.Errorf("key %q: %q", key, found)
		}
	}
	if found, _ := violations(t, v, &v1.UnassignDomainRequest{TopologyKey: "-odd-", TopologyValue: " "}); found != nil {
		t.Errorf("an odd domain cannot be unassigned: %q", found)
	}
}
