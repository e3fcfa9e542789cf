// Package config is `bigfleet config`: the fleets that one works with, by name (OPS-4.5).
package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/contexts"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// New returns the group.
func New(a *app.App) *cobra.Command {
	group := &cobra.Command{Use: "config", Short: "Manage contexts: the addresses and certificate files of each fleet", RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	names := func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		_, f, err := open(a)
		if err != nil || len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return slices.Sorted(maps.Keys(f.Contexts)), cobra.ShellCompDirectiveNoFileComp
	}
	use := &cobra.Command{
		Use: "use CONTEXT", Args: cobra.ExactArgs(1), Short: "Make a context the current one", Example: "  bigfleet config use prod", ValidArgsFunction: names,
		RunE: func(_ *cobra.Command, args []string) error {
			return edit(a, func(f *contexts.File) error { f.Current = args[0]; return known(*f, args[0]) })
		},
	}
	remove := &cobra.Command{
		Use: "delete CONTEXT", Args: cobra.ExactArgs(1), Short: "Delete a context", Example: "  bigfleet config delete trial", ValidArgsFunction: names,
		RunE: func(_ *cobra.Command, args []string) error {
			return edit(a, func(f *contexts.File) error {
				err := known(*f, args[0])
				delete(f.Contexts, args[0])
				if f.Current == args[0] {
					f.Current = ""
				}
				return err
			})
		},
	}
	var pin bool
	set := &cobra.Command{
		Use: "set NAME", Args: cobra.ExactArgs(1), Short: "Save the addresses and files of this command line as a context",
		Long: "Saves --coordinator, --shard, --tls-cert, --tls-key, --tls-ca, --kubeconfig and --kube-context. Settings whose flags are not given stay unchanged.\n" +
			"--pin also saves the identity of the fleet. From then on, another fleet at these addresses is refused.",
		Example: "  bigfleet config set prod --coordinator coordinator.example:7790 --tls-cert me.crt --tls-key me.key --tls-ca ca.crt\n  bigfleet config set prod --pin",
		RunE: func(cmd *cobra.Command, args []string) error {
			return edit(a, func(f *contexts.File) error {
				c := a.Over(f.Contexts[args[0]])
				if cmd.Flags().Changed("pin") {
					c.ClusterUUID = ""
				}
				if pin {
					var err error
					if c.ClusterUUID, err = a.Group(cmd.Context(), c); err != nil {
						return err
					}
				}
				f.Contexts[args[0]] = c
				if f.Current == "" {
					f.Current = args[0]
				}
				return nil
			})
		},
	}
	set.Flags().BoolVar(&pin, "pin", false, "accept only the fleet that answers now; --pin=false removes this restriction")
	group.AddCommand(&cobra.Command{
		Use: "view", Args: cobra.NoArgs, Short: "Show all contexts", Example: "  bigfleet config view\n  bigfleet config view -o yaml",
		RunE: func(*cobra.Command, []string) error { return view(a) },
	}, use, set, remove)
	return group
}

func open(a *app.App) (string, contexts.File, error) {
	path, err := contexts.Path(a.Getenv)
	if err != nil {
		return "", contexts.File{}, exit.Usagef("contexts cannot be stored: %v", err)
	}
	f, err := contexts.Load(path)
	if err != nil {
		return "", f, &exit.Error{Code: exit.Usage, Reason: "contexts", Message: fmt.Sprintf("contexts: %v", err), Hint: contexts.Mend, Err: err}
	}
	return path, f, nil
}

func edit(a *app.App, change func(*contexts.File) error) error {
	path, f, err := open(a)
	if err != nil {
		return err
	}
	if err := change(&f); err != nil {
		return err
	}
	if err := f.Save(path); err != nil {
		return &exit.Error{Code: exit.Failed, Message: "contexts: " + err.Error(), Err: err}
	}
	a.Notef("wrote %s", path)
	return nil
}

func known(f contexts.File, name string) error {
	if _, ok := f.Contexts[name]; ok {
		return nil
	}
	return &exit.Error{Code: exit.NotFound, Message: fmt.Sprintf("there is no context %q", name), Hint: "`bigfleet config view` lists them"}
}

func view(a *app.App) error {
	path, f, err := open(a)
	if err != nil {
		return err
	}
	l := output.List{Columns: []output.Column{{Head: "CURRENT"}, {Head: "NAME"}, {Head: "COORDINATOR"}, {Head: "SHARD"}, {Head: "CERTIFICATE"}, {Head: "KUBECONFIG", Wide: true}, {Head: "KUBE-CONTEXT", Wide: true}, {Head: "FLEET", Wide: true}}}
	for _, name := range slices.Sorted(maps.Keys(f.Contexts)) {
		c, mark := f.Contexts[name], ""
		if name == f.Current {
			mark = "*"
		}
		l.Names = append(l.Names, "context/"+name)
		l.Objects = append(l.Objects, item{Name: name, Current: name == f.Current, Context: c})
		l.Rows = append(l.Rows, []string{mark, name, output.Dash(strings.Join(c.Coordinator, ",")), output.Dash(c.Shard), output.Dash(c.TLSCert), output.Dash(c.Kubeconfig), output.Dash(c.KubeContext), output.Dash(c.ClusterUUID)})
	}
	if len(l.Rows) == 0 {
		a.Notef("no contexts in %s; `bigfleet config set NAME --coordinator host:port` creates one", path)
	}
	return a.Format.Write(a.Out, l)
}

// item is a context as programs read it.
type item struct {
	Name    string `json:"name"`
	Current bool   `json:"current"`
	contexts.Context
}
