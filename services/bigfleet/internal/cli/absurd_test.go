package cli_test

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/console"
	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	"github.com/bigfleet-dev/bigfleet/services/kit/config/configtest"
	"github.com/bigfleet-dev/bigfleet/services/operator"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller"
	"github.com/bigfleet-dev/bigfleet/services/providers/kwok"
	"github.com/bigfleet-dev/bigfleet/services/providers/sim"
	shardrole "github.com/bigfleet-dev/bigfleet/services/shard"
)

// OPS-2.3: no number is rounded, defaulted or clamped silently, by any role. e2e/charts has the providers that this program does not hold.
func TestAbsurdNumbersAreRefusedOrMeant(t *testing.T) {
	for role, r := range map[string]struct {
		command func() *cobra.Command
		base    []string
	}{
		"shard":         {shardrole.NewCommand, []string{"--provider-addr", "a:1"}},
		"coordinator":   {func() *cobra.Command { return coordinator.NewCommand() }, []string{"--id", "node-0"}},
		"operator":      {operator.NewCommand, []string{"--cluster-id", "red", "--shard-addr", "a:1"}},
		"podcontroller": {podcontroller.NewCommand, nil},
		"console":       {func() *cobra.Command { return console.NewCommand() }, nil},
		"provider-sim":  {sim.NewCommand, nil},
		"provider-kwok": {kwok.NewCommand, nil},
	} {
		t.Run(role, func(t *testing.T) { configtest.RefusesAbsurd(t, r.command, r.base...) })
	}
}
