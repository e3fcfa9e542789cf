package telemetry

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bigfleet-dev/bigfleet/services/kit/loopback"
)

// Off is the listen address that turns a port off.
const Off = "0"

// Listen binds addr, or returns nil for Off.
func Listen(addr string) (net.Listener, error) {
	if addr == Off {
		return nil, nil
	}
	return net.Listen("tcp", addr)
}

// OpsConfig is what an Ops needs.
type OpsConfig struct {
	Gatherer prometheus.Gatherer // required
	Health   *Health             // required
	Log      *slog.Logger        // required
	// Pprof serves profiles to loopback peers under /debug/pprof/ (SHARD-30.4).
	Pprof bool
}

// Ops serves /metrics, /healthz and /readyz. It has no TLS, so nothing else may ever be put on it (SHARD-22.6).
type Ops struct {
	config  OpsConfig
	handler http.Handler
}

// NewOps checks the configuration. It starts nothing; Run does.
func NewOps(c OpsConfig) (*Ops, error) {
	if c.Gatherer == nil || c.Health == nil || c.Log == nil {
		return nil, errors.New("telemetry.OpsConfig: Gatherer, Health and Log are required")
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(c.Gatherer, promhttp.HandlerOpts{
		ErrorLog: slog.NewLogLogger(c.Log.Handler(), slog.LevelWarn), ErrorHandling: promhttp.ContinueOnError,
	}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		results, err := c.Health.Live()
		answer(w, r, results, err)
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		results, err := c.Health.Ready()
		answer(w, r, results, err)
	})
	if c.Pprof {
		mux.HandleFunc("/debug/pprof/", loopbackOnly(pprof.Index))
		mux.HandleFunc("/debug/pprof/cmdline", loopbackOnly(pprof.Cmdline))
		mux.HandleFunc("/debug/pprof/profile", loopbackOnly(pprof.Profile))
		mux.HandleFunc("/debug/pprof/symbol", loopbackOnly(pprof.Symbol))
		mux.HandleFunc("/debug/pprof/trace", loopbackOnly(pprof.Trace))
	}
	return &Ops{config: c, handler: mux}, nil
}

// Handler returns the handler alone, for a process that serves it on a port it has (COORD-17.1).
func (o *Ops) Handler() http.Handler { return o.handler }

// OpsPort is one bound port of an Ops.
type OpsPort struct {
	Ops      *Ops
	Listener net.Listener

	served bool
}

// Listen binds addr. The port is nil where addr is Off or empty.
func (o *Ops) Listen(addr string) (*OpsPort, error) {
	if addr == "" {
		return nil, nil
	}
	ln, err := Listen(addr)
	if ln == nil {
		return nil, err
	}
	return &OpsPort{Ops: o, Listener: ln}, nil
}

// Run serves the port until ctx ends. Called again after it was lost, it binds the same address again: so it can be a
// component that restarts.
func (p *OpsPort) Run(ctx context.Context) (err error) {
	ln := p.Listener
	if p.served {
		if ln, err = Listen(ln.Addr().String()); err != nil {
			return err
		}
	}
	p.served = true
	return p.Ops.Run(ctx, ln)
}

// Run serves ln until ctx ends. A nil ln (see Listen) serves nothing and waits. Requests in flight get a second.
func (o *Ops) Run(ctx context.Context, ln net.Listener) error {
	if ln == nil {
		<-ctx.Done()
		return nil
	}
	server := &http.Server{
		Handler: loopback.Only(o.handler), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
		ErrorLog: slog.NewLogLogger(o.config.Log.Handler(), slog.LevelDebug),
	}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(ln) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if server.Shutdown(limit) != nil {
		_ = server.Close()
	}
	if err := <-failed; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// loopbackOnly refuses peers from elsewhere, whatever address the port listens on. A forwarded port still works.
func loopbackOnly(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if ip := net.ParseIP(host); err != nil || ip == nil || !ip.IsLoopback() {
			http.Error(w, "profiles are served to this host only: forward the port", http.StatusForbidden)
			return
		}
		next(w, r)
	}
}
