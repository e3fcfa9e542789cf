package rpc

import (
	"context"
	"fmt"
	"sync"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
)

// health answers grpc.health.v1.Health. A service that was never set is SERVING from the first listener on.
type health struct {
	mu       sync.Mutex
	serving  map[string]bool
	stopping bool
	watchers map[int]func()
	next     int
}

func newHealth() *health {
	return &health{serving: map[string]bool{"": true}, watchers: map[int]func(){}}
}

func (h *health) set(service string, ok bool) {
	h.mu.Lock()
	h.serving[service] = ok
	h.mu.Unlock()
	h.notify()
}

func (h *health) add(service string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, found := h.serving[service]; !found {
		h.serving[service] = true
	}
}

// stop makes everything NOT_SERVING for good.
func (h *health) stop() {
	h.mu.Lock()
	h.stopping = true
	h.mu.Unlock()
	h.notify()
}

func (h *health) notify() {
	h.mu.Lock()
	watchers := make([]func(), 0, len(h.watchers))
	for _, w := range h.watchers {
		watchers = append(watchers, w)
	}
	h.mu.Unlock()
	for _, w := range watchers {
		w()
	}
}

// Check implements grpchealth.Checker.
func (h *health) Check(_ context.Context, req *grpchealth.CheckRequest) (*grpchealth.CheckResponse, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ok, found := h.serving[req.Service]
	switch {
	case !found:
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("unknown service %q", req.Service))
	case ok && !h.stopping:
		return &grpchealth.CheckResponse{Status: grpchealth.StatusServing}, nil
	default:
		return &grpchealth.CheckResponse{Status: grpchealth.StatusNotServing}, nil
	}
}

// Watch implements grpchealth.Watcher.
func (h *health) Watch(ctx context.Context, req *grpchealth.CheckRequest, onChange func()) (func(), error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	id := h.next
	h.next++
	h.watchers[id] = onChange
	return func() {
		h.mu.Lock()
		defer h.mu.Unlock()
		delete(h.watchers, id)
	}, nil
}
