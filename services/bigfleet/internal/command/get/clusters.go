package get

import (
	"context"
	"fmt"
	"strings"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// clusters reads what one shard knows of the clusters that are wanted.
func (f filter) clusters(ctx context.Context, s fleet.Shard) ([]*bigfleetv1alpha1.ClusterView, error) {
	req := &bigfleetv1alpha1.ListClustersRequest{}
	var out []*bigfleetv1alpha1.ClusterView
	for {
		got, err := s.Read.ListClusters(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		for _, c := range got.Msg.GetClusters() {
			if (f.name == "" || c.GetClusterId() == f.name) && (f.cluster == "" || c.GetClusterId() == f.cluster) {
				out = append(out, c)
			}
		}
		if req.PageToken = got.Msg.GetNextPageToken(); req.PageToken == "" {
			return out, nil
		}
	}
}

// clustersOf gathers them from every shard, with the shard of each: one that two shards know stands there twice.
func clustersOf(ctx context.Context, a *app.App, f filter, what string, keep func(*bigfleetv1alpha1.ClusterView) bool) (items []*bigfleetv1alpha1.ClusterView, at []string, failed error) {
	fl, all, err := a.Shards(ctx)
	if err != nil {
		return nil, nil, err
	}
	answers, failed := fleet.Each(ctx, fl, all, what, f.clusters)
	for i, rows := range answers {
		if rows == nil {
			continue
		}
		for _, c := range *rows {
			if keep(c) {
				items, at = append(items, c), append(at, all[i].Label())
			}
		}
	}
	return items, at, failed
}

func clusters(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, at, failed := clustersOf(ctx, a, f, "listing clusters", func(*bigfleetv1alpha1.ClusterView) bool { return true })
	now, n := a.Now(), 0
	return by(table("cluster/", columns("NAME", "SHARD", "SESSION", "ROLL-UP", "RESULT", "NEEDS", "UNMET", "CONFIGURED", "SPEND", "+GATE", "+OPERATOR"), items,
		func(c *bigfleetv1alpha1.ClusterView) []string {
			n++
			session, gate := "lost", "closed"
			if c.GetConnected() {
				session = "up " + output.Age(now, c.GetConnectedSinceUnixNanos())
			}
			if c.GetGateOpen() {
				gate = "open"
			}
			return []string{
				c.GetClusterId(), at[n-1], session, output.Age(now, c.GetLastRollupAtUnixNanos()), disposition(c),
				fmt.Sprint(c.GetNeeds()), fmt.Sprint(c.GetUnsatisfiedNeeds()), fmt.Sprint(c.GetMachinesByState()["MACHINE_STATE_CONFIGURED"]),
				output.Dollars(c.GetCostPerHour()), gate, output.Dash(c.GetOperatorVersion()),
			}
		}), at), failed
}

// disposition is what became of the last roll-up.
func disposition(c *bigfleetv1alpha1.ClusterView) string {
	if c.GetLastDisposition() == bigfleetv1alpha1.RollupDisposition_ROLLUP_DISPOSITION_UNSPECIFIED {
		return output.Dash("")
	}
	return output.Enum("ROLLUP_DISPOSITION_", c.GetLastDisposition().String())
}

// sessions are the clusters whose operators are connected, by the shard that has the session.
func sessions(ctx context.Context, a *app.App, f filter) (output.List, error) {
	items, at, failed := clustersOf(ctx, a, f, "listing sessions", (*bigfleetv1alpha1.ClusterView).GetConnected)
	now, n := a.Now(), 0
	return by(table("session/", columns("CLUSTER", "SHARD", "UP FOR", "OPERATOR", "ROLL-UP", "RESULT", "+FEATURES"), items, func(c *bigfleetv1alpha1.ClusterView) []string {
		n++
		return []string{
			c.GetClusterId(), at[n-1], output.Age(now, c.GetConnectedSinceUnixNanos()), output.Dash(c.GetOperatorVersion()), output.Age(now, c.GetLastRollupAtUnixNanos()),
			disposition(c), output.Dash(strings.Join(c.GetFeatures(), ",")),
		}
	}), at), failed
}
