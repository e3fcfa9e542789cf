package provider

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/identity"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/internal/server"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"go.opentelemetry.io/otel/trace"
)

// Provider is one provider server. Make it with New, run it once with Run.
type Provider struct {
	name    string
	backend Backend
	set     settings
	log     *slog.Logger
	metrics *metrics
	tracer  trace.Tracer
	tls     *identity.Source

	inventory *inventory.Inventory
	queue     *queue
	blobs     blobs
	callers   *callers
	claims    claims
	histories histories
	offers    offers
	losses    losses
	janitor   janitor
	rules     lifecycle.Rules
	started   time.Time

	phase atomic.Int32 // starting, serving, stopping
	// startup ends when the first round has succeeded or failed, or the process stops. Calls that come earlier wait for it.
	startup    context.Context
	endStartup context.CancelFunc
	paused     atomic.Bool
	// obstacle is why the first round has not succeeded yet.
	obstacle atomic.Pointer[error]
	server   *server.Server
	ready    chan struct{}
	addr     atomic.Pointer[string]
	ran      atomic.Bool

	// work is the life of everything in the background; it ends later than Run's context.
	work     context.Context
	endWork  context.CancelCauseFunc
	workers  sync.WaitGroup
	rounds   chan struct{} // asks for a reconcile round
	owned    int           // hosts without an offering in the last round, the size of the next; the reconcile loop alone uses it
	rejected onceLog
}

const (
	starting int32 = iota
	serving
	stopping
)

// errStopping is the cause of the work context when the process stops: the transition is cut off, not failed.
var errStopping = errors.New("the provider is stopping")

// New checks everything that can be checked without I/O. Run does the rest.
func New(name string, b Backend, options ...Option) (*Provider, error) {
	p := &Provider{name: name, backend: b, set: defaults(), ready: make(chan struct{}), rounds: make(chan struct{}, 1)}
	for _, o := range options {
		o(&p.set)
	}
	if err := p.set.check(name, b); err != nil {
		return nil, fmt.Errorf("provider %s: %w", name, err)
	}
	p.set.timeouts, p.set.retention = p.set.timeouts.withDefaults(), p.set.retention.withDefaults()
	c, err := newCatalogue(name, p.set.offerings, b)
	if err != nil {
		return nil, fmt.Errorf("provider %s: %w", name, err)
	}
	p.offers.wanted = c
	p.log = p.set.log.With("provider", name)
	p.tracer = p.set.tracer.Tracer("github.com/bigfleet-dev/bigfleet/sdk/provider")
	if p.metrics, err = newMetrics(name, p); err != nil {
		return nil, fmt.Errorf("provider %s: %w", name, err)
	}
	_, deleter := b.(Deleter)
	p.rules = lifecycle.Rules{
		DeleteSupported: deleter, ShardIDBytesMax: ShardIDBytesMax, MetadataBytesMax: MetadataBytesMax, BlobBytesMax: p.set.blobBytes,
	}
	p.queue = newQueue(p.set.transitions, p.set.queue)
	p.callers = newCallers(p.set.callsMax, p.log, p.metrics, p.tracer)
	return p, nil
}

// Name is the provider's name.
func (p *Provider) Name() string { return p.name }

// Ready is closed once the provider answers: store loaded, recovery done, inventory known.
func (p *Provider) Ready() <-chan struct{} { return p.ready }

// Addr is where the RPC port listens, empty before Run.
func (p *Provider) Addr() string {
	if a := p.addr.Load(); a != nil {
		return *a
	}
	return ""
}

// Serving says whether mutations and reads are answered; the error is the reason for people why not (readiness).
func (p *Provider) Serving() error {
	switch p.phase.Load() {
	case starting:
		return fmt.Errorf("starting: %w", p.unread())
	case stopping:
		return errStopping
	}
	if err := p.inventory.WriteError(); err != nil {
		return err
	}
	if p.paused.Load() {
		return errors.New("mutations are paused by an operator")
	}
	return nil
}

func (p *Provider) storeID() string {
	id := p.inventory.ID()
	return hex.EncodeToString(id[:])
}

// Run opens the store, serves, and works until ctx ends; then it stops in order and returns nil. It returns an error when
// it could not start (a *StartError) or when serving failed. A backend that is an io.Closer is closed at the end.
func (p *Provider) Run(ctx context.Context) (err error) {
	if p.ran.Swap(true) {
		return errors.New("Run was called before; create a new Provider")
	}
	p.started = time.Now()
	if c, ok := p.backend.(io.Closer); ok {
		defer func() { err = errors.Join(err, c.Close()) }()
	}
	if err := p.open(); err != nil {
		return &StartError{err}
	}
	closeStore := func(err error) error { return errors.Join(err, p.inventory.Close()) }
	listener, err := p.listen()
	if err != nil {
		return &StartError{closeStore(err)}
	}
	p.work, p.endWork = context.WithCancelCause(context.WithoutCancel(ctx))
	defer p.endWork(errStopping)

	p.startup, p.endStartup = context.WithCancel(ctx)
	defer p.endStartup()
	p.server = p.newServer()
	served := make(chan error, 1)
	go func() { served <- p.server.Serve(listener) }()
	p.announce(listener)

	background, endBackground := context.WithCancel(ctx)
	defer endBackground()
	var loops sync.WaitGroup
	began := make(chan error, 1)
	loops.Go(func() { began <- p.begin(background, &loops) })

	select {
	case <-ctx.Done():
	case err = <-served:
		err = fmt.Errorf("serve %s: %w", listener.Addr(), err)
	case err = <-began:
		if err == nil {
			select {
			case <-ctx.Done():
			case err = <-served:
				err = fmt.Errorf("serve %s: %w", listener.Addr(), err)
			}
		} else if ctx.Err() == nil {
			err = &StartError{err}
		} else {
			err = nil
		}
	}
	endBackground()
	p.stop(&loops)
	return closeStore(err)
}

// StartError says that a provider could not start: configuration, credentials or store. Programs exit with 2.
type StartError struct{ Err error }

func (e *StartError) Error() string { return e.Err.Error() }
func (e *StartError) Unwrap() error { return e.Err }

func (p *Provider) open() error {
	if on, _ := p.set.tls.Enabled(); on {
		source, err := identity.Load(p.set.tls, identity.Options{OnReload: p.reloaded})
		if err != nil {
			return fmt.Errorf("TLS: %w", err)
		}
		p.tls = source
	}
	st, err := p.set.openStore()
	if err != nil {
		return err
	}
	p.inventory, err = inventory.Open(inventory.Config{
		Store: st, Random: p.set.random, Now: time.Now,
		CommitBatchMax: CommitBatchMax, UnknownMarksMax: p.set.unknownMarks, TombstonesMax: p.set.tombstones,
		OnCommit: p.metrics.commit,
	})
	if err != nil {
		return err
	}
	if err := p.claims.load(p.inventory); err != nil {
		return errors.Join(err, p.inventory.Close())
	}
	p.metrics.storeBytes(st.Bytes)
	p.paused.Store(p.inventory.Setting(settingPaused) != nil)
	return nil
}

func (p *Provider) reloaded(r identity.Reload) {
	p.metrics.tlsReload.WithLabelValues(outcome(r.Err)).Inc()
	if r.Err != nil {
		p.log.Error("the changed TLS files cannot be used; the last valid set stays in use", "err", r.Err)
		return
	}
	p.log.Info("TLS files reloaded", "not_after", r.NotAfter)
}

func (p *Provider) listen() (net.Listener, error) {
	if p.set.listener != nil {
		return p.set.listener, nil
	}
	return listenOn("RPC port", "--addr", p.set.addr)
}

// listenOn says which flag moves a port that somebody else has.
func listenOn(what, flag, addr string) (net.Listener, error) {
	l, err := net.Listen("tcp", addr)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%s: %s is in use: stop the process that uses it, or choose another address with %s", what, addr, flag)
	case err != nil:
		return nil, fmt.Errorf("%s (%s): %w", what, flag, err)
	}
	return l, nil
}

func (p *Provider) announce(l net.Listener) {
	addr := l.Addr().String()
	p.addr.Store(&addr)
	store := "durable"
	if !p.set.durable(p) {
		store = "state is kept in memory only and is lost when this process ends"
	}
	p.log.Info("provider starts", "addr", addr, "tls", p.tls != nil, "store", store, "store_id", p.storeID(),
		"readiness", p.set.readiness.mode, "version", p.set.version)
	if p.set.readiness.mode == "none" {
		p.log.Warn("readiness is none: machines are shown as Configured before their nodes are Ready")
	}
	if p.set.anyShard && p.tls != nil {
		p.log.Warn("shard SANs are not checked: any certificate of the CA may act as any shard")
	}
}

func (s *settings) durable(p *Provider) bool { return p.inventory.Durable() }

// begin recovers, learns the inventory, opens for business and starts the loops.
func (p *Provider) begin(ctx context.Context, loops *sync.WaitGroup) error {
	if a, ok := p.backend.(Attacher); ok {
		a.Attach(fleet{p})
	}
	resume, err := p.recover()
	if err != nil {
		return err
	}
	if err := p.offer(p.offers.wanted); err != nil {
		return err
	}
	if err := p.firstRound(ctx); err != nil {
		return err
	}
	for _, w := range resume {
		p.start(w)
	}
	p.phase.CompareAndSwap(starting, serving)
	p.endStartup()
	p.server.SetServing(true)
	close(p.ready)
	p.log.Info("provider serves", "machines", p.inventory.Machines(), "after", time.Since(p.started).Round(time.Millisecond))
	loops.Go(func() { p.reconcileLoop(ctx) })
	loops.Go(func() { p.sweepLoop(ctx) })
	if n, ok := p.backend.(Notifier); ok {
		loops.Go(func() { p.notifyLoop(ctx, n) })
	}
	if q, ok := p.backend.(Pricer); ok {
		loops.Go(func() { p.priceLoop(ctx, q) })
	}
	return nil
}

// newServer is the RPC port of this provider.
func (p *Provider) newServer() *server.Server {
	return server.New(server.Config{
		Machines: machines{p}, Admin: admin{p}, Log: p.log, Tracer: p.set.tracer, TLS: p.tls,
		AnyShard: p.set.anyShard, Reflection: p.set.reflection, RequestBytesMax: RequestBytesMax, SmallRequestBytesMax: SmallRequestBytesMax, ResponseBytesMax: ResponseBytesMax,
		Panicked: p.panicked, Ready: p.hold, Denied: func(reason string) { p.metrics.denied.WithLabelValues(reason).Inc() },
		Calls: func(method, code string, took time.Duration) {
			p.metrics.rpcs.WithLabelValues(method, code).Inc()
			p.metrics.rpcDuration.WithLabelValues(method).Observe(took.Seconds())
		},
	})
}

// hold keeps a call that comes before the first round has ended, so that a client without retries can start at the same time as
// the provider (PROV-10.5).
func (p *Provider) hold(ctx context.Context) {
	if p.phase.Load() != starting {
		return
	}
	bound := time.NewTimer(startHold)
	defer bound.Stop()
	select {
	case <-p.startup.Done():
	case <-ctx.Done():
	case <-bound.C:
	}
}

// stop ends in the order of PROV-19.5: no new work, time for running work, then its context is cancelled, then the port.
func (p *Provider) stop(loops *sync.WaitGroup) {
	p.phase.Store(stopping)
	p.server.SetServing(false)
	p.log.Info("provider stops", "grace", p.set.shutdownGrace)
	loops.Wait()
	done := make(chan struct{})
	go func() { p.workers.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(p.set.shutdownGrace):
		p.log.Warn("running operations are interrupted; the next start determines their outcome", "transitions", p.queue.busy())
	}
	p.endWork(errStopping)
	<-done // a Backend's calls end with their context
	p.server.Stop()
}

func (p *Provider) panicked(v any, args ...any) {
	p.metrics.panics.Inc()
	p.log.Error("panic", append(args, "err", fmt.Sprint(v), "stack", string(debug.Stack()))...)
}

// ReadyHandler answers 200 once the store is loaded, recovery is done, the inventory is known and the store is healthy.
// A paused provider is ready, because it answers reads; the body says that it is paused.
func (p *Provider) ReadyHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		err := p.Serving()
		switch {
		case err == nil:
			fmt.Fprintln(w, "ready")
		case p.phase.Load() == serving && p.inventory.WriteError() == nil:
			fmt.Fprintln(w, "ready;", err)
		default:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}

// recover fails, or takes up again, what the last stop cut off (PROV-12.5, 12.6).
func (p *Provider) recover() (resume []*work, err error) {
	var batch []inventory.Change
	now := time.Now()
	flush := func() error {
		defer func() {
			for _, c := range batch {
				p.inventory.Release(c.Slot)
			}
			batch = batch[:0]
		}()
		if len(batch) == 0 {
			return nil
		}
		return p.inventory.CommitBulk(batch)
	}
	for row := range p.inventory.All() {
		k := lifecycle.InFlight(row.Record.State)
		if k == 0 {
			continue
		}
		if p.set.resume && k != Configure && (k != Delete || p.rules.DeleteSupported) {
			resume = append(resume, p.workOf(row.Record))
			continue
		}
		slot := p.inventory.Acquire(row.ID())
		next, _ := lifecycle.Interrupt(row.Record, now)
		batch = append(batch, inventory.Change{Slot: slot, Record: next})
		p.metrics.transitions.WithLabelValues(k.Label(), "interrupted").Inc()
		p.log.Warn("the last stop interrupted a transition", "machine", row.ID(), "kind", k.Label(), "operation", row.Record.Operation(k))
		if len(batch) == CommitBatchMax {
			if err := flush(); err != nil {
				return nil, err
			}
		}
	}
	return resume, flush()
}
