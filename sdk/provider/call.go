package provider

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// CallLimit bounds the calls of one name.
type CallLimit struct {
	Parallel  int     // 0 means 64
	PerSecond float64 // 0 means no rate limit
	Burst     int     // 0 means 1; only with PerSecond
}

// Call makes one substrate call on behalf of a backend: it waits for a free place and for the rate limit of that name,
// repeats transient errors until the context ends, and counts. name is a constant of the backend, such as
// "ec2.RunInstances"; it becomes a metric label. Outside of a Backend call it just calls do.
func Call(ctx context.Context, name string, do func(context.Context) error) error {
	c, _ := ctx.Value(callersKey{}).(*callers)
	if c == nil {
		return do(ctx)
	}
	return c.call(ctx, c.get(name), do)
}

type callersKey struct{}

// causeKey leads to the lastError of the transition on whose behalf a call is made.
type causeKey struct{}

// callers holds the limits and the breakers, one per call name.
type callers struct {
	limits  map[string]CallLimit
	log     *slog.Logger
	metrics *metrics
	tracer  trace.Tracer
	mu      sync.Mutex
	byName  map[string]*caller
}

func newCallers(limits map[string]CallLimit, log *slog.Logger, m *metrics, t trace.Tracer) *callers {
	return &callers{limits: limits, log: log, metrics: m, tracer: t, byName: map[string]*caller{}}
}

func (c *callers) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, callersKey{}, c)
}

func (c *callers) get(name string) *caller {
	c.mu.Lock()
	defer c.mu.Unlock()
	one := c.byName[name]
	if one == nil {
		limit := c.limits[name]
		if limit.Parallel <= 0 {
			limit.Parallel = CallsMax
		}
		one = &caller{name: name, places: make(chan struct{}, limit.Parallel)}
		if limit.PerSecond > 0 {
			one.rate = &tokenBucket{rate: limit.PerSecond, burst: float64(max(1, limit.Burst)), tokens: float64(max(1, limit.Burst))}
		}
		c.byName[name] = one
	}
	return one
}

// call makes the call inside a span of its own, a child of the transition's (PROV-21.3).
func (c *callers) call(ctx context.Context, one *caller, do func(context.Context) error) error {
	ctx, span := c.tracer.Start(ctx, "bigfleet.substrate/"+one.name, trace.WithSpanKind(trace.SpanKindClient))
	defer span.End()
	attempts, err := c.attempts(ctx, one, do)
	span.SetAttributes(attribute.Int("bigfleet.attempts", attempts))
	if err != nil {
		class, _ := ClassOf(err)
		span.SetStatus(codes.Error, class.String())
	}
	return err
}

// attempts repeats transient errors until the context ends, and says how often it called.
func (c *callers) attempts(ctx context.Context, one *caller, do func(context.Context) error) (n int, err error) {
	for pause := retryBase; ; pause = min(2*pause, retryMax) {
		waited := time.Now()
		if err := one.enter(ctx); err != nil {
			return n, err
		}
		began := time.Now()
		n++
		err := do(ctx)
		<-one.places
		c.metrics.calls.WithLabelValues(one.name, callOutcome(err)).Inc()
		c.metrics.callWait.WithLabelValues(one.name).Observe(began.Sub(waited).Seconds())
		c.metrics.callDuration.WithLabelValues(one.name).Observe(time.Since(began).Seconds())
		class, after := ClassOf(err)
		one.note(err == nil, class == ClassTransient)
		c.metrics.breaker.WithLabelValues(one.name).Set(number(one.open()))
		if cause, ok := ctx.Value(causeKey{}).(*lastError); ok { // for the error of the operation, if its limit passes
			cause.called(one.name, err)
		}
		if err == nil || class != ClassTransient {
			return n, err
		}
		one.report(c.log, n, err)
		if after == 0 {
			after = rand.N(pause)
		}
		select {
		case <-ctx.Done():
			return n, err
		case <-time.After(after):
		}
	}
}

// refusing names a call whose breaker keeps new Creates out, unless it is time for a probe (PROV-19.3).
func (c *callers) refusing() (name string, open bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, one := range c.byName {
		if one.shut() {
			return one.name, true
		}
	}
	return "", false
}

// report logs a transient error of a call that is repeated, at most once in callLogEvery for each call name.
func (c *caller) report(log *slog.Logger, attempt int, err error) {
	c.mu.Lock()
	c.unlogged++
	since, errors := time.Since(c.logged), c.unlogged
	if since >= callLogEvery {
		c.logged, c.unlogged = time.Now(), 0
	}
	c.mu.Unlock()
	if since >= callLogEvery {
		log.Warn("a call to the substrate failed and is retried", "call", c.name, "attempt", attempt, "errors", errors, "err", err)
	}
}

type caller struct {
	name   string
	places chan struct{}
	rate   *tokenBucket

	mu       sync.Mutex
	failures int       // in a row
	success  time.Time // newest
	first    time.Time // first failure of the row
	probe    time.Time // newest probe let through
	logged   time.Time // newest error in the log
	unlogged int       // errors since
}

func (c *caller) enter(ctx context.Context) error {
	select {
	case c.places <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if c.rate == nil {
		return nil
	}
	if err := c.rate.wait(ctx); err != nil {
		<-c.places
		return err
	}
	return nil
}

// note feeds the breaker. A stock-out or a refused argument says nothing about the health of the substrate.
func (c *caller) note(ok, transient bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case ok:
		c.failures, c.success = 0, time.Now()
	case transient:
		if c.failures == 0 {
			c.first = time.Now()
		}
		c.failures++
	}
}

func (c *caller) open() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.isOpen(time.Now())
}

func (c *caller) isOpen(now time.Time) bool {
	since := c.success
	if since.Before(c.first) {
		since = c.first
	}
	return c.failures >= breakerFailures && now.Sub(since) >= breakerQuiet
}

func (c *caller) shut() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.isOpen(now) {
		return false
	}
	if now.Sub(c.probe) >= breakerProbe {
		c.probe = now
		return false
	}
	return true
}

// tokenBucket limits the rate of one call name.
type tokenBucket struct {
	mu          sync.Mutex
	rate, burst float64
	tokens      float64
	at          time.Time
}

// wait takes a token, in debt if need be, and sleeps the debt off: callers pass in the order of their arrival.
func (b *tokenBucket) wait(ctx context.Context) error {
	b.mu.Lock()
	now := time.Now()
	if !b.at.IsZero() {
		b.tokens = min(b.burst, b.tokens+now.Sub(b.at).Seconds()*b.rate)
	}
	b.at = now
	b.tokens--
	debt := -b.tokens
	b.mu.Unlock()
	if debt <= 0 {
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Duration(debt / b.rate * float64(time.Second))):
		return nil
	}
}

func callOutcome(err error) string {
	if err == nil {
		return "ok"
	}
	class, _ := ClassOf(err)
	return class.String()
}

// String is the class as a metric label.
func (c Class) String() string {
	switch c {
	case ClassTransient:
		return "transient"
	case ClassCapacity:
		return "out_of_capacity"
	case ClassQuota:
		return "quota"
	case ClassCredentials:
		return "credentials"
	case ClassBootstrap:
		return "bootstrap"
	case ClassNotReady:
		return "not_ready"
	}
	return "permanent"
}
