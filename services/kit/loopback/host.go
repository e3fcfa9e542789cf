// Package loopback judges requests that reach a port over this host's loopback interface. Every HTTP port of a service uses it. It
// uses the standard library alone.
package loopback

import (
	"net"
	"net/http"
	"strings"
)

// WrongHost reports a request that reached this host without TLS under the name of another host. A browser sends it when a page
// resolved its own name to this host's loopback address (DNS rebinding), and takes the answer for that page's own. Browsers do not
// speak HTTP/2 without TLS, so our own clients may use any name.
func WrongHost(r *http.Request) bool {
	if r.TLS != nil || r.ProtoMajor > 1 || !fromHere(r.RemoteAddr) {
		return false
	}
	host := r.Host
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	return host != "" && host != "localhost" && !strings.HasSuffix(host, ".localhost") && net.ParseIP(host) == nil
}

// Refuse answers a request that WrongHost reports.
func Refuse(w http.ResponseWriter) {
	http.Error(w, "this port is reached under the name of another host: use localhost or an address", http.StatusMisdirectedRequest)
}

// Only wraps a handler so that it refuses what WrongHost reports.
func Only(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if WrongHost(r) {
			Refuse(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func fromHere(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}
