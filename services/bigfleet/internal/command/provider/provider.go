// Package provider is `bigfleet provider`: what the author of a capacity provider needs. init writes a new one, ping asks a
// running one who it is, list what it has, conformance certifies one. docs/providers.md is the guide.
//
// The verbs only look at providers, except conformance, which uses machines of the one it is pointed at.
package provider

import (
	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/order"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// New returns the group.
func New(a *app.App) *cobra.Command {
	return order.Group("provider", "Create, try and certify a capacity provider", newInit(a), newPing(a), newList(a), newConformance())
}

// newConformance is the suite's own command under another name. Its exit codes are its own: 0 conforms, 1 does not, 2 could
// not say (PROV-29.11).
func newConformance() *cobra.Command {
	c := conformance.Command()
	c.Use, c.Aliases, c.Version = "conformance ADDR", []string{"test"}, ""
	c.Example = conformance.Examples("bigfleet provider conformance")
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := run(c, args); err != nil {
			return &exit.Error{Code: exit.Code(conformance.ExitCode(err)), Message: err.Error(), Err: err}
		}
		return nil
	}
	return c
}
