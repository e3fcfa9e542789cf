// Package convert writes values of the core in the words of the wire. It decides nothing; what comes in from the wire
// goes through package ingest.
package convert

import (
	"strconv"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Dollars turns millionths of a dollar into dollars.
func Dollars(micro int64) float64 { return float64(micro) / 1e6 }

// QuantityMap writes a list of amounts; empty is nil.
func QuantityMap(list []resource.Quantity) map[string]string {
	if len(list) == 0 {
		return nil
	}
	m := make(map[string]string, len(list))
	for _, q := range list {
		m[q.Name] = quantity.Format(q.Name, q.Milli)
	}
	return m
}

// Quantities is QuantityMap as a message; empty is nil.
func Quantities(list []resource.Quantity) *pb.Resources {
	if len(list) == 0 {
		return nil
	}
	return &pb.Resources{Resources: QuantityMap(list)}
}

// Supply is what a machine offers.
func Supply(m *inventory.Machine) *pb.Resources {
	if len(m.Allocatable) > 0 {
		return Quantities(m.Allocatable)
	}
	return Quantities(m.Resources)
}

// Labels are the provider's labels of a machine.
func Labels(m *inventory.Machine) map[string]string {
	out := make(map[string]string, len(m.Labels)+2)
	for _, l := range m.Labels {
		out[l.Key] = l.Value
	}
	return out
}

// NodeLabels are the labels that the node joins with: the machine's, its type and its zone (SHARD-18.3).
func NodeLabels(m *inventory.Machine) map[string]string {
	out := Labels(m)
	if m.InstanceType != "" {
		out["node.kubernetes.io/instance-type"] = m.InstanceType
	}
	if m.Zone != "" {
		out["topology.kubernetes.io/zone"] = m.Zone
	}
	return out
}

// Taints of a machine's node.
func Taints(list []inventory.Taint) []*pb.Taint {
	out := make([]*pb.Taint, 0, len(list))
	for _, t := range list {
		out = append(out, &pb.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return out
}

// Requirements of a profile.
func Requirements(list []demand.Requirement) []*pb.NodeSelectorRequirement {
	out := make([]*pb.NodeSelectorRequirement, 0, len(list))
	for _, r := range list {
		q := &pb.NodeSelectorRequirement{Key: r.Key, Operator: pb.NodeSelectorRequirement_Operator(r.Op), Values: r.Values}
		if r.Op == demand.Gt || r.Op == demand.Lt {
			bound, _ := strconv.ParseInt(r.Values[0], 10, 64) // what came in was a number
			q.Operator, q.Values, q.Comparison = pb.NodeSelectorRequirement_OPERATOR_EXISTS, nil, &pb.LabelComparison{Less: r.Op == demand.Lt, Bound: bound}
		}
		out = append(out, q)
	}
	return out
}

// Need writes a row of demand.
func Need(r *demand.Row) *pb.CapacityNeed {
	p := &r.Profile
	n := &pb.CapacityNeed{Requirements: Requirements(p.Requirements), AggregateResources: QuantityMap(r.Aggregate), Priority: p.Priority,
		InterruptionPenaltyBucket: pb.PenaltyBucket(p.Interruption), ReclamationPenaltyBucket: pb.PenaltyBucket(p.Reclamation),
		MinUnit: QuantityMap(r.MinUnit), Group: r.Group, RowId: r.RowID, TolerationsStated: p.TolerationsStated, NeverPreempts: p.NeverPreempts, MaxPerHost: p.MaxPerHost,
		MinMembers: p.MinMembers}
	for _, s := range p.Spread {
		n.Spread = append(n.Spread, &pb.TopologySpread{TopologyKey: s.Key, MaxSkew: s.MaxSkew, MinDomains: s.MinDomains,
			WhenUnsatisfiable: pb.TopologySpread_WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE})
	}
	for _, f := range p.Preferences {
		n.Preferences = append(n.Preferences, &pb.NodePreference{Weight: f.Weight, Requirements: Requirements(f.Requirements)})
	}
	for _, t := range p.Tolerations {
		n.Tolerations = append(n.Tolerations, &pb.Toleration{Key: t.Key, Operator: t.Op, Value: t.Value, Effect: t.Effect})
	}
	return n
}

// Machine writes a machine as the shard knows it.
func Machine(m *inventory.Machine, attribution *inventory.Attribution) *pb.Machine {
	out := &pb.Machine{Id: m.ID, State: pb.MachineState(m.State), InstanceType: m.InstanceType, Zone: m.Zone,
		CapacityType: pb.CapacityType(m.CapacityType), PricePerHour: Dollars(m.Price), InterruptionProbability: float64(m.Probability) / 1e6,
		Resources: Quantities(m.Resources), Allocatable: Quantities(m.Allocatable), Labels: Labels(m), LastError: m.LastError,
		Cluster: m.Cluster, Failure: pb.MachineFailure(m.Failure), Taints: Taints(m.Taints), DrainEstimateSeconds: m.DrainSeconds}
	if m.HostProvider != "" || m.HostRef != "" {
		out.Host = &pb.HostRef{Provider: m.HostProvider, Ref: m.HostRef}
	}
	return out
}

// Rollup writes what became of a roll-up.
func Rollup(r *core.Rollup) *pb.RollupResult {
	if r == nil {
		return nil
	}
	out := &pb.RollupResult{Disposition: pb.RollupDisposition(r.Disposition), TimestampUnixNanos: r.Timestamp, Reason: r.Reason, Message: r.Message,
		NeedIndex: int32(r.NeedIndex), FieldPath: r.FieldPath, HeldCount: int32(r.HeldCount), HeldNeeded: int32(r.HeldNeeded)}
	for _, w := range r.Warnings[:min(len(r.Warnings), 20)] {
		out.Warnings = append(out.Warnings, w.Rule+": "+w.Text)
	}
	return out
}

// Metadata turns sorted pairs into a map.
func Metadata(list []core.KeyVal) map[string]string {
	m := make(map[string]string, len(list))
	for _, kv := range list {
		m[kv.Key] = kv.Value
	}
	return m
}

// States names counts by state with the enum values of the wire; zero counts are left out.
func States(counts [9]int) map[string]int32 {
	out := map[string]int32{}
	for s, n := range counts {
		if s > 0 && n > 0 {
			out[pb.MachineState(s).String()] = int32(n)
		}
	}
	return out
}
