// Package up runs a whole BigFleet in one process: shard, provider, and simulated clusters with the real operator and pod
// controller in each (OPS-5).
//
// Everything that decides or acts is what runs in production, over the same RPC ports. Models are only the machines (the kwok
// provider's virtual hosts) and the clusters (package simcluster); the banner says so. Start at Run.
package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/nodeready"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/simcluster"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/providers/kwok"
	"github.com/bigfleet-dev/bigfleet/services/shard"
)

// Config describes a world.
type Config struct {
	Clusters      int           // simulated clusters; 0 means DefaultClusters
	Scenario      string        // "" means none
	Speed         float64       // divides the delays of machines and of the scenario; 0 means 1
	ProviderDelay time.Duration // to make or join a machine; 0 means DefaultProviderDelay, negative none

	ShardListen, ProviderListen string // "" means the well-known ports on loopback
	DataDir                     string // "" means a temporary directory that goes with the process

	Out    io.Writer // the live view
	Log    io.Writer // logs of the parts; nil drops them
	Paint  bool      // Out is a terminal
	Colour bool
	Once   bool // end when the scenario has ended and nothing moves any more
}

// Defaults of Config.
const (
	DefaultClusters       = 3
	DefaultProviderDelay  = time.Second
	DefaultShardListen    = "127.0.0.1:7780"
	DefaultProviderListen = "127.0.0.1:9000"

	clustersMax = 50 // each takes about 10 MB and a port
	stopTimeout = 5 * time.Second
	shardID     = "shard-0"
)

// World is what runs.
type World struct {
	Clusters []*Cluster
	Read     bigfleetv1alpha1connect.ShardReadClient

	cfg  Config
	log  *slog.Logger
	dir  string
	view *view

	group    *process.Group
	scenario Scenario
	cleanUp  func() error // removes the temporary directory

	mu        sync.Mutex
	stopShard context.CancelFunc
	away      chan struct{} // closed to let the shard run again; nil while it runs
}

var clusterNames = []string{"red", "blue", "green"}

// Run makes a world and runs it until ctx ends.
func Run(ctx context.Context, c Config) error {
	w, err := New(ctx, c)
	if err != nil {
		return err
	}
	return w.Run(ctx)
}

// New reserves the ports and makes every part. Run runs them, once.
func New(ctx context.Context, c Config) (*World, error) {
	w, err := build(c)
	if err != nil {
		return nil, err
	}
	if c.Scenario != "" {
		if w.scenario, err = Find(c.Scenario); err != nil {
			return nil, errors.Join(err, w.cleanUp())
		}
	}
	w.group = process.New(process.Config{Log: w.log, StopTimeout: stopTimeout})
	if err := w.addParts(ctx, w.group); err != nil {
		return nil, errors.Join(err, w.cleanUp())
	}
	return w, nil
}

// Run runs the world until ctx ends, or with Config.Once until nothing moves any more.
func (w *World) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, w.cleanUp()) }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	w.group.Add(process.Component{Name: "view", Run: func(ctx context.Context) error { w.view.run(ctx, w); return nil }})
	w.group.Add(process.Component{Name: "scenario", Kind: process.Task, Run: func(ctx context.Context) error {
		if err := w.play(ctx, w.scenario); err != nil || !w.cfg.Once {
			return err
		}
		defer stop()
		return w.settle(ctx)
	}})
	return w.group.Run(ctx)
}

func build(c Config) (*World, error) {
	if c.Clusters == 0 {
		c.Clusters = DefaultClusters
	}
	if c.Clusters < 1 || c.Clusters > clustersMax {
		return nil, fmt.Errorf("--clusters %d: want 1 to %d", c.Clusters, clustersMax)
	}
	if c.Speed == 0 {
		c.Speed = 1
	}
	if c.Speed < 0 {
		return nil, fmt.Errorf("--speed %v: want more than 0", c.Speed)
	}
	if c.ProviderDelay == 0 {
		c.ProviderDelay = DefaultProviderDelay
	}
	if c.ShardListen == "" {
		c.ShardListen = DefaultShardListen
	}
	if c.ProviderListen == "" {
		c.ProviderListen = DefaultProviderListen
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	w := &World{cfg: c, dir: c.DataDir, cleanUp: func() error { return nil }, log: slog.New(slog.NewTextHandler(c.Log, nil))}
	w.view = &view{out: c.Out, paint: c.Paint, colour: c.Colour, start: time.Now()}
	if w.dir == "" {
		dir, err := os.MkdirTemp("", "bigfleet-up-")
		if err != nil {
			return nil, err
		}
		w.dir, w.cleanUp = dir, func() error { return os.RemoveAll(dir) }
	}
	return w, nil
}

// addParts makes every part and hands it to the group; the order of stopping is the reverse.
func (w *World) addParts(ctx context.Context, g *process.Group) error {
	configs := nodeready.RESTConfigs{}
	for i := range w.cfg.Clusters {
		id := fmt.Sprintf("cluster-%d", i+1)
		if i < len(clusterNames) {
			id = clusterNames[i]
		}
		sim, err := simcluster.New(simcluster.Config{ID: id, Log: w.log})
		if err != nil {
			return err
		}
		client, err := kubernetes.NewForConfig(sim.ClientConfig())
		if err != nil {
			return err
		}
		w.Clusters = append(w.Clusters, &Cluster{Cluster: sim, Client: client})
		configs[id] = sim.ClientConfig()
	}
	if err := w.addProvider(g, configs); err != nil {
		return err
	}
	if err := w.addShard(ctx, g); err != nil {
		return err
	}
	for _, c := range w.Clusters {
		if err := c.add(ctx, g, w.cfg.ShardListen, w.telemetry); err != nil {
			return err
		}
	}
	return nil
}

// telemetry gives each part a registry of its own, as in a process of its own.
func (w *World) telemetry(ctx context.Context, component string) (*telemetry.Telemetry, error) {
	return telemetry.New(ctx, telemetry.Config{Component: component, Log: w.log.With("component", component)})
}

func (w *World) addProvider(g *process.Group, clusters map[string]*rest.Config) error {
	listener, err := net.Listen("tcp", w.cfg.ProviderListen)
	if err != nil {
		return taken(err, "--provider-listen")
	}
	delay := time.Duration(float64(max(w.cfg.ProviderDelay, 0)) / w.cfg.Speed)
	p, err := kwok.New(kwok.Config{
		Name: "demo", Clusters: nodeready.RESTConfigs(clusters), Offerings: offerings(), Log: w.log.With("component", "provider"),
		Delays:  kwok.Delays{Create: delay, Configure: delay, Drain: delay / 2, Delete: delay / 2, Jitter: 0.3},
		Options: []provider.Option{provider.WithListener(listener), provider.WithStateFile(filepath.Join(w.dir, "provider.db"))},
	})
	if err != nil {
		_ = listener.Close()
		return err
	}
	g.Add(process.Component{Name: "provider", Run: p.Run})
	return nil
}

func taken(err error, flag string) error {
	return fmt.Errorf("%w: is another `bigfleet up` running? %s chooses another address", err, flag)
}

// addShard runs the shard again and again: a scenario may stop and start it.
func (w *World) addShard(ctx context.Context, g *process.Group) error {
	client, err := rpc.NewClient(rpc.ClientConfig{Addr: w.cfg.ShardListen, Limits: rpc.ReadClientLimits()})
	if err != nil {
		return err
	}
	w.Read = rpc.Stub(client, bigfleetv1alpha1connect.NewShardReadClient)
	probe, err := net.Listen("tcp", w.cfg.ShardListen)
	if err != nil {
		return taken(err, "--shard-listen")
	}
	_ = probe.Close()
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
		Providers: []shard.Provider{{Name: "demo", Addr: w.cfg.ProviderListen}},
	})
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

// ready waits until the shard decides and every cluster has been heard.
func (w *World) ready(ctx context.Context) error {
	for ctx.Err() == nil {
		if s := w.look(ctx).Status; s.GetReady() && int(s.GetSessions()) == len(w.Clusters) {
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// play runs the steps of a scenario.
func (w *World) play(ctx context.Context, s Scenario) error {
	if err := w.ready(ctx); err != nil {
		return err
	}
	w.view.say("ready: shard at %s, provider at %s, %d simulated clusters", w.cfg.ShardListen, w.cfg.ProviderListen, len(w.Clusters))
	for _, step := range s.Steps {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Duration(float64(step.After) / w.cfg.Speed)):
		}
		w.view.say("%s", step.Say)
		if err := step.Do(ctx, w); err != nil && ctx.Err() == nil {
			return fmt.Errorf("scenario %s, %q: %w", s.Name, step.Say, err)
		}
	}
	return nil
}

// settleFor is how long nothing may move before a world is at rest.
const settleFor = 3 * time.Second

// settle waits until every Pod runs or the picture has not changed for a while.
func (w *World) settle(ctx context.Context) error {
	last, since := "", time.Now()
	for ctx.Err() == nil {
		now := summary(w.look(ctx))
		if now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) > settleFor {
			w.view.say("at rest")
			return nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return nil
}
