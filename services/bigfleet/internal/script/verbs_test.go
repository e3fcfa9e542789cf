package script_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
)

// Every verb that `bigfleet --help` leads to is in a script of testdata, with its exit code and what it prints.
func TestEveryVerbHasAScript(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	var scripts strings.Builder
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		scripts.Write(raw)
	}
	found := 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" {
			return
		}
		for _, child := range c.Commands() {
			walk(child)
		}
		if !c.Runnable() || c.HasSubCommands() {
			return
		}
		found++
		names := []string{regexp.QuoteMeta(c.Name())}
		for _, a := range c.Aliases {
			names = append(names, regexp.QuoteMeta(a))
		}
		way := `(` + strings.Join(names, "|") + `)`
		for p := c.Parent(); p != nil && p.HasParent(); p = p.Parent() {
			way = `(` + strings.Join(append([]string{p.Name()}, p.Aliases...), "|") + `) ` + way
		}
		// A line that runs it, not one that only looks for its name in what another prints.
		if !regexp.MustCompile(`(?m)^(!\s*)?(exec|exits \d|until '[^']*'|! until '[^']*'|follow '[^']*') bigfleet ` + way + `( |$)`).MatchString(scripts.String()) {
			t.Errorf("no script of testdata runs `%s`", c.CommandPath())
		}
	}
	walk(cli.New(app.New(env.System())))
	if found < 60 {
		t.Errorf("the tree has only %d verbs", found)
	}
}
