// Package shard is one shard of BigFleet: it hears what clusters need, decides with the engine, and acts through
// capacity providers.
//
// Run is a whole shard in one call: several may run in one process. It binds its port, takes an epoch, gives the
// deterministic core (internal/core) its first event, serves sessions, reads and orders, and returns when its context
// ends. It works without a coordinator, and nothing here can wait for one: the coordinator is another module that this
// one does not require.
//
// Start at Run; then internal/core, which holds every decision, and internal/loop, internal/session and
// internal/actuator, which connect it to the world.
package shard

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/kit/config"
	"github.com/bigfleet-dev/bigfleet/services/kit/coordclient"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/actuator"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/audit"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/epoch"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/ingest"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inspect"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/loop"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/meter"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/order"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/report"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/session"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/spans"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/store"
)

// Dialer makes connections in place of the network.
type Dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// shell is everything around the core of one shard.
type shell struct {
	Config
	log      *slog.Logger
	started  time.Time
	version  string
	epoch    int64
	identity *identity.Source

	store     *store.Store
	core      *core.Core
	loop      *loop.Loop
	gate      *ingest.Gate
	blobs     *session.Blobs
	sessions  *session.Handler
	actuator  *actuator.Actuator
	orders    *order.Server
	reads     *inspect.Server
	audit     *audit.Log
	reporter  *report.Reporter // nil without a coordinator
	meter     *meter.Meter
	metrics   *telemetry.Metrics
	lifecycle *loop.Source
	counts    *loop.Source
	beside    *loop.Source // of comparisons
	phases    phaseClock
	spans     *spans.Spans // nil without --otlp-endpoint

	view        atomic.Pointer[core.Publish]
	shown       chan struct{} // something was published that the gauges have not seen
	comparisons chan *core.ComparePlan
	cycleTook   atomic.Int64
	suspects    *suspects // large roll-ups that no plan has survived yet
	lastCycle   int64     // that has run, and that readers see; loop's goroutine only
	shownCycle  int64
	recording   bool // events go to the decision log
	saidReady   bool // loop's goroutine only
	refusing    atomic.Pointer[string]
}

// Run is one shard. It returns nil when ctx ended, an error with exit code 2 for a wrong configuration, and another
// error when the shard cannot work.
func Run(ctx context.Context, c Config) (err error) {
	c.defaults()
	if err := c.check(); err != nil {
		return config.Fail(err)
	}
	s := &shell{Config: c, started: time.Now(), version: Version()}
	s.log = c.Telemetry.Log.With("shard_id", c.ID)
	if err := store.EnsureDir(c.DataDir); err != nil {
		return err
	}
	lock, err := store.Acquire(c.DataDir)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Release() }()
	if err := s.listen(); err != nil {
		return err
	}
	defer s.Listener.Close()
	if s.epoch, err = epoch.Take(c.DataDir, time.Now(), c.EpochFloor); err != nil {
		return err
	}
	s.log = s.log.With("epoch", s.epoch)
	if s.store, err = store.Open(c.DataDir); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.store.Close()) }()
	if s.identity, err = c.Telemetry.LoadIdentity(c.TLS); err != nil {
		return config.Fail(err)
	}
	if err := s.build(); err != nil {
		return err
	}
	defer s.metrics.Close()
	if err := s.begin(); err != nil {
		return err
	}
	return s.group().Run(ctx)
}

// listen binds the port before anything is taken or changed: a half-alive process is worse than none (SHARD-3.2).
func (s *shell) listen() (err error) {
	if s.Listener != nil {
		return nil
	}
	if s.Listener, err = net.Listen("tcp", s.Listen); err != nil {
		return fmt.Errorf("listen on %s: %w; free the port, or give another one with --listen", s.Listen, err)
	}
	return nil
}

// build makes all parts; nothing runs yet.
func (s *shell) build() (err error) {
	if s.gate, err = ingest.New(ingest.Limits{RollupBytes: s.RollupBytesMax, RollupNeeds: int64(s.RollupNeedsMax)}); err != nil {
		return err
	}
	s.metrics = s.Telemetry.Metrics("bigfleet_shard_")
	if s.meter, err = meter.New(s.metrics); err != nil {
		return err
	}
	s.core = core.New(nil)
	s.loop = loop.New(loop.Config{Core: s.core, Apply: s.apply, Arm: s.core.NextWake, Before: s.core.TooWide, Beside: s.core.Beside, Takes: s.core.Takes, OnPanic: s.panicked, Observe: s.observe, Clock: s.Clock})
	s.gate.GiveWay = s.loop.GiveWay
	s.shown, s.comparisons = make(chan struct{}, 1), make(chan *core.ComparePlan, 1)
	s.lifecycle, s.counts = s.loop.Source("lifecycle", 8, false), s.loop.Source("gauges", 1, false)
	s.beside = s.loop.Source("comparisons", 1, false)
	s.core.WatchPhases(s.phases.enter)
	s.blobs = session.NewBlobs()
	ceilings, err := ceilings(s.ClusterPriorityMax, s.ClusterPenaltyMax)
	if err != nil {
		return err
	}
	if s.suspects, err = newSuspects(s.store, s.log); err != nil {
		return fmt.Errorf("write %s: %w", filepath.Join(s.DataDir, store.FileName), err)
	}
	s.sessions = session.NewHandler(session.Config{
		Mark:     s.suspects.mark,
		Ceilings: ceilings,
		ShardID:  s.ID, Version: s.version, Gate: s.gate, Loop: s.loop, Blobs: s.blobs, Log: s.log, Observe: s.meter,
		SessionsMax: s.SessionsMax, SessionAgeMax: s.SessionAgeMax, SlowAfter: SlowConsumerAfter, FastFrames: FastFramesMax,
		Outbox:       session.OutboxLimits{EssentialFrames: OutboxEssentialFrames, Bytes: OutboxBytes},
		BlobBytesMax: BlobBytesMax, RollupBytesMax: s.RollupBytesMax, Features: session.Features(), Refusing: s.refuses,
	})
	providers, err := s.dial()
	if err != nil {
		return err
	}
	claimed := func() {
		if s.reporter != nil {
			s.reporter.Soon()
		}
	}
	calls := actuator.Config{OnClaim: claimed, ShardID: s.ID, Epoch: s.epoch, Providers: providers, Gate: s.gate, Loop: s.loop, Blobs: s.blobs, Log: s.log}
	if _, off := s.Telemetry.Tracer.(noop.TracerProvider); !off {
		s.spans = spans.New(s.Telemetry.Tracer)
		calls.Trace = s.spans.Call
	}
	s.actuator = actuator.New(calls)
	s.audit = s.newAudit()
	if s.reporter, err = s.newReporter(); err != nil {
		return err
	}
	visits := s.loop.Source("reads", 32, false)
	addresses := map[string]string{}
	for _, p := range s.Providers {
		addresses[p.Name] = p.Addr
	}
	s.reads = inspect.New(inspect.Config{ShardID: s.ID, Version: s.version, Started: s.started, Addresses: addresses, Core: s.core, Records: s.audit, Gate: s.gate,
		Visits: visits, View: s.view.Load, NotReady: s.notReady, ReadsMax: ReadsMax, StreamsMax: ReadStreamsMax, Log: s.log,
		CycleTook: func() time.Duration { return time.Duration(s.cycleTook.Load()) }})
	s.orders = order.New(order.Config{Loop: s.loop, Store: s.store, View: s.view.Load, Log: s.log, Reads: s.reads})
	s.health()
	return nil
}

// dial builds the provider clients. Each speaks gRPC over HTTP/2 (SHARD-3.13); nothing is connected yet.
func (s *shell) dial() (out []actuator.Provider, err error) {
	for _, p := range s.Providers {
		client, err := rpc.NewClient(rpc.ClientConfig{Addr: p.Addr, Dial: p.Dial, Identity: s.identity, Log: s.log,
			Limits: rpc.Limits{ReadMaxBytes: ProviderBytesMax, SendMaxBytes: 32 << 20}, Tracer: s.Telemetry.Tracer})
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", p.Name, err)
		}
		out = append(out, actuator.Provider{Name: p.Name, Client: rpc.Stub(client, bigfleetv1alpha1connect.NewCapacityProviderClient),
			List: rpc.Stub(client, actuator.NewList), Admin: rpc.Stub(client, bigfleetv1alpha1connect.NewProviderAdminClient)})
	}
	return out, nil
}

// begin gives the core its first event.
func (s *shell) begin() error {
	first := loadStarted(s.store, s.loop.Now(), func(bucket, key string, err error) {
		s.log.Error("a value of shard.db is ignored: another build wrote it", "bucket", bucket, "key", key, "err", err)
	})
	first.Config, first.Epoch = s.coreConfig(s.version, session.Features()), s.epoch
	s.loop.First(first)
	s.log.Info("shard started", "version", s.version, "listen", s.Listener.Addr().String(), "providers", len(s.Providers),
		"coordinator", s.CoordinatorAddr, "tls", s.identity != nil)
	return nil
}

// group orders the parts: the last one added stops first (SHARD-3.9).
func (s *shell) group() *process.Group {
	g := process.New(process.Config{Log: s.log, StopTimeout: StopTimeout, OnRestart: s.meter.Restarted, OnStop: func() {
		why := "shutting down"
		s.refusing.CompareAndSwap(nil, &why)
		s.Telemetry.Health.Stopping()
	}})
	g.Add(process.Component{Name: "store", Kind: process.Restarts, Run: s.store.Run})
	g.Add(process.Component{Name: "decision-log", Kind: process.Restarts, Run: s.audit.Run})
	if s.Reopen != nil {
		g.Add(process.Component{Name: "reopen", Kind: process.Restarts, Run: s.reopen})
	}
	g.Add(process.Component{Name: "loop", Run: s.loop.Run})
	for i, port := range s.Ops {
		g.Add(process.Component{Name: fmt.Sprintf("ops-%d", i), Kind: process.Restarts, Run: port.Run})
	}
	if s.reporter != nil {
		g.Add(process.Component{Name: "coordinator", Kind: process.Restarts, Run: s.reporter.Run})
	}
	g.Add(process.Component{Name: "gauges", Kind: process.Restarts, Run: s.gauge})
	g.Add(process.Component{Name: "views", Kind: process.Restarts, Run: s.show})
	g.Add(process.Component{Name: "comparisons", Kind: process.Restarts, Run: s.compare})
	g.Add(process.Component{Name: "rpc", Run: s.serve})
	g.Add(process.Component{Name: "actuator", Run: func(ctx context.Context) error { <-ctx.Done(); return nil }, Drain: s.drain})
	return g
}

// reopen is called when the audit log was rotated (SHARD-28.8).
func (s *shell) reopen(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.Reopen:
			s.audit.Reopen()
			s.log.Info("the audit log is reopened", "path", s.AuditLog)
		}
	}
}

// drain is the first part of a stop: nothing new starts, and commands in flight may finish for the grace.
func (s *shell) drain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.ShutdownGrace)
	defer cancel()
	s.lifecycle.Push(ctx, core.Stopping{})
	s.lifecycle.Visit(ctx, func() {}) // until it is stepped
	s.actuator.Stop(ctx)
}

// serve runs the port.
func (s *shell) serve(ctx context.Context) error {
	server, err := rpc.NewServer(rpc.ServerConfig{
		Log: s.log, Identity: s.identity, Tracer: s.Telemetry.Tracer, InsecureAdmin: s.InsecureAdmin, StopTimeout: 5 * time.Second,
		OnRefused: func(r rpc.Refusal) {
			if r.Procedure == bigfleetv1alpha1connect.ShardSessionProcedure {
				s.meter.IdentityRejected()
			}
		},
		Services: []rpc.Service{s.sessionService(), s.readService(), s.adminService()},
	})
	if err != nil {
		return err
	}
	if s.Ready != nil {
		close(s.Ready)
		s.Ready = nil
	}
	return server.Run(ctx, s.Listener)
}

func (s *shell) sessionService() rpc.Service {
	frame := int(max(FrameBytesMax, s.RollupBytesMax+16<<20))
	return rpc.Service{
		Name: bigfleetv1alpha1connect.ShardName, Limits: rpc.Limits{ReadMaxBytes: frame, SendMaxBytes: frame},
		Access: map[string]rpc.Access{bigfleetv1alpha1connect.ShardSessionProcedure: rpc.HandlerDecides(identity.Cluster)},
		New: func(opts ...connect.HandlerOption) (string, http.Handler) {
			return session.NewHTTP(s.sessions, opts...)
		},
	}
}

func (s *shell) readService() rpc.Service {
	return rpc.Service{Name: bigfleetv1alpha1connect.ShardReadName, Limits: rpc.ReadLimits(), Validate: true, Access: inspect.Access(),
		New: func(opts ...connect.HandlerOption) (string, http.Handler) {
			path, reads := bigfleetv1alpha1connect.NewShardReadHandler(s.reads, opts...)
			return path, inspect.Paced(reads, SlowConsumerAfter)
		}}
}

func (s *shell) adminService() rpc.Service {
	return rpc.Service{Name: bigfleetv1alpha1connect.ShardAdminName, Limits: rpc.ReadLimits(), Validate: true, Access: order.Access(),
		New: func(opts ...connect.HandlerOption) (string, http.Handler) {
			return bigfleetv1alpha1connect.NewShardAdminHandler(s.orders, opts...)
		}}
}

// refuses says why new sessions are refused, or "".
func (s *shell) refuses() string {
	if p := s.refusing.Load(); p != nil {
		return *p
	}
	return ""
}

// notReady says why the shard is not ready. The coordinator is never asked (SHARD-2.5).
func (s *shell) notReady() (out []string) {
	if why := s.refuses(); why != "" {
		out = append(out, why)
	}
	v := s.view.Load()
	if v == nil {
		return append(out, "starting")
	}
	var missing []string
	for _, p := range v.Status.Providers {
		if !p.Listed {
			missing = append(missing, p.Name)
		}
	}
	if len(missing) > 0 {
		out = append(out, "not yet listed: "+strings.Join(missing, ", "))
	}
	return out
}

func (s *shell) health() {
	s.Telemetry.Health.AddReady("shard", func() error {
		if list := s.notReady(); len(list) > 0 {
			return errors.New(strings.Join(list, "; "))
		}
		return nil
	})
	s.Telemetry.Health.AddLive("loop", func() error {
		if s.loop.Stalled(StalledAfter) {
			return fmt.Errorf("no step has ended for %s while events wait", StalledAfter)
		}
		return nil
	})
}

// newAudit makes the decision log. Without a directory it keeps the newest records in memory only.
func (s *shell) newAudit() *audit.Log {
	ask := s.loop.Source("checkpoints", 1, false)
	c := audit.Config{Lines: s.AuditLog, Shard: s.ID, Epoch: s.epoch, Version: s.version, Log: s.log, OnError: s.meter.LogError,
		Retention: s.DecisionLogRetention, BytesMax: s.DecisionLogBytesMax, Checkpoint: func(full bool) bool { return ask.TryPush(core.CheckpointAsked{Full: full}) }}
	if s.DecisionLogRetention > 0 {
		c.Dir = filepath.Join(s.DataDir, "decisions")
	}
	s.recording = c.Dir != ""
	return audit.New(c)
}

// newReporter makes the coordinator client, or nil without a coordinator. The mark of the highest term and the identity
// of the group are on the disk before an answer is used (COORD-7.12).
func (s *shell) newReporter() (*report.Reporter, error) {
	if s.CoordinatorAddr == "" {
		return nil, nil
	}
	var known core.Lineage
	if !s.ForgetCoordinator {
		// Of another build: as after --forget-coordinator, and pinned again. begin says so.
		_ = codec.Unmarshal(s.store.Load(core.BucketControl)[keyLineage], &known)
	}
	client, err := coordclient.New(coordclient.Config{Addrs: strings.Split(s.CoordinatorAddr, ","), Identity: s.identity, AnyServer: s.NoPeerIdentity,
		ClusterUUID: known.UUID, Term: known.Term, Log: s.log, Tracer: s.Telemetry.Tracer, Dial: s.DialCoordinator,
		OnPin: func(uuid string, term int64) error {
			return s.store.Put(core.BucketControl, keyLineage, codec.Marshal(core.Lineage{Term: term, UUID: uuid}))
		}})
	if err != nil {
		return nil, fmt.Errorf("coordinator client: %w", err)
	}
	return report.New(report.Config{ShardID: s.ID, Version: s.version, Address: s.AdvertiseAddr, ProviderAddress: s.providerAddress(),
		Epoch: s.epoch, Interval: s.CoordinatorHeartbeat, Client: client, Gate: s.gate, Loop: s.loop, Core: s.core, View: s.view.Load,
		Store: s.store, Stores: s.actuator.Stores, Log: s.log, OnDropped: s.meter.AcksDropped, OnStale: s.meter.AnswerStale}), nil
}
