package history

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// NewEvents returns `events`.
func NewEvents(a *app.App) *cobra.Command {
	var cluster, machine string
	c := &cobra.Command{
		Use: "events", Args: cobra.NoArgs,
		Short:   "Follow the decisions of the fleet as they are made",
		Example: "  bigfleet events --cluster red\n  bigfleet events -o jsonl",
		RunE: func(c *cobra.Command, _ []string) error {
			return follow(c.Context(), a, &bigfleetv1alpha1.WatchDecisionsRequest{Follow: true, ClusterId: cluster, MachineId: machine})
		},
	}
	c.Flags().StringVar(&cluster, "cluster", "", "only this cluster")
	c.Flags().StringVar(&machine, "machine", "", "only this machine")
	return c
}

func follow(ctx context.Context, a *app.App, req *bigfleetv1alpha1.WatchDecisionsRequest) error {
	_, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // one line at a time
	var all sync.WaitGroup
	if a.Format.ForPeople() {
		a.Notef("waiting for decisions; `bigfleet history` shows past ones")
	}
	errs := make([]error, len(shards))
	for i, s := range shards {
		all.Go(func() {
			errs[i] = stream(ctx, s, req, func(r *bigfleetv1alpha1.WatchDecisionsResponse) error {
				mu.Lock()
				defer mu.Unlock()
				return write(a, s, r)
			})
		})
	}
	all.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return errors.Join(errs...)
}

func stream(ctx context.Context, s fleet.Shard, req *bigfleetv1alpha1.WatchDecisionsRequest, each func(*bigfleetv1alpha1.WatchDecisionsResponse) error) error {
	what := "following the decisions of " + s.Label()
	got, err := s.Read.WatchDecisions(ctx, connect.NewRequest(req))
	if err != nil {
		return exit.Of(what, err)
	}
	defer func() { _ = got.Close() }()
	for got.Receive() {
		if err := each(got.Msg()); err != nil {
			return err
		}
	}
	return exit.Of(what, got.Err())
}

func write(a *app.App, s fleet.Shard, r *bigfleetv1alpha1.WatchDecisionsResponse) error {
	if n := r.GetSkipped(); n > 0 {
		a.Notef("%s of %s skipped, because this reader was too slow", output.Count(int(n), "record"), s.Label())
	}
	if r.GetRecord() == nil {
		return nil // a sign of life
	}
	if a.Format == output.Name {
		_, err := fmt.Fprintln(a.Out, name(r.GetRecord()))
		return err
	}
	if !a.Format.ForPeople() {
		return a.Format.Next(a.Out, r.GetRecord(), s.Label(), Sentence)
	}
	cells := row(r.GetRecord(), Cause(r.GetRecord()))
	_, err := fmt.Fprintln(a.Out, strings.Join(cells[:8], "  "))
	return err
}
