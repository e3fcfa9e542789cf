// Package crds is `bigfleet crds`: the CustomResourceDefinitions of this version, printed, compared and applied.
package crds

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	definitions "github.com/bigfleet-dev/bigfleet/sdk/kube/crds"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/crds"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/output"
)

// New returns the group.
func New(a *app.App) *cobra.Command {
	group := &cobra.Command{Use: "crds", Short: "Print, compare and install the CRDs of this version", RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	apply := a.Mutates(&cobra.Command{
		Use: "apply", Args: cobra.NoArgs, Short: "Install or update the CRDs in a cluster, after showing the changes", Example: "  bigfleet crds apply --kube-context red --yes",
		RunE: func(c *cobra.Command, _ []string) error { return apply(c.Context(), a) },
	})
	apply.Flags().Lookup("dry-run").Usage = "show the changes without making them"
	_ = apply.Flags().MarkHidden("reason") // accepted as by every verb that changes something, but recorded nowhere
	group.AddCommand(printed(a), apply, &cobra.Command{
		Use: "diff", Args: cobra.NoArgs, Short: "Compare the CRDs in a cluster with this version; exit code 4 when they differ", Example: "  bigfleet crds diff --kube-context red",
		RunE: func(c *cobra.Command, _ []string) error { return diff(c.Context(), a) },
	})
	return group
}

func printed(a *app.App) *cobra.Command {
	return &cobra.Command{
		Use: "print", Args: cobra.NoArgs, Short: "Print the CRDs as YAML, for kubectl apply --server-side -f -", Example: "  bigfleet crds print",
		RunE: func(*cobra.Command, []string) error {
			for _, f := range definitions.All() {
				if _, err := fmt.Fprintf(a.Out, "---\n%s\n", strings.TrimPrefix(strings.TrimSpace(string(f.YAML)), "---\n")); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func compare(ctx context.Context, a *app.App) (dynamic.Interface, []crds.Change, error) {
	cfg, err := a.Kube()
	if err != nil {
		return nil, nil, err
	}
	client, err := dynamic.NewForConfig(cfg)
	if err != nil {
		return nil, nil, exit.Usagef("kubeconfig: %v", err)
	}
	changes, err := crds.Compare(ctx, client)
	if err != nil {
		return nil, nil, app.KubeError("comparing definitions at "+cfg.Host, err)
	}
	return client, changes, nil
}

func diff(ctx context.Context, a *app.App) error {
	_, changes, err := compare(ctx, a)
	if err != nil {
		return err
	}
	if err := show(a, changes); err != nil {
		return err
	}
	if stale := crds.Stale(changes); len(stale) > 0 {
		return &exit.Error{Code: exit.Problems, Reason: "differs", Message: strings.Join(stale, ", ") + " missing or from another version", Hint: "`bigfleet crds apply` installs the CRDs of this version"}
	}
	return nil
}

func show(a *app.App, changes []crds.Change) error {
	if a.Format.ForPeople() {
		crds.Print(a.Out, changes)
		return nil
	}
	type item struct {
		Name    string   `json:"name"`
		Missing bool     `json:"missing,omitempty"`
		Differs []string `json:"differs,omitempty"`
	}
	var items []any
	for _, c := range changes {
		items = append(items, item{c.Name, c.Missing, c.Lines})
	}
	return a.Format.Write(a.Out, output.List{Objects: items})
}

func apply(ctx context.Context, a *app.App) error {
	client, changes, err := compare(ctx, a)
	if err != nil {
		return err
	}
	if err := show(a, changes); err != nil {
		return err
	}
	stale := crds.Stale(changes)
	if len(stale) == 0 {
		a.Notef("nothing to do: all CRDs are of this version")
		return nil
	}
	if err := a.Confirm("Installs or updates %s.", strings.Join(stale, ", ")); err != nil || a.DryRun {
		return err
	}
	if err := crds.Apply(ctx, client, changes); err != nil {
		return app.KubeError("applying definitions", err)
	}
	a.Notef("applied")
	return nil
}
