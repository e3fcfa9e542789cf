package cli_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/cli"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
)

// OPS-4.11: every argument and every flag has a completion, or is one of these, whose values no server lists. A new one has to be put
// somewhere.
func TestEveryValueCompletes(t *testing.T) {
	numbers := []string{"int", "int32", "int64", "uint64", "float64", "duration", "durationSlice", "stringToInt"}
	words := []string{ // free text, times and addresses
		"reason", "add-demand", "scale", "price", "stock-out", "policy", "since", "from", "to", "at", "diff", "selector", "region", "partition-key", "address", "team-label",
		"as", "node-id", "raft-advertise", "table", "id", "secret", "authority", "contexts", "console", "module", "sdk-version", "profile", "only", "blob", "start", "stop", "kill", "lose-store", "ready",
		"control-addr", "control-listen", "coordinator-listen", "coordinator-id", "coordinator-metrics-addr", "demo-listen", "provider-listen", "raft-bind", "shard-id", "shard-listen",
		"shard-metrics-addr",
	}
	files := []string{ // a shell's own completion
		"file", "from-file", "record", "data-dir", "dir", "checkout", "certs", "report", "log-file", "script", "kubeconfig", "write-kubeconfig", "tls-ca", "tls-cert", "tls-key",
	}
	arguments := []string{"ADDR", "NAME", "[DIR]", "DIR", "FROM", "TO", "FILE", "MACHINES", "EPOCH"}                               // what has no name yet, numbers and files
	own := []string{"KIND", "[NAME]", "NAME]", "SUBJECT", "[SUBJECT]", "SUBJECT]", "CONDITION", "on|off", "(--all", "|", "SHARD)"} // verbs with completions of their own, which completion.txtar tries
	unused := map[string]bool{}
	for _, list := range [][]string{words, files} {
		for _, w := range list {
			unused[w] = true
		}
	}
	root := cli.New(app.New(env.System()))
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, child := range c.Commands() {
			walk(child)
		}
		if c.Hidden || !c.Runnable() || c.HasSubCommands() || c.Name() == "help" {
			return
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if kind, _ := pflag.UnquoteUsage(f); strings.Contains(kind, " ") { // words in backquotes name the kind of value
				t.Errorf("`bigfleet %s --help` calls the value of --%s %q", strings.TrimPrefix(c.CommandPath(), "bigfleet "), f.Name, kind)
			}
			_, completed := c.GetFlagCompletionFunc(f.Name)
			free := slices.Contains(words, f.Name) || slices.Contains(files, f.Name)
			delete(unused, f.Name)
			if f.Name != "help" && f.Value.Type() != "bool" && !completed && !free && !slices.Contains(numbers, f.Value.Type()) {
				t.Errorf("`bigfleet %s --%s` completes nothing", strings.TrimPrefix(c.CommandPath(), "bigfleet "), f.Name)
			}
		})
		for _, word := range strings.Fields(c.Use)[1:] {
			if !strings.HasPrefix(word, "-") && len(c.ValidArgs) == 0 && !cli.LiveWord(word) && !slices.Contains(arguments, word) && !slices.Contains(own, word) {
				t.Errorf("`%s` completes no %s", c.CommandPath(), word)
			}
		}
	}
	walk(root)
	for name := range unused {
		t.Errorf("no verb has a flag --%s", name)
	}
}

// OPS-4.11, OPS-4.13: what -o name prints is taken wherever a verb or a flag takes the name: `machine/m-1` is m-1.
func TestPrintedNamesAreTakenEverywhere(t *testing.T) {
	root, tried := cli.New(app.New(env.System())), 0
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for _, child := range c.Commands() {
			walk(child)
		}
		if c.Hidden || !c.Runnable() || c.HasSubCommands() {
			return
		}
		verb := strings.TrimPrefix(c.CommandPath(), "bigfleet ")
		var args []string
		for _, word := range strings.Fields(c.Use)[1:] {
			args = append(args, cli.Printed(word, "x"))
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if kind := cli.PrintedKind(cli.LiveFlag(f.Name)); kind != "" && f.Value.Type() != "bool" {
				if err := c.Flags().Set(f.Name, kind+"/x"); err != nil {
					t.Errorf("`bigfleet %s --%s %s/x`: %v", verb, f.Name, kind, err)
				}
			}
		})
		if err := cli.Bare(c, args); err != nil {
			t.Fatal(err)
		}
		for i, word := range strings.Fields(c.Use)[1:] {
			if tried++; cli.Printed(word, "x") != "" && args[i] != "x" {
				t.Errorf("`bigfleet %s` takes %q for %s", verb, args[i], word)
			}
		}
		c.LocalFlags().Visit(func(f *pflag.Flag) {
			if tried++; strings.Contains(f.Value.String(), "/x") {
				t.Errorf("`bigfleet %s --%s` is %s", verb, f.Name, f.Value)
			}
		})
	}
	walk(root)
	if tried < 50 {
		t.Errorf("only %d arguments and flags were tried", tried)
	}
}
