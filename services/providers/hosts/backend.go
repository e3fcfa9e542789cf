package hosts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

// backend implements provider.Backend and, of the optional interfaces, Resetter, Attacher, Notifier, Estimator and Checker.
type backend struct {
	config     Config
	log        *slog.Logger
	inventory  *inventory
	hostAgents *agentServer
	nodes      *nodeready.Source // nil without real clusters
	fleet      provider.Fleet
	news       chan struct{}
	agents     net.Addr // where agents dial
	started    time.Time

	server *http.Server
	life   context.Context
	end    context.CancelFunc
	all    sync.WaitGroup
}

func newBackend(c Config) (*backend, error) {
	if c.Name == "" || c.Inventory == "" || c.AgentAddr == "" || c.Log == nil {
		return nil, errors.New("hosts: Name, Inventory, AgentAddr and Log are required")
	}
	if c.Silence == 0 {
		c.Silence = silenceDefault
	}
	if c.wakeEvery == 0 {
		c.wakeEvery = wakeDefault
	}
	b := &backend{
		config: c, log: c.Log.With("provider", c.Name), inventory: &inventory{file: c.Inventory, provider: c.Name}, news: make(chan struct{}, 1),
		started: time.Now(),
	}
	if _, err := b.inventory.load(); err != nil {
		return nil, err
	}
	b.hostAgents = newAgentServer(b.inventory, b.log, b.notify)
	server, addr, ended, err := b.hostAgents.serve(c.AgentAddr, c.TLS)
	if err != nil {
		return nil, err
	}
	if c.Clusters != nil {
		if b.nodes, err = nodeready.NewSource(nodeready.Config{Clusters: c.Clusters, Log: b.log}); err != nil {
			return nil, errors.Join(err, server.Close())
		}
	}
	b.life, b.end = context.WithCancel(context.Background())
	b.server, b.agents = server, addr
	b.all.Go(func() {
		if err := <-ended; err != nil && !errors.Is(err, http.ErrServerClosed) {
			b.log.Error("the agents' port failed: no host can be configured or reset until this provider is restarted", "err", err)
		}
	})
	b.all.Go(b.follow)
	b.log.Info("inventory read", "file", c.Inventory, "hosts", len(b.inventory.all()))
	b.log.Info("agents' port", "addr", addr.String())
	return b, registerMetrics(c, b)
}

// Close ends the agents' port and the watches.
func (b *backend) Close() error {
	b.end()
	err := b.server.Close()
	b.all.Wait()
	if b.nodes != nil {
		b.nodes.Close()
	}
	return err
}

// inventoryInterval is how soon a changed inventory counts.
const inventoryInterval = 2 * time.Second

func (b *backend) follow() {
	ticker := time.NewTicker(inventoryInterval)
	defer ticker.Stop()
	for {
		select {
		case <-b.life.Done():
			return
		case <-ticker.C:
		}
		changed, err := b.inventory.load()
		if err != nil {
			b.log.Error("the inventory cannot be used; the last valid one stays in force", "err", err)
		}
		if changed {
			b.log.Info("inventory read", "hosts", len(b.inventory.all()))
			b.notify()
		}
	}
}

func (b *backend) notify() {
	select {
	case b.news <- struct{}{}:
	default:
	}
}

// Notify implements provider.Notifier: a host that changed is described soon.
func (b *backend) Notify(ctx context.Context, send func(provider.Notice)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-b.news:
			send(provider.Notice{Changed: true})
		}
	}
}

// Attach implements provider.Attacher.
func (b *backend) Attach(f provider.Fleet) { b.fleet = f }

// Check implements provider.Checker.
func (b *backend) Check(context.Context, []provider.Offering) (warnings []error, err error) {
	for _, h := range b.inventory.all() {
		if err := b.power(&h).ready(); err != nil {
			warnings = append(warnings, fmt.Errorf("host %s: %w", h.Name, err))
		}
	}
	if len(b.inventory.all()) == 0 {
		warnings = append(warnings, errors.New("the inventory has no hosts"))
	}
	return warnings, nil
}

// Describe reports the hosts of the inventory that can be used: those of a bound machine always, because a silent agent ends no
// node, and others once their agent says that they are clean.
func (b *backend) Describe(ctx context.Context, found func(provider.Host) error) error {
	machines := map[string]provider.Machine{}
	for m := range b.fleet.Machines() {
		machines[m.HostRef] = m
	}
	for _, h := range b.inventory.all() {
		m, known := machines[h.ProviderID]
		host, usable := b.describe(&h, m, known)
		if !usable {
			continue
		}
		if err := found(host); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (b *backend) describe(h *Entry, m provider.Machine, known bool) (provider.Host, bool) {
	a := h.attributes()
	host := provider.Host{Ref: h.ProviderID, Attributes: &a}
	r, at := b.hostAgents.last(h.Name)
	fresh := r != nil && time.Since(at) < b.config.Silence
	switch {
	case known && m.State != lifecycle.Idle:
		return host, true // the transition, the binding or the janitor judges it
	case known && r == nil && time.Since(b.started) < b.config.Silence:
		return host, true // the agents of a provider that was started again have not all called yet
	case !fresh:
		return host, false
	case known:
		return host, r.GetPhase() == pb.HostPhase_HOST_PHASE_CLEAN
	case r.GetPhase() == pb.HostPhase_HOST_PHASE_CONFIGURED && r.GetClusterId() != "":
		host.Binding = &provider.Binding{Cluster: r.GetClusterId()} // of a store that was lost (PROV-17.8)
		return host, true
	}
	return host, r.GetPhase() == pb.HostPhase_HOST_PHASE_CLEAN
}

// Create implements provider.Backend. There are no slots, so nothing calls it.
func (b *backend) Create(context.Context, provider.CreateOp) (provider.Host, error) {
	return provider.Host{}, errors.New("this provider creates no hosts; add one to the inventory")
}

// DrainEstimate implements provider.Estimator.
func (b *backend) DrainEstimate(provider.Offering) time.Duration { return 10 * time.Second }

func (b *backend) entry(m provider.Machine) (*Entry, error) {
	h := b.inventory.of(m.HostRef)
	if h == nil {
		return nil, fmt.Errorf("the inventory has no host with provider_id %s any more", m.HostRef)
	}
	return h, nil
}

// Configure wakes the host, lets it join, and leaves the wait for the Node to the readiness gate.
func (b *backend) Configure(ctx context.Context, op provider.ConfigureOp) error {
	h, err := b.entry(op.Machine)
	if err != nil {
		return err
	}
	if err := b.wake(ctx, h); err != nil {
		return err
	}
	if r, _ := b.hostAgents.last(h.Name); r.GetOperationId() != op.ID { // else it has begun, and the Node may be its own
		if err := b.removeNodes(ctx, op.Cluster, op.Machine); err != nil {
			return err
		}
	}
	return b.hostAgents.do(ctx, h.Name, &pb.ReportHostResponse{Task: &pb.ReportHostResponse_Configure{Configure: &pb.ConfigureHost{
		OperationId: op.ID, MachineId: op.Machine.ID, ClusterId: op.Cluster, BootData: op.Blob,
	}}}, pb.HostPhase_HOST_PHASE_CONFIGURED)
}

// Drain resets the host and takes its Node out of the cluster (PROV-11.13). It evicts nothing.
func (b *backend) Drain(ctx context.Context, op provider.DrainOp) error {
	return b.reset(ctx, op.Machine, op.Cluster, op.ID, op.Grace)
}

// Reset implements provider.Resetter for a machine that failed.
func (b *backend) Reset(ctx context.Context, op provider.ResetOp) error {
	if b.inventory.of(op.Machine.HostRef) == nil {
		return nil // somebody took it out of the inventory: it is not offered again
	}
	if op.Machine.Cluster != "" && !op.Force {
		if err := b.unused(ctx, op.Machine); err != nil {
			return err
		}
	}
	return b.reset(ctx, op.Machine, op.Machine.Cluster, op.ID, 0)
}

func (b *backend) reset(ctx context.Context, m provider.Machine, cluster, id string, grace time.Duration) error {
	h, err := b.entry(m)
	if err != nil {
		return err
	}
	if err := b.hostAgents.do(ctx, h.Name, &pb.ReportHostResponse{Task: &pb.ReportHostResponse_Reset_{Reset_: &pb.ResetHost{
		OperationId: id, GraceSeconds: int64(grace / time.Second),
	}}}, pb.HostPhase_HOST_PHASE_CLEAN); err != nil {
		return err
	}
	if cluster == "" {
		return nil
	}
	return b.removeNodes(ctx, cluster, m)
}
