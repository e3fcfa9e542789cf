// Package pause is `bigfleet pause` and `bigfleet resume`: stop actuation now, shard by shard, without the coordinator's help.
package pause

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// New returns `pause`.
func New(a *app.App) *cobra.Command {
	var all bool
	var kinds []string
	var cluster, provider string
	var expires time.Duration
	c := &cobra.Command{
		Use: "pause (--all | --shard SHARD)", Args: cobra.NoArgs,
		Short:   "Pause all actions, or those of one kind, cluster or provider",
		Example: "  bigfleet pause --all --reason 'storage incident' --for 2h\n  bigfleet pause --shard shard-0 --kind reclaim --cluster red --reason 'migration'",
		RunE: func(c *cobra.Command, _ []string) error {
			if all == c.Flags().Changed("shard") {
				return exit.Usagef("name the shards: either --all or --shard SHARD")
			}
			if expires < 0 || c.Flags().Changed("for") && expires < time.Second {
				return exit.Usagef("--for %v: it must be at least 1s", expires)
			}
			if expires%time.Second != 0 {
				return exit.Usagef("--for %v: want whole seconds", expires)
			}
			req := &bigfleetv1alpha1.PauseActuationRequest{
				ClusterId: cluster, Provider: provider, Reason: a.Reason, TtlSeconds: int64(expires.Seconds()), ValidateOnly: a.DryRun,
			}
			for _, k := range kinds {
				n := bigfleetv1alpha1.ActionKind_value["ACTION_KIND_"+strings.ToUpper(k)]
				if n == 0 {
					return exit.Usagef("--kind %s is unknown: use bootstrap, provision, preempt, reclaim or delete", k)
				}
				req.Kinds = append(req.Kinds, bigfleetv1alpha1.ActionKind(n))
			}
			return run(c.Context(), a, req)
		},
	}
	c.Flags().BoolVar(&all, "all", false, "every shard")
	c.Flags().StringSliceVar(&kinds, "kind", nil, "only these kinds: bootstrap, provision, preempt, reclaim, delete; default all")
	c.Flags().StringVar(&cluster, "cluster", "", "only actions for this cluster")
	c.Flags().StringVar(&provider, "provider", "", "only actions at this provider")
	c.Flags().DurationVar(&expires, "for", 0, "expires after this duration; default: never")
	return a.Mutates(c)
}

func run(ctx context.Context, a *app.App, req *bigfleetv1alpha1.PauseActuationRequest) error {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	for _, x := range [][2]string{{"cluster", req.GetClusterId()}, {"provider", req.GetProvider()}} {
		if x[1] == "" {
			continue
		}
		if err := fleet.Known(ctx, f, shards, x[0], x[1]); err != nil {
			return err
		}
	}
	if err := a.Confirm("Pauses %s on %s. Running nodes are not touched.", scope(req), output.Count(len(shards), "shard")); err != nil {
		return err
	}
	answers, failed := fleet.Each(ctx, f, shards, "pausing", func(ctx context.Context, s fleet.Shard) (*bigfleetv1alpha1.PauseActuationResponse, error) {
		got, err := s.Admin.PauseActuation(ctx, connect.NewRequest(req))
		if err != nil {
			return nil, err
		}
		return got.Msg, nil
	})
	l := output.List{Columns: []output.Column{{Head: "SHARD"}, {Head: "PAUSE"}, {Head: "UNTIL"}}}
	for i, p := range answers {
		if p == nil {
			continue
		}
		pause := (*p).GetPause()
		l.Items = append(l.Items, *p)
		l.Names = append(l.Names, "pause/"+pause.GetPauseId())
		l.Rows = append(l.Rows, []string{shards[i].Label(), cmp.Or(pause.GetPauseId(), "dry run"), output.Time(pause.GetExpiresAtUnixNanos())})
	}
	if err := a.Format.Write(a.Out, l); err != nil {
		return err
	}
	return failed
}

func scope(req *bigfleetv1alpha1.PauseActuationRequest) string {
	what := "all actions"
	if len(req.GetKinds()) > 0 {
		names := make([]string, len(req.GetKinds()))
		for i, k := range req.GetKinds() {
			names[i] = output.Enum("ACTION_KIND_", k.String())
		}
		what = strings.Join(names, ", ")
	}
	if req.GetClusterId() != "" {
		what += " for cluster " + req.GetClusterId()
	}
	if req.GetProvider() != "" {
		what += " at provider " + req.GetProvider()
	}
	return what
}

// NewResume returns `resume`.
func NewResume(a *app.App) *cobra.Command {
	var all bool
	c := a.Mutates(&cobra.Command{
		Use: "resume PAUSE", Args: cobra.MaximumNArgs(1),
		Short:   "End a pause, or all of them",
		Example: "  bigfleet resume p-1 --shard shard-0 --reason 'incident over'\n  bigfleet resume --all --reason 'incident over'",
		RunE: func(c *cobra.Command, args []string) error {
			if all == (len(args) == 1) {
				return exit.Usagef("name one pause, or all with --all; `bigfleet get pauses` lists them")
			}
			for i := range args {
				args[i] = strings.TrimPrefix(args[i], "pause/") // as -o name prints it
			}
			return resume(c.Context(), a, args)
		},
	})
	c.Flags().BoolVar(&all, "all", false, "end every pause of every shard, except those that a start-up flag made")
	return c
}

// resume ends a pause on every shard that has it, or every pause.
func resume(ctx context.Context, a *app.App, ids []string) error {
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	what, missing := "every pause", &exit.Error{Code: exit.NotFound, Message: "no shard has a pause that can be ended", Hint: "`bigfleet get pauses` lists them"}
	if len(ids) > 0 {
		what, missing.Message = "pause "+ids[0], "no shard has a pause "+ids[0]
	}
	if err := a.Confirm("Ends %s.", what); err != nil {
		return err
	}
	answers, failed := fleet.Each(ctx, f, shards, "resuming", func(ctx context.Context, s fleet.Shard) (ended []string, err error) {
		of := ids
		if len(of) == 0 {
			if of, err = pausesOf(ctx, s); err != nil {
				return nil, err
			}
		}
		for _, id := range of {
			_, err := s.Admin.ResumeActuation(ctx, connect.NewRequest(&bigfleetv1alpha1.ResumeActuationRequest{PauseId: id, Reason: a.Reason, ValidateOnly: a.DryRun}))
			if connect.CodeOf(err) == connect.CodeNotFound {
				continue
			}
			if err != nil {
				return ended, err
			}
			ended = append(ended, id)
		}
		return ended, nil
	})
	lifted := 0
	for i, ended := range answers {
		if ended == nil {
			continue
		}
		for _, id := range *ended {
			lifted++
			_, _ = fmt.Fprintf(a.Out, "%s: ended %s\n", shards[i].Label(), id)
		}
	}
	if lifted == 0 && failed == nil {
		return missing
	}
	return failed
}

// byFlag is the pause of the flag that a shard was started with: only a restart ends it.
const byFlag = "flag"

func pausesOf(ctx context.Context, s fleet.Shard) (ids []string, err error) {
	got, err := s.Read.GetStatus(ctx, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
	if err != nil {
		return nil, err
	}
	for _, p := range got.Msg.GetPauses() {
		if p.GetPauseId() != byFlag {
			ids = append(ids, p.GetPauseId())
		}
	}
	return ids, nil
}
