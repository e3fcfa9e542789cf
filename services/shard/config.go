package shard

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/report"
)

// Config is what a shard needs. Zero values mean the documented defaults (SHARD-31).
type Config struct {
	ID      string // required, COORD-1.9 syntax
	DataDir string // required

	// Listen is where sessions, reads and orders are served. Listener replaces it.
	Listen   string
	Listener net.Listener

	Clock func() time.Time // of the core's wall time; nil: the machine's

	Providers       []Provider // required; there is no default provider and no fake one
	CoordinatorAddr string     // empty: off
	AdvertiseAddr   string     // what the coordinator tells others; empty: Listen

	CoordinatorHeartbeat time.Duration // 0 means 10 s
	// DialCoordinator replaces the network, for a coordinator in the same process.
	DialCoordinator   Dialer
	ForgetCoordinator bool
	// AloneAfter makes this shard the only one of its provider when no coordinator has answered for so long after the start and it has no
	// view. 0: it waits.
	AloneAfter time.Duration

	CycleMinSpacing, CycleInterval                             time.Duration // 100 ms, 10 s
	ReconcileInterval, FullReconcileInterval, InflightPoll     time.Duration // 10 s, 10 min, 50 ms
	Incremental                                                string        // auto, on, off; true and false are accepted
	ExecuteConcurrency, ExecutePerCluster, ProviderConcurrency int           // 128, 64, 128
	BootstrapTimeout, ExecuteTimeout                           time.Duration // 30 s, 30 s
	MaxActionsPerCycle, ProvisionRate, PreemptRate             int           // 0: no limit
	ClusterMachinesMax                                         int           // 0: no limit
	ClusterSpendMax                                            float64       // dollars per hour; 0: no limit
	ClusterPriorityMax                                         []string      // number, or cluster=number; empty: 1,000,000,000
	ClusterPenaltyMax                                          []string      // dollars, or cluster=dollars; empty: no limit
	ActuationPaused, DryRun                                    bool
	ReclaimCapFraction                                         float64       // 0.05; 0 disables when ReclaimCapSet
	ReclaimCapSet                                              bool          // the fraction was given, so 0 means off
	ReclaimCapWindow                                           time.Duration // 10 s
	ReleaseDelay, ReleaseDelayEmpty                            time.Duration // 3 min, 30 s; negative: none
	SessionHandoverWait                                        time.Duration // 30 s; negative: none
	ReleaseUnusedAfter                                         time.Duration // 5 min; negative: never
	DrainDeadline                                              time.Duration // of a voluntary drain; 10 min
	DrainDeadlinePolicy                                        string        // give-up, force
	NoRollupGuard                                              bool
	SilentAfter, CreatingStuckAfter, ConfiguringStuckAfter     time.Duration // 10, 30, 20 min
	HintInterval                                               time.Duration // 5 s
	SessionsMax                                                int           // 10,000
	MachinesMax                                                int           // 2,000,000
	SessionAgeMax                                              time.Duration // 12 h
	RollupBytesMax                                             int64         // 16 MiB
	RollupNeedsMax                                             int           // 50,000
	EpochFloor                                                 int64
	ShutdownGrace                                              time.Duration // 15 s
	AuditLog                                                   string
	DecisionLogRetention                                       time.Duration // 168 h; negative: off
	DecisionLogBytesMax                                        int64         // 4 GiB
	MetricsWarmupCycles                                        int
	PhaseAttributionLog                                        bool

	TLS            identity.Files // none of them: plaintext
	InsecureAdmin  bool
	NoPeerIdentity bool                 // do not require the coordinator's identity
	Telemetry      *telemetry.Telemetry // required
	// Ops are the ports for metrics and health. A lost one is bound again; it never stops the shard (SHARD-3.6).
	Ops []*telemetry.OpsPort
	// Reopen makes the audit log go to a new file at each receive, after the old one was renamed. May be nil.
	Reopen <-chan os.Signal
	// Ready is closed when the port is served. May be nil.
	Ready chan<- struct{}
}

// Provider is one provider to buy from.
type Provider struct {
	Name string // empty means Addr
	Addr string // host:port
	// Dial replaces the network, for providers in the same process.
	Dial Dialer
}

var idSyntax = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// ParseProviders reads the values of --provider-addr: host:port, or name=host:port several times.
func ParseProviders(values []string) ([]Provider, error) {
	var out []Provider
	var errs []error
	for _, v := range values {
		name, addr, named := strings.Cut(v, "=")
		if !named {
			name, addr = v, v
		}
		errs = append(errs, config.CheckDial("provider-addr", addr))
		if name == "" {
			errs = append(errs, fmt.Errorf("--provider-addr %q has an empty name", v))
		}
		if slices.ContainsFunc(out, func(p Provider) bool { return p.Name == name }) {
			errs = append(errs, fmt.Errorf("--provider-addr names %q twice", name))
		}
		out = append(out, Provider{Name: name, Addr: addr})
	}
	return out, errors.Join(errs...)
}

func (c *Config) defaults() {
	set := func(d *time.Duration, v time.Duration) {
		if *d == 0 {
			*d = v
		}
	}
	set(&c.CoordinatorHeartbeat, 10*time.Second)
	set(&c.SessionAgeMax, 12*time.Hour)
	set(&c.ShutdownGrace, 15*time.Second)
	set(&c.DecisionLogRetention, 168*time.Hour)
	if c.SessionsMax == 0 {
		c.SessionsMax = 10_000
	}
	if c.MachinesMax == 0 {
		c.MachinesMax = 2_000_000
	}
	if c.RollupBytesMax == 0 {
		c.RollupBytesMax = 16 << 20
	}
	if c.RollupNeedsMax == 0 {
		c.RollupNeedsMax = 50_000
	}
	if c.DecisionLogBytesMax == 0 {
		c.DecisionLogBytesMax = 4 << 30
	}
	if !c.ReclaimCapSet && c.ReclaimCapFraction == 0 {
		c.ReclaimCapFraction = 0.05
	}
	if c.DrainDeadlinePolicy == "" {
		c.DrainDeadlinePolicy = "give-up"
	}
	if c.Incremental == "" {
		c.Incremental = "auto"
	}
	if c.AdvertiseAddr == "" {
		c.AdvertiseAddr = c.Listen
	}
	for i := range c.Providers {
		if c.Providers[i].Name == "" {
			c.Providers[i].Name = c.Providers[i].Addr
		}
	}
	slices.SortFunc(c.Providers, func(a, b Provider) int { return strings.Compare(a.Name, b.Name) })
}

// check reports everything that is wrong at once (SHARD-3.2).
func (c *Config) check() error {
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if !idSyntax.MatchString(c.ID) {
		fail("--id %q must be 1 to 128 of letters, digits, dot, underscore and dash", c.ID)
	}
	if c.DataDir == "" {
		fail("--data-dir is empty: the epoch and the decision log need a directory that survives restarts")
	}
	if len(c.Providers) == 0 {
		fail("--provider-addr is empty: give the address of a capacity provider; there is no built-in fake one")
	}
	if c.Listener == nil {
		errs = append(errs, config.CheckListen("listen", c.Listen))
	}
	if c.CoordinatorAddr != "" {
		for _, a := range strings.Split(c.CoordinatorAddr, ",") {
			errs = append(errs, config.CheckDial("coordinator-addr", a))
		}
	}
	if _, err := incremental(c.Incremental); err != nil {
		errs = append(errs, err)
	}
	if f := c.ReclaimCapFraction; f < 0 || f > 1 || f != f {
		fail("--reclaim-cap-fraction %v must be between 0 and 1", f)
	} else if f > 0 && f < 0.001 {
		fail("--reclaim-cap-fraction %v is less than the minimum of 0.001; 0 means no limit, and --actuation-paused reclaims nothing", f)
	} else if m := f * 1000; math.Abs(m-math.Round(m)) > 1e-6 {
		fail("--reclaim-cap-fraction %v is not a whole number of thousandths: give %v or %v", f, math.Floor(m)/1000, math.Ceil(m)/1000)
	}
	if s := c.ClusterSpendMax; s < 0 || s > 1e9 || s != s || s > 0 && s < 0.000001 {
		fail("--cluster-spend-max %v must be 0, or between a millionth and a billion dollars per hour", s)
	} else if text := strconv.FormatFloat(s, 'f', 6, 64); s != parsed(text) {
		fail("--cluster-spend-max %v has parts smaller than a millionth of a dollar: give %s", s, strings.TrimRight(text, "0"))
	}
	if _, err := ceilings(c.ClusterPriorityMax, c.ClusterPenaltyMax); err != nil {
		errs = append(errs, err)
	}
	if p := c.DrainDeadlinePolicy; p != "give-up" && p != "force" {
		fail("--drain-deadline-policy %q must be give-up or force", p)
	}
	if d := c.DrainDeadline; d != 0 && (d < time.Second || d > 24*time.Hour) {
		fail("--drain-deadline %s must be between 1 second and 24 hours", d)
	} else if d%time.Second != 0 {
		fail("--drain-deadline %s must be whole seconds: the operator protocol carries seconds", d)
	}
	if w := c.SessionHandoverWait; w > 5*time.Minute {
		fail("--session-handover-wait %s is more than 5 minutes", w)
	}
	for _, d := range []struct {
		flag string
		v    time.Duration
	}{{"cycle-min-spacing", c.CycleMinSpacing}, {"cycle-interval", c.CycleInterval}, {"reconcile-interval", c.ReconcileInterval},
		{"full-reconcile-interval", c.FullReconcileInterval}, {"inflight-poll-interval", c.InflightPoll}, {"bootstrap-timeout", c.BootstrapTimeout},
		{"execute-timeout", c.ExecuteTimeout}, {"reclaim-cap-window", c.ReclaimCapWindow}, {"shutdown-grace", c.ShutdownGrace},
		{"session-max-age", c.SessionAgeMax}, {"coordinator-heartbeat-interval", c.CoordinatorHeartbeat}, {"silent-after", c.SilentAfter},
		{"creating-stuck-after", c.CreatingStuckAfter}, {"configuring-stuck-after", c.ConfiguringStuckAfter},
		{"available-capacity-interval", c.HintInterval}, {"alone-after", c.AloneAfter}} {
		if d.v < 0 {
			fail("--%s %s is negative", d.flag, d.v)
		}
	}
	for _, n := range []struct {
		flag string
		v    int
	}{{"execute-concurrency", c.ExecuteConcurrency}, {"execute-per-cluster", c.ExecutePerCluster}, {"provider-concurrency", c.ProviderConcurrency},
		{"max-actions-per-cycle", c.MaxActionsPerCycle}, {"provision-rate", c.ProvisionRate}, {"preempt-rate", c.PreemptRate}, {"cluster-machines-max", c.ClusterMachinesMax}, {"max-sessions", c.SessionsMax}, {"max-machines", c.MachinesMax},
		{"max-rollup-needs", c.RollupNeedsMax}, {"metrics-warmup-cycles", c.MetricsWarmupCycles}} {
		if n.v < 0 {
			fail("--%s %d is negative", n.flag, n.v)
		}
	}
	if n := c.RollupBytesMax; n < 0 || n > RollupBytesTop {
		fail("--max-rollup-bytes %d must be between 0 and %d", n, int64(RollupBytesTop))
	}
	if c.EpochFloor < 0 {
		fail("--epoch-floor %d is negative", c.EpochFloor)
	}
	if c.Telemetry == nil {
		fail("shard.Config: Telemetry is required")
	}
	return errors.Join(errs...)
}

func parsed(text string) float64 {
	f, _ := strconv.ParseFloat(text, 64)
	return f
}

// checkNotZero refuses zeros that a person wrote: in a Config they stand for the default, so that a
// zero would silently turn into it.
func (c *Config) checkNotZero() error {
	var errs []error
	for flag, v := range map[string]int64{"coordinator-heartbeat-interval": int64(c.CoordinatorHeartbeat), "cycle-min-spacing": int64(c.CycleMinSpacing),
		"cycle-interval": int64(c.CycleInterval), "reconcile-interval": int64(c.ReconcileInterval), "full-reconcile-interval": int64(c.FullReconcileInterval),
		"inflight-poll-interval": int64(c.InflightPoll), "execute-concurrency": int64(c.ExecuteConcurrency), "execute-per-cluster": int64(c.ExecutePerCluster),
		"provider-concurrency": int64(c.ProviderConcurrency), "bootstrap-timeout": int64(c.BootstrapTimeout), "execute-timeout": int64(c.ExecuteTimeout),
		"reclaim-cap-window": int64(c.ReclaimCapWindow), "silent-after": int64(c.SilentAfter), "creating-stuck-after": int64(c.CreatingStuckAfter),
		"configuring-stuck-after": int64(c.ConfiguringStuckAfter), "available-capacity-interval": int64(c.HintInterval), "max-sessions": int64(c.SessionsMax), "max-machines": int64(c.MachinesMax),
		"session-max-age": int64(c.SessionAgeMax), "max-rollup-bytes": c.RollupBytesMax, "max-rollup-needs": int64(c.RollupNeedsMax),
		"shutdown-grace": int64(c.ShutdownGrace), "decision-log-max-bytes": c.DecisionLogBytesMax} {
		if v == 0 {
			errs = append(errs, fmt.Errorf("--%s must be more than 0; leave it out for the default", flag))
		}
	}
	for flag, d := range map[string]time.Duration{"release-delay": c.ReleaseDelay, "release-delay-empty": c.ReleaseDelayEmpty, "session-handover-wait": c.SessionHandoverWait, "release-unused-after": c.ReleaseUnusedAfter} {
		if d < 0 {
			errs = append(errs, fmt.Errorf("--%s %s is negative", flag, d))
		}
	}
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return errors.Join(errs...)
}

func incremental(s string) (core.Incremental, error) {
	switch s {
	case "auto":
		return core.IncrementalAuto, nil
	case "on", "true":
		return core.IncrementalOn, nil
	case "off", "false":
		return core.IncrementalOff, nil
	}
	return 0, fmt.Errorf("--incremental-reconcile %q must be auto, on or off", s)
}

// providerAddress is how the set of providers is reported as one (SHARD-3.12).
func (c *Config) providerAddress() string {
	var addrs []string
	for _, p := range c.Providers {
		addrs = append(addrs, p.Addr)
	}
	slices.Sort(addrs)
	return report.ProviderAddress(addrs)
}

// coreConfig is the part that the core decides with.
func (c *Config) coreConfig(version string, features []string) core.Config {
	mode, _ := incremental(c.Incremental)
	out := core.Config{
		ShardID: c.ID, Version: version, Incremental: mode, Paused: c.ActuationPaused, DryRun: c.DryRun,
		CycleMinSpacing: int64(c.CycleMinSpacing), CycleInterval: int64(c.CycleInterval), ReconcileInterval: int64(c.ReconcileInterval),
		FullReconcileInterval: int64(c.FullReconcileInterval), InflightPollInterval: int64(c.InflightPoll),
		ExecuteConcurrency: int64(c.ExecuteConcurrency), ExecutePerCluster: int64(c.ExecutePerCluster), ProviderConcurrency: int64(c.ProviderConcurrency),
		BootstrapTimeout: int64(c.BootstrapTimeout), ExecuteTimeout: int64(c.ExecuteTimeout), MaxActionsPerCycle: int64(c.MaxActionsPerCycle),
		PreemptRate: int64(c.PreemptRate), ClusterMachinesMax: int64(c.ClusterMachinesMax), ClusterSpendMax: int64(math.Round(c.ClusterSpendMax * 1e6)),
		ProvisionRate: int64(c.ProvisionRate), ReclaimCapWindow: int64(c.ReclaimCapWindow), RollupGuardOff: c.NoRollupGuard,
		ReclaimCapPerMille: int64(math.Round(c.ReclaimCapFraction * 1000)), ReclaimCapOff: c.ReclaimCapFraction == 0,
		SilentAfter: int64(c.SilentAfter), CreatingStuckAfter: int64(c.CreatingStuckAfter), ConfiguringStuckAfter: int64(c.ConfiguringStuckAfter),
		ReleaseDelay: int64(c.ReleaseDelay), ReleaseDelayEmpty: int64(c.ReleaseDelayEmpty), SessionHandoverWait: int64(c.SessionHandoverWait),
		EmptyAfter: int64(c.ReleaseUnusedAfter),
		DrainForce: c.DrainDeadlinePolicy == "force", DrainDeadline: int64(c.DrainDeadline),
		HintInterval: int64(c.HintInterval), MaxSessions: int64(c.SessionsMax), MachinesMax: int64(c.MachinesMax), Coordinated: c.CoordinatorAddr != "", AloneAfter: int64(c.AloneAfter),
		ForgetCoordinator: c.ForgetCoordinator, Features: features,
	}
	for _, p := range c.Providers {
		out.Providers = append(out.Providers, p.Name)
	}
	out.ProviderAddress = c.providerAddress()
	return out.WithDefaults()
}

// Version is the build's version, or "devel".
func Version() string { return telemetry.ReadBuild().Version }
