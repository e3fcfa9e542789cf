package ingest

import (
	"errors"
	"slices"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Instruction turns one instruction into core form. One that breaks a rule or that this shard does not know says so in
// Invalid; the core answers it (WIRE-8.9).
func (g *Gate) Instruction(m *pb.CoordinatorInstruction) core.Instruction {
	x := core.Instruction{ID: m.GetInstructionId(), Term: m.GetCoordinatorTerm(), Sequence: m.GetSequenceNumber(), Attempt: int64(m.GetAttempt())}
	if err := g.rules.Validate(m); err != nil {
		x.Invalid = clip(err.Error())
		return x
	}
	switch p := m.Payload.(type) {
	case *pb.CoordinatorInstruction_SetView:
		x.SetView = view(p.SetView)
	case *pb.CoordinatorInstruction_AssignDomain:
		x.Assign = &core.DomainRef{Key: p.AssignDomain.GetTopologyKey(), Value: p.AssignDomain.GetTopologyValue()}
	case *pb.CoordinatorInstruction_UnassignDomain:
		x.Unassign = &core.DomainRef{Key: p.UnassignDomain.GetTopologyKey(), Value: p.UnassignDomain.GetTopologyValue()}
	case *pb.CoordinatorInstruction_ReleaseCluster:
		if x.ReleaseCluster = p.ReleaseCluster.GetClusterId(); x.ReleaseCluster == "" {
			x.Invalid = "release_cluster does not name a cluster"
		}
	case *pb.CoordinatorInstruction_ReserveMachines:
		x.Reserve, x.Invalid = reserve(p.ReserveMachines)
	case *pb.CoordinatorInstruction_TransferOwnership:
		t := p.TransferOwnership
		x.Transfer = &core.TransferInstruction{Move: t.GetMoveId(), From: t.GetFromShardId(), To: t.GetToShardId(), Machines: ids(t.GetMachineIds())}
	case *pb.CoordinatorInstruction_ReassignSpeculative:
		t := p.ReassignSpeculative
		x.Transfer = &core.TransferInstruction{Move: t.GetMoveId(), From: t.GetFromShardId(), To: t.GetToShardId(), Machines: ids(t.GetMachineIds()), Speculative: true}
	case *pb.CoordinatorInstruction_CancelMove:
		x.CancelMove = p.CancelMove.GetMoveId()
	default:
		x.Invalid = "unsupported"
	}
	return x
}

func ids(list []string) []string {
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}

func view(v *pb.ShardView) *core.View {
	out := &core.View{Term: v.GetVersion().GetTerm(), Index: v.GetVersion().GetIndex(), Provider: v.GetProvider(), PartitionKeys: v.GetPartitionKeys(),
		OnlyShard: v.GetOnlyShard(), DefaultOwner: v.GetDefaultOwner(), Owned: domains(v.GetOwnedDomains()), ForeignOwned: domains(v.GetForeignDomains()),
		In: exceptions(v.GetExceptionsIn()), Out: exceptions(v.GetExceptionsOut()), Clusters: v.GetOwnedClusters(), Released: v.GetReleasedClusters(),
		Arriving: v.GetArrivingMoveIds(), Region: v.GetRegion()}
	for _, q := range v.GetQuotaSlices() {
		out.Quotas = append(out.Quotas, core.Quota{Provider: q.GetProvider(), Region: q.GetRegion(), Machines: int64(q.GetMachines())})
	}
	for _, c := range v.GetInherited() {
		out.Inherited = append(out.Inherited, core.Inherited{Cluster: c.GetClusterId(), From: c.GetFromShardIds()})
	}
	return out
}

func domains(list []*pb.DomainRef) (out []core.DomainRef) {
	for _, d := range list {
		out = append(out, core.DomainRef{Key: d.GetTopologyKey(), Value: d.GetTopologyValue()})
	}
	return out
}

func exceptions(list []*pb.MachineException) (out []core.Exception) {
	for _, e := range list {
		out = append(out, core.Exception{Machine: e.GetMachineId(), Owner: e.GetOwnerShardId(), Move: e.GetMoveId()})
	}
	return out
}

func reserve(m *pb.ReserveMachines) (*core.ReserveInstruction, string) {
	out := &core.ReserveInstruction{Move: m.GetMoveId(), To: m.GetToShardId(), InstanceType: m.GetInstanceType(), Zone: m.GetZone(),
		CapacityType: uint8(m.GetCapacityType()), Count: int64(m.GetCount()), Tier: uint8(m.GetTier()), Priority: m.GetRequesterPriority(),
		Interruption: demand.Bucket(m.GetRequesterInterruptionBucket())}
	for _, q := range m.GetRequirements() {
		out.Requirements = append(out.Requirements, requirement(q))
	}
	unit := m.GetMinUnit().GetResources()
	for _, name := range sortedNames(unit) {
		v, err := quantity.Parse(unit[name], quantity.Up)
		if err != nil && !errors.Is(err, quantity.ErrRange) {
			return nil, "min_unit of " + clip(name) + " is not a quantity"
		}
		if v > 0 {
			out.MinUnit = append(out.MinUnit, resource.Quantity{Name: name, Milli: v})
		}
	}
	return out, ""
}
