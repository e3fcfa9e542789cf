// Package cli puts the verbs together into the `bigfleet` command. Start at Main.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/certs"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/config"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/coordinate"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/cost"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/crds"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/describe"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/doctor"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/explain"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/get"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/guards"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/history"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/node"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/order"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/pause"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/plan"
	providerverbs "github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/provider"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/replay"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/snapshot"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/status"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/top"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/up"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/version"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/command/wait"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/inclusters"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
	world "github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/up"
	"github.com/bigfleet-dev/bigfleet/services/console"
	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	ofRole "github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/operator"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller"
	"github.com/bigfleet-dev/bigfleet/services/providers/kwok"
	"github.com/bigfleet-dev/bigfleet/services/providers/sim"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// Main runs one command line and returns the exit code. args are without the program's name.
func Main(ctx context.Context, e env.Env, args []string) exit.Code {
	data := &reader{Writer: e.Out}
	e.Raw, e.Out, e.Err = data, output.Safe(data), output.On(output.Safe(e.Err), e.ErrWidth)
	a := app.New(e)
	defer a.Close()
	root := New(a)
	called(root, e.Program)
	root.SetArgs(args)
	root.SetIn(e.In)
	root.SetOut(output.On(e.Out, e.Width)) // help; a verb writes to the App
	root.SetErr(e.Err)
	shells(root)
	started := false
	eachRun(root, func() { started = true })
	verb, err := root.ExecuteContextC(ctx)
	if err != nil && !started {
		var known *exit.Error
		if err = ofRole.FlagErrors(root, args, err); !errors.As(err, &known) {
			err = wrongUsage(verb, err) // cobra's own: flags and arguments
		}
	}
	if err == nil || errors.Is(err, context.Canceled) && ctx.Err() != nil || data.gone {
		return exit.OK
	}
	a.Refused()
	report(a, verb, err)
	return exit.CodeOf(err)
}

// reader is stdout. A reader that had enough, as head does, is not a failure; a broken connection to a server is one.
type reader struct {
	io.Writer
	gone bool
}

func (r *reader) Write(p []byte) (int, error) {
	n, err := r.Writer.Write(p)
	r.gone = r.gone || errors.Is(err, syscall.EPIPE)
	return n, err
}

// eachRun calls hook when a verb of the tree begins to run.
func eachRun(c *cobra.Command, hook func()) {
	if run := c.RunE; run != nil {
		c.RunE = func(c *cobra.Command, args []string) error {
			hook()
			return run(c, args)
		}
	}
	for _, child := range c.Commands() {
		eachRun(child, hook)
	}
}

// New returns the root command.
func New(a *app.App) *cobra.Command {
	root := &cobra.Command{
		Use:           "bigfleet",
		Short:         "Capacity for a fleet of Kubernetes clusters: try it, run it, and find out why",
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return a.Check() },
		Args: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknown(c, args[0])
			}
			return nil
		},
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetFlagErrorFunc(unknownFlag)
	a.Bind(root.PersistentFlags())
	root.AddCommand(
		up.New(a), up.NewAllInOne(a), up.NewDemo(a), status.New(a), get.New(a), describe.New(a), explain.New(a), history.New(a), history.NewEvents(a), top.New(a),
		plan.New(a), cost.New(a), wait.New(a), replay.New(a), pause.New(a), pause.NewResume(a), guards.New(a), get.NewTop(a, "pauses"), get.NewTop(a, "drains"), version.New(a), config.New(a),
	)
	root.AddCommand(order.NewReconcile(a), order.NewDryRun(a), order.Group("snapshot", "Save, verify and restore the coordinator's state", snapshot.Verbs(a)...), certs.New(a), crds.New(a), doctor.New(a))
	root.AddCommand(groups(a)...)
	ofProviders := providerverbs.New(a)
	noNegatives(ofProviders)
	noNegatives(root)
	roles(a, root, ofProviders)
	root.AddCommand(ofProviders)
	for _, c := range flat(a) {
		noNegatives(c)
		root.AddCommand(c)
	}
	helpOrNearest(root)
	nearestVerb(root)
	sections(root)
	completes(a, root)
	takesNames(root)
	return root
}

// groups hangs the orders to shards and to the coordinator under the noun they are about.
func groups(a *app.App) []*cobra.Command {
	toShard, toCoordinator := order.Verbs(a), coordinate.Verbs(a)
	var out []*cobra.Command
	lists := []struct{ group, use, kind string }{
		{"machines", "list", "machines"}, {"clusters", "list", "clusters"}, {"clusters", "bindings", "bindings"}, {"shards", "list", "shards"},
		{"shards", "report", "reports"}, {"domains", "list", "domains"}, {"domains", "moves", "handovers"}, {"quota", "list", "quotas"}, {"providers", "list", "providers"}, {"rebalance", "moves", "moves"},
		{"raft", "peers", "peers"}, {"instructions", "list", "instructions"},
	}
	for _, g := range []struct {
		name, about string
		aliases     []string
	}{
		{"machines", "Manage machines", []string{"machine"}}, {"rollups", "Manage held roll-ups", nil},
		{"clusters", "Manage clusters", []string{"cluster"}}, {"backoff", "Manage backoffs", nil},
		{"reservations", "Manage the reservations of moves", nil}, {"shards", "Manage shards", nil},
		{"domains", "Manage the shards' ownership of domains", []string{"domain"}}, {"quota", "Manage quotas and their slices", nil},
		{"providers", "Manage the providers that the coordinator knows", nil}, {"rebalance", "Manage rebalancing between shards", nil},
		{"raft", "Manage the coordinator's Raft group", nil}, {"instructions", "Manage instructions to shards", nil},
	} {
		verbs := append(toShard[g.name], toCoordinator[g.name]...)
		if g.name == "machines" {
			verbs = append(verbs, node.Verbs(a)...)
		}
		for _, l := range lists {
			if l.group == g.name {
				list := get.NewList(a, l.group, l.use, l.kind)
				if l.group == "quota" {
					list.Aliases = []string{"get"} // as OPS-4.2 calls it, beside set and delete
				}
				verbs = append(verbs, list)
			}
		}
		group := order.Group(g.name, g.about, verbs...)
		group.Aliases = g.aliases
		out = append(out, group)
	}
	return out
}

// flat are the verbs of bigfleetctl (OPS-1.2), hidden under any other name of the program.
func flat(a *app.App) []*cobra.Command {
	out := coordinate.Flat(a)
	for verb, kind := range map[string]string{"list-shards": "shards", "list-domain-assignments": "domains", "list-quotas": "quotas"} {
		c := get.NewList(a, "", verb, kind)
		c.Hidden, c.Example = true, ""
		out = append(out, c)
	}
	return out
}

// called shapes the root after the name that the program was called by: `kubectl bigfleet` and bigfleetctl are the same program.
func called(root *cobra.Command, name string) {
	switch name {
	case "kubectl-bigfleet":
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl bigfleet"}
	case "bigfleetctl":
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: name}
		for _, c := range root.Commands() {
			c.Hidden = c.Hidden && !strings.Contains(c.Name(), "-")
		}
	}
}

// roles hangs in the programs of BigFleet, each as its own binary has it (OPS-1.1), and the list of them.
func roles(a *app.App, root, ofProviders *cobra.Command) {
	named := func(under, c *cobra.Command, use, short string, aliases ...string) *cobra.Command {
		c.Use, c.Short, c.Aliases, c.Hidden = use, short, aliases, true // people meet the verbs first; `bigfleet roles` lists these
		ownFlagsOnly(c)
		under.AddCommand(c)
		return c
	}
	programs := []*cobra.Command{
		named(root, shard.NewCommand(), "shard", "Run a shard"),
		named(root, coordinator.NewCommand(), "coordinator", "Run a replica of the coordinator"),
		named(root, operator.NewCommand(), "operator", "Run the operator of a cluster"),
		named(root, podcontroller.NewCommand(), "podcontroller", "Run the pod controller of a cluster", "unschedulable-pod-controller"),
		named(root, consoleRole(), "console", "Run the web UI"),
		named(ofProviders, providerRole(kwok.NewCommand()), "kwok", "Run the kwok provider"),
		named(ofProviders, providerRole(sim.NewCommand()), "sim", "Run the simulated cloud"),
	}
	root.AddCommand(&cobra.Command{
		Use: "roles", Args: cobra.NoArgs, Short: "List the server roles in this binary", Example: "  bigfleet roles",
		RunE: func(*cobra.Command, []string) error {
			l := output.List{Columns: []output.Column{{Head: "ROLE"}, {Head: "DOES"}}}
			for _, p := range programs {
				l.Names = append(l.Names, "role/"+strings.ReplaceAll(strings.TrimPrefix(p.CommandPath(), root.CommandPath()+" "), " ", "/"))
				l.Rows = append(l.Rows, []string{p.CommandPath(), p.Short})
				l.Objects = append(l.Objects, map[string]string{"role": p.CommandPath(), "does": p.Short})
			}
			return a.Format.Write(a.Out, l)
		},
	})
}

// consoleRole is the console with the sentences of this command and with the clusters that kubeconfigs lead to.
func consoleRole() *cobra.Command {
	var files, contexts []string
	c := console.NewCommand(func(c *console.Config) error {
		c.Sentence = history.Sentence
		if len(files) == 0 {
			if len(contexts) > 0 {
				return errors.New("--contexts: name the file with --kubeconfig")
			}
			return nil
		}
		targets, err := world.Targets(files, contexts)
		if err != nil {
			return err
		}
		configs, order := map[string]*rest.Config{}, []string{}
		for _, t := range targets {
			configs[t.ID], order = t.REST, append(order, t.ID)
		}
		c.Clusters, err = inclusters.New(configs, order)
		return err
	})
	c.Flags().StringSliceVar(&files, "kubeconfig", nil, "kubeconfig of a managed cluster, to search for Pods and to trace them; the context's name is the cluster id; repeatable")
	c.Flags().StringSliceVar(&contexts, "contexts", nil, "contexts in the kubeconfigs; default: the current one of each")
	return c
}

// ownFlagsOnly refuses to a role the flags of the verbs, which it would ignore: `--kube-context` would be taken for the
// context of its --kubeconfig.
func ownFlagsOnly(c *cobra.Command) {
	c.SetUsageTemplate(strings.Replace(c.UsageTemplate(), "{{if .HasAvailableInheritedFlags}}", "{{if false}}", 1))
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		var foreign []string
		c.InheritedFlags().VisitAll(func(f *pflag.Flag) {
			if f.Changed {
				foreign = append(foreign, "--"+f.Name)
			}
		})
		if len(foreign) > 0 {
			return ofRole.Fail(fmt.Errorf("%s is for client commands; server roles do not have it", strings.Join(foreign, ", ")))
		}
		return run(c, args)
	}
}

// providerRole gives a provider's errors the exit code that the SDK assigns to them.
func providerRole(c *cobra.Command) *cobra.Command {
	run := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := run(c, args); err != nil {
			// A configuration can have several faults, one a line; each is for the reader (PROV-20.2), on the one line there is.
			return &exit.Error{Code: exit.Code(provider.ExitCode(err)), Message: strings.ReplaceAll(err.Error(), "\n", "; "), Err: err}
		}
		return nil
	}
	return c
}

// report writes the one line of OPS-4.9, or the same as an object for programs.
func report(a *app.App, verb *cobra.Command, err error) {
	var e *exit.Error
	var settings *ofRole.Error
	switch {
	case errors.As(err, &settings): // all that is wrong with a role's, not its first line (OPS-2.3)
		e = &exit.Error{Code: exit.Usage, Message: settings.OneLine(), Hint: "`" + verb.CommandPath() + " --help` shows the flags"}
	case !errors.As(err, &e):
		e = &exit.Error{Code: exit.CodeOf(err), Message: err.Error(), Err: err}
	}
	if first, rest, more := strings.Cut(e.Message, "\n"); more { // one line (OPS-4.9); a trace is for -v
		e = &exit.Error{Code: e.Code, Reason: e.Reason, Message: first, Hint: e.Hint, Err: errors.New(rest)}
	}
	if a.Format == output.JSON || a.Format == output.JSONL {
		reason := e.Reason
		if reason == "" {
			reason = e.Code.String()
		}
		hint := e.Hint
		if hint == "" && e.Code == exit.Usage {
			hint = "`" + verb.CommandPath() + " --help` shows the usage"
		}
		_ = json.NewEncoder(a.Err).Encode(map[string]any{"code": int(e.Code), "reason": reason, "message": e.Message, "hint": hint})
		return
	}
	a.Notef("bigfleet: %s", e.Error())
	if a.Verbose() && e.Err != nil {
		a.Notef("cause: %v", e.Err)
	}
}
