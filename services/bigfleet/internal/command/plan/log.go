package plan

import (
	"errors"
	"fmt"
	"io/fs"

	"connectrpc.com/connect"
	"github.com/spf13/pflag"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// Again are the flags with which `bigfleet replay` plans once more where it ends.
type Again struct {
	what
	Policy map[string]string
	given  *pflag.FlagSet
}

// Bind adds the flags.
func (g *Again) Bind(fs *pflag.FlagSet) {
	g.given = pflag.NewFlagSet("again", pflag.ContinueOnError)
	g.bind(g.given)
	bindPolicy(g.given, &g.Policy, "")
	fs.AddFlagSet(g.given)
}

// Request is what to plan; nil when no flag asks for it.
func (g *Again) Request(a *app.App) (*bigfleetv1alpha1.PlanRequest, error) {
	asked := false
	g.given.VisitAll(func(f *pflag.Flag) { asked = asked || f.Changed })
	if !asked {
		return nil, nil
	}
	return g.request(a)
}

// Show prints the plan of a replay, except as data, where the caller does; it fails for what --fail-on names.
func (g *Again) Show(a *app.App, got *shard.ReplayResult) error {
	if got.Plan == nil {
		return errTooEarly
	}
	if a.Format.ForPeople() {
		return show(a, []answer{ofLog(got)}, g.failOn, nil)
	}
	return failing(matches(got.Plan, g.failOn))
}

var errTooEarly = &exit.Error{Code: exit.NotFound, Message: "the shard knew nothing yet at that point of the log", Hint: "Choose a later one with --stop-at; `bigfleet replay` says how many steps there are"}

func ofLog(got *shard.ReplayResult) answer {
	return answer{got.Plan, fmt.Sprintf("%s, epoch %d, after step %d of its log", got.Shard, got.Epoch, got.Steps)}
}

// LogError words why a log could not be replayed.
func LogError(dir string, err error) error {
	var known *connect.Error
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &exit.Error{Code: exit.NotFound, Message: fmt.Sprintf("there is no decision log in %s", dir), Hint: "Name the shard's --data-dir (with `bigfleet up --data-dir DIR` it is DIR/shard); --decision-log-retention 0 writes none", Err: err}
	case errors.Is(err, shard.ErrReplayDiverged):
		return &exit.Error{Code: exit.Problems, Reason: "diverged", Message: "replay: " + err.Error(), Hint: "This build decides differently from the build that wrote the log: `bigfleet replay` shows its version", Err: err}
	case errors.As(err, &known):
		return exit.Of("planning from the log", err)
	}
	return &exit.Error{Code: exit.Failed, Message: "replay: " + err.Error(), Err: err}
}
