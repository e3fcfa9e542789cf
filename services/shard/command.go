package shard

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/role"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// NewCommand returns the program bigfleet-shard. The help texts name defaults that differ from what operators of such
// systems know (OPS-2.4).
func NewCommand() *cobra.Command {
	var (
		shared    config.Shared
		c         Config
		providers []string
		health    string
		guard     bool
		verify    bool
	)
	cmd := &cobra.Command{
		Use:   "bigfleet-shard",
		Short: "Run one shard of BigFleet: it receives the demand of clusters, decides, and acts through capacity providers",
		Args:  config.NoArgs, SilenceUsage: true, SilenceErrors: true,
	}
	fs := cmd.Flags()
	shared.Bind(fs, ":8780")
	fs.StringVar(&health, "health-addr", "", "listen address of the health endpoints; empty means the metrics port")
	fs.StringVar(&c.Listen, "listen", ":7780", "listen address for operator sessions, reads and operator requests")
	fs.StringVar(&c.ID, "id", "shard-0", "permanent id of this shard")
	fs.StringVar(&c.DataDir, "data-dir", "./data", "directory for the epoch file, shard.db and the decision log")
	fs.StringSliceVar(&providers, "provider-addr", nil, "address of a capacity provider, host:port or name=host:port; repeatable (required: there is no fake one)")
	fs.StringVar(&c.CoordinatorAddr, "coordinator-addr", "", "addresses of the coordinator's replicas, host:port, separated by commas; empty means no coordinator")
	fs.StringVar(&c.AdvertiseAddr, "advertise-addr", "", "address at which others reach this shard; empty means --listen")
	fs.DurationVar(&c.CoordinatorHeartbeat, "coordinator-heartbeat-interval", 10*time.Second, "how often this shard reports to the coordinator")
	fs.BoolVar(&c.ForgetCoordinator, "forget-coordinator", false, "follow the first coordinator that answers, even if this shard followed another one before")
	fs.DurationVar(&c.AloneAfter, "alone-after", 0, "for fleets of one shard: own all machines of the provider if no coordinator answers for this long after the first start; 0 means wait for the coordinator")
	fs.DurationVar(&c.CycleMinSpacing, "cycle-min-spacing", 100*time.Millisecond, "shortest pause between cycles")
	fs.DurationVar(&c.CycleInterval, "cycle-interval", 10*time.Second, "longest pause between cycles; ages are counted in cycles of this length")
	fs.DurationVar(&c.ReconcileInterval, "reconcile-interval", 10*time.Second, "how often each provider is listed")
	fs.DurationVar(&c.FullReconcileInterval, "full-reconcile-interval", 10*time.Minute, "how often each provider is listed in full when cursors are used")
	fs.DurationVar(&c.InflightPoll, "inflight-poll-interval", 50*time.Millisecond, "how often machines in transition are checked")
	fs.StringVar(&c.Incremental, "incremental-reconcile", "auto", "use cursors: auto (as soon as the provider has proved that they work; other implementations have it off by default), on or off")
	fs.IntVar(&c.ExecuteConcurrency, "execute-concurrency", 128, "most commands at the same time, of all kinds together (other implementations default to 1: a few actions per cycle)")
	fs.IntVar(&c.ExecutePerCluster, "execute-per-cluster", 64, "most bootstrap requests and Configures of one cluster at the same time")
	fs.IntVar(&c.ProviderConcurrency, "provider-concurrency", 128, "most commands at one provider at the same time")
	fs.DurationVar(&c.BootstrapTimeout, "bootstrap-timeout", 30*time.Second, "time limit for an operator to render boot data")
	fs.DurationVar(&c.ExecuteTimeout, "execute-timeout", 30*time.Second, "time limit of one attempt of a command")
	fs.IntVar(&c.MaxActionsPerCycle, "max-actions-per-cycle", 0, "most actions started per cycle; 0 means no limit")
	fs.IntVar(&c.ProvisionRate, "provision-rate", 6000, "most Creates per minute; 0 means no limit")
	fs.IntVar(&c.PreemptRate, "preempt-rate", 300, "most Preempts per minute over all clusters; 0 means no limit")
	fs.IntVar(&c.ClusterMachinesMax, "cluster-machines-max", 0, "most machines that one cluster may have; 0 means no limit")
	fs.Float64Var(&c.ClusterSpendMax, "cluster-spend-max", 0, "most dollars per hour that the machines of one cluster may cost; 0 means no limit")
	fs.StringSliceVar(&c.ClusterPriorityMax, "cluster-priority-max", []string{"1000000000"}, "highest priority that counts, for all clusters or as cluster=number; higher priorities are lowered to it (the default is the highest that users of Kubernetes can set)")
	fs.StringSliceVar(&c.ClusterPenaltyMax, "cluster-penalty-max", nil, "highest penalty that counts, in dollars, for all clusters or as cluster=dollars; higher penalties are lowered to it; empty means no limit")
	fs.BoolVar(&c.ActuationPaused, "actuation-paused", false, "start no actions; only a restart without this flag ends this pause")
	fs.BoolVar(&c.DryRun, "dry-run", false, "plan and report actions, but start none")
	fs.Float64Var(&c.ReclaimCapFraction, "reclaim-cap-fraction", 0.05, "fraction of the Configured machines that may be reclaimed per window; 0 means no limit")
	fs.DurationVar(&c.ReclaimCapWindow, "reclaim-cap-window", 10*time.Second, "window of --reclaim-cap-fraction")
	fs.DurationVar(&c.ReleaseDelay, "release-delay", 3*time.Minute, "how long a machine must be unneeded before it is reclaimed; 0 means at once")
	fs.DurationVar(&c.ReleaseUnusedAfter, "release-unused-after", 5*time.Minute, "how long a node must stay empty, because the Pods that it was bought for run elsewhere, before its machine counts as unneeded; 0 means never")
	fs.DurationVar(&c.ReleaseDelayEmpty, "release-delay-empty", 30*time.Second, "the same for a machine whose node has no Pod that would have to be evicted; 0 means at once")
	fs.DurationVar(&c.DrainDeadline, "drain-deadline", 10*time.Minute, "time limit for an operator to evict the Pods of a voluntary drain")
	fs.StringVar(&c.DrainDeadlinePolicy, "drain-deadline-policy", "give-up", "what to do with a voluntary drain that is blocked at its deadline: give-up (keep the machine) or force")
	fs.DurationVar(&c.SessionHandoverWait, "session-handover-wait", 30*time.Second, "how long a preemption waits for the operator of a cluster that has no session, 0 to 5m")
	fs.BoolVar(&guard, "empty-rollup-guard", true, "hold a roll-up that suddenly requests almost nothing, until it is confirmed")
	fs.DurationVar(&c.SilentAfter, "silent-after", 10*time.Minute, "how long a cluster that has machines may send no roll-up before it counts as silent")
	fs.DurationVar(&c.CreatingStuckAfter, "creating-stuck-after", 30*time.Minute, "how long a machine may be in Creating before it counts as stuck")
	fs.DurationVar(&c.ConfiguringStuckAfter, "configuring-stuck-after", 20*time.Minute, "how long a machine may be in Configuring before it counts as stuck")
	fs.DurationVar(&c.HintInterval, "available-capacity-interval", 5*time.Second, "shortest time between two changes of one capacity hint")
	fs.IntVar(&c.SessionsMax, "max-sessions", 10_000, "most clusters that may have a session at the same time")
	fs.DurationVar(&c.SessionAgeMax, "session-max-age", 12*time.Hour, "longest duration of a session; the operator then opens a new one")
	fs.IntVar(&c.MachinesMax, "max-machines", 2_000_000, "most machines of all providers that the shard takes; new ones above that are rejected and counted")
	config.BytesVar(fs, &c.RollupBytesMax, "max-rollup-bytes", 16<<20, "largest roll-up that is accepted, in bytes (usual ones have a few KB)")
	fs.IntVar(&c.RollupNeedsMax, "max-rollup-needs", 50_000, "most rows that an accepted roll-up may have")
	fs.Int64Var(&c.EpochFloor, "epoch-floor", 0, "lowest epoch that this process may take; needed when the epoch file cannot be read")
	fs.DurationVar(&c.ShutdownGrace, "shutdown-grace", 15*time.Second, "how long commands in flight may take to finish at shutdown")
	fs.StringVar(&c.AuditLog, "audit-log", "", "file that receives decision records as JSON lines; reopened on SIGHUP; empty means none")
	fs.DurationVar(&c.DecisionLogRetention, "decision-log-retention", 168*time.Hour, "how long the decision log is kept; 0 turns it off (on by default)")
	config.BytesVar(fs, &c.DecisionLogBytesMax, "decision-log-max-bytes", 4<<30, "largest size of the decision log, in bytes")
	fs.IntVar(&c.MetricsWarmupCycles, "metrics-warmup-cycles", 0, "number of first cycles that the cycle histograms leave out")
	fs.BoolVar(&c.PhaseAttributionLog, "phase-attribution-log", false, "every 20th cycle, log the kinds of needs, and whether a machine that an unmet need could use is released")
	fs.BoolVar(&c.InsecureAdmin, "insecure-admin", false, "without TLS, accept operator requests from any address, not only from loopback")
	fs.BoolVar(&verify, "verify-peer-identity", true, "require that the coordinator's certificate carries a coordinator identity")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		printed, err := config.Loader{Role: "shard", Command: cmd, Shared: &shared, Check: func() error {
			var problem error
			c.Providers, problem = ParseProviders(providers)
			probe := c
			probe.ReclaimCapSet, probe.Telemetry = true, &telemetry.Telemetry{}
			probe.defaults()
			return errors.Join(problem, probe.check(), c.checkNotZero(), checkHealthAddr(health))
		}}.Load()
		if err != nil || printed {
			return err
		}
		c.TLS, c.ReclaimCapSet, c.NoRollupGuard, c.NoPeerIdentity = shared.TLS, true, !guard, !verify
		for _, d := range []*time.Duration{&c.ReleaseDelay, &c.ReleaseDelayEmpty, &c.SessionHandoverWait, &c.ReleaseUnusedAfter} {
			if *d == 0 {
				*d = -1
			}
		}
		if c.DecisionLogRetention == 0 {
			c.DecisionLogRetention = -1
		}
		useProcessors()
		about := role.Config{Component: "shard", Instance: c.ID, Shared: shared, HealthAddr: health, LivingHeap: true, BusyHeapRoom: busyHeapRoom}
		return role.Run(cmd.Context(), about, func(ctx context.Context, o role.Opened) error {
			c.Telemetry, c.Ops = o.Telemetry, o.Ports
			return runWithHangups(ctx, c)
		})
	}
	return cmd
}

// busyHeapRoom is a quarter of the memory that the chart gives a shard.
const busyHeapRoom = 2 << 30

func checkHealthAddr(addr string) error {
	if addr == "" {
		return nil
	}
	return config.CheckListen("health-addr", addr)
}

// runWithHangups runs one shard whose audit log is reopened at each SIGHUP (SHARD-28.8).
func runWithHangups(ctx context.Context, c Config) error {
	if c.AuditLog != "" {
		hangup := make(chan os.Signal, 1)
		signal.Notify(hangup, syscall.SIGHUP)
		defer signal.Stop(hangup)
		c.Reopen = hangup
	}
	return Run(ctx, c)
}
