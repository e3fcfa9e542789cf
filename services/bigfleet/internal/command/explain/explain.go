// Package explain is `bigfleet explain SUBJECT`: why a need is met or waits, why a machine is kept or goes.
//
// The answer is the shard's own (ShardRead.Explain); this package words it in the order of OPS-4.15 and computes nothing.
package explain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// New returns the verb.
func New(a *app.App) *cobra.Command {
	return a.Watchable(&cobra.Command{
		Use: "explain SUBJECT", Args: cobra.ExactArgs(1),
		Short:   "Why a need is met or waits, why a machine is kept",
		Example: "  bigfleet explain need/red/r-1f2e3d\n  bigfleet explain machine/m-0001",
		RunE: func(c *cobra.Command, args []string) error {
			s, err := subject.Parse(args[0], subject.Need, subject.Machine)
			if err != nil {
				return err
			}
			return a.Read(c.Context(), func(ctx context.Context) error { return run(ctx, a, s) })
		},
	})
}

func run(ctx context.Context, a *app.App, s subject.Subject) error {
	req := &bigfleetv1alpha1.ExplainRequest{}
	if s.Kind == subject.Need {
		req.Subject = &bigfleetv1alpha1.ExplainRequest_Need{Need: s.NeedRef()}
	} else {
		req.Subject = &bigfleetv1alpha1.ExplainRequest_MachineId{MachineId: s.Name}
	}
	got, err := first(ctx, a, s, req)
	if err != nil {
		return err
	}
	if !a.Format.ForPeople() {
		return a.Format.Message(a.Out, got)
	}
	say(a, a.Out, s, got)
	return nil
}

// first asks the shards until one knows the subject.
func first(ctx context.Context, a *app.App, s subject.Subject, req *bigfleetv1alpha1.ExplainRequest) (*bigfleetv1alpha1.ExplainResponse, error) {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return nil, err
	}
	answers, failed := fleet.Each(ctx, f, shards, "explaining "+s.String(), func(ctx context.Context, sh fleet.Shard) (*bigfleetv1alpha1.ExplainResponse, error) {
		got, err := sh.Read.Explain(ctx, connect.NewRequest(req))
		if connect.CodeOf(err) == connect.CodeNotFound {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	})
	for _, got := range answers {
		if got != nil && *got != nil {
			return *got, nil
		}
	}
	notFound := &exit.Error{Code: exit.NotFound, Say: "no shard knows " + s.String(), Hint: "`bigfleet get " + string(s.Kind) + "s` lists them"}
	return nil, errors.Join(failed, notFound)
}

func say(a *app.App, w io.Writer, s subject.Subject, r *bigfleetv1alpha1.ExplainResponse) {
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format+"\n", args...) }
	line("%s", r.GetVerdict())
	if since := r.GetNeed().GetUnmetSinceUnixNanos(); since != 0 {
		line("Since %s (%s).", output.Time(since), output.Age(a.Now(), since))
	}
	if m := r.GetMachine(); m != nil {
		sayMachine(line, a, m)
	}
	if len(r.GetFunnel()) > 0 {
		line("\nMachines that could serve it:")
		for _, f := range r.GetFunnel() {
			line("  %6d  %-10s %s", f.GetMachines(), f.GetStep(), f.GetWhy())
		}
	}
	for _, k := range slices.Sorted(maps.Keys(r.GetWithheld())) {
		line("  withheld: %d for %s", r.GetWithheld()[k], k)
	}
	if len(r.GetWinners()) > 0 {
		line("\nWho holds them instead:")
		for _, h := range r.GetWinners() {
			line("  %d machines  need/%s/%s  priority %d: %s", h.GetMachines(), h.GetNeed().GetClusterId(), h.GetNeed().GetRowId(), h.GetPriority(), h.GetWhy())
		}
	}
	if len(r.GetDomains()) > 0 {
		line("\nDomains:")
		for _, d := range r.GetDomains() {
			line("  %-20s covers %.1f%%", d.GetDomain(), float64(d.GetCoveragePerMille())/10)
		}
	}
	if len(r.GetCandidates()) > 0 {
		line("\nCandidates, cheapest first:")
		for _, c := range r.GetCandidates() {
			line("  %-24s %s + %.4f x $%.2f = %s  %s", c.GetMachineId(), output.Dollars(c.GetPricePerHour()), c.GetInterruptionProbability(), c.GetInterruptionPenaltyDollars(), output.Dollars(c.GetEffectiveCost()), c.GetWhy())
		}
	}
	if r.GetNearestMiss() != "" {
		line("\nNearest miss: %s", r.GetNearestMiss())
	}
	if r.GetSuggestion() != "" {
		line("Try: %s", r.GetSuggestion())
	}
	line("\nCycle %d, %s old. More: bigfleet history %s", r.GetCycle(), output.Age(a.Now(), r.GetCycleAtUnixNanos()), s)
}

func sayMachine(line func(string, ...any), a *app.App, m *bigfleetv1alpha1.GetMachineResponse) {
	v := m.GetMachine().GetMachine()
	line("%s is %s since %s: %s, %s, zone %s, %s.", v.GetId(), output.Enum("MACHINE_STATE_", v.GetState().String()), output.Age(a.Now(), m.GetMachine().GetStateSinceUnixNanos()),
		v.GetInstanceType(), output.Enum("CAPACITY_TYPE_", v.GetCapacityType().String()), output.Dash(v.GetZone()), output.Dollars(v.GetPricePerHour()))
	if m.GetKeepText() != "" {
		line("%s", m.GetKeepText())
	}
	if h := m.GetHoldUntilUnixNanos(); h != 0 {
		line("Held until %s.", output.Time(h))
	}
	if d := m.GetDrain(); d != nil {
		line("Draining: %d Pods left, deadline %s.", d.GetPodsLeft(), output.Time(d.GetDeadlineUnixNanos()))
	}
}
