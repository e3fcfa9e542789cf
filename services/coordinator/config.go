package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/peernet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/server"
	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// Defaults of COORD-2 and COORD-17.1.
const (
	ListenDefault         = ":7790"
	RaftBindDefault       = ":7791"
	RebalanceDefault      = 15 * time.Second
	ExportIntervalDefault = 5 * time.Minute
	ExportKeepDefault     = 48
)

// Config is what a replica needs. Zero values mean the documented defaults.
type Config struct {
	ID      string // required, COORD-1.9 syntax
	DataDir string // required

	// Listen is where the RPCs are served, RaftBind where other replicas connect. The listeners replace them.
	Listen, RaftBind       string
	Listener, RaftListener net.Listener
	// RaftAdvertise and Advertise are the stable names under which others reach the two ports. Empty means what is
	// bound, which is right for a single replica only.
	RaftAdvertise, Advertise string

	// Bootstrap lets the first of Peers (or ordinal 0) begin a group once all BootstrapExpect replicas said that there
	// is none. Force begins one without asking.
	Bootstrap       bool
	BootstrapExpect int // 0 means 1
	ForceBootstrap  bool
	// Peers are RPC addresses of all replicas, host:port or id=host:port. JoinAddr is one name for all of them.
	Peers    []string
	JoinAddr string

	ExportDir      string        // empty: no export
	ExportInterval time.Duration // 0 means 5 m
	ExportKeep     int           // 0 means 48
	// RebalanceInterval is the pause between sweeps; 0 means 15 s, negative switches them off.
	RebalanceInterval time.Duration
	AuditLog          string // file for audit records as JSON lines; empty: none
	InsecureAdmin     bool   // without TLS, accept orders from any peer, not only from loopback
	AdminRate         int    // admin calls a second of one caller; 0 means 50, negative means no limit

	Heartbeat, Election, Lease time.Duration // 0 means 300, 300 and 200 ms
	FeatureLevelMax            int           // 0 means that of the binary
	DeadPeerAfter              time.Duration // 0: never
	RaftTLS                    string        // optional or required; empty means required under TLS
	JoinAcceptAdmin            bool

	TLS       identity.Files       // none of them: plaintext
	Telemetry *telemetry.Telemetry // required
	// Ops are the ports for metrics and health. Without one, they are served on the RPC port (COORD-17.1).
	Ops []*telemetry.OpsPort
	// OpsOnRPC serves metrics and health on the RPC port.
	OpsOnRPC *telemetry.Ops
	// Dial replaces the network towards other replicas. nil means TCP.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Clock is the time that records carry; nil means the machine's. BeforeSync is called before each fsync of log and
	// votes. Both are for tests of clocks that are wrong and of slow disks.
	Clock      func() time.Time
	BeforeSync func()
	// Ready is closed when the RPC port is served. May be nil.
	Ready chan<- struct{}
}

var idSyntax = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

func (c *Config) defaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.RebalanceInterval, RebalanceDefault)
	set(&c.ExportInterval, ExportIntervalDefault)
	if c.ExportKeep == 0 {
		c.ExportKeep = ExportKeepDefault
	}
	if c.BootstrapExpect == 0 {
		c.BootstrapExpect = 1
	}
	if c.FeatureLevelMax == 0 {
		c.FeatureLevelMax = fleet.Level
	}
	if c.Listen == "" {
		c.Listen = ListenDefault
	}
	if c.RaftBind == "" {
		c.RaftBind = RaftBindDefault
	}
}

// check reports everything that is wrong at once.
func (c *Config) check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !idSyntax.MatchString(c.ID) {
		fail("--id %q must be 1 to 128 of letters, digits, dot, underscore and dash", c.ID)
	}
	if c.DataDir == "" {
		fail("--data-dir is empty: the log needs a directory that survives restarts")
	}
	if c.Listener == nil {
		errs = append(errs, config.CheckListen("listen", c.Listen))
	}
	if c.RaftListener == nil {
		errs = append(errs, config.CheckListen("raft-bind", c.RaftBind))
	}
	if c.RaftAdvertise != "" {
		errs = append(errs, config.CheckDial("raft-advertise", c.RaftAdvertise))
	} else if len(c.Peers) > 1 || c.JoinAddr != "" || c.BootstrapExpect > 1 {
		fail("--raft-advertise is empty: with several replicas it must be the stable name and port under which the others reach this one")
	}
	if c.Advertise != "" {
		errs = append(errs, config.CheckDial("advertise-addr", c.Advertise))
	}
	if _, err := c.peers(); err != nil {
		errs = append(errs, err)
	}
	if c.AuditLog != "" {
		if err := server.CheckAuditFile(c.AuditLog); err != nil {
			fail("--audit-log %s %w", c.AuditLog, err)
		}
	}
	if c.JoinAddr != "" {
		errs = append(errs, config.CheckDial("join-addr", c.JoinAddr))
	}
	switch c.BootstrapExpect {
	case 1, 3, 5:
	default:
		fail("--bootstrap-expect %d must be 1, 3 or 5", c.BootstrapExpect)
	}
	if c.ForceBootstrap && c.JoinAddr != "" && !c.Bootstrap {
		fail("--force-bootstrap and --join-addr contradict each other: one begins a new group, the other joins one")
	}
	errs = append(errs, c.checkTimes(), c.checkTLS())
	if c.FeatureLevelMax < 0 || c.FeatureLevelMax > fleet.Level {
		fail("--feature-level-max %d must be at most %d, the level of this binary", c.FeatureLevelMax, fleet.Level)
	}
	if c.ExportKeep < 0 {
		fail("--snapshot-export-keep %d is negative", c.ExportKeep)
	}
	if c.Telemetry == nil {
		fail("coordinator.Config: Telemetry is required")
	}
	return errors.Join(errs...)
}

// checkTimes holds the library's rules about its timings, so that a wrong set is a configuration error.
func (c *Config) checkTimes() error {
	var errs []error
	for _, d := range []struct {
		flag string
		v    time.Duration
	}{{"raft-heartbeat-timeout", c.Heartbeat}, {"raft-election-timeout", c.Election}, {"raft-leader-lease", c.Lease},
		{"snapshot-export-interval", c.ExportInterval}, {"dead-peer-after", c.DeadPeerAfter}} {
		if d.v < 0 {
			errs = append(errs, fmt.Errorf("--%s %s is negative", d.flag, d.v))
		}
	}
	or := func(v, def time.Duration) time.Duration {
		if v == 0 {
			return def
		}
		return v
	}
	heartbeat, election, lease := or(c.Heartbeat, 300*time.Millisecond), or(c.Election, 300*time.Millisecond), or(c.Lease, 200*time.Millisecond)
	switch {
	case lease < 5*time.Millisecond || heartbeat < 5*time.Millisecond:
		errs = append(errs, errors.New("the Raft timings --raft-heartbeat-timeout and --raft-leader-lease must be at least 5 ms"))
	case lease > heartbeat || heartbeat > election:
		errs = append(errs, fmt.Errorf("the Raft timings must grow: --raft-leader-lease %s, --raft-heartbeat-timeout %s, --raft-election-timeout %s; raise all three together", lease, heartbeat, election))
	}
	return errors.Join(errs...)
}

func (c *Config) checkTLS() error {
	switch peernet.Mode(c.RaftTLS) {
	case "":
		return nil
	case peernet.Optional, peernet.Required:
	default:
		return fmt.Errorf("--raft-tls %q must be optional or required", c.RaftTLS)
	}
	if secure, err := c.TLS.Enabled(); err == nil && !secure { // half a set is reported with the shared flags
		return fmt.Errorf("--raft-tls %s needs --tls-cert, --tls-key and --tls-ca", c.RaftTLS)
	}
	return nil
}

func (c *Config) peers() ([]replica.Peer, error) {
	var out []replica.Peer
	var errs []error
	for _, text := range c.Peers {
		p, err := replica.ParsePeer(text)
		if err != nil {
			errs = append(errs, fmt.Errorf("--peers: %w", err))
			continue
		}
		out = append(out, p)
	}
	return out, errors.Join(errs...)
}
