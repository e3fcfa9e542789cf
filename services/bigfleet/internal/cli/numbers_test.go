package cli_test

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// OPS-2.3: every number and time of every verb is refused when it is negative or no number, before anything is dialled: none is taken for zero or for the default.
// TestAbsurdNumbersAreRefusedOrMeant has the roles.
func TestNoVerbTakesANegativeNumber(t *testing.T) {
	absurd := map[string][]string{"int": {"-1"}, "int32": {"-1"}, "int64": {"-1"}, "duration": {"-1s"}, "float64": {"-1", "NaN", "Inf"}}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // one that is taken may run until it is stopped
	defer cancel()
	asked := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, child := range c.Commands() {
			walk(child)
		}
		path := strings.Fields(c.CommandPath())[1:]
		if len(path) == 0 || !c.Runnable() || isRole(path) {
			return
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			for _, value := range absurd[f.Value.Type()] {
				if f.Name == "seed" {
					continue
				}
				asked++
				args := append(slices.Clone(path), "--"+f.Name+"="+value)
				for _, word := range strings.Fields(c.Use)[1:] {
					if !strings.HasPrefix(word, "[") && !strings.HasPrefix(word, "-") && !strings.HasPrefix(word, "(") && strings.ToUpper(word) == word {
						args = append(args, "x")
					}
				}
				c.Flags().VisitAll(func(other *pflag.Flag) { // those that it cannot do without
					if _, must := other.Annotations[cobra.BashCompOneRequiredFlag]; must && other.Name != f.Name {
						args = append(args, "--"+other.Name+"=1")
					}
				})
				var out, errs bytes.Buffer
				e := env.System()
				e.Out, e.Err = &out, &errs
				if code := cli.Main(ctx, e, args); code != exit.Usage || !strings.Contains(errs.String(), "--"+f.Name+" ") {
					t.Errorf("bigfleet %s: exit %d, %s", strings.Join(args, " "), code, errs.String())
				}
			}
		})
	}
	walk(cli.New(app.New(env.System())))
	if asked < 25 {
		t.Errorf("only %d numbers were tried", asked)
	}
}

// isRole reports whether a path is one of the programs that the command holds.
func isRole(path []string) bool {
	return slices.Contains([]string{"shard", "coordinator", "operator", "podcontroller", "console"}, path[0]) ||
		path[0] == "provider" && len(path) > 1 && slices.Contains([]string{"sim", "kwok"}, path[1])
}
