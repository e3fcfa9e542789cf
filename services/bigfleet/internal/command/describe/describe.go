// Package describe is `bigfleet describe KIND NAME`: everything about one thing, put together from get, explain and history.
package describe

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/explain"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/get"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/history"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// recordsShown is how much of the past goes with it.
const recordsShown = 10

// New returns the verb. What has no name in a shard, such as a Pod, is for `explain`.
func New(a *app.App) *cobra.Command {
	forms := get.Singulars()
	for i := range forms {
		forms[i] += "/"
	}
	return a.Watchable(&cobra.Command{
		Use: "describe KIND NAME", Args: cobra.RangeArgs(1, 2), Short: "Show everything about one object: its state, the reason and its recent history",
		Long:    "KIND is one that `bigfleet get` lists. KIND/NAME works too.",
		Example: "  bigfleet describe machine m-0001\n  bigfleet describe need red/r-1f2e3d\n  bigfleet describe cluster/red",
		RunE: func(c *cobra.Command, args []string) error {
			kind, name, err := parse(args)
			if err != nil {
				return err
			}
			return a.Read(c.Context(), func(ctx context.Context) error { return run(ctx, a, kind, name) })
		},
		ValidArgsFunction: a.CompleteSubjects(forms...),
	})
}

func parse(args []string) (kind, name string, err error) {
	if len(args) == 2 {
		return args[0], args[1], nil
	}
	for i, r := range args[0] {
		if r == '/' && i > 0 && i < len(args[0])-1 {
			return args[0][:i], args[0][i+1:], nil
		}
	}
	return "", "", exit.Usagef("%q is not a subject: write KIND NAME, for example machine m-0001", args[0])
}

func run(ctx context.Context, a *app.App, kind, name string) error {
	singular, list, err := get.One(ctx, a, kind, name)
	if err != nil {
		return err
	}
	if !a.Format.ForPeople() {
		return a.Format.Write(a.Out, list)
	}
	for i, row := range list.Rows {
		if i > 0 {
			_, _ = fmt.Fprintln(a.Out)
		}
		for c, head := range list.Columns {
			_, _ = fmt.Fprintf(a.Out, "%-14s %s\n", head.Head, output.Text(row[c]))
		}
	}
	s, err := subject.Parse(singular + "/" + name)
	if err != nil {
		return nil // a kind without reasons or a past of its own
	}
	if s.Kind != subject.Shard {
		_, _ = fmt.Fprintln(a.Out, "\nWhy")
		if err := quietly(a, explain.Run(ctx, a, s, "", false)); err != nil {
			return err
		}
	}
	if s.Kind == subject.Move {
		return nil
	}
	_, _ = fmt.Fprintln(a.Out, "\nLast")
	format := a.Format
	a.Format = output.Table
	defer func() { a.Format = format }()
	return quietly(a, history.Run(ctx, a, s, history.Span{Limit: recordsShown}))
}

// quietly lets a part that has nothing to say, or is not served, not spoil the rest.
func quietly(a *app.App, err error) error {
	var known *exit.Error
	if err == nil || !errors.As(err, &known) || known.Code == exit.Unreachable {
		return err
	}
	_, _ = fmt.Fprintf(a.Out, "%s\n", known.Message)
	return nil
}
