package explain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"connectrpc.com/connect"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// explainCluster says how a cluster stands and what holds its release.
func explainCluster(ctx context.Context, a *app.App, s subject.Subject) error {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	stops := make([]*bigfleetv1alpha1.GetStatusResponse, len(shards))
	answers, failed := fleet.Each(ctx, f, shards, "reading "+s.String(), func(ctx context.Context, sh fleet.Shard) (*bigfleetv1alpha1.ClusterView, error) {
		got, err := sh.Read.ListClusters(ctx, connect.NewRequest(&bigfleetv1alpha1.ListClustersRequest{ClusterId: s.Name}))
		if err != nil {
			return nil, err
		}
		for _, c := range got.Msg.GetClusters() {
			if c.GetClusterId() != s.Name {
				continue
			}
			status, err := sh.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
			if err != nil {
				return nil, err
			}
			stops[slices.IndexFunc(shards, func(o fleet.Shard) bool { return o.Label() == sh.Label() })] = status.Msg
			return c, nil
		}
		return nil, nil
	})
	found, list := false, output.List{}
	for i, c := range answers {
		if c == nil || *c == nil {
			continue
		}
		found = true
		if !a.Format.ForPeople() {
			list.Items, list.Shards = append(list.Items, *c), append(list.Shards, shards[i].Label())
			continue
		}
		sayCluster(a, shards[i].Label(), *c, stops[i])
	}
	if len(list.Items) > 0 {
		if err := a.Format.Write(a.Out, list); err != nil {
			return err
		}
	}
	if !found && failed == nil {
		return &exit.Error{Code: exit.NotFound, Message: "no shard knows " + s.String(), Hint: "`bigfleet get clusters` lists them"}
	}
	return failed
}

func sayCluster(a *app.App, shard string, c *bigfleetv1alpha1.ClusterView, stops *bigfleetv1alpha1.GetStatusResponse) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintln(a.Out, output.Line(format, args...)) }
	now := a.Now()
	switch {
	case c.GetRetired():
		line("Cluster %s was retired by an operator request: its machines are released.", c.GetClusterId())
	case !c.GetConnected():
		line("Cluster %s has no session with %s: nothing is bought for it, and its machines are taken only for a higher priority.", c.GetClusterId(), shard)
	case c.GetLastRollupReason() == "too_wide": // WIRE-3.9
		line("The demand of cluster %s is set aside by %s, because it is too wide to plan with: its machines stay, and none is bought for it. `bigfleet history cluster/%s` has the figures.", c.GetClusterId(), shard, c.GetClusterId())
	case c.GetUnsatisfiedNeeds() > 0:
		are := "are"
		if c.GetUnsatisfiedNeeds() == 1 {
			are = "is"
		}
		line("Cluster %s is connected to %s; %d of its %s %s unmet (`bigfleet get needs --cluster %s --unmet`).", c.GetClusterId(), shard, c.GetUnsatisfiedNeeds(), output.Count(int(c.GetNeeds()), "need"), are, c.GetClusterId())
	default:
		line("Cluster %s is connected to %s; all of its demand is met or on the way: %s.", c.GetClusterId(), shard, output.Count(int(c.GetNeeds()), "need"))
	}
	if c.GetConnected() {
		line("Session since %s (%s).", output.Time(c.GetConnectedSinceUnixNanos()), output.Age(now, c.GetConnectedSinceUnixNanos()))
	}
	if c.GetLastRollupAtUnixNanos() == 0 {
		line("It has sent no roll-up since %s started.", shard)
	} else {
		line("Last roll-up %s ago: %s%s.", output.Age(now, c.GetLastRollupAtUnixNanos()), output.Enum("ROLLUP_DISPOSITION_", c.GetLastDisposition().String()), because(c.GetLastRollupReason()))
	}
	if c.GetHeldCount() > 0 {
		line("%d consecutive roll-ups are held; `bigfleet rollups accept %s --reason TEXT` accepts the last one.", c.GetHeldCount(), c.GetClusterId())
	}
	gate := "open: unneeded machines may be released"
	if !c.GetGateOpen() {
		gate = "closed until the shard receives the cluster's first roll-up since it started: nothing is released"
		if c.GetLastRollupAtUnixNanos() != 0 {
			gate = "closed until the shard confirms the cluster's demand: nothing is released"
		}
	}
	line("Its release gate is %s; reclaim budget left %.1f.", gate, c.GetReclaimTokens())
	sayStops(line, c.GetClusterId(), stops)
	for _, b := range c.GetBackoffs() {
		line("Backoff: %s", b)
	}
	line("Machines cost %s. More: bigfleet history cluster/%s", output.Dollars(c.GetCostPerHour()), c.GetClusterId())
}

// sayStops names what people have stopped for a cluster: an open gate releases nothing meanwhile.
func sayStops(line func(string, ...any), cluster string, s *bigfleetv1alpha1.GetStatusResponse) {
	if s.GetDryRun() {
		line("Its shard is in dry run: nothing is executed until `bigfleet dry-run off`.")
	}
	for _, p := range s.GetPauses() {
		if p.GetClusterId() != "" && p.GetClusterId() != cluster {
			continue
		}
		kinds := make([]string, len(p.GetKinds()))
		for i, k := range p.GetKinds() {
			kinds[i] = output.Enum("ACTION_KIND_", k.String())
		}
		what := strings.Join(kinds, ", ")
		if what == "" {
			what = "every action"
		}
		if p.GetProvider() != "" {
			what += " at provider " + p.GetProvider()
		}
		until := "until it is resumed"
		if t := p.GetExpiresAtUnixNanos(); t != 0 {
			until = "until " + output.Time(t)
		}
		line("Paused: %s, %s, by %s: %s. `bigfleet resume %s` ends it.", what, until, p.GetActor(), p.GetReason(), p.GetPauseId())
	}
}

func because(why string) string {
	if why == "" {
		return ""
	}
	return ", because " + strings.TrimSuffix(why, ".")
}

// explainMove says where a move of machines between shards stands.
func explainMove(ctx context.Context, a *app.App, s subject.Subject) error {
	f, err := a.Fleet()
	if err != nil {
		return err
	}
	move, err := f.Move(ctx, s.Name)
	if err != nil {
		return err
	}
	if !a.Format.ForPeople() {
		return a.Format.Message(a.Out, move)
	}
	sayMove(a, move)
	return nil
}

func sayMove(a *app.App, m *bigfleetv1alpha1.Move) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintln(a.Out, output.Line(format, args...)) }
	line("Move %s is %s: %d of %d machines from %s to %s.", m.GetMoveId(), output.Enum("STATE_", m.GetState().String()), len(m.GetMachineIds()), m.GetWanted(),
		m.GetFromShardId(), m.GetToShardId())
	line("Why: %s", output.Dash(m.GetReason()))
	line("Since %s, last change %s ago.", output.Time(m.GetStartedAtUnixNanos()), output.Age(a.Now(), m.GetUpdatedAtUnixNanos()))
	for _, d := range m.GetDonors() {
		taken := "passed over"
		if d.GetTaken() {
			taken = "taken"
		}
		line("  donor %s %s: %s", d.GetShardId(), taken, d.GetReason())
	}
}
