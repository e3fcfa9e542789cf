// Package up runs a whole BigFleet in one process: shard, coordinator, provider, and clusters with the real operator and pod
// controller in each (OPS-5).
//
// Everything that decides or acts is what runs in production, over the same RPC ports. Models are only the cloud (the provider
// of services/providers/sim), the clusters (package simcluster) and what runs on their machines (hosts.go); the banner says so.
// Real clusters may take the place of the simulated ones, and another provider the place of the simulated cloud.
//
// It keeps no state beyond its directory and never leaves a process behind. Start at Config, then New and Run.
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
	"strings"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/simcluster"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/rpc"
)

// Config describes a world.
type Config struct {
	Clusters      int           // simulated clusters; 0 means DefaultClusters. Without effect when Targets are given
	NoClusters    bool          // none: operators come from elsewhere
	Few           bool          // the cloud of `all-in-one`: eight small machines and eight with a GPU
	Shards        int           // 0 means 1; each has a zone of the simulated cloud at least
	Targets       []Target      // real clusters in their place
	Scenario      string        // "" means none; a name, or a file
	Script        string        // a file with a story; in the place of Scenario
	Speed         float64       // divides the delays of machines, of the scenario, and the holds of unneeded demand and machines; 0 means 1
	Seed          int64         // of the simulated cloud; 0 means 1
	ProviderDelay time.Duration // to make or join a machine; 0 means DefaultProviderDelay, negative none
	Providers     []Provider    // these instead of the simulated cloud

	ShardListen, ProviderListen, ControlListen string // "" means the well-known ports on loopback
	CoordinatorListen, RaftBind                string // "" means the well-known ports on loopback
	ShardMetrics, CoordinatorMetrics           string // of metrics and health; "" means the well-known ports, or free ones; telemetry.Off none
	DemoListen                                 string // where `bigfleet demo` asks for stories; "" means the well-known port, or a free one
	ConsoleListen                              string // of the web UI; "" means the well-known port, or a free one; telemetry.Off none
	ShardID, CoordinatorID                     string // "" means shard-0 and coordinator-0
	NoCoordinator                              bool
	DataDir                                    string // "" means a temporary directory that goes with the process
	Kubeconfig                                 string // where to write the way to the simulated clusters; "" means kubeconfig in the directory

	Out    io.Writer // the live view
	Log    io.Writer // logs of the parts; nil drops them
	Paint  bool      // Out is a terminal
	Colour bool
	Size   func() (columns, lines int) // of the terminal; nil means large enough
	With   string                      // what each of Tries needs beside it, in words
	Tries  []string                    // commands for another terminal, shown under the picture
	// Sentence tells a record in words, for the console; nil means the record's own detail.
	Sentence func(*pb.DecisionRecord) string
	Once     bool // end when the scenario has ended and nothing moves any more
}

// Provider is a provider that runs elsewhere.
type Provider struct{ Name, Addr string }

// Defaults of Config.
const (
	DefaultClusters       = 3
	DefaultProviderDelay  = 100 * time.Millisecond
	DefaultShardListen    = "127.0.0.1:7780"
	DefaultProviderListen = "127.0.0.1:9000"
	DefaultControlListen  = "127.0.0.1:9001"
	DefaultCoordinator    = "127.0.0.1:7790"
	DefaultRaftBind       = "127.0.0.1:7791"
	DefaultDemoListen     = "127.0.0.1:7701"

	clustersMax  = 50               // each takes about 10 MB and a port
	stopTimeout  = 20 * time.Second // the bound; a quiet machine needs about one
	providerName = "demo"
)

// World is what runs.
type World struct {
	Clusters []*Cluster
	Read     bigfleetv1alpha1connect.ShardReadClient // of the first shard
	Cloud    *substrate.Cloud                        // the simulated cloud; nil when another provider is used

	cfg  Config
	log  *slog.Logger
	dir  string
	view *view

	group    *process.Group
	scenario Scenario
	cleanUp  func() error // removes the temporary directory

	shards        []*shardRole
	coordinator   *role       // nil without one
	toCoordinator *rpc.Client // the same
	stage         net.Listener
	ports         []*port
	scrapes       []scrape
	scrapeFile    string
	consoleAddr   string // "" without one
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
func New(_ context.Context, c Config) (*World, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	w, err := build(c)
	if err != nil {
		return nil, err
	}
	w.group = process.New(process.Config{Log: w.log, StopTimeout: stopTimeout})
	if err := w.addParts(w.group); err != nil {
		return nil, errors.Join(err, w.end())
	}
	return w, nil
}

// Run runs the world until ctx ends, or with Config.Once until nothing moves any more.
func (w *World) Run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, w.end()) }()
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

// end gives back what the world holds.
func (w *World) end() error {
	for _, p := range w.ports {
		p.drop()
	}
	if w.stage != nil {
		_ = w.stage.Close() // closed already when it was served
	}
	return w.cleanUp()
}

// Check fills defaults and says what cannot be, before anything is made.
func (c *Config) Check() error {
	if c.Clusters == 0 && !c.NoClusters {
		c.Clusters = DefaultClusters
	}
	if c.Clusters < 0 || c.Clusters > clustersMax {
		return fmt.Errorf("--clusters %d: it must be 0 to %d", c.Clusters, clustersMax)
	}
	if err := c.checkShards(); err != nil {
		return err
	}
	if c.Speed == 0 {
		c.Speed = 1
	}
	if c.Speed < 0 {
		return fmt.Errorf("--speed %v: it must be more than 0", c.Speed)
	}
	if c.ProviderDelay == 0 {
		c.ProviderDelay = DefaultProviderDelay
	}
	for _, d := range []struct {
		p *string
		v string
	}{{&c.ShardListen, DefaultShardListen}, {&c.ProviderListen, DefaultProviderListen}, {&c.ControlListen, DefaultControlListen}, {&c.CoordinatorListen, DefaultCoordinator}, {&c.RaftBind, DefaultRaftBind}} {
		if *d.p == "" {
			*d.p = d.v
		}
	}
	if err := c.checkPorts(); err != nil {
		return err
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	s, err := c.story()
	if err != nil || s.Name == "" {
		return err
	}
	if c.NoClusters && len(c.Targets) == 0 {
		return errors.New("--scenario needs clusters: leave out --clusters 0")
	}
	if len(c.Targets) > 0 {
		return errors.New("--scenario creates workloads in simulated clusters: leave out --kubeconfig, or create a Deployment yourself")
	}
	if s.Cloud && len(c.Providers) > 0 {
		return fmt.Errorf("scenario %s changes the simulated cloud: leave out --provider", s.Name)
	}
	return nil
}

// story is what is played; one without a name is nothing.
func (c *Config) story() (Scenario, error) {
	switch {
	case c.Script != "" && c.Scenario != "":
		return Scenario{}, errors.New("--script and --scenario: give one of them")
	case c.Script != "":
		return LoadScript(c.Script)
	case c.Scenario == "":
		return Scenario{}, nil
	case strings.ContainsAny(c.Scenario, "./\\"):
		return LoadScript(c.Scenario)
	}
	return Find(c.Scenario)
}

// kinds says what is real and what is not.
func (c *Config) kinds() string {
	clusters, machines := "simulated clusters", "a simulated cloud"
	if c.NoClusters {
		clusters = "clusters from elsewhere"
	}
	if len(c.Targets) > 0 {
		clusters, machines = "real clusters", "Node objects without machines"
	}
	if len(c.Providers) > 0 {
		machines = "machines of another process"
	}
	return clusters + " on " + machines
}

func build(c Config) (*World, error) {
	w := &World{cfg: c, dir: c.DataDir, cleanUp: func() error { return nil }, log: slog.New(slog.NewTextHandler(c.Log, nil))}
	w.view = &view{out: c.Out, paint: c.Paint, colour: c.Colour, size: c.Size, tries: c.Tries, with: c.With, start: time.Now(), title: "BigFleet, " + c.kinds()}
	var err error
	if w.scenario, err = c.story(); err != nil {
		return nil, err
	}
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
func (w *World) addParts(g *process.Group) error {
	if err := w.makeClusters(); err != nil {
		return err
	}
	if err := w.writeKubeconfig(); err != nil {
		return err
	}
	if err := w.addProvider(g); err != nil {
		return err
	}
	if err := w.addCoordinator(g); err != nil {
		return err
	}
	if err := w.addShards(g); err != nil {
		return err
	}
	for i, c := range w.Clusters {
		if err := w.addAgents(g, c, i); err != nil {
			return err
		}
	}
	if err := w.addConsole(g); err != nil {
		return err
	}
	if err := w.addStage(); err != nil {
		return err
	}
	g.Add(process.Component{Name: "stage", Kind: process.Restarts, Run: w.runStage})
	return w.writeScrapes()
}

func (w *World) makeClusters() error {
	for _, t := range w.cfg.Targets {
		c, err := t.cluster()
		if err != nil {
			return err
		}
		w.Clusters = append(w.Clusters, c)
	}
	for i := 0; len(w.cfg.Targets) == 0 && i < w.cfg.Clusters; i++ {
		c, err := simulated(simcluster.Config{ID: ClusterName(i), Log: w.log})
		if err != nil {
			return err
		}
		w.Clusters = append(w.Clusters, c)
	}
	return nil
}

// ClusterName is the id of the simulated cluster with this index.
func ClusterName(i int) string {
	if i < len(clusterNames) {
		return clusterNames[i]
	}
	return fmt.Sprintf("cluster-%d", i+1)
}

// writeKubeconfig lets kubectl and `bigfleet explain pod/…` into the simulated clusters: a context for each, by its id.
func (w *World) writeKubeconfig() error {
	if len(w.cfg.Targets) > 0 {
		return nil
	}
	if w.cfg.Kubeconfig == "" {
		w.cfg.Kubeconfig = filepath.Join(w.dir, "kubeconfig")
	}
	out := clientcmdapi.NewConfig()
	for i, c := range w.Clusters {
		out.Clusters[c.ID()] = &clientcmdapi.Cluster{Server: "http://" + c.sim.Address()}
		out.Contexts[c.ID()] = &clientcmdapi.Context{Cluster: c.ID(), Namespace: namespace}
		if i == 0 {
			out.CurrentContext = c.ID()
		}
	}
	if err := os.MkdirAll(filepath.Dir(w.cfg.Kubeconfig), 0o700); err != nil {
		return err
	}
	return clientcmd.WriteToFile(*out, w.cfg.Kubeconfig)
}
