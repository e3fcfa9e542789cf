package provider

import (
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// newOpsServer serves the metrics port (PROV-20.7).
func newOpsServer(p *Provider, g prometheus.Gatherer, profiles bool) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.Handle("GET /readyz", p.ReadyHandler())
	if profiles {
		mux.HandleFunc("/debug/pprof/", loopbackOnly(pprof.Index))
		mux.HandleFunc("/debug/pprof/profile", loopbackOnly(pprof.Profile))
		mux.HandleFunc("/debug/pprof/symbol", loopbackOnly(pprof.Symbol))
		mux.HandleFunc("/debug/pprof/trace", loopbackOnly(pprof.Trace))
	}
	return &http.Server{Handler: mux, ReadHeaderTimeout: headerReadTimeout}
}

// ReadyHandler answers 200 once the store is loaded, recovery is done, the inventory is known and the store is healthy.
// Paused mutations are told in the body and do not make the provider unready: reads go on.
func (p *Provider) ReadyHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		err := p.Serving()
		switch {
		case err == nil:
			fmt.Fprintln(w, "ready")
		case p.phase.Load() == serving && p.roster.Sick() == nil:
			fmt.Fprintln(w, "ready;", err)
		default:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	})
}

func loopbackOnly(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if host, _, err := net.SplitHostPort(r.RemoteAddr); err != nil || !net.ParseIP(host).IsLoopback() {
			http.Error(w, "profiles are for callers on this machine", http.StatusForbidden)
			return
		}
		next(w, r)
	}
}
