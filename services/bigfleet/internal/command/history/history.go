// Package history is `bigfleet history SUBJECT` and `bigfleet events`: the decision records of the shards.
package history

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/when"
)

// Span selects records: those of a time, and of them the newest.
type Span struct {
	From, To time.Time // zero: as far as the log goes; now
	Limit    int
}

// New returns `history`.
func New(a *app.App) *cobra.Command {
	var since, from, to string
	var limit int
	var diff []string
	c := a.Watchable(&cobra.Command{
		Use: "history [SUBJECT]", Args: cobra.MaximumNArgs(2), ValidArgsFunction: a.CompleteSubjects("need/", "machine/", "node/", "cluster/", "shard/", "move/"),
		Short: "Show past decisions and actions, newest first",
		Long: "SUBJECT is one of machine/ID, node/NAME, need/CLUSTER/ROW, cluster/ID, shard/ID, move/ID; written KIND/NAME or KIND NAME.\nWithout one the answer is about the whole fleet.\n" +
			"The answer includes machines and Nodes that are gone, as far back as the decision logs go.\n\nA time is " + when.Forms + ".",
		Example: "  bigfleet history machine/m-0001\n  bigfleet history --from 14:00 --to 15:00\n  bigfleet history cluster/red --since 1d\n" +
			"  bigfleet history --diff 1200,1300\n  bigfleet history cluster/red --diff 14:00,14:32",
		RunE: func(c *cobra.Command, args []string) error {
			if len(diff) > 0 {
				return compare(c.Context(), a, args, diff)
			}
			span := Span{Limit: limit}
			for _, x := range []struct {
				flag, text string
				at         *time.Time
			}{{"since", since, &span.From}, {"from", from, &span.From}, {"to", to, &span.To}} {
				if x.text == "" {
					continue
				}
				var err error
				if *x.at, err = when.ParseEnd(x.flag, x.text, span.From, a.Now()); err != nil {
					return err
				}
			}
			if !span.To.IsZero() && span.To.Before(span.From) {
				return exit.Usagef("--to %s is before --from %s", span.To.Format(time.RFC3339), span.From.Format(time.RFC3339))
			}
			var s subject.Subject
			if len(args) > 0 {
				var err error
				if s, err = subject.Of(args, "", subject.Machine, subject.Need, subject.Node, subject.Cluster, subject.Shard, subject.Move); err != nil {
					return err
				}
			}
			return a.Read(c.Context(), func(ctx context.Context) error { return Run(ctx, a, s, span) })
		},
	})
	c.Flags().StringVar(&since, "since", "", "show records from this age, such as 90m or 1d, or time; default: all that the log has")
	c.Flags().StringVar(&from, "from", "", "the same as --since")
	c.Flags().StringVar(&to, "to", "", "show records up to this age or time")
	c.Flags().StringSliceVar(&diff, "diff", nil, "compare the plans of two cycles or times, FIRST,SECOND; one time compares with now; with cluster/ID, only for that cluster")
	c.Flags().IntVar(&limit, "limit", 100, "most records to show")
	c.MarkFlagsMutuallyExclusive("since", "from")
	return c
}

// Run prints the records of one subject, or of the fleet.
func Run(ctx context.Context, a *app.App, s subject.Subject, span Span) error {
	if span.Limit < 1 {
		return exit.Usagef("--limit %d: it must be at least 1", span.Limit)
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
	subjects := []subject.Subject{s}
	if s.Kind == subject.Node {
		machines, left, err := MachinesOf(ctx, f, shards, s.Name)
		if err != nil {
			return err
		}
		if left > 0 {
			a.Notef("the newest %d machines of %s are shown, %d more %s not; `bigfleet history machine/ID` shows the records of one", len(machines), s, left, output.Are(left, "machine"))
		}
		subjects = nil
		for _, m := range machines {
			subjects = append(subjects, subject.Subject{Kind: subject.Machine, Name: m})
		}
	}
	got, failed := gather(ctx, a, f, shards, subjects, span, about)
	if len(got.records) == 0 && failed != nil {
		return failed
	}
	if len(got.records) == 0 {
		return nothing(s, span)
	}
	if err := a.Format.Write(a.Out, table(got.records)); err != nil {
		return err
	}
	switch {
	case got.more:
		oldest := got.records[len(got.records)-1].GetAtUnixNanos()
		a.Notef("the newest %d records are shown; --limit shows more, --to %s older ones", len(got.records), time.Unix(0, oldest).UTC().Format(time.RFC3339Nano))
	case got.truncated:
		a.Notef("older records are no longer in the log")
	}
	return failed
}

func nothing(s subject.Subject, span Span) error {
	what, of := "the log has no record", ""
	if s.Kind != "" {
		of = " of " + s.String()
	}
	if !span.From.IsZero() {
		of += " since " + span.From.Format(time.RFC3339)
	}
	if !span.To.IsZero() {
		of += " until " + span.To.Format(time.RFC3339)
	}
	return &exit.Error{Code: exit.NotFound, Message: what + of, Hint: "It may be misspelled, or older than the log"}
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
	l := output.List{Say: Sentence, Columns: []output.Column{
		{Head: "TIME"}, {Head: "WHAT"}, {Head: "MACHINE"}, {Head: "CLUSTER"}, {Head: "CAUSE", Spare: true}, {Head: "OUTCOME", Spare: true}, {Head: "TOOK", Spare: true}, {Head: "DETAIL", Fold: true},
		{Head: "CYCLE", Wide: true}, {Head: "ACTOR", Wide: true}, {Head: "OPERATION", Wide: true}, {Head: "SHARD", Wide: true},
	}}
	causes := map[string]string{} // by operation: its first record knows more than the others
	for _, r := range records {
		if tookNoPods(r) {
			causes[r.GetOperationId()] = Cause(r)
		}
	}
	for _, r := range records {
		l.Items = append(l.Items, r)
		l.Names = append(l.Names, name(r))
		l.Rows = append(l.Rows, row(r, cmp.Or(causes[r.GetOperationId()], Cause(r))))
	}
	return l
}

func row(r *bigfleetv1alpha1.DecisionRecord, cause string) []string {
	what := output.Enum("RECORD_TYPE_", r.GetType().String())
	if r.GetKind() != 0 {
		what = output.Enum("ACTION_KIND_", r.GetKind().String()) + " " + what
	}
	took := ""
	if d := r.GetDurationNanos(); d != 0 {
		took = time.Duration(d).Round(time.Millisecond).String()
	}
	return []string{
		output.Time(r.GetAtUnixNanos()), what, output.Dash(r.GetMachineId()), output.Dash(r.GetClusterId()), output.Dash(cause), output.Dash(Outcome(r)),
		output.Dash(took), Sentence(r), fmt.Sprint(r.GetCycle()), output.Dash(r.GetActor()), output.Dash(r.GetOperationId()), r.GetShardId(),
	}
}
