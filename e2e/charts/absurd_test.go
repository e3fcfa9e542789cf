package charts

import (
	"testing"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/kit/config/configtest"
	"github.com/bigfleet-dev/bigfleet/services/providers/aws"
	"github.com/bigfleet-dev/bigfleet/services/providers/clusterapi"
	"github.com/bigfleet-dev/bigfleet/services/providers/hosts"
)

// OPS-2.3: no number is rounded, defaulted or clamped silently. The test of the command line has the other roles.
func TestAbsurdNumbersAreRefusedOrMeant(t *testing.T) {
	for name, command := range map[string]func() *cobra.Command{"hosts": hosts.NewCommand, "clusterapi": clusterapi.NewCommand, "aws": aws.NewCommand} {
		t.Run(name, func(t *testing.T) { configtest.RefusesAbsurd(t, command, "--seed-count=1") })
	}
}
