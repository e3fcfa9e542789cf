package cli

import (
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// noNegatives makes the verbs of a tree refuse negative numbers and times, and what is not a number (OPS-2.3). None of them means anything by one, but the seeds
// of simulations. Roles are not among them: they judge their own settings.
func noNegatives(c *cobra.Command) {
	for _, child := range c.Commands() {
		noNegatives(child)
	}
	run := c.RunE
	if run == nil {
		return
	}
	c.RunE = func(c *cobra.Command, args []string) error {
		var wrong error
		c.Flags().Visit(func(f *pflag.Flag) {
			if wrong == nil && isNegative(f) {
				wrong = exit.Usagef("--%s %s: it must not be negative", f.Name, f.Value)
			}
		})
		if wrong != nil {
			return wrong
		}
		return run(c, args)
	}
}

func isNegative(f *pflag.Flag) bool {
	switch text := f.Value.String(); f.Value.Type() {
	case "int", "int32", "int64", "duration":
		return f.Name != "seed" && strings.HasPrefix(text, "-")
	case "float64":
		n, err := strconv.ParseFloat(text, 64)
		return err != nil || n < 0 || math.IsNaN(n) || math.IsInf(n, 0)
	}
	return false
}
