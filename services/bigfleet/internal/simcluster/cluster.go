package simcluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/bigfleet-dev/bigfleet/sdk/kube/crds"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/kubesim"
)

// Config describes one simulated cluster.
type Config struct {
	ID     string       // required; the cluster id its operator uses
	Listen string       // address of its API server; "" means a free loopback port
	Log    *slog.Logger // required

	PodStart time.Duration // from bound to Running; 0 means 50 ms
	NodeBoot time.Duration // from a Node object to Ready; 0 means at once
}

// Cluster is a running simulated cluster. Make one with New, then Run it.
type Cluster struct {
	cfg      Config
	store    *kubesim.Store
	listener net.Listener
}

// New reserves the address. Nothing is served before Run.
func New(c Config) (*Cluster, error) {
	if c.ID == "" || c.Log == nil {
		return nil, errors.New("simcluster: Config.ID and Config.Log are required")
	}
	if c.Listen == "" {
		c.Listen = "127.0.0.1:0"
	}
	if c.PodStart == 0 {
		c.PodStart = 50 * time.Millisecond
	}
	l, err := net.Listen("tcp", c.Listen)
	if err != nil {
		return nil, fmt.Errorf("simulated cluster %s: %w", c.ID, err)
	}
	store := kubesim.NewStore()
	if err := define(store); err != nil {
		return nil, errors.Join(fmt.Errorf("simulated cluster %s: %w", c.ID, err), l.Close())
	}
	return &Cluster{cfg: c, store: store, listener: l}, nil
}

// define stores the definitions of this version, as in a cluster in which they are installed.
func define(store *kubesim.Store) error {
	for _, file := range crds.All() {
		o := &kubesim.Object{}
		if err := yaml.Unmarshal(file.YAML, &o.Object); err != nil {
			return fmt.Errorf("definition %s: %w", file.Name, err)
		}
		o.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Established", "status": "True"}}}
		if _, err := store.Create(kubesim.Definitions, o); err != nil {
			return err
		}
	}
	return nil
}

// ID is the cluster id.
func (c *Cluster) ID() string { return c.cfg.ID }

// Address is where the API server listens.
func (c *Cluster) Address() string { return c.listener.Addr().String() }

// Store holds the objects.
func (c *Cluster) Store() *kubesim.Store { return c.store }

// ClientConfig is for client-go clients of the cluster.
func (c *Cluster) ClientConfig() *rest.Config { return kubesim.ClientConfig(c.Address()) }

// Run serves the API and runs the models until ctx ends.
func (c *Cluster) Run(ctx context.Context) error {
	server := &http.Server{
		Handler:           kubesim.NewServer(c.store),
		ReadHeaderTimeout: 10 * time.Second,
		BaseContext:       func(net.Listener) context.Context { return ctx },
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(c.listener) }()

	var loops sync.WaitGroup
	loops.Go(func() { c.runWorkloads(ctx) })
	loops.Go(func() { c.runScheduler(ctx) })
	loops.Go(func() { c.runKubelets(ctx) })
	var err error
	select {
	case <-ctx.Done():
	case err = <-served:
	}
	_ = server.Close()
	loops.Wait()
	if err != nil && !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("API server of simulated cluster %s: %w", c.cfg.ID, err)
	}
	return nil
}
