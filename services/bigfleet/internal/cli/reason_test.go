package cli_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
)

// OPS-4.8: a verb that adds or sets something takes --reason, and every other verb that changes something requires it. Here is the
// whole list, so that a new verb is put on one of the two sides by a decision.
func TestOneRuleForReasons(t *testing.T) {
	takes := []string{"clusters bind", "crds apply", "domains assign", "domains move", "providers set", "quota set", "raft readmit", "raft transfer-leader", "rebalance set",
		"shards readmit", "shards undrain"}
	requires := []string{"backoff clear", "clusters retire", "clusters unbind", "clusters unretire", "domains finish", "domains unassign", "dry-run", "instructions retry",
		"machines cordon", "machines drain", "machines forget", "machines retry", "machines uncordon", "pause", "providers remove", "quota delete", "raft remove-peer", "rebalance cancel",
		"reconcile", "reservations abandon", "resume", "rollups accept", "shards drain", "shards remove", "shards reset-epoch", "snapshot restore"}
	var took, required []string
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, child := range c.Commands() {
			walk(child)
		}
		if c.Hidden || c.Flags().Lookup("yes") == nil || c.Flags().Lookup("dry-run") == nil {
			return
		}
		verb := strings.TrimPrefix(c.CommandPath(), "bigfleet ")
		reason := c.Flags().Lookup("reason")
		switch {
		case reason == nil:
			t.Errorf("`bigfleet %s` changes something and takes no --reason", verb)
		case len(reason.Annotations[cobra.BashCompOneRequiredFlag]) > 0:
			required = append(required, verb)
		default:
			took = append(took, verb)
		}
	}
	walk(cli.New(app.New(env.System())))
	slices.Sort(took)
	slices.Sort(required)
	if !slices.Equal(took, takes) || !slices.Equal(required, requires) {
		t.Errorf("take --reason: %v\nrequire it: %v", took, required)
	}
}
