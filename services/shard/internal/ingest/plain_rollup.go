package ingest

import pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"

// plainRollup recognises the roll-ups that nearly all operators send, of which neither parsing nor the rules of the proto would say
// anything. As with plain, what it does not recognise goes to both, and a test holds it to never recognising what they refuse.
// The rules are half of what taking in an unchanged roll-up costs, and each operator sends one every ten seconds.
func plainRollup(m *pb.ClusterCapacityNeeds) bool {
	if !plainCluster(m.ClusterId) || len(m.OutOfService) > 0 || len(m.NodeRooms) > 0 || len(m.NodeOverhead) > 64 || !plainAmounts(m.NodeOverhead) {
		return false
	}
	for _, n := range m.Needs {
		if !plainNeed(n) {
			return false
		}
	}
	return true
}

// plainCluster recognises the usual ids.
func plainCluster(id string) bool {
	if id == "" || len(id) > 253 {
		return false
	}
	for i := range len(id) {
		switch c := id[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && (c == '-' || c == '.' || c == '_' || c == '/' || c == ':' || c == '@'):
		default:
			return false
		}
	}
	return true
}

func plainNeed(n *pb.CapacityNeed) bool {
	if n == nil || len(n.Requirements) > 64 || len(n.Spread) > 16 || len(n.Tolerations) > 64 || len(n.Preferences) > 0 || len(n.Group) > 4096 || len(n.RowId) > 128 ||
		!plainBucket(n.InterruptionPenaltyBucket) || !plainBucket(n.ReclamationPenaltyBucket) ||
		!plainVector(n.AggregateResources) || !plainVector(n.MinUnit) {
		return false
	}
	same := 0
	for _, r := range n.Requirements {
		if !plainRequirement(r) {
			return false
		}
		if r.Operator == pb.NodeSelectorRequirement_OPERATOR_SAME {
			same++
		}
	}
	for _, s := range n.Spread {
		if s == nil || len(s.TopologyKey) > 317 || s.WhenUnsatisfiable < 0 || s.WhenUnsatisfiable > pb.TopologySpread_WHEN_UNSATISFIABLE_SCHEDULE_ANYWAY {
			return false
		}
	}
	for _, t := range n.Tolerations {
		if t == nil || len(t.Key) > 317 || len(t.Operator) > 16 || len(t.Value) > 253 || len(t.Effect) > 32 {
			return false
		}
	}
	return same <= 1
}

func plainBucket(b pb.PenaltyBucket) bool {
	return b >= pb.PenaltyBucket_PENALTY_BUCKET_UNSPECIFIED && b <= pb.PenaltyBucket_PENALTY_BUCKET_PINNED
}

func plainVector(m map[string]string) bool {
	for name := range m {
		if len(name) > 317 {
			return false
		}
	}
	return len(m) <= 64 && plainAmounts(m)
}

func plainRequirement(r *pb.NodeSelectorRequirement) bool {
	if r == nil || len(r.Key) > 317 || r.Operator < pb.NodeSelectorRequirement_OPERATOR_IN || r.Operator > pb.NodeSelectorRequirement_OPERATOR_SAME || r.Comparison != nil ||
		len(r.Values) > 4096 {
		return false
	}
	for _, v := range r.Values {
		if len(v) > 253 {
			return false
		}
	}
	return true
}
