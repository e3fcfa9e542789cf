package operator

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/incluster/apiaccess"
	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/role"
)

// misconfigured marks an error as one of configuration, with exit code 2 (OPS-2.5).
func misconfigured(err error) error { return config.Fail(err) }

// NewCommand returns the program bigfleet-operator.
func NewCommand() *cobra.Command {
	var shared config.Shared
	var c Config
	var kubeconfig string
	cmd := &cobra.Command{
		Use:   "bigfleet-operator",
		Short: "Run the operator of one managed cluster: it sends the cluster's demand to the shard and carries out the shard's decisions",
		Args:  config.NoArgs, SilenceUsage: true, SilenceErrors: true,
	}
	fs := cmd.Flags()
	shared.Bind(fs, ":8770")
	fs.StringVar(&c.ClusterID, "cluster-id", "", "permanent id of this cluster (required)")
	fs.StringVar(&c.ShardAddr, "shard-addr", "", "address of the shard, host:port (required)")
	fs.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig of the cluster; empty means the service account of the Pod")
	fs.StringVar(&c.Namespace, "namespace", "", "namespace of the Lease and the ConfigMaps; empty means that of the Pod, else "+namespaceDefault)
	fs.BoolVar(&c.NoLeaderElection, "no-leader-election", false, "work without holding the Lease; only for a single replica")
	fs.DurationVar(&c.CacheSyncTimeout, "cache-sync-timeout", cacheSyncDefault, "how long the first listing of all objects may take")
	fs.Float32Var(&c.QPS, "qps", -1, "API requests per second; negative means no limit here (other controllers default to 20)")
	fs.IntVar(&c.Burst, "burst", 0, "burst of API requests when --qps is positive; 0 means twice --qps")

	fs.DurationVar(&c.RollupDebounce, "rollup-debounce", 250*time.Millisecond, "delay between a change of demand and the roll-up that reports it")
	fs.DurationVar(&c.RollupInterval, "rollup-interval", 10*time.Second, "how often the demand is repeated without a change; 0 means 10s")
	fs.DurationVar(&c.ReconnectMin, "reconnect-initial-backoff", 500*time.Millisecond, "largest pause before the first redial")
	fs.DurationVar(&c.ReconnectMax, "reconnect-max-backoff", 30*time.Second, "largest pause between redials")
	fs.IntVar(&c.DispatchConcurrency, "dispatch-concurrency", 32, "UpcomingNodes written in parallel")
	fs.IntVar(&c.AckConcurrency, "ack-concurrency", 4, "CapacityRequests acknowledged in parallel")
	fs.Float64Var(&c.AckQPS, "ack-qps", 400, "CapacityRequests acknowledged per second")
	fs.DurationVar(&c.DemandHold, "demand-hold", 3*time.Minute, "how long the demand of a deleted Pod of a controller is kept for its replacement, after the Pod's grace period")
	fs.DurationVar(&c.NodeJoinTimeout, "node-join-timeout", 10*time.Minute, "time after which a configured machine without a Ready Node is reported as never joined")
	fs.DurationVar(&c.DrainedNodeTimeout, "drained-node-timeout", 2*time.Minute, "time after which the operator deletes the Node of a machine that it drained and that is gone")
	fs.BoolVar(&c.KeepDrainedNodes, "keep-drained-nodes", false, "never delete a Node")
	fs.DurationVar(&c.NodeNotReadyAfter, "node-not-ready-after", 5*time.Minute, "time after which a node that is not Ready does not count as capacity")

	fs.StringVar(&c.BootstrapRenderer, "bootstrap-renderer", RendererAuto, "auto, template, builtin or stub; auto means template if a file is given, else builtin "+
		"(the stub must be asked for: an empty template no longer means the stub)")
	fs.StringVar(&c.BootstrapTemplateFile, "bootstrap-template-file", "", "Go template of the boot data of machines")
	fs.DurationVar(&c.BootstrapTTL, "bootstrap-ttl", 10*time.Minute, "how long boot data stays valid")
	fs.IntVar(&c.BootstrapTokenPool, "bootstrap-token-pool", 16, "bootstrap tokens kept ready")
	fs.StringVar(&c.APIServerURL, "apiserver-url", "", "URL under which machines reach the API server; empty means the ConfigMap kube-public/cluster-info")
	fs.StringVar(&c.CABundleFile, "ca-bundle-file", "", "PEM bundle with which machines verify the API server; empty means the CA of this process's own client")
	fs.StringVar(&c.KubeletVersion, "kubelet-version", "", "kubelet version of the machines' images; empty means that of the API server")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		printed, err := config.Loader{Role: "operator", Command: cmd, Shared: &shared, Check: func() error {
			probe := c
			return probe.check()
		}}.Load()
		if err != nil || printed {
			return err
		}
		c.TLS = shared.TLS
		if c.REST, err = apiaccess.LoadREST(kubeconfig); err != nil {
			return misconfigured(err)
		}
		about := role.Config{Component: "operator", Instance: c.ClusterID, Shared: shared, LivingHeap: true}
		return role.Run(cmd.Context(), about, func(ctx context.Context, o role.Opened) error {
			c.Telemetry, c.Ops = o.Telemetry, o.Ports
			return Run(ctx, c)
		})
	}
	return cmd
}
