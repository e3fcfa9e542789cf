package serve

import (
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// policy lets a page load what the console serves and nothing else.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// front judges every request before anything else sees it: its host, and the site of the page that sent it (OPS-6.1).
func front(hosts []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("X-Frame-Options", "DENY")
		if len(hosts) > 0 && !slices.Contains(hosts, hostOf(r.Host)) {
			http.Error(w, "this console is not known under that host name: --hosts lists the names", http.StatusMisdirectedRequest)
			return
		}
		if foreign(r) {
			http.Error(w, "this request comes from a page of another site: the console answers its own pages, and programs that send no Origin", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// foreign says whether a page of another site sent the request. Opening the console by a link from elsewhere is no such request.
func foreign(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	if site == "cross-site" || site == "same-site" {
		link := r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document"
		return !link || isRPC(r.URL.Path)
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}
	u, err := url.Parse(origin)
	return err != nil || !strings.EqualFold(u.Host, r.Host)
}

func isRPC(path string) bool {
	return strings.HasPrefix(path, "/bigfleet.") || strings.HasPrefix(path, "/grpc.")
}

func hostOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
}
