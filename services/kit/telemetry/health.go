package telemetry

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
)

// Check returns nil when all is well, else the reason in a few words. It runs on each request and must not block.
type Check func() error

// Health holds the named checks behind /healthz and /readyz. The zero Health is not usable; see NewHealth.
type Health struct {
	mu          sync.Mutex
	live, ready []namedCheck
	stopping    bool
}

type namedCheck struct {
	name  string
	check Check
}

// NewHealth returns a Health without checks: alive and ready.
func NewHealth() *Health { return &Health{} }

// AddLive adds a check to /healthz: a failing one asks for a restart of the process, so it must never depend on
// another process.
func (h *Health) AddLive(name string, check Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.live = append(h.live, namedCheck{name, check})
}

// AddReady adds a check to /readyz.
func (h *Health) AddReady(name string, check Check) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ready = append(h.ready, namedCheck{name, check})
}

// Stopping makes /readyz fail from now on. It is the first step of a stop.
func (h *Health) Stopping() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.stopping = true
}

// Result is the outcome of one check.
type Result struct {
	Name string
	Err  error
}

// Live runs the checks of /healthz. The error joins those that failed.
func (h *Health) Live() ([]Result, error) {
	h.mu.Lock()
	checks := h.live
	h.mu.Unlock()
	return run(checks)
}

// Ready runs the checks of /readyz. The error joins those that failed.
func (h *Health) Ready() ([]Result, error) {
	h.mu.Lock()
	checks := h.ready
	if h.stopping {
		checks = append(checks[:len(checks):len(checks)], namedCheck{"stopping", func() error { return errors.New("the process is stopping") }})
	}
	h.mu.Unlock()
	return run(checks)
}

func run(checks []namedCheck) ([]Result, error) {
	var out []Result
	var failed []error
	for _, c := range checks {
		err := c.check()
		out = append(out, Result{c.name, err})
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", c.name, err))
		}
	}
	return out, errors.Join(failed...)
}

// answer writes 200 or 503 with the failing checks; with ?verbose the passing ones too.
func answer(w http.ResponseWriter, r *http.Request, results []Result, err error) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	var body strings.Builder
	_, verbose := r.URL.Query()["verbose"]
	for _, result := range results {
		switch {
		case result.Err != nil:
			fmt.Fprintf(&body, "failed %s: %v\n", result.Name, result.Err)
		case verbose:
			fmt.Fprintf(&body, "ok %s\n", result.Name)
		}
	}
	if err != nil {
		w.WriteHeader(http.StatusServiceUnavailable)
	} else {
		body.WriteString("ok\n")
	}
	_, _ = w.Write([]byte(body.String()))
}
