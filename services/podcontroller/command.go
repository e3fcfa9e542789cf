package podcontroller

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/incluster/apiaccess"
	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/role"
)

// NewCommand returns the program bigfleet-podcontroller.
func NewCommand() *cobra.Command {
	var shared config.Shared
	var c Config
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "bigfleet-podcontroller",
		Short: "Run the pod controller of a cluster: it keeps one CapacityRequest for each Pod, so that BigFleet knows the demand",
		Args:  config.NoArgs, SilenceUsage: true, SilenceErrors: true,
	}
	fs := cmd.Flags()
	shared.Bind(fs, ":8080")
	fs.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty means the service account of the Pod")
	fs.StringVar(&c.Namespace, "namespace", "", "namespace of the Lease; empty means that of the Pod, else "+namespaceDefault)
	fs.StringVar(&c.PriorityClassDefaults, "priority-class-defaults", "", "YAML file with the penalties that PriorityClasses have by default, in dollars")
	fs.StringSliceVar(&c.ExcludeNamespaces, "exclude-namespaces", nil, "namespaces whose Pods get no CapacityRequest")
	fs.StringVar(&c.UnmanagedNodeSelector, "unmanaged-node-selector", UnmanagedNodeSelectorDefault, "labels of nodes that are not BigFleet's; Pods bound to them get no CapacityRequest")
	fs.BoolVar(&c.CountForeignNodes, "count-foreign-nodes", false, "also create CapacityRequests for Pods on nodes that are not machines of BigFleet")
	fs.StringVar(&c.BestEffortFloor, "best-effort-floor", BestEffortFloorDefault, "resources that are requested for a Pod without cpu and memory requests")
	fs.BoolVar(&c.NoLeaderElection, "no-leader-election", false, "work without holding the Lease; only for a single replica")
	fs.IntVar(&c.Workers, "workers", WorkersDefault, "Pods reconciled in parallel")
	fs.DurationVar(&c.CacheSyncTimeout, "cache-sync-timeout", cacheSyncDefault, "how long the first listing of all objects may take")
	fs.Float32Var(&c.QPS, "qps", -1, "API requests per second; negative means no limit here (other controllers default to 20)")
	fs.IntVar(&c.Burst, "burst", 0, "burst of API requests when --qps is positive; 0 means twice --qps")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		printed, err := config.Loader{Role: "podcontroller", Command: cmd, Shared: &shared, Check: func() error {
			probe := c
			return probe.check()
		}}.Load()
		if err != nil || printed {
			return err
		}
		if c.REST, err = apiaccess.LoadREST(kubeconfig); err != nil {
			return config.Fail(err)
		}
		about := role.Config{Component: "podcontroller", Shared: shared, LivingHeap: true}
		return role.Run(cmd.Context(), about, func(ctx context.Context, o role.Opened) error {
			c.Telemetry, c.Ops = o.Telemetry, o.Ports
			return Run(ctx, c)
		})
	}
	return cmd
}
