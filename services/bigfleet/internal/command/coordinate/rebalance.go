package coordinate

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/protobuf/proto"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

func newRebalanceStatus(a *app.App) *cobra.Command {
	return a.Watchable(&cobra.Command{
		Use: "status", Args: cobra.NoArgs, Short: "Show the rebalancer's policy, and the shortfalls that wait for a move", Example: "  bigfleet rebalance status",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.Read(c.Context(), func(ctx context.Context) error { return rebalanceStatus(ctx, a) })
		},
	})
}

func rebalanceStatus(ctx context.Context, a *app.App) error {
	f, err := a.Fleet()
	if err != nil {
		return err
	}
	var got *bigfleetv1alpha1.GetRebalanceResponse
	err = f.Leader(ctx, "reading the policy", func(ctx context.Context, co fleet.Coordinator) error {
		r, err := co.Admin.GetRebalance(ctx, connect.NewRequest(&bigfleetv1alpha1.GetRebalanceRequest{}))
		if err == nil {
			got = r.Msg
		}
		return err
	})
	if err != nil {
		return err
	}
	if !a.Format.ForPeople() {
		return a.Format.Message(a.Out, got)
	}
	p := got.GetPolicy()
	_, err = fmt.Fprintf(a.Out, "mode %s, moves up to tier %s, at most %d open moves, last sweep %s\n", output.Enum("REBALANCE_MODE_", p.GetMode().String()),
		output.Enum("MOVE_TIER_", p.GetMaxTier().String()), p.GetMaxOpenMoves(), output.Time(got.GetLastSweepAtUnixNanos()))
	if err != nil {
		return err
	}
	var gates []string
	for _, s := range p.GetAgeGatesSeconds() {
		gates = append(gates, (time.Duration(s) * time.Second).String())
	}
	_, err = fmt.Fprintf(a.Out, "a shortfall triggers moves of tier idle, quota and drain after %s; a shard donates at most %g%% of its machines in one sweep\n", strings.Join(gates, ", "), 100*p.GetDonorCap())
	if err != nil {
		return err
	}
	for _, w := range got.GetWaiting() {
		if err := sayWaiting(a, w); err != nil {
			return err
		}
	}
	return nil
}

// sayWaiting prints a shortfall that no move may serve yet, and why.
func sayWaiting(a *app.App, w *bigfleetv1alpha1.WaitingShortfall) error {
	_, err := fmt.Fprintln(a.Out, output.Line("\n%s has been short for %s at priority %d (profile %s). No machine may move to it now:", w.GetShardId(), time.Duration(w.GetAgeSeconds())*time.Second, w.GetPriority(), w.GetFingerprint()))
	for _, d := range w.GetDonors() {
		if err == nil {
			_, err = fmt.Fprintln(a.Out, output.Line("  %s: %s", d.GetShardId(), d.GetReason()))
		}
	}
	return err
}

// rebalance is what a command line says of the policy; what it does not say stays as it is.
type rebalance struct {
	mode     string
	tier     string
	open     int32
	donorCap float64
	gates    []time.Duration
}

var rebalanceFlags = []string{"mode", "max-tier", "max-open", "donor-cap", "age-gates"}

func newRebalanceSet(a *app.App) *cobra.Command {
	var want rebalance
	var given *pflag.FlagSet
	o := order{
		use: "set", args: 0, short: "Change the rebalancer's policy",
		long: "The rebalancer moves machines to a shard whose needs are unmet. Moves of tier idle are of idle machines, and those of tier quota of machines\n" +
			"available to buy: both disturb no workload. A move of tier drain drains machines of lower priority first. Settings without a flag stay unchanged.", example: "  bigfleet rebalance set --mode dry-run\n  bigfleet rebalance set --mode on --max-tier quota",
		says: func([]string) string {
			var out []string
			for _, name := range rebalanceFlags {
				if given.Changed(name) {
					out = append(out, name+" "+given.Lookup(name).Value.String())
				}
			}
			return "Sets rebalancing to " + strings.Join(out, ", ") + "."
		},
		send: func(ctx context.Context, c caller, _ []string) (proto.Message, error) {
			r, err := c.Admin.GetRebalance(ctx, connect.NewRequest(&bigfleetv1alpha1.GetRebalanceRequest{}))
			if err != nil {
				return nil, err
			}
			policy := r.Msg.GetPolicy()
			if err := want.over(policy, given); err != nil {
				return nil, err
			}
			return call(ctx, c, c.Admin.SetRebalance, &bigfleetv1alpha1.SetRebalanceRequest{Policy: policy, ValidateOnly: c.app.DryRun})
		},
	}
	c := o.command(a)
	given = c.Flags()
	given.StringVar(&want.mode, "mode", "", "on, dry-run or off")
	given.StringVar(&want.tier, "max-tier", "", "highest tier of moves: idle, quota or drain; 0 means the default")
	given.Int32Var(&want.open, "max-open", 0, "maximum number of open moves; 0 means the default")
	given.Float64Var(&want.donorCap, "donor-cap", 0, "largest fraction of a shard's machines that it donates in one sweep, up to 1; 0 means the default")
	given.DurationSliceVar(&want.gates, "age-gates", nil, "age of a shortfall that triggers moves of tier idle, quota and drain, for example 60s,60s,3m; 0 means the default")
	c.MarkFlagsOneRequired(rebalanceFlags...)
	return c
}

// over puts what was given into a policy.
func (r rebalance) over(p *bigfleetv1alpha1.RebalancePolicy, given *pflag.FlagSet) error {
	if given.Changed("mode") {
		n := bigfleetv1alpha1.RebalanceMode_value["REBALANCE_MODE_"+strings.ToUpper(strings.ReplaceAll(r.mode, "-", "_"))]
		if n == 0 {
			return exit.Usagef("--mode %s is unknown: use on, dry-run or off", r.mode)
		}
		p.Mode = bigfleetv1alpha1.RebalanceMode(n)
	}
	if given.Changed("max-tier") {
		tier, err := tierOf(r.tier)
		if err != nil {
			return err
		}
		p.MaxTier = tier
	}
	if given.Changed("max-open") {
		p.MaxOpenMoves = r.open
	}
	if given.Changed("donor-cap") {
		p.DonorCap = r.donorCap
	}
	if given.Changed("age-gates") {
		p.AgeGatesSeconds = nil
		for _, d := range r.gates {
			if d != 0 && d < time.Second {
				return exit.Usagef("--age-gates: %v is less than a second", d)
			}
			if d%time.Second != 0 {
				return exit.Usagef("--age-gates: %v: want whole seconds", d)
			}
			p.AgeGatesSeconds = append(p.AgeGatesSeconds, int64(d/time.Second))
		}
	}
	return nil
}

// tierOf reads a tier as it is shown, or by its number.
func tierOf(said string) (bigfleetv1alpha1.MoveTier, error) {
	if n, known := bigfleetv1alpha1.MoveTier_value["MOVE_TIER_"+strings.ToUpper(said)]; known && n != 0 {
		return bigfleetv1alpha1.MoveTier(n), nil
	}
	n, err := strconv.ParseInt(said, 10, 32)
	if _, known := bigfleetv1alpha1.MoveTier_name[int32(n)]; err != nil || !known {
		return 0, exit.Usagef("--max-tier %s is unknown: use idle, quota or drain", said)
	}
	return bigfleetv1alpha1.MoveTier(n), nil
}
