package coordinate

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
)

// Flat returns the orders by the names that scripts know them by (OPS-1.2). They take their subjects as arguments or by flags, and do
// not ask: a script cannot answer.
func Flat(a *app.App) []*cobra.Command {
	return []*cobra.Command{
		flat(a, newAssign(a), "assign-domain", "[KEY=VALUE SHARD]", domainAndShard),
		flat(a, domainOrder("unassign").command(a), "unassign-domain", "[KEY=VALUE]", flatDomain),
		flat(a, newRemoveShard(a), "remove-shard", "[SHARD]", flatShard),
	}
}

func domainOrder(verb string) order {
	for _, o := range domainOrders() {
		if strings.HasPrefix(o.use, verb+" ") {
			return o
		}
	}
	panic("coordinate: no order " + verb) // a name in this file
}

// flat gives an order another name and other ways to name its subject.
func flat(a *app.App, c *cobra.Command, name, args string, from func(*pflag.FlagSet, []string) ([]string, error)) *cobra.Command {
	run := c.RunE
	c.Use, c.Args, c.Hidden, c.Example = name+" "+args, cobra.ArbitraryArgs, true, ""
	if why := c.Flags().Lookup("reason"); why != nil {
		delete(why.Annotations, cobra.BashCompOneRequiredFlag) // no such flag was required of the verb that scripts know
	}
	for _, f := range []string{"topology-key", "topology-value", "shard-id"} {
		c.Flags().String(f, "", "alternative to the argument")
	}
	c.RunE = func(c *cobra.Command, given []string) error {
		named, err := from(c.Flags(), given)
		if err != nil {
			return err
		}
		if a.Yes = true; a.Reason == "" {
			a.Reason = "bigfleetctl " + name
		}
		return run(c, named)
	}
	return c
}

func text(f *pflag.FlagSet, name string) string {
	v, _ := f.GetString(name) // every name is one of flat's, or global
	return v
}

// flatDomain reads KEY=VALUE, KEY VALUE, or the two flags.
func flatDomain(f *pflag.FlagSet, args []string) ([]string, error) {
	if key, value := text(f, "topology-key"), text(f, "topology-value"); key != "" && value != "" {
		args = append([]string{key + "=" + value}, args...)
	}
	if len(args) >= 2 && !strings.Contains(args[0], "=") {
		args = append([]string{args[0] + "=" + args[1]}, args[2:]...)
	}
	if len(args) == 0 || !strings.Contains(args[0], "=") {
		return nil, exit.Usagef("the domain is missing: write KEY=VALUE, or --topology-key KEY --topology-value VALUE")
	}
	return args, nil
}

func domainAndShard(f *pflag.FlagSet, args []string) ([]string, error) {
	args, err := flatDomain(f, args)
	if err != nil {
		return nil, err
	}
	on, err := flatShard(f, args[1:])
	return append(args[:1], on...), err
}

// flatShard reads the argument, --shard-id, or --shard.
func flatShard(f *pflag.FlagSet, args []string) ([]string, error) {
	for _, flag := range []string{"shard-id", "shard"} {
		if v := text(f, flag); v != "" && len(args) == 0 {
			args = []string{v}
		}
	}
	if len(args) != 1 {
		return nil, exit.Usagef("the shard is missing: write its id, or --shard-id ID")
	}
	return args, nil
}
