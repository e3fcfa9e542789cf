package coordinate

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// namesMax bounds how many names of what goes with a shard are spelled out.
const namesMax = 5

func newRemoveShard(a *app.App) *cobra.Command {
	var force bool
	o := order{
		use: "remove SHARD", args: 1, short: "Remove a shard with its assignments and bindings", example: "  bigfleet shards remove shard-2 --reason 'gone for good'",
		says: func(a []string) string { return "Removes shard " + a[0] + "." },
		goes: whatGoes,
		send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
			return call(ctx, c, c.Core.RemoveShard, &bigfleetv1alpha1.RemoveShardRequest{ShardId: a[0], Force: force, ValidateOnly: c.app.DryRun})
		},
	}
	c := o.command(a)
	c.Flags().BoolVar(&force, "force", false, "remove it although it still reports or owns something; stop its process first")
	return c
}

// whatGoes names what a shard has and loses.
func whatGoes(ctx context.Context, c caller, args []string) ([]string, error) {
	var domains, clusters []string
	for token := ""; ; {
		got, err := c.Core.ListDomainAssignments(ctx, connect.NewRequest(&bigfleetv1alpha1.ListDomainAssignmentsRequest{PageToken: token}))
		if err != nil {
			return nil, err
		}
		for _, d := range got.Msg.GetAssignments() {
			if d.GetShardId() == args[0] {
				domains = append(domains, d.GetTopologyKey()+"="+d.GetTopologyValue())
			}
		}
		if token = got.Msg.GetNextPageToken(); token == "" {
			break
		}
	}
	for token := ""; ; {
		got, err := c.Admin.ListClusterBindings(ctx, connect.NewRequest(&bigfleetv1alpha1.ListClusterBindingsRequest{PageToken: token}))
		if err != nil {
			return nil, err
		}
		for _, b := range got.Msg.GetBindings() {
			if b.GetShardId() == args[0] {
				clusters = append(clusters, b.GetClusterId())
			}
		}
		if token = got.Msg.GetNextPageToken(); token == "" {
			break
		}
	}
	return []string{"Also removes " + some(domains, "domain assignment") + " and " + some(clusters, "cluster binding") + "."}, nil
}

// some words a list: how many, and the first few.
func some(names []string, what string) string {
	out := output.Count(len(names), what)
	if len(names) == 0 {
		return out
	}
	shown := strings.Join(names[:min(len(names), namesMax)], ", ")
	if len(names) > namesMax {
		shown += fmt.Sprintf(" and %d more", len(names)-namesMax)
	}
	return fmt.Sprintf("%s (%s)", out, shown)
}

func newRemovePeer(a *app.App) *cobra.Command {
	var force bool
	o := order{
		use: "remove-peer NODE", args: 1, short: "Remove a Raft peer", example: "  bigfleet raft remove-peer coordinator-2 --reason 'disk lost'",
		says: func(a []string) string { return "Removes peer " + a[0] + " from the Raft group." },
		send: func(ctx context.Context, c caller, a []string) (proto.Message, error) {
			return call(ctx, c, c.Admin.RemoveRaftPeer, &bigfleetv1alpha1.RemoveRaftPeerRequest{NodeId: a[0], Force: force, ValidateOnly: c.app.DryRun})
		},
	}
	c := o.command(a)
	c.Flags().BoolVar(&force, "force", false, "remove it although no quorum of reachable voters would remain")
	return c
}
