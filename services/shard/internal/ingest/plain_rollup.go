package ingest

import (
	"errors"
	"fmt"
	"slices"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
)

// oddParts are those of a roll-up of which parser or rules would say something: a test holds it to leaving out nothing that they refuse, and to listing
// nothing that they accept. The rules take a hundred times as long as a look. A sender whose every part they had to see, good or bad, would keep the
// worker of large roll-ups busy for all others.
func oddParts(m *pb.ClusterCapacityNeeds) (odd []part) {
	if !plainHead(m) {
		odd = append(odd, headOf(m))
	}
	for i, n := range m.Needs {
		if !plainNeed(n) {
			odd = append(odd, part{m: n, need: int64(i), path: fmt.Sprintf("needs[%d]", i),
				amounts: []amounts{{"aggregate_resources", n.GetAggregateResources()}, {"min_unit", n.GetMinUnit()}}})
		}
	}
	for i, n := range m.OutOfService {
		if !plainOut(n) {
			odd = append(odd, part{m: n, need: -1, path: fmt.Sprintf("out_of_service[%d]", i)})
		}
	}
	for i, n := range m.NodeRooms {
		if !plainRoom(n) {
			odd = append(odd, part{m: n, need: -1, path: fmt.Sprintf("node_rooms[%d]", i), amounts: []amounts{{"resources", n.GetResources()}}})
		}
	}
	return odd
}

func all[E any](list []E, f func(E) bool) bool {
	return !slices.ContainsFunc(list, func(e E) bool { return !f(e) })
}

// What the protos allow of lists beside rows.
const outOfServiceMax, nodeRoomsMax = 50_000, 512

// plainHead looks at everything but the elements of lists.
func plainHead(m *pb.ClusterCapacityNeeds) bool {
	return plainCluster(m.ClusterId) && len(m.OutOfService) <= outOfServiceMax && len(m.NodeRooms) <= nodeRoomsMax && len(m.NodeOverhead) <= 64 && soundAmounts(m.NodeOverhead)
}

func plainOut(m *pb.MachineOutOfService) bool {
	return m != nil && len(m.MachineId) <= 1024 && len(m.Detail) <= 317 && m.Reason >= 0 && m.Reason <= pb.MachineOutOfService_REASON_NOT_READY
}

func plainRoom(m *pb.NodeRoom) bool {
	return m != nil && m.InstanceType != "" && len(m.InstanceType) <= 253 && plainVector(m.Resources)
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
	if n == nil || len(n.Requirements) > 64 || len(n.Spread) > 16 || len(n.Tolerations) > 64 || len(n.Preferences) > 8 || len(n.Group) > 4096 || len(n.RowId) > 128 ||
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
	for _, f := range n.Preferences {
		if f == nil || len(f.Requirements) > 16 || !all(f.Requirements, plainRequirement) {
			return false
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
	return len(m) <= 64 && soundAmounts(m)
}

// soundAmounts recognises every quantity that can be read.
func soundAmounts(m map[string]string) bool {
	if plainAmounts(m) {
		return true
	}
	for _, v := range m {
		if _, err := quantity.Parse(v, quantity.Up); err != nil && !errors.Is(err, quantity.ErrRange) {
			return false
		}
	}
	return true
}

func plainRequirement(r *pb.NodeSelectorRequirement) bool {
	if r == nil || len(r.Key) > 317 || r.Operator < pb.NodeSelectorRequirement_OPERATOR_IN || r.Operator > pb.NodeSelectorRequirement_OPERATOR_SAME ||
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
