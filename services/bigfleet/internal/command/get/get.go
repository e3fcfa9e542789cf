// Package get is `bigfleet get <kind> [name]`: tables of what the fleet holds.
package get

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/when"
)

// filter is what the flags of get select.
type filter struct {
	cluster, provider, zone, instanceType string
	states                                []string
	reasons                               []string
	marks                                 []string // flags of machines
	unmet                                 bool
	all                                   bool   // machines that do not exist yet, too
	name                                  string // the optional second argument
	sort                                  string // a column's head
	at                                    string // a time in the past
	namespace, team, label                string // owners of needs
	allNamespaces                         bool
}

// bind adds the flags that one kind takes, or all of them.
func (f *filter) bind(fs *pflag.FlagSet, takes func(flag string) bool) {
	for _, b := range []struct {
		name string
		add  func(name string)
	}{
		{"cluster", func(n string) { fs.StringVar(&f.cluster, n, "", "only this cluster") }},
		{"provider", func(n string) { fs.StringVar(&f.provider, n, "", "only this provider") }},
		{"zone", func(n string) { fs.StringVar(&f.zone, n, "", "only this zone") }},
		{"type", func(n string) { fs.StringVar(&f.instanceType, n, "", "only this instance type") }},
		{"state", func(n string) {
			fs.StringSliceVar(&f.states, n, nil, "only machines in these states, for example idle,configured")
		}},
		{"flag", func(n string) {
			fs.StringSliceVar(&f.marks, n, nil, "only machines with one of these flags, for example stuck,unjoined")
		}},
		{"reason", func(n string) {
			fs.StringSliceVar(&f.reasons, n, nil, "only needs unmet for these reasons, for example priority-starved")
		}},
		{"unmet", func(n string) { fs.BoolVar(&f.unmet, n, false, "only needs that are not met") }},
		{"all", func(n string) {
			fs.BoolVar(&f.all, n, false, "also show machines that do not exist yet and are available to buy")
		}},
		{"at", func(n string) {
			fs.StringVar(&f.at, n, "", "show the needs as they were at this time, as far back as the shards remember: "+when.Forms)
		}},
		{"namespace", func(n string) {
			fs.StringVarP(&f.namespace, n, "n", "", "only needs of this namespace, in the cluster of --kube-context")
		}},
		{"team", func(n string) {
			fs.StringVar(&f.team, n, "", "only needs of this team: the namespaces with its label, in the cluster of --kube-context")
		}},
		{"all-namespaces", func(n string) {
			fs.BoolVarP(&f.allNamespaces, n, "A", false, "show which namespaces request each need, in the cluster of --kube-context")
		}},
		{"team-label", func(n string) { fs.StringVar(&f.label, n, teamLabel, "label of a namespace that names its team") }},
	} {
		if takes(b.name) {
			b.add(b.name)
		}
	}
	fs.StringVar(&f.sort, "sort", "", "sort by this column, for example price; a leading - reverses the order")
}

// nameOnly says that a name alone selects.
func (f filter) nameOnly() bool {
	return f.name != "" && f.cluster == "" && f.provider == "" && f.zone == "" && f.instanceType == "" && len(f.states)+len(f.marks) == 0
}

// kind is one thing that can be listed.
type kind struct {
	names []string // plural first
	about string
	takes []string // flags that select among it
	list  func(context.Context, *app.App, filter) (output.List, error)
}

// fromShards says whether shards list the kind, and so know the names that select among it.
func (k kind) fromShards() bool {
	return slices.Contains([]string{"machines", "needs", "clusters", "sessions", "hints", "drains"}, k.names[0])
}

func kinds() []kind {
	return []kind{
		{[]string{"machines", "machine", "m"}, "machines of every shard", []string{"cluster", "provider", "zone", "type", "state", "flag", "all"}, machines},
		{[]string{"needs", "need", "n"}, "demand, highest precedence first", []string{"cluster", "reason", "unmet", "at", "namespace", "team", "team-label", "all-namespaces"}, needs},
		{[]string{"clusters", "cluster", "c"}, "clusters with their sessions and demand", []string{"cluster"}, clusters},
		{[]string{"sessions", "session"}, "connected operators and their versions", []string{"cluster"}, sessions},
		{[]string{"shards", "shard", "s"}, "shards the coordinator knows", nil, shards},
		{[]string{"reports", "report"}, "what each shard last reported to the coordinator", nil, reports},
		{[]string{"domains", "domain"}, "domains and the shards that own them", nil, domains},
		{[]string{"handovers", "handover"}, "domains being handed over, and what each waits for", nil, handovers},
		{[]string{"bindings", "binding"}, "clusters and the shards they are bound to", []string{"cluster"}, bindings},
		{[]string{"moves", "move"}, "moves of machines between shards", nil, moves},
		{[]string{"quotas", "quota"}, "quotas and their slices", []string{"provider"}, quotas},
		{[]string{"providers", "provider"}, "providers the coordinator knows", nil, providers},
		{[]string{"instructions", "instruction"}, "instructions that shards have not completed", nil, instructions},
		{[]string{"audit"}, "requests that changed the coordinator's state, newest first", nil, audit},
		{[]string{"peers", "peer"}, "Raft peers; works without a leader", nil, peers},
		{[]string{"hints", "hint"}, "capacity hints last sent to clusters", []string{"cluster"}, hints},
		{[]string{"pauses", "pause"}, "pauses in force", []string{"cluster", "provider"}, pauses},
		{[]string{"drains", "drain"}, "drains under way, and cordoned Nodes", []string{"cluster"}, drains},
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
		Use: "get KIND [NAME]",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return exit.Usagef("the kind is missing: use one of %s", strings.Join(names, ", "))
			}
			return cobra.MaximumNArgs(2)(c, args)
		},
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
		Example: "  bigfleet get needs --unmet\n  bigfleet get needs --namespace web --kube-context red\n  bigfleet get needs --all-namespaces --kube-context red\n  bigfleet get machines --cluster red --state configured -o wide",
		RunE: func(c *cobra.Command, args []string) error {
			k, err := find(args[0], names)
			if of, name, whole := strings.Cut(args[0], "/"); whole && len(args) == 1 { // as -o name prints it
				k, err = find(of, names)
				f.name = name
			}
			if err != nil {
				return err
			}
			if len(args) == 2 {
				f.name = strings.TrimPrefix(args[1], k.singular()+"/")
			}
			if err := k.fits(c.Flags()); err != nil {
				return err
			}
			return a.Read(c.Context(), func(ctx context.Context) error { return show(ctx, a, k, f) })
		},
	}
	f.bind(c.Flags(), func(string) bool { return true })
	_ = c.RegisterFlagCompletionFunc("sort", completeSort(a, &f, func(args []string) (kind, error) {
		if len(args) == 0 {
			return kind{}, exit.Usagef("the kind is missing")
		}
		return find(args[0], names)
	}))
	_ = c.RegisterFlagCompletionFunc("team", a.CompleteTeams(&f.label)) // fails only for an unknown flag
	return a.Watchable(c)
}

// fits refuses a flag that selects nothing of the kind: without that, `get quotas --zone a` would show every quota.
func (k kind) fits(fs *pflag.FlagSet) error {
	for _, name := range []string{"cluster", "provider", "zone", "type", "state", "flag", "all", "reason", "unmet", "at", "namespace", "team", "team-label", "all-namespaces"} {
		if fs.Changed(name) && !slices.Contains(k.takes, name) {
			say := "takes no filter"
			if len(k.takes) > 0 {
				say = "takes only --" + strings.Join(k.takes, ", --")
			}
			return exit.Usagef("--%s does not apply to %s: it %s", name, k.names[0], say)
		}
	}
	return nil
}

func find(name string, names []string) (kind, error) {
	for _, k := range kinds() {
		for _, n := range k.names {
			if n == name {
				return k, nil
			}
		}
	}
	if of := subject.InCluster(name); of != "" {
		return kind{}, exit.Usagef("%ss are in clusters, not in BigFleet: `bigfleet explain %s/NAME --kube-context CLUSTER` explains one", of, of)
	}
	if _, state := bigfleetv1alpha1.MachineState_value["MACHINE_STATE_"+strings.ToUpper(name)]; state {
		return kind{}, exit.Usagef("%s is a state of machines: `bigfleet get machines --state %s` lists those", name, name)
	}
	near := fleet.Nearest(name, names)
	if near != "" {
		near = "did you mean " + near + "? There are "
	}
	return kind{}, exit.Usagef("unknown kind %q: %s%s", name, cmp.Or(near, "use one of "), strings.Join(names, ", "))
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
	f := filter{name: strings.TrimPrefix(name, k.singular()+"/")}
	list, failed := k.list(ctx, a, f)
	if failed == nil && len(list.Rows) == 0 {
		failed = k.missing(name)
	}
	return k.names[min(1, len(k.names)-1)], list, failed
}

// Singulars are what one thing of each kind is called.
func Singulars() (out []string) {
	for _, k := range kinds() {
		out = append(out, k.singular())
	}
	return out
}

// singular is what one thing of the kind is called, and begins with where -o name prints it.
func (k kind) singular() string { return k.names[min(1, len(k.names)-1)] }

func (k kind) missing(name string) error {
	return &exit.Error{Code: exit.NotFound, Message: "there is no " + k.names[min(1, len(k.names)-1)] + " " + name, Hint: "`bigfleet get " + k.names[0] + "` lists them"}
}

// NewList is a verb that lists one kind, for the groups that give orders about it: `bigfleet shards list` is `bigfleet get shards`.
func NewList(a *app.App, group, use, kindName string) *cobra.Command {
	var f filter
	k, _ := find(kindName, nil) // the callers name kinds of this file
	c := a.Watchable(&cobra.Command{
		Use: use + " [NAME]", Args: cobra.MaximumNArgs(1), Short: "The same as `bigfleet get " + kindName + "`", Example: "  bigfleet " + group + " " + use,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 1 {
				f.name = strings.TrimPrefix(args[0], k.singular()+"/")
			}
			return a.Read(c.Context(), func(ctx context.Context) error { return show(ctx, a, k, f) })
		},
	})
	c.ValidArgsFunction = a.Complete(map[string]string{k.singular(): ""})
	f.bind(c.Flags(), func(flag string) bool { return slices.Contains(k.takes, flag) })
	_ = c.RegisterFlagCompletionFunc("sort", completeSort(a, &f, func([]string) (kind, error) { return k, nil })) // fails only for an unknown flag
	return c
}

// completeSort offers the columns of the list, in both directions.
func completeSort(a *app.App, f *filter, of func(args []string) (kind, error)) cobra.CompletionFunc {
	return func(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
		const quiet = cobra.ShellCompDirectiveNoFileComp
		k, err := of(args)
		if err != nil || a.Check() != nil {
			return nil, quiet
		}
		ctx, cancel := app.Completing(c)
		defer cancel()
		list, _ := k.list(ctx, a, *f) // no answer in time: no columns
		var out []string
		for _, name := range list.SortNames() {
			if name = strings.Repeat("-", len(typed)-len(strings.TrimPrefix(typed, "-"))) + name; strings.HasPrefix(name, typed) {
				out = append(out, name)
			}
		}
		return out, quiet
	}
}

// NewTop is a verb of its own that lists one kind: `bigfleet pauses` is `bigfleet get pauses`.
func NewTop(a *app.App, kindName string) *cobra.Command {
	c := NewList(a, "", kindName, kindName)
	c.Example = "  bigfleet " + kindName
	return c
}

// elsewhere says where the rest of a list is that is empty, for people who may look for it here.
var elsewhere = map[string]string{
	"audit": "Orders to shards, such as a pause, are not here: `bigfleet history` shows them.",
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
	if len(list.Rows) == 0 && failed == nil && !a.Watch && k.fromShards() {
		if err := f.missed(ctx, a); err != nil {
			return err
		}
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
		if more := elsewhere[k.names[0]]; more != "" {
			a.Notef("%s", more)
		}
	}
	return failed
}

// missed says why a list is empty, if it is because a flag names a cluster, provider, zone or type that no shard has.
func (f filter) missed(ctx context.Context, a *app.App) error {
	for _, x := range [][2]string{{"cluster", f.cluster}, {"provider", f.provider}, {"zone", f.zone}, {"type", f.instanceType}} {
		if x[1] == "" {
			continue
		}
		fl, shards, err := a.Shards(ctx)
		if err != nil {
			return err
		}
		if err := fleet.Known(ctx, fl, shards, x[0], x[1]); err != nil {
			return err
		}
	}
	return nil
}
