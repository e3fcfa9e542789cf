package session

import (
	"fmt"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// Ceilings are what a cluster may state at most (SHARD-19.12). What is above counts as the ceiling, and the operator is warned: a
// refused roll-up would stop all of its demand.
type Ceilings struct {
	Priority Ceiling[int32]
	Penalty  Ceiling[pb.PenaltyBucket]
}

// Ceiling is one limit for all clusters, and others for some.
type Ceiling[T any] struct {
	All T
	Of  map[string]T // by cluster
}

// For is the ceiling of a cluster.
func (c Ceiling[T]) For(cluster string) T {
	if most, own := c.Of[cluster]; own {
		return most
	}
	return c.All
}

// apply lowers what is above.
func (c *Ceilings) apply(m *pb.ClusterCapacityNeeds, cluster string) (warnings []core.Warning) {
	priority, penalty := c.Priority.For(cluster), c.Penalty.For(cluster)
	var priorities, penalties int
	for _, n := range m.GetNeeds() {
		if n == nil {
			continue
		}
		if n.Priority > priority {
			n.Priority = priority
			priorities++
		}
		lowered := false
		for _, b := range []*pb.PenaltyBucket{&n.InterruptionPenaltyBucket, &n.ReclamationPenaltyBucket} {
			if *b > penalty && *b <= pb.PenaltyBucket_PENALTY_BUCKET_PINNED { // above are no buckets: the gate refuses them
				*b, lowered = penalty, true
			}
		}
		if lowered {
			penalties++
		}
	}
	if priorities > 0 {
		warnings = append(warnings, core.Warning{Rule: "priority_ceiling",
			Text: fmt.Sprintf("rows with a priority above %d: %d, which count as %d (--cluster-priority-max of the shard)", priority, priorities, priority)})
	}
	if penalties > 0 {
		warnings = append(warnings, core.Warning{Rule: "penalty_ceiling",
			Text: fmt.Sprintf("rows with a penalty above %s: %d, which count as that (--cluster-penalty-max of the shard)", penalty, penalties)})
	}
	return warnings
}
