package up

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/simcluster"
	"github.com/bigfleet-dev/bigfleet/services/kit/process"
	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
	"github.com/bigfleet-dev/bigfleet/services/operator"
	"github.com/bigfleet-dev/bigfleet/services/podcontroller"
)

// Cluster is a cluster with BigFleet's two agents in it: a simulated one, or a real one that a kubeconfig leads to.
type Cluster struct {
	Client Client

	id   string
	rest *rest.Config
	sim  *simcluster.Cluster          // nil for a real one
	seen atomic.Pointer[clusterFrame] // of a real one, by its census

	operator *role
}

// ID is the cluster id.
func (c *Cluster) ID() string { return c.id }

// Store holds the objects of a simulated cluster; nil for a real one.
func (c *Cluster) Store() *kubesim.Store {
	if c.sim == nil {
		return nil
	}
	return c.sim.Store()
}

// Host is the address of its API server.
func (c *Cluster) Host() string { return c.rest.Host }

func simulated(cfg simcluster.Config) (*Cluster, error) {
	sim, err := simcluster.New(cfg)
	if err != nil {
		return nil, err
	}
	client, err := newClient(sim.ClientConfig())
	if err != nil {
		return nil, err
	}
	return &Cluster{id: sim.ID(), sim: sim, rest: sim.ClientConfig(), Client: client}, nil
}

// Target is a real cluster that a kubeconfig names.
type Target struct {
	ID   string // the context's name
	File string
	REST *rest.Config
}

// Targets reads kubeconfigs: the current context of each file, or those of the named contexts that it holds.
func Targets(files, contexts []string) ([]Target, error) {
	var out []Target
	taken := map[string]string{}
	missing := map[string]bool{}
	for _, c := range contexts {
		missing[c] = true
	}
	for _, file := range files {
		raw, err := clientcmd.LoadFromFile(file)
		if err != nil {
			return nil, fmt.Errorf("--kubeconfig %s: %w", file, err)
		}
		names := contexts
		if len(contexts) == 0 {
			if raw.CurrentContext == "" {
				return nil, fmt.Errorf("--kubeconfig %s has no current context: name one with --contexts", file)
			}
			names = []string{raw.CurrentContext}
		}
		for _, name := range names {
			if raw.Contexts[name] == nil {
				continue
			}
			delete(missing, name)
			if other := taken[name]; other != "" {
				return nil, fmt.Errorf("context %q is in %s and in %s: the context's name becomes the cluster id and must be unique; rename one with `kubectl config rename-context`", name, other, file)
			}
			taken[name] = file
			cfg, err := clientcmd.NewNonInteractiveClientConfig(*raw, name, &clientcmd.ConfigOverrides{}, nil).ClientConfig()
			if err != nil {
				return nil, fmt.Errorf("context %q of %s: %w", name, file, err)
			}
			out = append(out, Target{ID: name, File: file, REST: cfg})
		}
	}
	for name := range missing {
		return nil, fmt.Errorf("no kubeconfig has a context %q", name)
	}
	return out, nil
}

func (t Target) cluster() (*Cluster, error) {
	cfg := rest.CopyConfig(t.REST)
	cfg.QPS, cfg.Burst = -1, 0 // the agents limit themselves
	client, err := newClient(cfg)
	if err != nil {
		return nil, fmt.Errorf("cluster %s: %w", t.ID, err)
	}
	return &Cluster{id: t.ID, rest: cfg, Client: client}, nil
}

// addAgents puts the cluster with this index and its agents into the group.
func (w *World) addAgents(g *process.Group, c *Cluster, i int) error {
	controllers, err := w.metrics("podcontroller", c.ID(), "", fmt.Sprintf("127.0.0.1:%d", 8080+i), "")
	if err != nil {
		return err
	}
	operators, err := w.metrics("operator", c.ID(), "", fmt.Sprintf("127.0.0.1:%d", 8770+i), "")
	if err != nil {
		return err
	}
	if c.sim != nil {
		g.Add(process.Component{Name: "cluster-" + c.ID(), Run: c.sim.Run})
	} else {
		g.Add(process.Component{Name: "census-" + c.ID(), Kind: process.Restarts, Run: c.census})
	}
	controller := w.equipped("podcontroller-"+c.ID(), controllers, func(ctx context.Context, tel *telemetry.Telemetry, ops []*telemetry.OpsPort) error {
		return podcontroller.Run(ctx, podcontroller.Config{REST: rest.CopyConfig(c.rest), Telemetry: tel, Ops: ops, NoLeaderElection: true})
	})
	shardAddr := w.shardOf(i).listen
	c.operator = &role{name: "operator of " + c.ID(), run: w.equipped("operator-"+c.ID(), operators, func(ctx context.Context, tel *telemetry.Telemetry, ops []*telemetry.OpsPort) error {
		return operator.Run(ctx, operator.Config{
			ClusterID: c.ID(), ShardAddr: shardAddr, REST: rest.CopyConfig(c.rest), Telemetry: tel, Ops: ops,
			NoLeaderElection: true, BootstrapRenderer: operator.RendererStub, DemandHold: w.pace(demandHold), RollupInterval: w.pace(rollupEvery),
		})
	})}
	g.Add(process.Component{Name: "podcontroller-" + c.ID(), Kind: process.Restarts, Run: controller})
	g.Add(process.Component{Name: "operator-" + c.ID(), Kind: process.Restarts, Run: c.operator.loop})
	return nil
}

// censusEvery is how often a real cluster is counted for the picture; its API server has better things to do.
const censusEvery = 2 * time.Second

// census counts a real cluster until ctx ends.
func (c *Cluster) census(ctx context.Context) error {
	for {
		if f, err := c.count(ctx); err == nil {
			c.seen.Store(&f)
		} else if !errors.Is(err, context.Canceled) {
			c.seen.Store(nil)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(censusEvery):
		}
	}
}

func (c *Cluster) count(ctx context.Context) (clusterFrame, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	f := clusterFrame{ID: c.ID()}
	fromCache := metav1.ListOptions{ResourceVersion: "0"}
	pods, err := c.Client.CoreV1().Pods("").List(ctx, fromCache)
	if err != nil {
		return f, err
	}
	for _, p := range pods.Items {
		switch {
		case p.Status.Phase == corev1.PodRunning:
			f.Running++
		case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
		case p.Spec.NodeName == "":
			f.Waits++
		default:
			f.Starting++
		}
	}
	nodes, err := c.Client.CoreV1().Nodes().List(ctx, fromCache)
	if err != nil {
		return f, err
	}
	for _, n := range nodes.Items {
		f.Nodes++
		if n.Spec.Unschedulable {
			f.Leaving++
		}
	}
	return f, nil
}
