package operator

import (
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/operator/internal/publish"
)

// OP-5.5, OP-5.6: each way in which a roll-up is not taken, and one that is unusually large, is an event with a reason of its
// own that says what stays in force; one that is taken is none.
func TestRollupEvents(t *testing.T) {
	for name, c := range map[string]struct {
		outcome publish.Outcome
		large   bool
		reason  string
		says    []string
	}{
		"held":      {publish.Outcome{Result: "held", Text: "fewer than a tenth of the rows", HeldCount: 1, HeldNeeded: 3}, false, "RollupHeld", []string{"1 of 3", "stays in force", "a tenth"}},
		"set aside": {publish.Outcome{Result: "rejected", Reason: "too_wide", Text: "state at most 8 for the next 600 s. Until then the machines of this cluster stay"}, false, "RollupRejected", []string{"is set aside by the shard: too_wide: state at most 8"}},
		"rejected":  {publish.Outcome{Result: "rejected", Reason: "quantity", FieldPath: "needs[3].min_unit", Text: "12x is no quantity"}, false, "RollupRejected", []string{"quantity: needs[3].min_unit: 12x", "stays in force"}},
		"too large": {publish.Outcome{Result: "too_large", Rows: 60_000}, true, "RollupTooLarge", []string{"was not sent", "stays in force"}},
		"large":     {publish.Outcome{Result: "accepted", Rows: 1200, Bytes: 99_000}, true, "RollupLarge", []string{"1200 rows", "99000 bytes", "differ unnecessarily"}},
		"taken":     {publish.Outcome{Result: "accepted", Rows: 8}, false, "", nil},
	} {
		reason, message := rollupEvent(c.outcome, c.large)
		if reason != c.reason {
			t.Errorf("%s: reason %q, want %q", name, reason, c.reason)
		}
		for _, part := range c.says {
			if !strings.Contains(message, part) {
				t.Errorf("%s: %q does not say %q", name, message, part)
			}
		}
	}
}
