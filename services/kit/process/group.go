package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"time"
)

// Kind says what the end of a component means before a stop was requested.
type Kind uint8

const (
	// Fatal ends the group: without this part the process is worse than none. It is the default.
	Fatal Kind = iota
	// Restarts starts it again after a backoff and counts that.
	Restarts
	// Task may end without error; an error ends the group.
	Task
)

// Component is one part of a process.
type Component struct {
	Name string // required, unique; a metric label
	Kind Kind
	// Run works until ctx ends and then returns soon. Required.
	Run func(ctx context.Context) error
	// Drain, if set, is called at the stop before Run's context ends: to finish what must be finished. Its context
	// ends with the total deadline, and when Run returned by itself.
	Drain func(ctx context.Context)
}

// Config of a Group.
type Config struct {
	Log *slog.Logger // required
	// StopTimeout is the total time of a stop. 0 means 25 s (SHARD-3.9), 5 s under the usual grace of 30 s.
	StopTimeout time.Duration
	// OnRestart hears of each restart, for the counter ..._component_restarts_total{component}.
	OnRestart func(component string)
	// OnStop runs first when a stop begins: readiness goes false here.
	OnStop func()
	// BackoffMin and BackoffMax bound the wait before a restart; 0 means 1 s and 30 s (SHARD-3.6).
	BackoffMin, BackoffMax time.Duration
}

// Group runs components as one process.
type Group struct {
	config     Config
	components []Component
}

// New returns an empty Group.
func New(c Config) *Group {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.StopTimeout == 0 {
		c.StopTimeout = 25 * time.Second
	}
	if c.BackoffMin == 0 {
		c.BackoffMin = time.Second
	}
	if c.BackoffMax == 0 {
		c.BackoffMax = 30 * time.Second
	}
	return &Group{config: c}
}

// Add appends a component. Those added first stop last. All are started at once by Run.
func (g *Group) Add(c Component) { g.components = append(g.components, c) }

// running is one started component.
type running struct {
	Component
	cancel context.CancelFunc
	done   chan struct{}
	err    error // valid after done
}

// Run starts all components and returns when they have ended: nil after a stop through ctx, else what was lost.
func (g *Group) Run(ctx context.Context) error {
	if err := g.check(); err != nil {
		return err
	}
	lost := make(chan *running, len(g.components))
	var all []*running
	for _, c := range g.components {
		// Components outlive ctx until it is their turn to stop.
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := &running{Component: c, cancel: cancel, done: make(chan struct{})}
		all = append(all, r)
		go func() {
			r.err = g.supervise(own, r.Component)
			close(r.done)
			if own.Err() == nil && (r.Kind != Task || r.err != nil) {
				lost <- r
			}
		}()
	}
	var failed error
	select {
	case <-ctx.Done():
		g.config.Log.Info("stopping")
	case r := <-lost:
		failed = fmt.Errorf("%s: %w", r.Name, r.err)
		g.config.Log.Error("a component that the process needs has ended", "part", r.Name, "err", r.err)
	}
	return errors.Join(failed, g.stopAll(ctx, all))
}

func (g *Group) check() error {
	seen := map[string]bool{}
	for _, c := range g.components {
		if c.Name == "" || c.Run == nil || seen[c.Name] {
			return fmt.Errorf("process.Component %q: Name must be unique and Run set", c.Name)
		}
		seen[c.Name] = true
	}
	return nil
}

var errEnded = errors.New("ended unexpectedly")

// supervise runs one component until it is over for good.
func (g *Group) supervise(ctx context.Context, c Component) error {
	wait := g.config.BackoffMin
	for {
		start := time.Now()
		err := guarded(ctx, c.Run)
		if ctx.Err() != nil {
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		}
		if c.Kind == Task && err == nil {
			return nil
		}
		if err == nil {
			err = errEnded
		}
		if c.Kind != Restarts {
			return err
		}
		if time.Since(start) > g.config.BackoffMax {
			wait = g.config.BackoffMin // it ran well for a while: this is a new failure
		}
		g.config.Log.Error("a component failed and is restarted", "part", c.Name, "err", err, "wait", wait)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait/2 + rand.N(wait/2+1)): // jitter: replicas must not restart in step
		}
		wait = min(2*wait, g.config.BackoffMax)
		if g.config.OnRestart != nil {
			g.config.OnRestart(c.Name)
		}
	}
}

// panicError is a panic of a component, with its stack for the log.
type panicError struct {
	value any
	stack []byte
}

func (e *panicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.value, e.stack) }

func guarded(ctx context.Context, run func(context.Context) error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = &panicError{value, debug.Stack()}
		}
	}()
	return run(ctx)
}

// stopAll stops the components in reverse order within the total deadline. What has not ended by then is cancelled
// all at once and named in the error.
func (g *Group) stopAll(ctx context.Context, all []*running) error {
	if g.config.OnStop != nil {
		g.config.OnStop()
	}
	limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.config.StopTimeout)
	defer cancel()
	var errs []error
	for i := len(all) - 1; i >= 0; i-- {
		r := all[i]
		r.drain(limit)
		r.cancel()
		select {
		case <-r.done:
			var panicked *panicError
			if r.err != nil && (r.Kind == Fatal || errors.As(r.err, &panicked)) && !errors.Is(r.err, errEnded) {
				errs = append(errs, fmt.Errorf("stopping %s: %w", r.Name, r.err))
			}
		case <-limit.Done():
		}
	}
	if limit.Err() == nil {
		return errors.Join(errs...)
	}
	var late []string
	for _, r := range all {
		select {
		case <-r.done:
		default:
			late = append(late, r.Name)
		}
	}
	if len(late) > 0 {
		errs = append(errs, fmt.Errorf("not stopped within %s: %s", g.config.StopTimeout, strings.Join(late, ", ")))
	}
	return errors.Join(errs...)
}

func (r *running) drain(limit context.Context) {
	if r.Drain == nil {
		return
	}
	ctx, cancel := context.WithCancel(limit)
	defer cancel()
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		r.Drain(ctx)
	}()
	select {
	case <-r.done: // it ended by itself: nothing is left to drain
		cancel()
		<-finished
	case <-finished:
	case <-limit.Done():
	}
}
