package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/fleet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/metrics"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/peernet"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/replica"
	"github.com/bigfleet-dev/bigfleet/services/coordinator/internal/server"
	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"

	api "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
)

const (
	// stopTimeout is the total of a stop (COORD-17.5), handOver the part that a successor may take (COORD-6.4.2).
	stopTimeout = 10 * time.Second
	handOver    = 2 * time.Second
)

// shell is everything around one replica.
type shell struct {
	Config
	identity *identity.Source
	metrics  *metrics.Set
	node     *replica.Node
	server   *server.Server
	rpc      *rpc.Server
	fatal    chan error
}

// Run is one replica. It returns nil when ctx ended, an error with exit code 2 for a wrong configuration, and another
// error when the replica cannot work.
func Run(ctx context.Context, c Config) (err error) {
	c.defaults()
	if err := c.check(); err != nil {
		return config.Fail(err)
	}
	s := &shell{Config: c, fatal: make(chan error, 1)}
	if s.identity, err = c.Telemetry.LoadIdentity(c.TLS); err != nil {
		return config.Fail(err)
	}
	if err := s.listen(); err != nil {
		return err
	}
	defer func() { _, _ = s.Listener.Close(), s.RaftListener.Close() }()
	if s.metrics, err = metrics.New(c.Telemetry.Metrics(metrics.Prefix)); err != nil {
		return err
	}
	defer s.metrics.Close()
	if err := s.build(); err != nil {
		return err
	}
	return s.group().Run(ctx)
}

// listen binds both ports before anything is opened, and settles the names under which others reach them.
func (s *shell) listen() (err error) {
	if s.Listener == nil {
		if s.Listener, err = net.Listen("tcp", s.Listen); err != nil {
			return fmt.Errorf("listen on %s: %w", s.Listen, err)
		}
	}
	if s.RaftListener == nil {
		if s.RaftListener, err = net.Listen("tcp", s.RaftBind); err != nil {
			_ = s.Listener.Close()
			return fmt.Errorf("listen on %s: %w", s.RaftBind, err)
		}
	}
	if s.RaftAdvertise == "" {
		s.RaftAdvertise = reachable(s.RaftListener.Addr(), "")
	}
	if s.Advertise == "" {
		host, _, _ := net.SplitHostPort(s.RaftAdvertise)
		s.Advertise = reachable(s.Listener.Addr(), host)
	}
	return nil
}

// reachable is a bound address with a host that can be dialled.
func reachable(addr net.Addr, host string) string {
	bound, port, err := net.SplitHostPort(addr.String())
	if err != nil {
		return addr.String() // not of the network: a listener inside the process
	}
	if ip := net.ParseIP(bound); host == "" && ip != nil && !ip.IsUnspecified() {
		host = bound
	}
	if host == "" {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// build makes all parts. The replica runs from here on; nothing is served yet.
func (s *shell) build() (err error) {
	build := telemetry.ReadBuild().Version
	log := s.Telemetry.Log.With("node", s.ID)
	sweep := max(s.RebalanceInterval, 0)
	if s.server, err = server.New(server.Config{Log: log, Metrics: s.metrics, Build: build, SweepEvery: sweep, Level: fleet.Level,
		LevelMax: int32(s.FeatureLevelMax), AcceptAdmin: s.JoinAcceptAdmin, AdminRate: s.AdminRate, DeadPeerAfter: s.DeadPeerAfter,
		Expect: s.BootstrapExpect}); err != nil {
		return err
	}
	s.node, err = replica.Open(replica.Config{NodeID: s.ID, DataDir: s.DataDir, RaftListener: s.RaftListener, RaftAdvertise: s.RaftAdvertise,
		RPCAdvertise: s.Advertise, Identity: s.identity, RaftMode: peernet.Mode(s.RaftTLS), AcceptAdmin: s.JoinAcceptAdmin, Dial: s.Dial,
		Heartbeat: s.Heartbeat, Election: s.Election, Lease: s.Lease, Level: fleet.Level, LevelMax: int32(s.FeatureLevelMax), Build: build,
		Log: log, Tracer: s.Telemetry.Tracer, Metrics: s.metrics, Clock: s.Clock, BeforeSync: s.BeforeSync, OnApply: s.server.OnApply, OnReset: s.server.OnReset,
		OnFatal: func(err error) { s.fatal <- err }})
	if err != nil {
		return err
	}
	s.server.Bind(s.node)
	services := s.server.Services()
	handlers := map[string]http.Handler{}
	if s.OpsOnRPC != nil {
		for _, pattern := range []string{"/metrics", "/healthz", "/readyz"} {
			handlers[pattern] = s.OpsOnRPC.Handler()
		}
	}
	s.rpc, err = rpc.NewServer(rpc.ServerConfig{Log: log, Identity: s.identity, Tracer: s.Telemetry.Tracer, Services: services,
		StopTimeout: 3 * time.Second, OnRefused: s.server.RefusedEarly, InsecureAdmin: s.InsecureAdmin, HTTP: handlers})
	if err != nil {
		return errors.Join(err, s.node.Close())
	}
	s.rpc.SetServing(api.CoordinatorName, s.node.HasLeader())
	s.Telemetry.Health.AddReady("leader", func() error {
		if !s.node.HasLeader() {
			return errors.New("no leader is known")
		}
		return nil
	})
	log.Info("coordinator started", "version", build, "listen", s.Listener.Addr().String(), "raft", s.RaftAdvertise, "advertise", s.Advertise,
		"group", s.node.UUID(), "tls", s.identity != nil)
	return nil
}

// group orders the parts: the last one added stops first. So leadership is handed over while calls are still answered,
// then the RPC port closes, then Raft with its port (COORD-6.4.2).
func (s *shell) group() *process.Group {
	g := process.New(process.Config{Log: s.Telemetry.Log, StopTimeout: stopTimeout,
		OnRestart: func(component string) { s.metrics.Restarts.WithLabelValues(component).Inc() },
		OnStop:    s.Telemetry.Health.Stopping})
	for i, port := range s.Ops {
		g.Add(process.Component{Name: fmt.Sprintf("ops-%d", i), Kind: process.Restarts, Run: port.Run})
	}
	g.Add(process.Component{Name: "raft", Run: s.raft})
	g.Add(process.Component{Name: "gauges", Kind: process.Restarts, Run: s.server.RunGauges})
	g.Add(process.Component{Name: "health", Kind: process.Restarts, Run: s.health})
	if s.AuditLog != "" {
		g.Add(process.Component{Name: "audit-file", Kind: process.Restarts, Run: func(ctx context.Context) error { return s.server.RunAuditFile(ctx, s.AuditLog) }})
	}
	if s.ExportDir != "" {
		export := server.Export{Dir: s.ExportDir, Every: s.ExportInterval, Keep: s.ExportKeep}
		g.Add(process.Component{Name: "export", Kind: process.Restarts, Run: func(ctx context.Context) error { return s.server.RunExport(ctx, export) }})
	}
	g.Add(process.Component{Name: "membership", Kind: process.Restarts, Run: s.membership})
	g.Add(process.Component{Name: "rpc", Run: s.serve, Drain: func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, handOver)
		defer cancel()
		s.node.HandOver(ctx)
	}})
	return g
}

// raft keeps the replica open until ctx ends, or until it cannot continue.
func (s *shell) raft(ctx context.Context) error {
	var err error
	select {
	case <-ctx.Done():
	case err = <-s.fatal:
	}
	closed := s.node.Close()
	s.server.Close()
	if err == nil && closed != nil && ctx.Err() != nil {
		s.Telemetry.Log.Warn("the replica did not close cleanly", "err", closed)
		return ctx.Err()
	}
	return errors.Join(err, ctx.Err())
}

func (s *shell) membership(ctx context.Context) error {
	peers, err := s.peers()
	if err != nil {
		return err
	}
	return s.node.RunMembership(ctx, replica.Membership{Peers: peers, JoinAddr: s.JoinAddr, Bootstrap: s.Bootstrap, Expect: s.BootstrapExpect, Force: s.ForceBootstrap})
}

func (s *shell) serve(ctx context.Context) error {
	if s.Ready != nil {
		close(s.Ready)
		s.Ready = nil
	}
	return s.rpc.Run(ctx, s.Listener)
}

// health says each second whether a leader is known (COORD-17.2).
func (s *shell) health(ctx context.Context) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s.rpc.SetServing(api.CoordinatorName, s.node.HasLeader())
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
