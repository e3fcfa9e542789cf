package up

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"time"

	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"
	"github.com/bigfleet-dev/bigfleet/services/coordinator"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/providers/kwok"
	"github.com/bigfleet-dev/bigfleet/services/providers/sim"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

const (
	coordinatorID = "coordinator-0"
	heartbeat     = 2 * time.Second // of the shard's reports; people look
)

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
	options := []provider.Option{provider.WithListener(listener), provider.WithStateFile(filepath.Join(w.dir, "provider.db"))}
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
	if err := free(w.cfg.ControlListen, "--control-listen"); err != nil {
		return nil, err
	}
	around := func(share float64) substrate.Latency {
		d := w.delay(share)
		return substrate.Latency{Min: d * 7 / 10, Max: d * 13 / 10} // as unequal as machines are
	}
	agents := w.hosts(providerName, false)
	p, cloud, err := sim.New(sim.Config{
		Name: providerName, Offerings: offerings(), Agent: agents, ControlAddr: w.cfg.ControlListen, Log: w.log.With("component", "provider"),
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

// nodeObjects is the kwok provider: Node objects in the real clusters, with nobody behind them.
func (w *World) nodeObjects(options []provider.Option) (*provider.Provider, error) {
	configs := nodeready.RESTConfigs{}
	for _, c := range w.Clusters {
		configs[c.ID()] = rest.CopyConfig(c.rest)
	}
	return kwok.New(kwok.Config{
		Name: providerName, Clusters: configs, Offerings: offerings(), Log: w.log.With("component", "provider"), Options: options,
		Delays: kwok.Delays{Create: w.delay(1), Configure: w.delay(1), Drain: w.delay(0.5), Delete: w.delay(0.5), Jitter: 0.3},
	})
}

// addCoordinator runs one voter. The shard goes on without it, but one that cannot work is a defect that people must see.
func (w *World) addCoordinator(ctx context.Context, g *process.Group) error {
	if w.cfg.NoCoordinator {
		return nil
	}
	tel, err := w.telemetry(ctx, "coordinator")
	if err != nil {
		return err
	}
	rpcs, err := net.Listen("tcp", w.cfg.CoordinatorListen)
	if err != nil {
		return taken(err, "--coordinator-listen")
	}
	raft, err := net.Listen("tcp", w.cfg.RaftBind)
	if err != nil {
		return errors.Join(taken(err, "--raft-bind"), rpcs.Close())
	}
	g.Add(process.Component{Name: "coordinator", Run: func(ctx context.Context) error {
		return coordinator.Run(ctx, coordinator.Config{
			ID: coordinatorID, DataDir: filepath.Join(w.dir, "coordinator"), Listener: rpcs, RaftListener: raft, Bootstrap: true, Telemetry: tel,
		})
	}})
	return nil
}

// coordinatorAddr is where the shard reports to; "" for nobody.
func (w *World) coordinatorAddr() string {
	if w.cfg.NoCoordinator {
		return ""
	}
	return w.cfg.CoordinatorListen
}

// addShard runs the shard again and again: a scenario may stop and start it.
func (w *World) addShard(ctx context.Context, g *process.Group) error {
	client, err := rpc.NewClient(rpc.ClientConfig{Addr: w.cfg.ShardListen, Limits: rpc.ReadClientLimits()})
	if err != nil {
		return err
	}
	w.Read = rpc.Stub(client, bigfleetv1alpha1connect.NewShardReadClient)
	if err := free(w.cfg.ShardListen, "--shard-listen"); err != nil {
		return err
	}
	g.Add(process.Component{Name: "shard", Run: func(ctx context.Context) error {
		defer client.CloseIdle()
		for ctx.Err() == nil {
			if err := w.runShard(ctx); err != nil {
				return err
			}
			w.mu.Lock()
			away := w.away
			w.mu.Unlock()
			if away == nil {
				return nil
			}
			select {
			case <-ctx.Done():
			case <-away:
			}
		}
		return nil
	}})
	return nil
}

func (w *World) runShard(ctx context.Context) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w.mu.Lock()
	w.stopShard, w.away = stop, nil
	w.mu.Unlock()
	tel, err := w.telemetry(ctx, "shard")
	if err != nil {
		return err
	}
	defer func() { _ = tel.Close(context.WithoutCancel(ctx)) }()
	return shard.Run(ctx, shard.Config{
		ID: shardID, DataDir: filepath.Join(w.dir, "shard"), Listen: w.cfg.ShardListen, Telemetry: tel, ShutdownGrace: time.Second,
		Providers: w.providers(), CoordinatorAddr: w.coordinatorAddr(), CoordinatorHeartbeat: heartbeat,
	})
}

func (w *World) providers() (out []shard.Provider) {
	for _, p := range w.cfg.Providers {
		out = append(out, shard.Provider{Name: p.Name, Addr: p.Addr})
	}
	return out
}

// StopShard takes the shard away until StartShard.
func (w *World) StopShard() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away != nil {
		return errors.New("the shard is away already")
	}
	w.away = make(chan struct{})
	w.stopShard()
	return nil
}

// StartShard lets the shard run again.
func (w *World) StartShard() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.away == nil {
		return errors.New("the shard runs already")
	}
	close(w.away)
	return nil
}
