package operator

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/services/incluster/apiaccess"
	"github.com/bigfleet-dev/bigfleet/services/incluster/election"
	"github.com/bigfleet-dev/bigfleet/services/incluster/events"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/acknowledge"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/aggregate"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/bootstrap"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/contents"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/drain"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/hint"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/instruments"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/machine"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/needstatus"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/nodereport"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/outofservice"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/overhead"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/peers"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/pods"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/publish"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/session"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/status"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/unplaced"
	"github.com/bigfleet-dev/bigfleet/services/operator/internal/upcoming"
)

// parts are the pieces of one operator. Each owns one concern; they meet only here and in the router.
type parts struct {
	Config
	log         *slog.Logger
	instruments *instruments.Instruments
	access      *apiaccess.Access
	synced      []func() bool // one per kind in the cache that the operator cannot do without
	csiNodes    func() bool   // whether CSINodes are complete
	freshness   freshness
	stop        stopSwitch
	last        lastRollup

	machines     *machine.Registry
	pods         *pods.Store
	contents     *contents.Tracker
	outOfService *outofservice.Watcher
	overhead     *overhead.Sum
	events       *events.Writer
	acks         *acknowledge.Acknowledger
	demand       *publish.Publisher
	peers        *peers.Index
	needStatus   *needstatus.StatusReporter
	upcoming     *upcoming.Writer
	hints        *hint.Writer
	drains       *drain.Drainer
	reports      *nodereport.Reporter
	labeller     *machine.Labeller
	unplaced     unplaced.Watcher
	tokens       *bootstrap.Tokens // nil: the renderer needs none
	versions     *bootstrap.Versions
	renderer     *bootstrap.Renderer
	status       status.Writer
	session      *session.Client
	router       *router

	statusUID atomic.Value // types.UID of the ConfigMap that status writes
}

// Run is one operator. It returns nil when ctx ended, and an error when the operator cannot work or lost its Lease.
func Run(ctx context.Context, c Config) error {
	if c.REST == nil || c.Telemetry == nil {
		return errors.New("operator.Config: REST and Telemetry are required")
	}
	if err := c.check(); err != nil {
		return misconfigured(err)
	}
	p := &parts{Config: c, log: c.Telemetry.Log.With("cluster", c.ClusterID)}
	defer p.close()
	if err := p.build(ctx); err != nil {
		return err
	}
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
	for i, port := range p.Ops {
		group.Add(process.Component{Name: fmt.Sprintf("ops-%d", i), Kind: process.Restarts, Run: port.Run})
	}
	group.Add(process.Component{Name: "cache", Run: p.access.Cache.Start})
	group.Add(process.Component{Name: "operator", Run: func(ctx context.Context) error {
		p.log.Info("reading the cluster; nothing is sent to the shard before all of it is known", "apiserver", p.REST.Host, "limit", p.CacheSyncTimeout)
		if err := apiaccess.Sync(ctx, p.CacheSyncTimeout, p.synced...); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		if err := apiaccess.Sync(ctx, csiNodesWait, p.csiNodes); err != nil && ctx.Err() == nil {
			p.log.Warn("CSINodes cannot be read: how many volumes a Node attaches does not count until they can; is this the role of an earlier release?")
		}
		close(synced)
		debug.FreeOSMemory() // the first listing leaves more garbage than what stays
		p.demand.Synced()
		return p.lead(ctx)
	}})
	return group.Run(ctx)
}

// close ends what build started, as far as it came.
func (p *parts) close() {
	if p.upcoming != nil {
		p.upcoming.Close()
	}
	if p.instruments != nil {
		p.instruments.Close()
	}
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
	if err := p.takeOver(ctx); err != nil {
		return err
	}
	group := process.New(process.Config{Log: p.log, StopTimeout: 8 * time.Second})
	add := func(name string, run func(context.Context) error) {
		group.Add(process.Component{Name: name, Run: run})
	}
	add("events", p.events.Run)
	add("status", p.status.Run)
	add("upcoming", p.upcoming.Run)
	add("hints", p.hints.Run)
	add("acknowledge", p.acks.Run)
	add("reports", p.reports.Run)
	add("labels", p.labeller.Run)
	add("out-of-service", p.outOfService.Run)
	add("overhead", p.overhead.Run)
	add("need-status", p.needStatus.Run)
	add("unplaced", p.unplaced.Run)
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

// takeOver starts from what an earlier process left: its bootstrap tokens.
func (p *parts) takeOver(ctx context.Context) error {
	if p.tokens == nil {
		return nil
	}
	left, err := p.status.Load(ctx)
	if err != nil {
		p.log.Warn("the status of an earlier operator cannot be read; its bootstrap tokens are left to expire", "err", err)
		return nil
	}
	var tokens []bootstrap.Token
	for _, t := range left.Tokens {
		tokens = append(tokens, bootstrap.Token{ID: t.ID, Machine: t.Machine, Expires: t.Expires.Time})
	}
	p.tokens.Adopt(tokens)
	return nil
}

// build makes the parts. Nothing runs yet.
func (p *parts) build(ctx context.Context) (err error) {
	source, err := p.tls()
	if err != nil {
		return err
	}
	p.instruments, err = instruments.New(p.Telemetry.Registry, instruments.Reads{
		CacheAge: p.freshness.age, AcceptedAge: func() float64 { return p.demand.AcceptedAge() }, EvictionsStopped: p.stop.on.Load,
	})
	if err != nil {
		return err
	}
	if p.access, err = p.connect(); err != nil {
		return err
	}
	p.events, err = events.New(events.Config{Client: p.access.Client, Component: "bigfleet-operator", Log: p.log, Dropped: p.instruments.EventsDropped.Inc, UID: p.uidOf})
	if err != nil {
		return err
	}
	p.versions = &bootstrap.Versions{Read: p.access.ServerVersion}
	p.machines = machine.New(func(ids []string) {
		p.upcoming.Touch(ids)
		p.reports.Touch(ids)
		p.labeller.Touch(ids)
		p.outOfService.Touch(ids)
		p.overhead.Touch()
	})
	p.labeller = machine.NewLabeller(p.machines, p.access.Client, p.log)
	p.contents = contents.New(func(node string) { p.reports.TouchContents(node) })
	p.reports = nodereport.New(p.machines, p.contents, p.nodeReady)
	p.pods = pods.New(func(node string) { p.drains.Wake(node) }, p.podBound, func(old, now *pods.Pod) {
		p.contents.SetPod(old, now)
		p.demand.PodChanged(old, now)
		p.peers.PodChanged(old, now)
	})
	p.outOfService = outofservice.New(outofservice.Config{Machines: p.machines, Pods: p.pods, NotReadyAfter: p.NodeNotReadyAfter, Changed: func(ids []string) {
		p.upcoming.Touch(ids)
		p.demand.Touch()
	}})
	for _, step := range []func() error{
		p.buildDemand, p.buildObjects, p.buildDrains, func() error { return p.buildBootstrap(ctx) }, p.buildStatus,
		func() error { p.router = newRouter(p); return p.buildSession(source) },
	} {
		if err := step(); err != nil {
			return err
		}
	}
	return p.watch(ctx)
}

// buildDemand makes what goes up.
func (p *parts) buildDemand() (err error) {
	p.acks, err = acknowledge.New(acknowledge.Config{Client: p.access.Client, Concurrency: p.AckConcurrency, PerSecond: p.AckQPS, Instruments: p.instruments, Log: p.log})
	if err != nil {
		return err
	}
	p.overhead = overhead.New(p.machines, func() { p.demand.Touch() })
	p.peers = peers.New(peers.Config{Pods: p.pods.All, Label: p.machines.Label, Changed: func() { p.demand.NearChanged() }})
	p.demand, err = publish.New(publish.Config{
		ClusterID: p.ClusterID, Acknowledge: p.acks.Add, Overhead: p.overhead.Text, Rooms: p.overhead.Rooms, OutOfService: p.outOfService.List, Pod: p.pods.Get, Order: p.pods.Order, Peers: p.peers, Unbound: p.pods.Unbound, Hold: p.DemandHold, OnOutcome: p.rollupOutcome,
		OnProblem: func(key aggregate.Key) { p.needStatus.Changed(key) }, OnKeys: p.reports.SetKeys,
		Debounce: p.RollupDebounce, Heartbeat: p.RollupInterval, Instruments: p.instruments, Log: p.log,
	})
	if err != nil {
		return err
	}
	p.Telemetry.Health.AddLive("demand", p.demand.Alive)
	p.needStatus, err = needstatus.New(needstatus.Config{
		Client: p.access.Client, Demand: p.demand.Read, Record: p.events.Record, Log: p.log,
		PodPending: func(uid types.UID) bool {
			pod := p.pods.Get(uid)
			return pod != nil && pod.Node == "" && pod.DeletionTimestamp == nil
		},
	})
	p.unplaced = unplaced.Watcher{Config: unplaced.Config{
		Pods: p.pods, Request: p.demand.OfPod, Counted: p.demand.HasPod, Ahead: p.demand.RowsAhead, Satisfied: p.needStatus.Satisfied, Missing: p.needStatus.Missing, Ready: p.machines.RowReady, Nodes: p.machines.Count, AllNodes: p.machines.Nodes, TakesPods: p.takesPods, Confined: p.demand.Confined, Record: p.events.Record, Heartbeat: cmp.Or(p.RollupInterval, heartbeatDefault),
		Send: func(r *pb.UnplacedPods) {
			if l := p.session.Link(); l != nil && l.Has(unplaced.Feature) {
				l.Report("unplaced", &pb.OperatorMessage{Payload: &pb.OperatorMessage_UnplacedPods{UnplacedPods: r}})
			}
		},
	}}
	return err
}

// buildObjects makes what shows the shard's decisions.
func (p *parts) buildObjects() (err error) {
	p.upcoming, err = upcoming.New(upcoming.Config{
		Client: p.access.Client, Machines: p.machines, Draining: func(id string) bool { return p.drains.Running(id) }, OutOfService: p.whyOutOfService, Record: p.events.Record,
		Concurrency: p.DispatchConcurrency, JoinTimeout: p.NodeJoinTimeout, Instruments: p.instruments, Log: p.log,
	})
	if err != nil {
		return err
	}
	p.hints, err = hint.New(hint.Config{Client: p.access.Client, Instruments: p.instruments, Log: p.log})
	return err
}

func (p *parts) buildDrains() (err error) {
	p.drains, err = drain.New(drain.Config{
		Client: p.access.Client, Machines: p.machines, Pods: p.pods, Show: p.upcoming.SetDrain, Report: p.reportDrain,
		Stopped: p.stop.on.Load, KeepNodes: p.KeepDrainedNodes, OrphanAfter: p.DrainedNodeTimeout, Record: p.events.Record, Instruments: p.instruments, Log: p.log,
	})
	return err
}

// tls loads the certificate and checks that it is this cluster's (OP-3.7).
func (p *parts) tls() (*identity.Source, error) {
	source, err := p.Telemetry.LoadIdentity(p.TLS)
	if err != nil || source == nil {
		return nil, err
	}
	id, err := source.ID()
	if err != nil {
		return nil, err
	}
	if want := (identity.ID{Kind: identity.Cluster, Name: p.ClusterID}); id != want {
		return nil, misconfigured(fmt.Errorf("the certificate is that of %s; cluster %s needs %s", id, p.ClusterID, want))
	}
	return source, nil
}

func (p *parts) buildSession(source *identity.Source) error {
	client, err := rpc.NewClient(rpc.ClientConfig{
		Addr: p.ShardAddr, Limits: rpc.Limits{ReadMaxBytes: session.FrameBytesMax, SendMaxBytes: session.SentBytesMax}, Log: p.log,
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

// reportDrain sends the report of a drain to a shard that wants it.
func (p *parts) reportDrain(r *pb.DrainReport) {
	if l := p.session.Link(); l != nil && l.Has(featureDrainReport) {
		l.Report("drain:"+r.MachineId, &pb.OperatorMessage{Payload: &pb.OperatorMessage_DrainReport{DrainReport: r}})
	}
}

// whyOutOfService explains why the node of a machine takes no Pods.
func (p *parts) whyOutOfService(id string) (reason, message string, ok bool) {
	e, ok := p.outOfService.Of(id)
	if !ok {
		return "", "", false
	}
	reason, message = outOfServiceReason(e)
	return reason, message, true
}

// nodeReady hears that a machine's Node became Ready.
func (p *parts) nodeReady(id, _ string) {
	if p.tokens != nil {
		p.tokens.Joined(id)
	}
}

// podBound hears that a Pod that waited got a node: if that node is younger than the Pod, the Pod waited for it (OP-19.3).
func (p *parts) podBound(pod *pods.Pod) {
	n := p.machines.Node(pod.Node)
	if n == nil || n.CreationTimestamp.Before(&pod.CreationTimestamp) {
		return
	}
	if ready, since, _ := machine.Ready(n); ready {
		p.instruments.PodToNode.Observe(max(0, since.Sub(pod.CreationTimestamp.Time).Seconds()))
	}
}

// takesPods says that a node is Ready and not cordoned.
func (p *parts) takesPods(node string) bool {
	n := p.machines.Node(node)
	if n == nil || n.Spec.Unschedulable {
		return false
	}
	ready, _, _ := machine.Ready(n)
	return ready
}

// know notes what a node state says of a machine.
func (p *parts) know(m *pb.NodeStateUpdate) {
	known := machine.Machine{ID: m.MachineId, ProviderID: m.ProviderId, NodeName: m.NodeName, RowID: m.RowId, Labels: m.Labels, Resources: m.GetResources().GetResources()}
	for _, t := range m.Taints {
		known.Taints = append(known.Taints, corev1.Taint{Key: t.Key, Value: t.Value, Effect: corev1.TaintEffect(t.Effect)})
	}
	coming := false
	switch m.State {
	case pb.MachineState_MACHINE_STATE_CONFIGURED:
		known.Configured = time.Now()
	case pb.MachineState_MACHINE_STATE_SPECULATIVE, pb.MachineState_MACHINE_STATE_CREATING, pb.MachineState_MACHINE_STATE_CONFIGURING:
		coming = true
	case pb.MachineState_MACHINE_STATE_DRAINING, pb.MachineState_MACHINE_STATE_DELETING:
		known.Leaving = true
	}
	p.machines.Set(known)
	p.needStatus.Machine(m.MachineId, m.RowId, coming && !m.Released)
}
