package coordinate

import (
	"context"
	"fmt"
	"strconv"

	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

func shardOrders() []order {
	return []order{
		{
			use: "drain SHARD", args: 1, short: "Move a shard's clusters and domains to other shards", example: "  bigfleet shards drain shard-2 --reason 'hardware replacement'",
			says: func(a []string) string {
				return "Shard " + a[0] + " hands its clusters and domains over to other shards."
			},
			send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
				return call(ctx, c, c.Admin.DrainShard, &bigfleetv1alpha1.DrainShardRequest{ShardId: a[0], ValidateOnly: c.app.DryRun})
			},
			message: func(m proto.Message) string {
				r := m.(*bigfleetv1alpha1.DrainShardResponse)
				return fmt.Sprintf("%s and %s remain to be moved", output.Count(int(r.GetDomains()), "domain"), output.Count(int(r.GetClusters()), "cluster"))
			},
		},
		{
			use: "undrain SHARD", args: 1, short: "Stop draining a shard", example: "  bigfleet shards undrain shard-2",
			says: func(a []string) string { return "Shard " + a[0] + " is no longer drained." },
			send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
				return call(ctx, c, c.Admin.DrainShard, &bigfleetv1alpha1.DrainShardRequest{ShardId: a[0], Cancel: true, ValidateOnly: c.app.DryRun})
			},
		},
		{
			use: "readmit SHARD", args: 1, short: "Let a removed shard register again", example: "  bigfleet shards readmit shard-2",
			says: func(a []string) string { return "Shard " + a[0] + " may register again." },
			send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
				return call(ctx, c, c.Admin.ReadmitShard, &bigfleetv1alpha1.ReadmitShardRequest{ShardId: a[0], ValidateOnly: c.app.DryRun})
			},
		},
		{
			use: "reset-epoch SHARD EPOCH", args: 2, short: "Accept this and higher epochs of a shard although a higher epoch was seen before",
			example: "  bigfleet shards reset-epoch shard-2 1 --reason 'its disk was lost'",
			says: func(a []string) string {
				return "Accepts epoch " + a[1] + " of shard " + a[0] + ". If another process with this id still runs, both will act on the same machines."
			},
			send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
				epoch, err := strconv.ParseInt(a[1], 10, 64)
				if err != nil || epoch < 1 {
					return nil, exit.Usagef("epoch %q is not a positive integer. The refusal in the shard's log names the epoch that it reports", a[1])
				}
				return call(ctx, c, c.Admin.ResetShardEpoch, &bigfleetv1alpha1.ResetShardEpochRequest{ShardId: a[0], Epoch: epoch, ValidateOnly: c.app.DryRun})
			},
		},
	}
}

func clusterOrders() []order {
	return []order{
		{
			use: "unbind CLUSTER", args: 1, short: "Remove the binding of a cluster", example: "  bigfleet clusters unbind red --reason 'it moved'",
			says: func(a []string) string { return "Removes the binding of cluster " + a[0] + " belongs to." },
			send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
				return call(ctx, c, c.Admin.UnbindCluster, &bigfleetv1alpha1.UnbindClusterRequest{ClusterId: a[0], ValidateOnly: c.app.DryRun})
			},
		},
	}
}

func domainOrders() []order {
	return []order{
		{
			use: "unassign KEY=VALUE", args: 1, short: "Take a domain from its shard", example: "  bigfleet domains unassign topology.kubernetes.io/zone=eu-1a --reason 'zone closed'",
			says: func(a []string) string { return "Takes domain " + a[0] + " from its shard." },
			send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
				key, value, err := domainOf(a[0])
				if err != nil {
					return nil, err
				}
				return call(ctx, c, c.Core.UnassignDomain, &bigfleetv1alpha1.UnassignDomainRequest{TopologyKey: key, TopologyValue: value, ValidateOnly: c.app.DryRun})
			},
		},
		{
			use: "move KEY=VALUE SHARD", args: 2, short: "Hand a domain over to another shard; the old owner releases it first", example: "  bigfleet domains move topology.kubernetes.io/zone=eu-1a shard-1",
			says: func(a []string) string {
				return "Hands domain " + a[0] + " to shard " + a[1] + " after its owner has released it."
			},
			send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
				key, value, err := domainOf(a[0])
				if err != nil {
					return nil, err
				}
				return call(ctx, c, c.Admin.MoveDomain, &bigfleetv1alpha1.MoveDomainRequest{TopologyKey: key, TopologyValue: value, ToShardId: a[1], ValidateOnly: c.app.DryRun})
			},
		},
		{
			use: "finish KEY=VALUE", args: 1, short: "Complete a handover whose old owner is permanently down; the reason must be 'the shard is down'",
			example: "  bigfleet domains finish topology.kubernetes.io/zone=eu-1a --reason 'the shard is down'",
			says: func(a []string) string {
				return "Assigns domain " + a[0] + " to its next owner although the old owner did not release it. If the old owner still runs, both will act on the same machines."
			},
			send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
				key, value, err := domainOf(a[0])
				if err != nil {
					return nil, err
				}
				if c.app.Reason != finishWords {
					return nil, exit.Usagef("domains finish needs --reason '%s', and this must be true: a shard that is only disconnected still acts on its machines", finishWords)
				}
				return call(ctx, c, c.Admin.FinishDomainMove, &bigfleetv1alpha1.FinishDomainMoveRequest{TopologyKey: key, TopologyValue: value, Force: true,
					Confirm: c.app.Reason, ValidateOnly: c.app.DryRun})
			},
		},
	}
}

// finishWords must be said by who forces the end of a handover (COORD-9.6).
const finishWords = "the shard is down"

func raftOrders() []order {
	return []order{
		{
			use: "readmit NODE", args: 1, short: "Let a removed Raft peer join again", example: "  bigfleet raft readmit coordinator-2",
			says: func(a []string) string { return "Peer " + a[0] + " may join again." },
			send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
				return call(ctx, c, c.Admin.ReadmitRaftPeer, &bigfleetv1alpha1.ReadmitRaftPeerRequest{NodeId: a[0], ValidateOnly: c.app.DryRun})
			},
		},
		{
			use: "transfer-leader NODE", args: 1, short: "Hand leadership to a peer", example: "  bigfleet raft transfer-leader coordinator-1",
			says: func(a []string) string { return "Hands leadership to " + a[0] + "." },
			send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
				return call(ctx, c, c.Admin.TransferLeadership, &bigfleetv1alpha1.TransferLeadershipRequest{NodeId: a[0], ValidateOnly: c.app.DryRun})
			},
			message: func(m proto.Message) string {
				return m.(*bigfleetv1alpha1.TransferLeadershipResponse).GetLeader().GetLeaderId() + " leads"
			},
		},
	}
}

func removeProvider() order {
	return order{
		use: "remove PROVIDER", args: 1, short: "Remove a provider that no shard reports", example: "  bigfleet providers remove old-cloud --reason 'contract ended'",
		says: func(a []string) string { return "Removes provider " + a[0] + "." },
		send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
			name, err := registered(ctx, c, a[0])
			if err != nil {
				return nil, err
			}
			return call(ctx, c, c.Admin.RemoveProvider, &bigfleetv1alpha1.RemoveProviderRequest{Name: name, ValidateOnly: c.app.DryRun})
		},
	}
}

func cancelMove() order {
	return order{
		use: "cancel MOVE", args: 1, short: "Cancel a move",
		long: "The donor keeps the machines that it has reserved for the move. A move whose machines the recipient has taken over already completes.", example: "  bigfleet rebalance cancel mv-17 --reason 'not needed'",
		says: func(a []string) string { return "Cancels move " + a[0] + "." },
		send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
			return call(ctx, c, c.Admin.CancelMove, &bigfleetv1alpha1.CancelMoveRequest{MoveId: a[0], ValidateOnly: c.app.DryRun})
		},
	}
}

func retryInstruction() order {
	return order{
		use: "retry SHARD INSTRUCTION", args: 2, short: "Send a stuck instruction again", example: "  bigfleet instructions retry shard-0 i-12 --reason 'it was stuck'",
		says: func(a []string) string { return "Sends instruction " + a[1] + " to shard " + a[0] + " again." },
		send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
			return call(ctx, c, c.Admin.RetryInstruction, &bigfleetv1alpha1.RetryInstructionRequest{ShardId: a[0], InstructionId: a[1], ValidateOnly: c.app.DryRun})
		},
	}
}
