package session

import (
	"slices"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/convert"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
)

// ackFrame renders an acknowledgement. The answer to a Hello is essential; acks of roll-ups and the end of a replay are
// keyed, so that the marker follows the states queued before it (SHARD-9.3).
func (h *Handler) ackFrame(e core.SendAck) Frame {
	f := Frame{Class: Keyed, Key: "ack:rollup", Bytes: 128 + len(e.Echo)}
	switch {
	case e.Hello:
		f.Class, f.Key = Essential, ""
	case e.Echo == core.EchoResync:
		f.Key = "ack:resync"
	}
	f.Render = func() *pb.ShardMessage {
		ack := &pb.Acknowledgement{Echo: e.Echo, CoordinatorTerm: e.Term, ShardEpoch: e.Epoch, Rollup: convert.Rollup(e.Rollup)}
		if e.Hello {
			ack.Features, ack.ShardId, ack.ShardVersion = h.cfg.Features, h.cfg.ShardID, h.cfg.Version
			ack.MaxRollupBytes = h.cfg.RollupBytesMax
		}
		if e.Echo == core.EchoResync {
			ack.ResyncMachines = int32(e.Resync)
		}
		return &pb.ShardMessage{Payload: &pb.ShardMessage_Ack{Ack: ack}}
	}
	return f
}

func pullFrame(e core.PullBootstrap) Frame {
	return Frame{Class: Essential, Bytes: 512 + 64*len(e.Requirements), Render: func() *pb.ShardMessage {
		m := &e.Machine
		return &pb.ShardMessage{Payload: &pb.ShardMessage_BootstrapRequest{BootstrapRequest: &pb.BootstrapRequest{
			RequestId: e.Request, Requirements: convert.Requirements(e.Requirements), ClusterId: e.Cluster,
			Machine: &pb.BootstrapMachine{MachineId: m.ID, Provider: m.HostProvider, InstanceType: m.InstanceType, Zone: m.Zone,
				CapacityType: pb.CapacityType(m.CapacityType), Labels: convert.Labels(m), Allocatable: convert.Supply(m),
				Taints: convert.Taints(m.Taints), ProviderId: m.HostRef},
		}}}
	}}
}

func reclaimFrame(e core.SendReclaim) Frame {
	return Frame{Class: Essential, Bytes: 128 + len(e.Machine) + len(e.Node), Render: func() *pb.ShardMessage {
		if e.Cancelled {
			return &pb.ShardMessage{Payload: &pb.ShardMessage_ReclaimCancel{ReclaimCancel: &pb.ReclaimCancel{
				InstructionId: e.Instruction, MachineIds: []string{e.Machine}, Reason: e.Reason}}}
		}
		node := e.Node
		if node == "" {
			node = e.Machine
		}
		return &pb.ShardMessage{Payload: &pb.ShardMessage_ReclaimInstruction{ReclaimInstruction: &pb.ReclaimInstruction{
			InstructionId: e.Instruction, Nodes: []string{node}, GracePeriodSeconds: e.GraceSecs, PreemptorPriority: e.PreemptorPriority,
			MachineIds: []string{e.Machine}, Cause: pb.ReclaimInstruction_Cause(e.Cause)}}}
	}}
}

func nodeFrame(e core.SendNodeState) Frame {
	key := "node:" + e.Machine.ID
	return Frame{Class: Keyed, Key: key, Bytes: 512 + 32*len(e.Machine.Labels), Render: func() *pb.ShardMessage {
		m := &e.Machine
		u := &pb.NodeStateUpdate{SupersedesKey: key, MachineId: m.ID, ClusterId: e.Cluster, State: pb.MachineState(m.State),
			NodeName: e.Node, ProviderId: m.HostRef, Labels: convert.NodeLabels(m), Resources: convert.Supply(m), Taints: convert.Taints(m.Taints),
			Released: e.Released, ProfileFingerprint: e.For.Fingerprint, Group: e.For.Group, SinceUnixNanos: e.Since, RowId: e.RowID,
			CapacityType: pb.CapacityType(m.CapacityType), PricePerHour: convert.Dollars(m.Price)}
		if m.State == inventory.Failed {
			u.LastError = m.LastError
		}
		return &pb.ShardMessage{Payload: &pb.ShardMessage_NodeStateUpdate{NodeStateUpdate: u}}
	}}
}

func hintFrame(e core.SendHint) Frame {
	key := "available:" + e.Fingerprint
	return Frame{Class: Hint, Key: key, Bytes: 256 + 64*len(e.Requirements), Render: func() *pb.ShardMessage {
		return &pb.ShardMessage{Payload: &pb.ShardMessage_AvailableCapacity{AvailableCapacity: &pb.AvailableCapacityUpdate{
			SupersedesKey: key, Requirements: convert.Requirements(e.Requirements), Resources: convert.Quantities(e.Resources),
			AvailableCount: int32(e.Count), Confidence: pb.AvailableCapacityUpdate_Confidence(e.Confidence),
			CostPerHour: convert.Dollars(e.PriceMicro), Reason: e.Reason}}}
	}}
}

func statusFrame(e core.SendNeedStatus) Frame {
	key, suggestion := "need:"+e.RowID, ""
	if !e.Satisfied {
		suggestion = core.Suggestion(e.Detail)
	}
	return Frame{Class: NeedStatus, Key: key, Bytes: 256 + len(e.Text) + len(suggestion), Render: func() *pb.ShardMessage {
		return &pb.ShardMessage{Payload: &pb.ShardMessage_NeedStatus{NeedStatus: &pb.NeedStatus{
			SupersedesKey: key, RowId: e.RowID, ProfileFingerprint: e.Key.Fingerprint, Group: e.Key.Group, Satisfied: e.Satisfied,
			Reason: pb.UnmetReason(e.Reason), Detail: pb.NeedDetail(e.Detail), Text: e.Text, Suggestion: suggestion, Residual: convert.Quantities(e.Residual),
			SinceUnixNanos: e.Since, MachinesOnTheWay: int32(e.OnTheWay)}}}
	}}
}

// Features are what this shard understands, for the Hello ack (WIRE-2.8).
func Features() []string {
	f := []string{"rollup-ack", "node-report", "node-contents", "out-of-service", "per-host-limit", "gang", "node-limits", "drain-report", "unplaced-pods", "need-status", "reclaim-cancel", "released"}
	slices.Sort(f)
	return f
}
