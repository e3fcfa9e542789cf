// Package status is `bigfleet status`: the fleet on one screen, worst things first.
package status

import (
	"context"
	"slices"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// New returns the verb.
func New(a *app.App) *cobra.Command {
	return a.Watchable(&cobra.Command{
		Use: "status", Args: cobra.NoArgs,
		Short:   "Show the fleet on one screen",
		Example: "  bigfleet status\n  bigfleet status --shard 127.0.0.1:7780 -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.Read(c.Context(), func(ctx context.Context) error { return run(ctx, a) })
		},
	})
}

// sight is what the screen shows.
type sight struct {
	coordinator *bigfleetv1alpha1.GetCoordinatorStatusResponse // nil: not asked, or no replica leads
	leaderless  error                                          // why no answer came
	shards      []part
	moves       []*bigfleetv1alpha1.Move
	conflicts   []*bigfleetv1alpha1.ClusterBinding
}

// part is one shard.
type part struct {
	status *bigfleetv1alpha1.GetStatusResponse
	entry  *bigfleetv1alpha1.ShardRegistryEntry // what the coordinator knows of it; nil when it was not asked
	oldest *bigfleetv1alpha1.NeedView           // the need that is unmet for longest
	silent []string                             // clusters that have not reported for long
}

func run(ctx context.Context, a *app.App) error {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	answers, failed := fleet.Each(ctx, f, shards, "reading the status", look)
	var seen sight
	for _, p := range answers {
		if p != nil {
			seen.shards = append(seen.shards, *p)
		}
	}
	if len(seen.shards) == 0 {
		return failed
	}
	if !f.Direct() {
		seen.leaderless = askCoordinator(ctx, f, &seen)
	}
	if a.Format.ForPeople() {
		show(a, &seen)
		return failed
	}
	var list output.List
	for _, p := range seen.shards {
		list.Items = append(list.Items, proto.Message(p.status))
		list.Names = append(list.Names, "shard/"+p.status.GetShardId())
	}
	if seen.coordinator != nil {
		list.Items = append(list.Items, proto.Message(seen.coordinator))
		list.Names = append(list.Names, "coordinator/"+seen.coordinator.GetNodeId())
	}
	if err := a.Format.Write(a.Out, list); err != nil {
		return err
	}
	return failed
}

// unmetAsked is how many unmet needs are looked at for the oldest: the first in the order of precedence.
const unmetAsked = 1000

func look(ctx context.Context, s fleet.Shard) (p part, err error) {
	got, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
	if err != nil {
		return p, err
	}
	p.status = got.Msg
	if p.status.GetShardId() == "" {
		p.status.ShardId = s.Label()
	}
	if p.status.GetUnsatisfiedNeeds() > 0 {
		if p.oldest, err = oldest(ctx, s); err != nil {
			return p, err
		}
	}
	if p.status.GetSilentClusters() > 0 {
		clusters, err := s.Read.ListClusters(ctx, connect.NewRequest(&bigfleetv1alpha1.ListClustersRequest{SilentOnly: true}))
		if err != nil {
			return p, err
		}
		for _, c := range clusters.Msg.GetClusters() {
			p.silent = append(p.silent, c.GetClusterId())
		}
	}
	return p, nil
}

func oldest(ctx context.Context, s fleet.Shard) (old *bigfleetv1alpha1.NeedView, err error) {
	stream, err := s.Read.InspectNeeds(ctx, connect.NewRequest(&bigfleetv1alpha1.InspectNeedsRequest{Limit: unmetAsked, UnsatisfiedOnly: true}))
	if err != nil {
		return nil, err
	}
	defer func() { _ = stream.Close() }()
	for stream.Receive() {
		if n := stream.Msg().GetNeed(); n.GetUnmetSinceUnixNanos() > 0 && (old == nil || n.GetUnmetSinceUnixNanos() < old.GetUnmetSinceUnixNanos()) {
			old = n
		}
	}
	return old, stream.Err()
}

// askCoordinator adds what the leader knows. The shards' own answers do not depend on it.
func askCoordinator(ctx context.Context, f *fleet.Fleet, seen *sight) error {
	return f.Leader(ctx, "asking the coordinator", func(ctx context.Context, c fleet.Coordinator) error {
		status, err := c.Admin.GetCoordinatorStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetCoordinatorStatusRequest{}))
		if err != nil {
			return err
		}
		seen.coordinator = status.Msg
		entries, err := c.Core.ListShards(ctx, connect.NewRequest(&bigfleetv1alpha1.ListShardsRequest{}))
		if err != nil {
			return err
		}
		for _, e := range entries.Msg.GetShards() {
			for i := range seen.shards {
				if seen.shards[i].status.GetShardId() == e.GetShardId() {
					seen.shards[i].entry = e
				}
			}
		}
		moves, err := c.Admin.ListMoves(ctx, connect.NewRequest(&bigfleetv1alpha1.ListMovesRequest{}))
		if err != nil {
			return err
		}
		seen.moves = slices.DeleteFunc(moves.Msg.GetMoves(), func(m *bigfleetv1alpha1.Move) bool {
			return m.GetState() == bigfleetv1alpha1.Move_STATE_DONE || m.GetState() == bigfleetv1alpha1.Move_STATE_ABORTED
		})
		seen.conflicts = nil
		for token := ""; ; {
			page, err := c.Admin.ListClusterBindings(ctx, connect.NewRequest(&bigfleetv1alpha1.ListClusterBindingsRequest{PageToken: token}))
			if err != nil {
				return err
			}
			for _, b := range page.Msg.GetBindings() {
				if b.GetConflictingShardId() != "" {
					seen.conflicts = append(seen.conflicts, b)
				}
			}
			if token = page.Msg.GetNextPageToken(); token == "" {
				return nil
			}
		}
	})
}
