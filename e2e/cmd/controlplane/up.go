package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/e2e/controlplane"
)

// clustersMax bounds --clusters: each takes about 600 MB.
const clustersMax = 50

// upFlags are the flags of "up".
type upFlags struct {
	clusters int
	name     string
	dir      string
}

func newUp() *cobra.Command {
	var f upFlags
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Run control planes until interrupted",
		Long: "Run control planes until interrupted (SIGINT or SIGTERM), then leave no process behind.\n\n" +
			"One line per cluster on stdout: name, address of kube-apiserver, path of the administrator's kubeconfig.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runUp(cmd.Context(), f, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	cmd.Flags().IntVar(&f.clusters, "clusters", 1, fmt.Sprintf("how many, at most %d; each takes about 600 MB", clustersMax))
	cmd.Flags().StringVar(&f.name, "name", "cluster", "name of each cluster, followed by -1, -2, ...")
	cmd.Flags().StringVar(&f.dir, "dir", "", "keep certificates, data and logs here, one directory per cluster (default: temporary, removed at the end)")
	return cmd
}

func runUp(ctx context.Context, f upFlags, stdout, stderr io.Writer) (err error) {
	if f.clusters < 1 || f.clusters > clustersMax {
		return fmt.Errorf("--clusters must be between 1 and %d", clustersMax)
	}
	began := time.Now()
	all, err := controlplane.StartAll(ctx, f.configs(stderr)...)
	if err != nil {
		return err
	}
	defer func() {
		for _, cp := range all {
			err = errors.Join(err, cp.Stop())
		}
	}()

	table := tabwriter.NewWriter(stdout, 0, 0, 2, ' ', 0)
	for _, cp := range all {
		fmt.Fprintf(table, "%s\t%s\t%s\n", cp.Name(), cp.Endpoint(), cp.Kubeconfig())
	}
	if err := table.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(stderr, "up in %s; interrupt to stop. Try: %s --kubeconfig=%s get nodes\n",
		time.Since(began).Round(100*time.Millisecond), all[0].Kubectl(), all[0].Kubeconfig())
	return waitForEnd(ctx, all, stderr)
}

func (f upFlags) configs(progress io.Writer) []controlplane.Config {
	configs := make([]controlplane.Config, f.clusters)
	for i := range configs {
		configs[i] = controlplane.Config{Name: f.name + "-" + strconv.Itoa(i+1), Progress: progress}
		if f.dir != "" {
			configs[i].Dir = filepath.Join(f.dir, configs[i].Name)
		}
	}
	return configs
}

// waitForEnd returns nil when ctx ends, and an error when a component does.
func waitForEnd(ctx context.Context, all []*controlplane.ControlPlane, stderr io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	died := make(chan error)
	for _, cp := range all {
		for _, c := range controlplane.Components() {
			exited := cp.Component(c).Exited()
			go func() {
				select {
				case <-ctx.Done():
				case <-exited:
					select {
					case died <- fmt.Errorf("%s of %s %w; the end of its log:\n%s", c, cp.Name(), errFailed, cp.Component(c).Tail(25)):
					case <-ctx.Done():
					}
				}
			}()
		}
	}
	select {
	case <-ctx.Done():
		fmt.Fprintln(stderr, "stopping")
		return nil
	case err := <-died:
		return err
	}
}
