package convert

import (
	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
)

// Record writes a decision record.
func Record(r *core.Record, shard string) *pb.DecisionRecord {
	out := &pb.DecisionRecord{
		Sequence: r.Sequence, AtUnixNanos: r.Wall, ShardEpoch: r.Epoch, Cycle: r.Cycle, Type: pb.RecordType(r.Type), OperationId: r.Op,
		Kind: pb.ActionKind(r.Kind), MachineId: r.Machine, Provider: r.Provider, ClusterId: r.Cluster, ProfileFingerprint: r.Fingerprint,
		Group: r.Group, Priority: r.Priority, Detail: r.Detail, EffectiveCost: Dollars(r.Cost), VictimScore: float64(r.Score) / 1e6,
		PricePerHour: Dollars(r.Price), GracePeriodSeconds: r.Grace, PreemptorPriority: r.PreemptorPriority, Outcome: r.Outcome,
		DurationNanos: r.Duration, FenceSequence: r.Token, ProviderOperationId: r.ProviderOp, FromState: pb.MachineState(r.From),
		ToState: pb.MachineState(r.To), Actor: r.Actor, ShardId: shard, RowId: r.RowID, PreemptorClusterId: r.PreemptorCluster,
		PreemptorFingerprint: r.PreemptorFingerprint, SameDomain: r.Domain,
		NodeName: r.Node, PreemptorRowId: r.PreemptorRowID,
	}
	if r.Cause != 0 {
		out.Cause = r.Cause.String()
	}
	if r.Score != 0 {
		out.ScoreTerms = map[string]float64{"priority": float64(r.Terms.Priority) / 1e6, "drain": float64(r.Terms.Drain) / 1e6,
			"interruption": float64(r.Terms.Interruption) / 1e6, "reclamation": float64(r.Terms.Reclamation) / 1e6}
	}
	return out
}
