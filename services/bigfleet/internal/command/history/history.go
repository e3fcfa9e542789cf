// Package history is `bigfleet history SUBJECT` and `bigfleet events`: the decision records of the shards.
package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// New returns `history`.
func New(a *app.App) *cobra.Command {
	var since time.Duration
	var limit int
	var diff []int64
	c := a.Watchable(&cobra.Command{
		Use: "history SUBJECT", Args: cobra.MaximumNArgs(1), ValidArgsFunction: a.CompleteSubjects("need/", "machine/", "cluster/"),
		Short:   "Show past decisions and actions, newest first",
		Example: "  bigfleet history machine/m-0001\n  bigfleet history cluster/red --since 2h\n  bigfleet history --diff 1200,1300",
		RunE: func(c *cobra.Command, args []string) error {
			if len(diff) > 0 {
				return compare(c.Context(), a, args, diff)
			}
			if len(args) == 0 {
				return exit.Usagef("whose history? Write machine/ID, need/CLUSTER/ROW, cluster/ID, shard/ID or move/ID; `bigfleet events` follows all of it")
			}
			s, err := subject.Parse(args[0], subject.Machine, subject.Need, subject.Cluster, subject.Shard, subject.Move)
			if err != nil {
				return err
			}
			return a.Read(c.Context(), func(ctx context.Context) error { return Run(ctx, a, s, since, limit) })
		},
	})
	c.Flags().DurationVar(&since, "since", 0, "not older than this; default as far as the log goes")
	c.Flags().Int64SliceVar(&diff, "diff", nil, "compare the plans of two cycles, FIRST,SECOND; with cluster/ID, only for that cluster")
	c.Flags().IntVar(&limit, "limit", 100, "at most this many records")
	return c
}

// Run prints the records of one subject.
func Run(ctx context.Context, a *app.App, s subject.Subject, since time.Duration, limit int) error {
	if limit < 1 {
		return exit.Usagef("--limit %d: want at least 1", limit)
	}
	if since < 0 {
		return exit.Usagef("--since %v: want more than 0", since)
	}
	f, shards, err := a.Shards(ctx)
	if err != nil {
		return err
	}
	if s.Kind == subject.Shard {
		if shards, err = only(ctx, f, shards, s.Name); err != nil {
			return err
		}
	}
	about := func(*bigfleetv1alpha1.DecisionRecord) bool { return true }
	if s.Kind == subject.Move {
		if about, err = ofMove(ctx, f, s); err != nil {
			return err
		}
	}
	var truncated bool
	var mu sync.Mutex
	answers, failed := fleet.Each(ctx, f, shards, "reading the history", func(ctx context.Context, sh fleet.Shard) ([]*bigfleetv1alpha1.DecisionRecord, error) {
		records, cut, err := read(ctx, a, sh, s, since, limit, about)
		mu.Lock()
		truncated = truncated || cut
		mu.Unlock()
		return records, err
	})
	var all []*bigfleetv1alpha1.DecisionRecord
	for _, r := range answers {
		if r != nil {
			all = append(all, *r...)
		}
	}
	slices.SortStableFunc(all, func(x, y *bigfleetv1alpha1.DecisionRecord) int {
		return cmp.Compare(y.GetAtUnixNanos(), x.GetAtUnixNanos())
	})
	if len(all) > limit {
		all = all[:limit]
	}
	if len(all) == 0 && failed != nil {
		return failed
	}
	if len(all) == 0 {
		return &exit.Error{Code: exit.NotFound, Message: "the log has no record of " + s.String(), Hint: "It may be older than the log, or misspelled"}
	}
	if err := a.Format.Write(a.Out, table(all)); err != nil {
		return err
	}
	if truncated {
		a.Notef("older records are no longer in the log")
	}
	return failed
}

// only is the shard of that id. One that was named by its address says itself which it is.
func only(ctx context.Context, f *fleet.Fleet, shards []fleet.Shard, id string) ([]fleet.Shard, error) {
	for _, sh := range shards {
		if sh.ID == "" {
			bounded, cancel := f.Deadline(ctx)
			defer cancel()
			got, err := sh.Read.GetStatus(bounded, connect.NewRequest(&bigfleetv1alpha1.GetStatusRequest{}))
			if err != nil {
				return nil, fleet.Unanswered("the status of "+sh.Label(), err)
			}
			sh.ID = got.Msg.GetShardId()
		}
		if sh.ID == id {
			return []fleet.Shard{sh}, nil
		}
	}
	return nil, &exit.Error{Code: exit.NotFound, Message: "there is no shard " + id, Hint: "`bigfleet get shards` lists them"}
}

func read(ctx context.Context, a *app.App, sh fleet.Shard, s subject.Subject, since time.Duration, limit int, about func(*bigfleetv1alpha1.DecisionRecord) bool) (out []*bigfleetv1alpha1.DecisionRecord, truncated bool, err error) {
	req := &bigfleetv1alpha1.GetMachineHistoryRequest{PageSize: int32(min(limit, 5000))}
	switch s.Kind {
	case subject.Machine:
		req.Subject = &bigfleetv1alpha1.GetMachineHistoryRequest_MachineId{MachineId: s.Name}
	case subject.Need:
		req.Subject = &bigfleetv1alpha1.GetMachineHistoryRequest_Need{Need: s.NeedRef()}
	case subject.Cluster:
		req.Subject = &bigfleetv1alpha1.GetMachineHistoryRequest_ClusterId{ClusterId: s.Name}
	}
	if since > 0 {
		req.SinceUnixNanos = a.Now().Add(-since).UnixNano()
	}
	for len(out) < limit {
		got, err := sh.Read.GetMachineHistory(ctx, connect.NewRequest(req))
		if connect.CodeOf(err) == connect.CodeNotFound {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, err
		}
		for _, r := range got.Msg.GetRecords() {
			if about(r) {
				out = append(out, r)
			}
		}
		truncated = truncated || got.Msg.GetTruncated()
		if req.PageToken = got.Msg.GetNextPageToken(); req.PageToken == "" {
			break
		}
	}
	return out, truncated, nil
}

// ofMove tells the records of a move between shards: those that name it, and those of its machines since it was begun.
func ofMove(ctx context.Context, f *fleet.Fleet, s subject.Subject) (func(*bigfleetv1alpha1.DecisionRecord) bool, error) {
	move, err := f.Move(ctx, s.Name)
	if err != nil {
		return nil, err
	}
	return func(r *bigfleetv1alpha1.DecisionRecord) bool {
		return strings.Contains(r.GetDetail(), s.Name) || r.GetAtUnixNanos() >= move.GetStartedAtUnixNanos() && slices.Contains(move.GetMachineIds(), r.GetMachineId())
	}, nil
}

func table(records []*bigfleetv1alpha1.DecisionRecord) output.List {
	l := output.List{Columns: []output.Column{
		{Head: "TIME"}, {Head: "WHAT"}, {Head: "MACHINE"}, {Head: "CLUSTER"}, {Head: "CAUSE"}, {Head: "OUTCOME"}, {Head: "TOOK"}, {Head: "DETAIL"},
		{Head: "CYCLE", Wide: true}, {Head: "ACTOR", Wide: true}, {Head: "OPERATION", Wide: true}, {Head: "SHARD", Wide: true},
	}}
	for _, r := range records {
		l.Items = append(l.Items, r)
		l.Names = append(l.Names, name(r))
		l.Rows = append(l.Rows, row(r))
	}
	return l
}

func name(r *bigfleetv1alpha1.DecisionRecord) string {
	return fmt.Sprintf("record/%s/%d", r.GetShardId(), r.GetSequence())
}

func row(r *bigfleetv1alpha1.DecisionRecord) []string {
	what := output.Enum("RECORD_TYPE_", r.GetType().String())
	if r.GetKind() != 0 {
		what = output.Enum("ACTION_KIND_", r.GetKind().String()) + " " + what
	}
	took := ""
	if d := r.GetDurationNanos(); d != 0 {
		took = time.Duration(d).Round(time.Millisecond).String()
	}
	return []string{
		output.Time(r.GetAtUnixNanos()), what, output.Dash(r.GetMachineId()), output.Dash(r.GetClusterId()), output.Dash(r.GetCause()), output.Dash(r.GetOutcome()),
		output.Dash(took), r.GetDetail(), fmt.Sprint(r.GetCycle()), output.Dash(r.GetActor()), output.Dash(r.GetOperationId()), r.GetShardId(),
	}
}
