// Package sim is a simulated cloud: regions, zones, racks, dozens of instance types, quotas, stock, moving spot prices and
// honest interruptions, without a machine behind it.
//
// It is built on sdk/provider and its simulated cloud (package substrate) like any third party's provider. What it adds is a
// catalogue, a spot market, fate (interruptions are drawn from the probability that was declared), zone outages, presets,
// and money: what the simulated hours cost. Everything is drawn from one seed. SubstrateControl on its own address changes
// the world while it runs: stock out a zone, interrupt a machine, double a price.
//
// It never touches a real machine or cluster. No node ever joins unless Config.Agent plays one; readiness is the simulated cloud's own.
//
// Run serves it, New makes it for a process that has other things in it, NewCommand is the program. Start at Config, then
// market.go. Clauses are cited as PROV-n.m of docs/spec/provider.md.
package sim

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/substrate"

	"github.com/prometheus/client_golang/prometheus"
)

// Config is what Run needs.
type Config struct {
	Name      string              // name of the provider; required
	Offerings []provider.Offering // the slots; nil means Catalogue(0)
	World     World
	// Agent is what runs on the hosts. Nil means nothing: no Node ever appears.
	Agent Agent
	// ControlAddr is where SubstrateControl listens; empty means nowhere.
	ControlAddr string
	TLS         identity.Files // of the control port; the RPC port has its own option
	Log         *slog.Logger   // required
	Registerer  prometheus.Registerer
	Options     []provider.Option // the rest: WithStateFile, WithListener, …
}

// Agent is what runs on the hosts of a simulated cloud: it joins clusters and leaves them. A process that simulates clusters
// too, as `bigfleet up` does, gives one. Both calls must be safe to repeat and end with their context.
type Agent interface {
	// Join registers the Node of a host that has its boot data.
	Join(ctx context.Context, op provider.ConfigureOp) error
	// Leave ends the workloads of the Node within the grace and takes it out of the cluster.
	Leave(ctx context.Context, op provider.DrainOp) error
}

// Run serves the provider until ctx ends.
func Run(ctx context.Context, c Config) error {
	p, _, err := New(c)
	if err != nil {
		return &provider.StartError{Err: err}
	}
	return p.Run(ctx)
}

// New makes the provider and its cloud without running them. Provider.Run ends the control port and the market too.
func New(c Config) (*provider.Provider, *substrate.Cloud, error) {
	if c.Name == "" || c.Log == nil {
		return nil, nil, errors.New("sim: Name and Log are required")
	}
	if c.Offerings == nil {
		c.Offerings = Catalogue(0)
	}
	b, err := newBackend(c)
	if err != nil {
		return nil, nil, err
	}
	options := append([]provider.Option{provider.WithLogger(c.Log)}, b.options()...)
	if c.Registerer != nil {
		options = append(options, provider.WithRegisterer(c.Registerer))
	}
	p, err := provider.New(c.Name, b.backend(), append(options, c.Options...)...)
	if err != nil {
		return nil, nil, errors.Join(err, b.Close())
	}
	return p, b.Cloud, nil
}

// backend is the simulated cloud with a market and fate behind it. The market begins with the first call of the SDK and ends
// with Close.
type backend struct {
	*substrate.Served
	world  World
	agent  Agent // may be nil
	market *market
	slots  []provider.Offering // what is offered; owned hosts are described instead

	begin sync.Once
	end   context.CancelFunc
	loops sync.WaitGroup
	life  context.Context
}

var _ io.Closer = (*backend)(nil)

func newBackend(c Config) (*backend, error) {
	w, err := c.World.withPreset()
	if err != nil {
		return nil, err
	}
	slots, hosts := w.split(c.Offerings)
	cloud, err := substrate.New(substrate.Config{
		Name: c.Name, Seed: w.Seed, Offerings: slots, Latency: w.Latency, TimeScale: w.TimeScale, Behaviours: w.behaviours(),
	})
	if err != nil {
		return nil, err
	}
	for _, o := range hosts {
		refs := make([]string, o.Count)
		for i := range refs {
			refs[i] = fmt.Sprintf("%s://%s/%s-%d", c.Name, o.Zone, o.Key(), i)
		}
		cloud.Owned(o.Attributes, refs...)
	}
	for key, stock := range w.hidden(cloud.Pools()) {
		cloud.SetStock(key, stock)
	}
	served, err := cloud.Serve(c.ControlAddr, c.TLS)
	if err != nil {
		return nil, err
	}
	if served.Addr != "" {
		c.Log.Info("SubstrateControl", "provider", c.Name, "addr", served.Addr)
	}
	b := &backend{Served: served, world: w, slots: slots, agent: c.Agent}
	b.market = newMarket(w, cloud)
	b.life, b.end = context.WithCancel(context.Background())
	if err := registerSpend(c, cloud); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// Attach takes the hosts in the provider's books and lets time begin.
func (b *backend) Attach(f provider.Fleet) {
	b.Cloud.Attach(f)
	b.begin.Do(func() { b.loops.Go(func() { b.market.run(b.life) }) })
}

// Configure boots the host; its agent then joins the cluster.
func (b *backend) Configure(ctx context.Context, op provider.ConfigureOp) error {
	if err := b.Served.Configure(ctx, op); err != nil || b.agent == nil {
		return err
	}
	return b.agent.Join(ctx, op)
}

// Drain lets the agent end the workloads, and then resets the host.
func (b *backend) Drain(ctx context.Context, op provider.DrainOp) error {
	if b.agent != nil {
		if err := b.agent.Leave(ctx, op); err != nil {
			return err
		}
	}
	return b.Served.Drain(ctx, op)
}

// Close ends market and control port.
func (b *backend) Close() error {
	b.end()
	b.loops.Wait()
	return b.Served.Close()
}

// pool hides Delete, for a world of machines that cannot be given back.
type pool struct {
	substrate.Undeletable
	b *backend
}

func (p pool) Attach(f provider.Fleet) { p.b.Attach(f) }
func (p pool) Close() error            { return p.b.Close() }

func (p pool) Configure(ctx context.Context, op provider.ConfigureOp) error {
	return p.b.Configure(ctx, op)
}
func (p pool) Drain(ctx context.Context, op provider.DrainOp) error { return p.b.Drain(ctx, op) }

func (b *backend) backend() provider.Backend {
	if b.world.NoDelete {
		return pool{b.WithoutDelete(), b}
	}
	return b
}

// split takes the owned hosts out of the offerings of a world without Delete: they exist already and start in IDLE
// (PROV-3.11). Elsewhere everything is a slot.
func (w World) split(all []provider.Offering) (slots, hosts []provider.Offering) {
	for _, o := range all {
		if w.NoDelete && (o.CapacityType == provider.BareMetal || o.CapacityType == provider.Reserved) {
			hosts = append(hosts, o)
		} else {
			slots = append(slots, o)
		}
	}
	return slots, hosts
}

// priceInterval is how soon a changed price shows. Prices of the simulated cloud cost nothing to ask for.
const priceInterval = time.Second

func (b *backend) options() []provider.Option {
	return []provider.Option{
		provider.WithReadiness(provider.SubstrateReadiness()), provider.WithPrices(priceInterval, 0), provider.WithOfferings(b.slots...),
	}
}

// registerSpend adds the one metric that only the sim has (PROV-26.13).
func registerSpend(c Config, cloud *substrate.Cloud) error {
	if c.Registerer == nil {
		return nil
	}
	if err := prometheus.WrapRegistererWith(prometheus.Labels{"provider": c.Name}, c.Registerer).Register(&spend{cloud}); err != nil {
		return fmt.Errorf("sim: %w", err)
	}
	return nil
}

// spend reads the ledger at each scrape.
type spend struct{ cloud *substrate.Cloud }

var spendDesc = prometheus.NewDesc("bigfleet_provider_sim_spend_usd_total", "Simulated money.", []string{"capacity_type", "bound"}, nil)

func (s *spend) Describe(out chan<- *prometheus.Desc) { out <- spendDesc }

func (s *spend) Collect(out chan<- prometheus.Metric) {
	all, bound := s.cloud.Spend()
	for class, usd := range all {
		out <- prometheus.MustNewConstMetric(spendDesc, prometheus.CounterValue, bound[class], class, "true")
		out <- prometheus.MustNewConstMetric(spendDesc, prometheus.CounterValue, max(0, usd-bound[class]), class, "false")
	}
}
