// Package guards is `bigfleet guards`: everything that holds actions back now, in one table, with what lifts it (user-asks 16).
//
// It reads the shards' status and their clusters and decides nothing. Start at New.
package guards

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// New returns the verb.
func New(a *app.App) *cobra.Command {
	return a.Watchable(&cobra.Command{
		Use: "guards", Args: cobra.NoArgs, Short: "Show what blocks actions now, and what unblocks them", Example: "  bigfleet guards\n  bigfleet guards --watch",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.Read(c.Context(), func(ctx context.Context) error { return run(ctx, a) })
		},
	})
}

// state is what one shard says.
type state struct {
	status   *bigfleetv1alpha1.GetStatusResponse
	clusters []*bigfleetv1alpha1.ClusterView
}

func run(ctx context.Context, a *app.App) error {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	answers, failed := fleet.Each(ctx, f, shards, "reading the guards", look)
	l := output.List{Columns: []output.Column{{Head: "SHARD"}, {Head: "GUARD"}, {Head: "SCOPE"}, {Head: "STATE", Fold: true}, {Head: "UNBLOCKED BY", Fold: true}}}
	for _, s := range answers {
		if s == nil {
			continue
		}
		for _, g := range guardsOf(s, a.Now()) {
			l.Objects = append(l.Objects, g)
			l.Names = append(l.Names, "guard/"+g.Guard)
			l.Rows = append(l.Rows, []string{g.Shard, g.Guard, g.Scope, g.State, g.LiftedBy})
		}
	}
	if err := a.Format.Write(a.Out, l); err != nil {
		return err
	}
	return failed
}

func look(ctx context.Context, s fleet.Shard) (state, error) {
	var out state
	got, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
	if err != nil {
		return out, err
	}
	out.status = got.Msg
	for token := ""; ; {
		page, err := s.Read.ListClusters(ctx, connect.NewRequest(&bigfleetv1alpha1.ListClustersRequest{PageToken: token}))
		if err != nil {
			return out, err
		}
		out.clusters = append(out.clusters, page.Msg.GetClusters()...)
		if token = page.Msg.GetNextPageToken(); token == "" {
			return out, nil
		}
	}
}

// guard is one thing that holds actions back.
type guard struct {
	Shard    string `json:"shard"`
	Guard    string `json:"guard"`
	Scope    string `json:"scope"`
	State    string `json:"state"`
	LiftedBy string `json:"liftedBy"`
}

// guardsOf are those of one shard; the reclaim budget is always there, the others while they hold something.
func guardsOf(s *state, now time.Time) (out []guard) {
	id := s.status.GetShardId()
	add := func(name, scope, state, lifted string) { out = append(out, guard{id, name, scope, state, lifted}) }
	add("reclaim-budget", "shard", fmt.Sprintf("%.1f machines may be released now", s.status.GetReclaimTokens()), "time")
	if s.status.GetDryRun() {
		add("dry-run", "shard", "nothing is executed", "bigfleet dry-run off")
	}
	if s.status.GetSuperseded() {
		add("fence", "shard", "a newer process of this shard exists", "stopping one of the two")
	}
	for _, p := range s.status.GetPauses() {
		scope := "shard"
		switch {
		case p.GetClusterId() != "":
			scope = "cluster/" + p.GetClusterId()
		case p.GetProvider() != "":
			scope = "provider/" + p.GetProvider()
		}
		add("pause", scope, p.GetReason()+", by "+p.GetActor()+", until "+output.End(p.GetExpiresAtUnixNanos()), "bigfleet resume "+p.GetPauseId())
	}
	for _, p := range s.status.GetProviders() {
		if p.GetBreaker() != "closed" {
			add("breaker", "provider/"+p.GetName(), p.GetBreaker(), "the provider, once it answers")
		}
		if n := p.GetRemovalsHeld(); n > 0 {
			add("removals", "provider/"+p.GetName(), output.Count(int(n), "machine")+" missing from its list, not confirmed yet", "the next full list, or bigfleet reconcile")
		}
		for _, pool := range p.GetStockedOutPools() {
			lifted := "the next need that requires it"
			if at := pool.GetRetryAtUnixNanos(); at > now.UnixNano() {
				lifted = "a retry at " + output.Time(at) + ", or bigfleet backoff clear --pool " + pool.GetPool()
			}
			add("stock-out", pool.GetPool(), "refused "+output.Count(int(pool.GetFailures()), "time"), lifted)
		}
	}
	for _, c := range s.clusters {
		if !c.GetGateOpen() && !c.GetRetired() {
			add("release-gate", "cluster/"+c.GetClusterId(), "nothing is released from it", "its first roll-up since the shard started")
		}
		if n := c.GetHeldCount(); n > 0 {
			add("rollup-guard", "cluster/"+c.GetClusterId(), output.Count(int(n), "roll-up")+" in a row would remove most of the demand", "bigfleet rollups accept "+c.GetClusterId())
		}
		for _, b := range c.GetBackoffs() {
			add("backoff", "cluster/"+c.GetClusterId(), b, "the end of its backoff, or bigfleet backoff clear --cluster "+c.GetClusterId())
		}
	}
	return out
}
