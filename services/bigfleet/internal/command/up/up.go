// Package up is `bigfleet up`: everything in one process, with simulated clusters, in seconds.
package up

import (
	"errors"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/exit"
	world "github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/up"
)

// New returns the verb.
func New(a *app.App) *cobra.Command {
	var c world.Config
	var logs string
	var list bool
	cmd := &cobra.Command{
		Use: "up", Args: cobra.NoArgs,
		Short: "Run everything here, with simulated clusters, and watch",
		Long: "Runs a shard, a provider and simulated clusters in one process. The shard, the operators, the pod controllers and the\n" +
			"provider are the real ones and listen on real ports; simulated are the clusters (an in-memory API server, a scheduler and\n" +
			"kubelets) and the machines. Nothing is installed, and nothing is left behind.",
		Example: "  bigfleet up\n  bigfleet up --scenario burst\n  bigfleet up --clusters 1 --scenario gang --speed 4",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if list {
				for _, s := range world.Scenarios() {
					a.Notef("%-10s %s", s.Name, s.About)
				}
				return nil
			}
			if c.Scenario != "" {
				if _, err := world.Find(c.Scenario); err != nil {
					return exit.Usagef("--scenario: %v", err)
				}
			}
			c.Out, c.Paint, c.Colour = a.Out, a.Terminal, a.Colour()
			if logs != "" {
				f, err := os.OpenFile(logs, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
				if err != nil {
					return exit.Usagef("--log-file: %v", err)
				}
				defer func() { _ = f.Close() }()
				c.Log = io.Writer(f)
			}
			banner(a, c)
			if err := world.Run(cmd.Context(), c); err != nil {
				return &exit.Error{Code: exit.Failed, Say: "up: " + err.Error(), Err: errors.Unwrap(err)}
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&c.Clusters, "clusters", world.DefaultClusters, "simulated clusters")
	f.StringVar(&c.Scenario, "scenario", "", "a story to play: "+strings.Join(world.Names(), ", "))
	f.BoolVar(&list, "list-scenarios", false, "say what each scenario shows")
	f.Float64Var(&c.Speed, "speed", 1, "divides the delays of machines and scenario")
	f.DurationVar(&c.ProviderDelay, "provider-delay", world.DefaultProviderDelay, "to make a machine, and to join it; negative means none")
	f.StringVar(&c.ShardListen, "shard-listen", world.DefaultShardListen, "address of the shard's port")
	f.StringVar(&c.ProviderListen, "provider-listen", world.DefaultProviderListen, "address of the provider's port")
	f.StringVar(&c.DataDir, "data-dir", "", "keep state here; default a temporary directory that goes with the process")
	f.StringVar(&logs, "log-file", "", "write the parts' logs to this file; default nowhere")
	f.BoolVar(&c.Once, "once", false, "end when the scenario is over and nothing moves")
	return cmd
}

func banner(a *app.App, c world.Config) {
	a.Notef("Simulated: clusters and machines. Real: shard, provider, operators, pod controllers and their ports.")
	a.Notef("Try in another terminal:")
	for _, try := range []string{"status", "get needs", "get machines --state configured", "events", "plan --stock-out m.8x@demo-1a"} {
		a.Notef("  bigfleet %s --shard %s", try, c.ShardListen)
	}
}
