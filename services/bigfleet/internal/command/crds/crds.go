// Package crds is `bigfleet crds`: the CustomResourceDefinitions of this version.
package crds

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	definitions "github.com/bigfleet-dev/bigfleet/sdk/kube/crds"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
)

// New returns the group.
func New(a *app.App) *cobra.Command {
	group := &cobra.Command{Use: "crds", Short: "The CustomResourceDefinitions of this version", RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	group.AddCommand(&cobra.Command{
		Use: "print", Args: cobra.NoArgs, Short: "Print them, ready for kubectl apply --server-side -f -", Example: "  bigfleet crds print",
		RunE: func(*cobra.Command, []string) error {
			for _, f := range definitions.All() {
				if _, err := fmt.Fprintf(a.Out, "---\n%s\n", strings.TrimPrefix(strings.TrimSpace(string(f.YAML)), "---\n")); err != nil {
					return err
				}
			}
			return nil
		},
	})
	return group
}
