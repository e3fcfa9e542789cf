package cli_test

import (
	"testing"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
)

// OPS-4.11: a reader of `bigfleet --help` finds each verb under what they want to do.
func TestEveryVerbHasASection(t *testing.T) {
	for _, c := range cli.New(app.New(env.System())).Commands() {
		if !c.Hidden && c.GroupID == "" {
			t.Errorf("`bigfleet --help` has `%s` under no heading", c.Name())
		}
	}
}
