// Package doctor is `bigfleet doctor`: it looks at everything that commonly goes wrong and says how to put it right (OPS-4.21).
//
// Each check yields findings: ok, warn or fail, each with a remedy when it is not ok. A check that cannot look says so, as a
// finding of its own; nothing is guessed. It only reads. Start at run.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

type level string

const (
	ok   level = "ok"
	warn level = "warn"
	fail level = "fail"
)

// finding is one thing looked at.
type finding struct {
	Level   level  `json:"level"`
	About   string `json:"about"`
	Message string `json:"say"`
	Fix     string `json:"fix,omitempty"`
}

// report collects findings in the order in which they were made.
type report struct{ findings []finding }

func (r *report) ok(about, message string, args ...any) { r.add(ok, about, "", message, args...) }
func (r *report) warn(about, fix, message string, args ...any) {
	r.add(warn, about, fix, message, args...)
}
func (r *report) fail(about, fix, message string, args ...any) {
	r.add(fail, about, fix, message, args...)
}

// silent is a process that was reached and does not tell its status, with the remedy that belongs to why.
func (r *report) silent(about string, err error) {
	message, fix := err.Error(), "Check its log"
	var known *exit.Error
	if errors.As(exit.Of("", err), &known) && known.Hint != "" {
		message, fix = strings.TrimPrefix(known.Message, ": "), known.Hint
	}
	r.fail(about, fix, "its status cannot be read: %s", message)
}

func (r *report) add(l level, about, fix, message string, args ...any) {
	r.findings = append(r.findings, finding{l, about, fmt.Sprintf(message, args...), fix})
}

func (r *report) count(l level) (n int) {
	for _, f := range r.findings {
		if f.Level == l {
			n++
		}
	}
	return n
}

// flags beside the global ones.
type flags struct {
	clusterOnly     bool
	operatorAccount string
}

// Limits of what is still healthy.
const (
	skewMax     = 2 * time.Second // the Date header has a resolution of one second
	expiryWarn  = 7 * 24 * time.Hour
	pauseOld    = 24 * time.Hour
	reportOld   = time.Minute
	inventoryOK = 60.0 // seconds
	leaseOld    = time.Minute
)

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var f flags
	c := a.Watchable(&cobra.Command{
		Use: "doctor", Args: cobra.NoArgs,
		Short:   "Find problems and show how to fix them",
		Example: "  bigfleet doctor\n  bigfleet doctor --shard 127.0.0.1:7780\n  bigfleet doctor --cluster-only --kubeconfig red.kubeconfig",
		RunE: func(c *cobra.Command, _ []string) error {
			return a.Read(c.Context(), func(ctx context.Context) error { return run(ctx, a, f) })
		},
	})
	c.Flags().BoolVar(&f.clusterOnly, "cluster-only", false, "check only the managed cluster; by default it is checked when --kubeconfig or --kube-context is given")
	c.Flags().StringVar(&f.operatorAccount, "as", "system:serviceaccount:bigfleet-system:bigfleet-operator", "account whose permissions in the cluster are checked; empty means your own")
	return c
}

func run(ctx context.Context, a *app.App, f flags) error {
	r := &report{}
	if !f.clusterOnly {
		if err := fleetChecks(ctx, a, r); err != nil {
			return err
		}
	}
	if f.clusterOnly || a.HasKube() {
		clusterChecks(ctx, a, r, f)
	}
	if err := show(a, r); err != nil {
		return err
	}
	if n := r.count(fail); n > 0 {
		return &exit.Error{Code: exit.Problems, Reason: "findings", Message: fmt.Sprintf("%d failed, %d warnings", n, r.count(warn))}
	}
	if a.Format.ForPeople() {
		a.Notef("nothing failed, %d warnings", r.count(warn))
	}
	return nil
}

func show(a *app.App, r *report) error {
	if !a.Format.ForPeople() {
		l := output.List{Columns: []output.Column{{Head: "LEVEL"}, {Head: "ABOUT"}, {Head: "MESSAGE"}, {Head: "FIX"}}}
		for _, f := range r.findings {
			l.Objects, l.Rows = append(l.Objects, f), append(l.Rows, []string{fmt.Sprint(f.Level), f.About, f.Message, f.Fix})
		}
		return a.Format.Write(a.Out, l)
	}
	for _, f := range r.findings {
		if _, err := fmt.Fprintf(a.Out, "%-4s  %s: %s\n", f.Level, output.Text(f.About), output.Text(f.Message)); err != nil {
			return err
		}
		if f.Fix != "" {
			_, _ = fmt.Fprintf(a.Out, "      -> %s\n", f.Fix)
		}
	}
	return nil
}
