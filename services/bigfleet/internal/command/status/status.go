// Package status is `bigfleet status`: the fleet on one screen, worst things first.
package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

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
		Short:   "The fleet on one screen",
		Example: "  bigfleet status\n  bigfleet status --shard 127.0.0.1:7780 -o json",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.Read(c.Context(), func(ctx context.Context) error { return run(ctx, a) })
		},
	})
}

func run(ctx context.Context, a *app.App) error {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	answers, failed := fleet.Each(ctx, f, shards, "reading the status", func(ctx context.Context, s fleet.Shard) (*bigfleetv1alpha1.GetStatusResponse, error) {
		got, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	})
	var list output.List
	for i, s := range answers {
		if s == nil {
			continue
		}
		list.Items = append(list.Items, proto.Message(*s))
		list.Names = append(list.Names, "shard/"+cmp.Or((*s).GetShardId(), shards[i].Address))
		if a.Format.ForPeople() {
			print(a, *s)
		}
	}
	if !a.Format.ForPeople() {
		if err := a.Format.Write(a.Out, list); err != nil {
			return err
		}
	}
	return failed
}

func print(a *app.App, s *bigfleetv1alpha1.GetStatusResponse) {
	now := a.Now()
	state := "ready"
	if !s.GetReady() {
		state = "not ready: " + strings.Join(s.GetNotReadyReasons(), "; ")
	}
	line := func(head, format string, args ...any) {
		_, _ = fmt.Fprintf(a.Out, "%-11s %s\n", head, fmt.Sprintf(format, args...))
	}
	line("shard", "%s  %s  epoch %d  up %s", s.GetShardId(), state, s.GetShardEpoch(), output.Age(now, s.GetStartedAtUnixNanos()))
	line("cycle", "%d, %s ago, took %.1f ms", s.GetCycle(), output.Age(now, s.GetCycleAtUnixNanos()), float64(s.GetCycleDurationNanos())/1e6)
	line("needs", "%d, %d of them not satisfied", s.GetNeeds(), s.GetUnsatisfiedNeeds())
	line("machines", "%s", counts(s.GetMachinesByState(), "MACHINE_STATE_"))
	line("clusters", "%d connected, %d silent", s.GetSessions(), s.GetSilentClusters())
	line("spend", "%s", output.Dollars(s.GetCostPerHour()))
	for _, p := range s.GetProviders() {
		line("provider", "%s at %s: %d machines, read %.0f s ago (%s), breaker %s", p.GetName(), p.GetAddress(), p.GetMachines(), p.GetInventoryAgeSeconds(), p.GetListMode(), p.GetBreaker())
		for _, pool := range p.GetStockedOutPools() {
			next := "next try " + output.Time(pool.GetRetryAtUnixNanos())
			if pool.GetRetryAtUnixNanos() < now.UnixNano() {
				next = "tried again with the next need"
			}
			line("stock-out", "%s, refused %s, %s", pool.GetPool(), output.Count(int(pool.GetFailures()), "time"), next)
		}
	}
	if w := counts(s.GetWaiting(), "ACTION_KIND_"); w != "none" {
		line("waiting", "%s", w)
	}
	if w := counts(s.GetInFlight(), "ACTION_KIND_"); w != "none" {
		line("in flight", "%s", w)
	}
	if s.GetDryRun() {
		line("DRY RUN", "decisions are made and not carried out")
	}
	if s.GetSuperseded() {
		line("SUPERSEDED", "a newer process of this shard exists; this one does nothing any more")
	}
	for _, p := range s.GetPauses() {
		line("PAUSED", "%s: %s, by %s, until %s (lift with: bigfleet resume %s)", p.GetPauseId(), p.GetReason(), p.GetActor(), output.Time(p.GetExpiresAtUnixNanos()), p.GetPauseId())
	}
	for _, d := range s.GetDrains() {
		blocked := ""
		if len(d.GetBlockingBudgets()) > 0 {
			blocked = ", blocked by " + strings.Join(d.GetBlockingBudgets(), ", ")
		}
		line("drain", "%s of %s: %s left%s, deadline %s", d.GetMachineId(), d.GetClusterId(), output.Count(int(d.GetPodsLeft()), "Pod"), blocked, output.Time(d.GetDeadlineUnixNanos()))
	}
	for _, w := range s.GetWarnings() {
		line("warning", "%s", w)
	}
}

// counts words a map of enum name to number, in the order of the names, without zeros.
func counts(m map[string]int32, prefix string) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] != 0 {
			out = append(out, fmt.Sprintf("%d %s", m[k], output.Enum(prefix, k)))
		}
	}
	if len(out) == 0 {
		return "none"
	}
	return strings.Join(out, ", ")
}
