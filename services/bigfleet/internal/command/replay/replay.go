// Package replay is `bigfleet replay DIR`: it takes a shard's decisions again from its log, without any server.
//
// The work is shard.Replay; this package turns what it found into exit codes: 4 when something came out differently, or when
// the log is damaged, after everything before the damage was replayed.
package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/encoding/protojson"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/plan"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var c shard.ReplayConfig
	var again plan.Again
	cmd := &cobra.Command{
		Use: "replay DIR", Args: cobra.ExactArgs(1), Short: "Repeat a shard's recorded decisions and compare them byte for byte",
		Long: "DIR is a shard's --data-dir, or the decision log in it. It contacts no server and changes nothing.\n" +
			"Exits with 4 if a decision differs, or if the log is damaged; the message says where and why it stopped.\n" +
			"With edits of demand, machines, prices or policy it plans once more at the end, as `bigfleet plan --record DIR --stop-at N` does.",
		Example: "  bigfleet replay /var/lib/bigfleet-shard\n  bigfleet replay ./data --stop-at 1000 --state\n  bigfleet replay ./data --records\n" +
			"  bigfleet replay ./data --stop-at 1000 --price m.8x=0.5",
		RunE: func(cmd *cobra.Command, args []string) error {
			c.Dir = args[0]
			return run(cmd, a, c, &again)
		},
	}
	f := cmd.Flags()
	f.Int64Var(&c.Epoch, "epoch", 0, "epoch of the process that wrote the log; 0 means the newest")
	f.Int64Var(&c.FromSegment, "from-segment", 0, "start at this segment; 0 means the first available")
	f.Int64Var(&c.StopAt, "stop-at", 0, "stop before this step; 0 means the end of the log")
	f.BoolVar(&c.Records, "records", false, "print each decision record as a JSON line")
	f.BoolVar(&c.State, "state", false, "print the machines and clusters at the end")
	again.Bind(f)
	return cmd
}

func run(cmd *cobra.Command, a *app.App, c shard.ReplayConfig, again *plan.Again) error {
	var err error
	if c.Plan, err = again.Request(a); err != nil {
		return err
	}
	c.Policy = again.Policy
	out := a.Out
	if !a.Format.ForPeople() && !c.Records {
		out = io.Discard // the summary comes as an object below
	}
	over := a.Waits("replaying " + c.Dir + " is taking a while …")
	got, err := shard.Replay(cmd.Context(), c, out)
	over()
	if err != nil && !errors.Is(err, shard.ErrReplayDiverged) {
		return plan.LogError(c.Dir, err)
	}
	if !a.Format.ForPeople() && !c.Records {
		if err := encode(a, &got); err != nil {
			return err
		}
	}
	if err != nil {
		return plan.LogError(c.Dir, err)
	}
	if c.Plan != nil {
		if err := again.Show(a, &got); err != nil {
			return err
		}
	}
	if d := got.Damage; d != nil {
		hint := "The file was changed on disk or in a copy; the part before that point is valid"
		if d.Tail {
			hint = "This is normal after a crash, or while the shard is still writing"
		}
		return &exit.Error{Code: exit.Problems, Reason: "damaged", Message: fmt.Sprintf("%s ends at byte %d, entry %d: %s", d.File, d.Offset, d.Entry, d.Why), Hint: hint, Err: d}
	}
	return nil
}

// encode writes how it went as an object, with the plan as messages are written everywhere.
func encode(a *app.App, got *shard.ReplayResult) error {
	whole := struct {
		*shard.ReplayResult
		Plan json.RawMessage `json:",omitempty"`
	}{ReplayResult: got}
	if got.Plan != nil {
		var err error
		if whole.Plan, err = protojson.Marshal(got.Plan); err != nil {
			return err
		}
	}
	return a.Format.Value(a.Out, whole)
}
