// Package get is `bigfleet get <kind> [name]`: tables of what the fleet holds.
package get

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// filter is what the flags of get select.
type filter struct {
	cluster, provider, zone, instanceType string
	states                                []string
	reasons                               []string
	unmet                                 bool
	name                                  string // the optional second argument
	sort                                  string // a column's head
}

// kind is one thing that can be listed.
type kind struct {
	names []string // plural first
	about string
	list  func(context.Context, *app.App, filter) (output.List, error)
}

func kinds() []kind {
	return []kind{
		{[]string{"machines", "machine", "m"}, "machines of every shard", machines},
		{[]string{"needs", "need", "n"}, "rows of demand, highest precedence first", needs},
		{[]string{"clusters", "cluster", "c"}, "clusters with their sessions and demand", clusters},
		{[]string{"shards", "shard", "s"}, "shards the coordinator knows", shards},
		{[]string{"domains", "domain"}, "domains and the shards that own them", domains},
		{[]string{"bindings", "binding"}, "clusters and the shards they are bound to", bindings},
		{[]string{"moves", "move"}, "moves of machines between shards", moves},
		{[]string{"quotas", "quota"}, "quotas and their slices", quotas},
		{[]string{"providers", "provider"}, "providers the coordinator knows", providers},
		{[]string{"instructions", "instruction"}, "instructions that shards have not done yet", instructions},
		{[]string{"audit"}, "what was ordered from the coordinator, newest first", audit},
		{[]string{"peers", "peer"}, "Raft peers; works without a leader", peers},
		{[]string{"hints", "hint"}, "capacity hints last sent to clusters", hints},
		{[]string{"pauses", "pause"}, "pauses in force", pauses},
		{[]string{"drains", "drain"}, "drains under way", drains},
	}
}

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var f filter
	var names []string
	var help strings.Builder
	help.WriteString("Lists one kind of thing:\n\n")
	for _, k := range kinds() {
		names = append(names, k.names[0])
		help.WriteString("  " + k.names[0] + strings.Repeat(" ", 14-len(k.names[0])) + k.about + "\n")
	}
	c := &cobra.Command{
		Use: "get KIND [NAME]", Args: cobra.RangeArgs(1, 2),
		Short: "List machines, needs, clusters and more", Long: help.String(),
		ValidArgsFunction: func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 {
				return names, cobra.ShellCompDirectiveNoFileComp
			}
			k, err := find(args[0], names)
			if err != nil || len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return a.Complete(map[string]string{k.names[min(1, len(k.names)-1)]: ""})(c, nil, typed)
		},
		Example: "  bigfleet get needs --unmet\n  bigfleet get machines --cluster red --state configured -o wide",
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 2 {
				f.name = args[1]
			}
			k, err := find(args[0], names)
			if err != nil {
				return err
			}
			return a.Read(c.Context(), func(ctx context.Context) error { return show(ctx, a, k, f) })
		},
	}
	fs := c.Flags()
	fs.StringVar(&f.cluster, "cluster", "", "only this cluster")
	fs.StringVar(&f.provider, "provider", "", "only this provider")
	fs.StringVar(&f.zone, "zone", "", "only this zone")
	fs.StringVar(&f.instanceType, "type", "", "only this instance type")
	fs.StringSliceVar(&f.states, "state", nil, "only machines in these states, for example idle,configured")
	fs.StringSliceVar(&f.reasons, "reason", nil, "only needs unmet for these reasons, for example priority-starved")
	fs.BoolVar(&f.unmet, "unmet", false, "only needs that are not satisfied")
	fs.StringVar(&f.sort, "sort", "", "order by this column, for example price; a leading - turns it round")
	return a.Watchable(c)
}

func find(name string, names []string) (kind, error) {
	for _, k := range kinds() {
		for _, n := range k.names {
			if n == name {
				return k, nil
			}
		}
	}
	return kind{}, exit.Usagef("there is no kind %q: use one of %s", name, strings.Join(names, ", "))
}

// One returns one thing of a kind, for a verb that shows more of it, and the kind's singular.
func One(ctx context.Context, a *app.App, kindName, name string) (string, output.List, error) {
	var names []string
	for _, k := range kinds() {
		names = append(names, k.names[0])
	}
	k, err := find(kindName, names)
	if err != nil {
		return "", output.List{}, err
	}
	f := filter{name: name}
	list, failed := k.list(ctx, a, f)
	if failed == nil && len(list.Rows) == 0 {
		failed = k.missing(name)
	}
	return k.names[min(1, len(k.names)-1)], list, failed
}

func (k kind) missing(name string) error {
	return &exit.Error{Code: exit.NotFound, Say: "there is no " + k.names[min(1, len(k.names)-1)] + " " + name, Hint: "`bigfleet get " + k.names[0] + "` lists them"}
}

// NewList is a verb that lists one kind, for the groups that give orders about it: `bigfleet shards list` is `bigfleet get shards`.
func NewList(a *app.App, group, use, kindName string) *cobra.Command {
	return a.Watchable(&cobra.Command{
		Use: use, Args: cobra.NoArgs, Short: "The same as `bigfleet get " + kindName + "`", Example: "  bigfleet " + group + " " + use,
		RunE: func(c *cobra.Command, _ []string) error {
			k, err := find(kindName, nil)
			if err != nil {
				return err
			}
			return a.Read(c.Context(), func(ctx context.Context) error { return show(ctx, a, k, filter{}) })
		},
	})
}

// NewTop is a verb of its own that lists one kind: `bigfleet pauses` is `bigfleet get pauses`.
func NewTop(a *app.App, kindName string) *cobra.Command {
	c := NewList(a, "", kindName, kindName)
	c.Example = "  bigfleet " + kindName
	return c
}

// show prints what there is even when a part did not answer, and then says so.
func show(ctx context.Context, a *app.App, k kind, f filter) error {
	list, failed := k.list(ctx, a, f)
	var known *exit.Error
	if failed != nil && (!errors.As(failed, &known) || known.Reason != "partial") {
		return failed
	}
	if f.name != "" && len(list.Rows) == 0 && failed == nil {
		return k.missing(f.name)
	}
	if f.sort != "" {
		if err := list.Sort(f.sort); err != nil {
			return exit.Usagef("--sort: %v", err)
		}
	}
	if err := a.Format.Write(a.Out, list); err != nil {
		return err
	}
	if len(list.Rows) == 0 && a.Format.ForPeople() {
		a.Notef("no %s", k.names[0])
	}
	return failed
}
