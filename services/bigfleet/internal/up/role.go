package up

import (
	"context"
	"fmt"
	"sync"

	"github.com/bigfleet-dev/bigfleet/services/kit/telemetry"
)

// role is one long-running part that a story may take away and bring back, as a crash and a restart do. Only its state on disk
// and its ports outlive it.
type role struct {
	name string
	run  func(context.Context) error

	mu   sync.Mutex
	stop context.CancelFunc // of the run under way; nil before the first
	away chan struct{}      // closed to let it run again; nil while it runs
	gone chan struct{}      // closed when the run under way has ended
}

// loop runs the role again and again until ctx ends.
func (r *role) loop(ctx context.Context) error {
	for ctx.Err() == nil {
		away, err := r.once(ctx)
		if err != nil || away == nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-away:
		}
	}
	return nil
}

func (r *role) once(ctx context.Context) (away <-chan struct{}, err error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	r.mu.Lock()
	r.stop, r.away, r.gone = stop, nil, make(chan struct{})
	r.mu.Unlock()
	err = r.run(ctx)
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.gone)
	if r.away == nil {
		return nil, err
	}
	return r.away, nil // it was stopped: how it ended is not news
}

// Stop takes the role away and waits until it is gone.
func (r *role) Stop(ctx context.Context) error {
	r.mu.Lock()
	if r.stop == nil || r.away != nil {
		r.mu.Unlock()
		return fmt.Errorf("%s is already stopped", r.name)
	}
	r.away = make(chan struct{})
	gone := r.gone
	r.stop()
	r.mu.Unlock()
	select {
	case <-gone:
	case <-ctx.Done():
	}
	return nil
}

// Start lets the role run again.
func (r *role) Start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.away == nil {
		return fmt.Errorf("%s is already running", r.name)
	}
	select {
	case <-r.away:
		return fmt.Errorf("%s is already starting", r.name)
	default:
	}
	close(r.away)
	return nil
}

// Away says whether the role was taken away.
func (r *role) Away() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.away != nil
}

// equipped runs a role with a telemetry of its own for each run, as in a process of its own, and its metrics and health at a port; nil means none.
func (w *World) equipped(component string, at *port, run func(context.Context, *telemetry.Telemetry, []*telemetry.OpsPort) error) func(context.Context) error {
	return func(ctx context.Context) error {
		tel, err := telemetry.New(ctx, telemetry.Config{Component: component, Log: w.log.With("component", component)})
		if err != nil {
			return err
		}
		defer func() { _ = tel.Close(context.WithoutCancel(ctx)) }()
		var ports []*telemetry.OpsPort
		if at != nil {
			ops, err := opsPort(ctx, tel, at)
			if err != nil {
				return err
			}
			ports = append(ports, ops)
		}
		return run(ctx, tel, ports)
	}
}

func opsPort(ctx context.Context, tel *telemetry.Telemetry, at *port) (*telemetry.OpsPort, error) {
	ops, err := telemetry.NewOps(telemetry.OpsConfig{Gatherer: tel.Registry, Health: tel.Health, Log: tel.Log})
	if err != nil {
		return nil, err
	}
	l, err := at.listen(ctx)
	if err != nil {
		return nil, err
	}
	return &telemetry.OpsPort{Ops: ops, Listener: l}, nil
}
