package operator

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/incluster/apiaccess"
	"github.com/bigfleet-dev/bigfleet/services/incluster/election"
	"github.com/bigfleet-dev/bigfleet/services/incluster/notes"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/acknowledge"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/bootstrap"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/drain"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/hint"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/nodereport"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/publish"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/session"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/upcoming"
)

// parts are the pieces of one operator. Each owns one concern; they meet only here and in the router.
type parts struct {
	Config
	log         *slog.Logger
	instruments *instruments.Instruments
	access      *apiaccess.Access
	freshness   freshness

	machines *machine.Registry
	pods     *pods.Store
	events   *notes.Writer
	acks     *acknowledge.Acknowledger
	demand   *publish.Publisher
	upcoming *upcoming.Writer
	hints    *hint.Writer
	drains   *drain.Drainer
	reports  *nodereport.Reporter
	tokens   *bootstrap.Tokens // nil: the renderer needs none
	renderer *bootstrap.Renderer
	session  *session.Client
	router   *router
}

// Run is one operator. It returns nil when ctx ended, and an error when the operator cannot work or lost its Lease.
func Run(ctx context.Context, c Config) error {
	if c.REST == nil || c.Telemetry == nil {
		return errors.New("operator.Config: REST and Telemetry are required")
	}
	if err := c.check(); err != nil {
		return config2(err)
	}
	p := &parts{Config: c, log: c.Telemetry.Log.With("cluster", c.ClusterID)}
	if err := p.build(ctx); err != nil {
		return err
	}
	defer p.instruments.Close()
	synced := make(chan struct{})
	p.Telemetry.Health.AddReady("caches", func() error {
		select {
		case <-synced:
			return nil
		default:
			return errors.New("the caches are not complete yet")
		}
	})
	group := process.New(process.Config{Log: p.log, OnStop: p.Telemetry.Health.Stopping, StopTimeout: 10 * time.Second})
	group.Add(process.Component{Name: "cache", Run: p.access.Cache.Start})
	group.Add(process.Component{Name: "operator", Run: func(ctx context.Context) error {
		if err := p.sync(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		close(synced)
		p.demand.Synced()
		return p.lead(ctx)
	}})
	return group.Run(ctx)
}

// lead works while this process holds the Lease (OP-3.3).
func (p *parts) lead(ctx context.Context) error {
	if p.NoLeaderElection {
		p.instruments.Leader.Set(1)
		return p.work(ctx)
	}
	leases, err := election.Client(p.access.REST, p.Namespace)
	if err != nil {
		return err
	}
	return election.Run(ctx, election.Config{
		Leases: leases, Namespace: p.Namespace, Name: LeaseName(p.ClusterID), Log: p.log,
		OnLeader: func(holds bool) {
			p.instruments.Leader.Set(map[bool]float64{true: 1}[holds])
			p.log.Info("leader election", "holds", holds)
		},
	}, p.work)
}

// LeaseName is the name of the Lease of a cluster's operators.
func LeaseName(clusterID string) string {
	h := sha256.Sum256([]byte(clusterID))
	return "bigfleet-operator-" + hex.EncodeToString(h[:5])
}

// work is what the holder of the Lease does. The session goes first when the work stops, the writers last.
func (p *parts) work(ctx context.Context) error {
	group := process.New(process.Config{Log: p.log, StopTimeout: 8 * time.Second})
	add := func(name string, run func(context.Context) error) {
		group.Add(process.Component{Name: name, Run: run})
	}
	add("events", p.events.Run)
	add("upcoming", p.upcoming.Run)
	add("hints", p.hints.Run)
	add("acknowledge", p.acks.Run)
	add("reports", p.reports.Run)
	if p.tokens != nil {
		add("tokens", p.tokens.Run)
	}
	add("drains", p.drains.Run)
	add("reclaims", p.router.runReclaims)
	add("demand", p.demand.Run)
	p.router.ctx = ctx
	add("session", p.session.Run)
	return group.Run(ctx)
}

// build makes the parts. Nothing runs yet.
func (p *parts) build(ctx context.Context) (err error) {
	source, err := p.tls()
	if err != nil {
		return err
	}
	p.instruments, err = instruments.New(p.Telemetry.Registry, p.freshness.age, func() float64 { return p.demand.AcceptedAge() })
	if err != nil {
		return err
	}
	if p.access, err = p.connect(); err != nil {
		return err
	}
	p.events, err = notes.New(notes.Config{Client: p.access.Client, Component: "bigfleet-operator", Log: p.log, Dropped: p.instruments.EventsDropped.Inc})
	if err != nil {
		return err
	}
	p.machines = machine.New(func(ids []string) {
		p.upcoming.Touch(ids)
		p.reports.Touch(ids)
	})
	p.reports = nodereport.New(p.machines, p.nodeReady)
	p.pods = pods.New(func(node string) { p.drains.Wake(node) })
	p.acks, err = acknowledge.New(acknowledge.Config{Client: p.access.Client, Concurrency: p.AckConcurrency, PerSecond: p.AckQPS, Instruments: p.instruments, Log: p.log})
	if err != nil {
		return err
	}
	p.demand, err = publish.New(publish.Config{
		ClusterID: p.ClusterID, Acknowledge: p.acks.Add, Debounce: p.RollupDebounce, Heartbeat: p.RollupInterval, Instruments: p.instruments, Log: p.log,
	})
	if err != nil {
		return err
	}
	p.upcoming, err = upcoming.New(upcoming.Config{
		Client: p.access.Client, Machines: p.machines, Draining: func(id string) bool { return p.drains.Running(id) }, Note: p.events.Note,
		Concurrency: p.DispatchConcurrency, JoinTimeout: p.NodeJoinTimeout, Instruments: p.instruments, Log: p.log,
	})
	if err != nil {
		return err
	}
	if p.hints, err = hint.New(hint.Config{Client: p.access.Client, Instruments: p.instruments, Log: p.log}); err != nil {
		return err
	}
	p.drains, err = drain.New(drain.Config{
		Client: p.access.Client, Machines: p.machines, Pods: p.pods, Show: p.upcoming.SetDrain, Report: p.reportDrain,
		Stopped: func() bool { return false }, Note: p.events.Note, Instruments: p.instruments, Log: p.log,
	})
	if err != nil {
		return err
	}
	if err := p.buildBootstrap(ctx); err != nil {
		return err
	}
	p.router = newRouter(p)
	if err := p.buildSession(source); err != nil {
		return err
	}
	return p.watch(ctx)
}

// tls loads the certificate and checks that it is this cluster's (OP-3.7).
func (p *parts) tls() (*identity.Source, error) {
	on, err := p.TLS.Enabled()
	if err != nil {
		return nil, config2(err)
	}
	if !on {
		p.log.Warn("the session to the shard is plaintext: anybody on the way can read and change it; give --tls-cert, --tls-key and --tls-ca")
		return nil, nil
	}
	source, err := identity.Load(p.TLS, identity.Options{OnReload: func(r identity.Reload) {
		if r.Err != nil {
			p.log.Error("changed TLS files cannot be used; the last good ones stay", "err", r.Err)
		}
	}})
	if err != nil {
		return nil, err
	}
	id, err := source.ID()
	if err != nil {
		return nil, err
	}
	if want := (identity.ID{Kind: identity.Cluster, Name: p.ClusterID}); id != want {
		return nil, config2(fmt.Errorf("the certificate is that of %s; cluster %s needs %s", id, p.ClusterID, want))
	}
	return source, nil
}

func (p *parts) buildSession(source *identity.Source) error {
	client, err := rpc.NewClient(rpc.ClientConfig{
		Addr: p.ShardAddr, Limits: rpc.Limits{ReadMaxBytes: session.FrameBytesMax, SendMaxBytes: session.FrameBytesMax}, Log: p.log,
		Identity: source, Server: identity.Accept(identity.Shard), Dial: p.Dial,
		Keepalive: rpc.Keepalive{Interval: session.KeepaliveInterval, Timeout: session.KeepaliveTimeout},
		Tracer:    p.Telemetry.Tracer, Meter: p.Telemetry.Meter,
	})
	if err != nil {
		return err
	}
	p.session, err = session.New(session.Config{
		Shard: rpc.Stub(client, bigfleetv1alpha1connect.NewShardClient), CloseIdle: client.CloseIdle,
		Hello: &pb.Hello{ClusterId: p.ClusterID, ProtocolVersion: session.ProtocolVersion, Features: features,
			OperatorVersion: telemetry.ReadBuild().Version, InstanceId: rand.Text()},
		Receiver: p.router, Log: p.log, BackoffMin: p.ReconnectMin, BackoffMax: p.ReconnectMax,
		OnDrop: p.instruments.OutboxDropped.Inc, OnReconnect: p.instruments.Reconnects.Inc,
	})
	return err
}

func (p *parts) buildBootstrap(context.Context) (err error) {
	p.renderer, err = bootstrap.New(bootstrap.Config{
		ClusterID: p.ClusterID, Renderer: p.BootstrapRenderer, TemplateFile: p.BootstrapTemplateFile, Custom: p.Render, APIServer: p.APIServerURL,
		KubeletVersion: p.KubeletVersion, TTL: p.BootstrapTTL, Tokens: p.tokens, Versions: &bootstrap.Versions{Read: p.access.ServerVersion},
		Instruments: p.instruments, Log: p.log,
	})
	return err
}

// reportDrain sends the report of a drain to a shard that wants it.
func (p *parts) reportDrain(r *pb.DrainReport) {
	if l := p.session.Link(); l != nil && l.Has(featureDrainReport) {
		l.Report("drain:"+r.MachineId, &pb.OperatorMessage{Payload: &pb.OperatorMessage_DrainReport{DrainReport: r}})
	}
}

// nodeReady hears that a machine's Node became Ready.
func (p *parts) nodeReady(id, _ string) {
	if p.tokens != nil {
		p.tokens.Joined(id)
	}
}

// know notes what a node state says of a machine.
func (p *parts) know(m *pb.NodeStateUpdate) {
	known := machine.Machine{ID: m.MachineId, ProviderID: m.ProviderId, NodeName: m.NodeName}
	if m.State == pb.MachineState_MACHINE_STATE_CONFIGURED {
		known.Configured = time.Now()
	}
	p.machines.Set(known)
}
