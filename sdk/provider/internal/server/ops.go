package server

import (
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// NewOps serves the metrics port (PROV-20.7). ready answers /readyz.
func NewOps(ready http.Handler, g prometheus.Gatherer, profiles bool) *http.Server {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(g, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "alive") })
	mux.Handle("GET /readyz", ready)
	if profiles {
		mux.HandleFunc("/debug/pprof/", loopbackOnly(pprof.Index))
		mux.HandleFunc("/debug/pprof/profile", loopbackOnly(pprof.Profile))
		mux.HandleFunc("/debug/pprof/symbol", loopbackOnly(pprof.Symbol))
		mux.HandleFunc("/debug/pprof/trace", loopbackOnly(pprof.Trace))
	}
	return &http.Server{Handler: mux, ReadHeaderTimeout: HeaderReadTimeout}
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
