package up

import (
	"cmp"
	"context"
	"errors"
	"net"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"
	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/providers/kwok"
	"github.com/bigfleet-dev/bigfleet/services/providers/sim"
)

const (
	coordinatorID  = "coordinator-0"
	heartbeat      = time.Second      // of the shard's reports; people look
	shutdownGrace  = time.Second      // of shards and providers: a drain may wait for a budget, and Ctrl-C must not
	releaseDelay   = 5 * time.Second  // short, so that a story shows what it tells; a shard waits 3 minutes by default
	demandHold     = 5 * time.Second  // short for the same reason; an operator holds demand for 3 minutes by default
	rollupEvery    = 10 * time.Second // an operator's repetition of its demand, with which holds end: its default
	reclaimWindow  = 10 * time.Second // in which a cluster gives one of a few machines: what a shard takes by default
	handoverWait   = 5 * time.Second
	listEvery      = 2 * time.Second // of the providers' machines: one that the cloud took is missed until then
	rebalanceEvery = 2 * time.Second // of the coordinator's looks for machines to move; 15 s by default
	paceLeast      = time.Second     // of what --speed makes shorter: an operator takes no shorter hold, and a loaded machine needs time
)

// pace is one of these times as --speed makes it.
func (w *World) pace(d time.Duration) time.Duration {
	return min(max(time.Duration(float64(d)/w.cfg.Speed), min(d, paceLeast)), time.Hour)
}

// addProvider chooses who has machines: a provider elsewhere, Node objects in real clusters, or the simulated cloud.
func (w *World) addProvider(g *process.Group) error {
	simulated := len(w.cfg.Targets) == 0
	if len(w.cfg.Providers) > 0 {
		for _, p := range w.cfg.Providers {
			if simulated {
				if err := w.addHosts(g, w.hosts(p.Name, true), p.Addr); err != nil {
					return err
				}
			}
		}
		return nil
	}
	listener, err := net.Listen("tcp", w.cfg.ProviderListen)
	if err != nil {
		return taken(err, "--provider-listen")
	}
	w.cfg.ProviderListen = listener.Addr().String()
	registry, err := w.providerMetrics(g)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	options := []provider.Option{provider.WithListener(listener), provider.WithStateFile(filepath.Join(w.dir, "provider.db")), provider.WithRegisterer(registry),
		provider.WithShutdownGrace(shutdownGrace)}
	var p *provider.Provider
	if simulated {
		p, err = w.simulatedCloud(g, options)
	} else {
		p, err = w.nodeObjects(options)
	}
	if err != nil {
		_ = listener.Close()
		return err
	}
	w.cfg.Providers = []Provider{{Name: providerName, Addr: w.cfg.ProviderListen}}
	g.Add(process.Component{Name: "provider", Run: p.Run})
	return nil
}

// providerMetrics serves the provider's metrics, as its own program does.
func (w *World) providerMetrics(g *process.Group) (prometheus.Registerer, error) {
	at, err := w.metrics("provider", providerName, "", "127.0.0.1:9090", "")
	if err != nil {
		return nil, err
	}
	tel, err := telemetry.New(context.Background(), telemetry.Config{Component: "provider", Log: w.log})
	if err != nil {
		return nil, err
	}
	ops, err := opsPort(context.Background(), tel, at)
	if err != nil {
		return nil, err
	}
	g.Add(process.Component{Name: "provider-metrics", Kind: process.Restarts, Run: func(ctx context.Context) error {
		defer func() { _ = tel.Close(context.WithoutCancel(ctx)) }()
		return ops.Run(ctx)
	}})
	return tel.Registry, nil
}

// offered is what the cloud sells.
func (w *World) offered() []provider.Offering {
	if w.cfg.Few {
		return few()
	}
	return offerings()
}

func (w *World) hosts(name string, outside bool) *hosts {
	h := &hosts{clusters: map[string]*Cluster{}, provider: name, outside: outside, log: w.log}
	for _, c := range w.Clusters {
		h.clusters[c.ID()] = c
	}
	return h
}

func (w *World) addHosts(g *process.Group, h *hosts, addr string) error {
	client, err := rpc.NewClient(rpc.ClientConfig{Addr: addr, Limits: rpc.ReadClientLimits()})
	if err != nil {
		return err
	}
	h.machines = rpc.Stub(client, bigfleetv1alpha1connect.NewCapacityProviderClient)
	g.Add(process.Component{Name: "hosts-" + h.provider, Run: func(ctx context.Context) error {
		defer client.CloseIdle()
		return h.run(ctx)
	}})
	return nil
}

// delay is one of the provider's, as --provider-delay and --speed make it.
func (w *World) delay(share float64) time.Duration {
	return time.Duration(float64(max(w.cfg.ProviderDelay, 0)) * share / w.cfg.Speed)
}

// simulatedCloud is the provider of services/providers/sim with hosts that join the simulated clusters.
func (w *World) simulatedCloud(g *process.Group, options []provider.Option) (*provider.Provider, error) {
	if w.cfg.ControlListen != telemetry.Off {
		if err := free(w.cfg.ControlListen, "--control-listen"); err != nil {
			return nil, err
		}
	}
	around := func(share float64) substrate.Latency {
		d := w.delay(share)
		return substrate.Latency{Min: d * 7 / 10, Max: d * 13 / 10} // as unequal as machines are
	}
	agents := w.hosts(providerName, false)
	p, cloud, err := sim.New(sim.Config{
		Name: providerName, Offerings: w.offered(), Agent: agents, ControlAddr: w.cfg.ControlListen, Log: w.log.With("component", "provider"),
		World: sim.World{Seed: w.cfg.Seed, Latency: map[string]substrate.Latency{
			substrate.CallCreate: around(1), substrate.CallConfigure: around(1), substrate.CallDrain: around(0.5), substrate.CallDelete: around(0.5),
		}},
		Options: options,
	})
	if err != nil {
		return nil, err
	}
	w.Cloud = cloud
	agents.alive = func() map[string]bool {
		out := map[string]bool{}
		for _, host := range cloud.Hosts() {
			out[host.Machine] = true
		}
		return out
	}
	return p, w.addHosts(g, agents, w.cfg.ProviderListen)
}

// nodeObjects is the kwok provider: Node objects in the real clusters, with no kubelet behind them.
func (w *World) nodeObjects(options []provider.Option) (*provider.Provider, error) {
	configs := nodeready.RESTConfigs{}
	for _, c := range w.Clusters {
		configs[c.ID()] = rest.CopyConfig(c.rest)
	}
	return kwok.New(kwok.Config{
		Name: providerName, Clusters: configs, Offerings: w.offered(), Log: w.log.With("component", "provider"), Options: options,
		Delays: kwok.Delays{Create: w.delay(1), Configure: w.delay(1), Drain: w.delay(0.5), Delete: w.delay(0.5), Jitter: 0.3},
	})
}

// addCoordinator runs one voter. The shard continues without it, but one that cannot work is a defect that people must see.
func (w *World) addCoordinator(g *process.Group) error {
	if w.cfg.NoCoordinator {
		return nil
	}
	id := cmp.Or(w.cfg.CoordinatorID, coordinatorID)
	rpcs, err := w.hold(w.cfg.CoordinatorListen, "--coordinator-listen")
	if err != nil {
		return err
	}
	raft, err := w.hold(w.cfg.RaftBind, "--raft-bind")
	if err != nil {
		return err
	}
	w.cfg.CoordinatorListen, w.cfg.RaftBind = rpcs.addr, raft.addr
	metrics, err := w.metrics("coordinator", id, w.cfg.CoordinatorMetrics, "127.0.0.1:8790", "--coordinator-metrics-addr")
	if err != nil {
		return err
	}
	if w.toCoordinator, err = rpc.NewClient(rpc.ClientConfig{Addr: w.cfg.CoordinatorListen, Limits: rpc.ReadClientLimits()}); err != nil {
		return err
	}
	w.coordinator = &role{name: "coordinator " + id, run: w.equipped("coordinator", metrics, func(ctx context.Context, tel *telemetry.Telemetry, ops []*telemetry.OpsPort) error {
		listener, err := rpcs.listen(ctx)
		if err != nil {
			return err
		}
		raftListener, err := raft.listen(ctx)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		return coordinator.Run(ctx, coordinator.Config{
			ID: id, DataDir: filepath.Join(w.dir, "coordinator"), Listener: listener, RaftListener: raftListener, Bootstrap: true, RebalanceInterval: w.pace(rebalanceEvery), Telemetry: tel, Ops: ops,
		})
	})}
	g.Add(process.Component{Name: "coordinator", Run: func(ctx context.Context) error {
		defer w.toCoordinator.CloseIdle()
		return w.coordinator.loop(ctx)
	}})
	return nil
}

// coordinatorAddr is where the shard reports to; "" without a coordinator.
func (w *World) coordinatorAddr() string {
	if w.cfg.NoCoordinator {
		return ""
	}
	return w.cfg.CoordinatorListen
}
