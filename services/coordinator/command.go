package coordinator

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/role"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// NewCommand returns the program bigfleet-coordinator. edit changes the configuration behind the flags, for programs that
// wrap a replica.
func NewCommand(edit ...func(*Config)) *cobra.Command {
	var shared config.Shared
	var c Config
	cmd := &cobra.Command{
		Use:   "bigfleet-coordinator",
		Short: "Run one replica of the coordinator, which records in a Raft group which shard owns what",
		Args:  cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
	}
	fs := cmd.Flags()
	shared.Bind(fs, ":8790")
	fs.StringVar(&c.Listen, "listen", ListenDefault, "listen address of the RPCs")
	fs.StringVar(&c.RaftBind, "raft-bind", RaftBindDefault, "listen address of the Raft transport")
	fs.StringVar(&c.RaftAdvertise, "raft-advertise", "", "stable name and port under which the other replicas reach --raft-bind; empty means the bound address")
	fs.StringVar(&c.Advertise, "advertise-addr", "", "name and port under which clients reach --listen; empty means the host of --raft-advertise with the port of --listen")
	fs.StringVar(&c.ID, "id", "node-1", "permanent identity of this replica; under Kubernetes the Pod name")
	fs.StringVar(&c.DataDir, "data-dir", "./coord-data", "directory for the log, votes and snapshots")
	fs.BoolVar(&c.Bootstrap, "bootstrap", false, "let the first of --peers, or ordinal 0, start a group when all replicas report that there is none (safe to leave on)")
	fs.IntVar(&c.BootstrapExpect, "bootstrap-expect", 1, "how many replicas there will be: 1, 3 or 5")
	fs.BoolVar(&c.ForceBootstrap, "force-bootstrap", false, "start a group without asking the other replicas; this can create a second group beside a running one")
	fs.StringSliceVar(&c.Peers, "peers", nil, "RPC addresses of all replicas, host:port or id=host:port; first the replica that may start a group")
	fs.StringVar(&c.JoinAddr, "join-addr", "", "one name and port for all replicas, instead of or in addition to --peers")
	fs.StringVar(&c.ExportDir, "snapshot-export-dir", "", "directory for continuous copies of the state, written by the leader; empty means none")
	fs.DurationVar(&c.ExportInterval, "snapshot-export-interval", ExportIntervalDefault, "pause between copies")
	fs.IntVar(&c.ExportKeep, "snapshot-export-keep", ExportKeepDefault, "copies kept")
	fs.DurationVar(&c.RebalanceInterval, "rebalance-interval", RebalanceDefault, "pause between sweeps of the rebalancer; 0 switches it off")
	fs.StringVar(&c.AuditLog, "audit-log", "", "file for audit records as JSON lines, on every replica; empty means none")
	fs.BoolVar(&c.InsecureAdmin, "insecure-admin", false, "without TLS, accept operator requests from any address, not only from loopback")
	fs.IntVar(&c.AdminRate, "admin-rate", 50, "most admin calls per second of one caller; negative means no limit")
	fs.DurationVar(&c.Heartbeat, "raft-heartbeat-timeout", 300*time.Millisecond, "how long a follower waits for the leader before it stands for election (the library's default is 1s)")
	fs.DurationVar(&c.Election, "raft-election-timeout", 300*time.Millisecond, "how long an election may take (the library's default is 1s)")
	fs.DurationVar(&c.Lease, "raft-leader-lease", 200*time.Millisecond, "time after which a leader without a quorum steps down (the library's default is 500ms; slow disks: raise all three together)")
	fs.IntVar(&c.FeatureLevelMax, "feature-level-max", 0, "highest feature level of the group, so that an older version can be restored; 0 means that of the binary")
	fs.DurationVar(&c.DeadPeerAfter, "dead-peer-after", 0, "remove a voter that has not answered for this long, while enough voters remain; 0 means never")
	fs.StringVar(&c.RaftTLS, "raft-tls", "", "optional accepts plaintext replicas too, for one rolling restart; required is the default under TLS")
	fs.BoolVar(&c.JoinAcceptAdmin, "join-accept-admin", false, "let replicas join with admin certificates, which older versions use")

	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		printed, err := config.Loader{Role: "coordinator", Command: cmd, Shared: &shared, Check: func() error {
			probe := c
			probe.Telemetry, probe.TLS = &telemetry.Telemetry{}, shared.TLS
			probe.defaults()
			return probe.check()
		}}.Load()
		if err != nil || printed {
			return err
		}
		c.TLS = shared.TLS
		if c.RebalanceInterval == 0 {
			c.RebalanceInterval = -1
		}
		about := role.Config{Component: "coordinator", Instance: c.ID, Shared: shared}
		return role.Run(cmd.Context(), about, func(ctx context.Context, o role.Opened) error {
			c.Telemetry, c.Ops = o.Telemetry, o.Ports
			if len(o.Ports) == 0 {
				c.OpsOnRPC = o.Ops
			}
			for _, change := range edit {
				change(&c)
			}
			return Run(ctx, c)
		})
	}
	return cmd
}
