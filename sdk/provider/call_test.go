package provider

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace/noop"
)

// PROV-19.3: after ten failures in a row and 30 s without success a call keeps new Creates out, but for one probe each 15 s; a success
// lets them in again. An error that says nothing about the substrate's health does not count.
func TestTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		one := &caller{name: "RunInstances", places: make(chan struct{}, 1)}
		c := &callers{byName: map[string]*caller{one.name: one}}
		refused := func() bool { _, open := c.refusing(); return open }
		for range breakerFailures {
			one.note(false, true)
		}
		if refused() {
			t.Error("open although the failures are young")
		}
		time.Sleep(breakerQuiet)
		if refused() {
			t.Error("the first Create behind an opened breaker is its probe")
		}
		if !refused() {
			t.Error("two probes at once")
		}
		time.Sleep(breakerProbe)
		if refused() || !refused() {
			t.Error("one probe each 15 s")
		}
		one.note(true, false)
		if refused() || one.open() {
			t.Error("open after a success")
		}
		for range breakerFailures - 1 {
			one.note(false, true)
		}
		one.note(false, false) // a stock-out
		time.Sleep(breakerQuiet)
		if refused() {
			t.Error("nine failures and a stock-out opened it")
		}
	})
}

// PROV-19.1, 19.2: a limit per call name bounds how many run at once and how many a second; what the substrate asks callers to wait is
// waited, and a permanent error is not repeated.
func TestCallLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, err := newMetrics("p", &Provider{set: settings{registerer: prometheus.NewRegistry()}})
		if err != nil {
			t.Fatal(err)
		}
		c := newCallers(map[string]CallLimit{"Run": {Parallel: 2, PerSecond: 10, Burst: 1}}, slog.New(slog.DiscardHandler), m, noop.NewTracerProvider().Tracer(""))
		ctx := c.in(t.Context())
		var running, most atomic.Int64
		begin := time.Now()
		done := make(chan error, 21)
		for range 21 {
			go func() {
				done <- Call(ctx, "Run", func(context.Context) error {
					now := running.Add(1)
					for seen := most.Load(); now > seen && !most.CompareAndSwap(seen, now); seen = most.Load() {
					}
					time.Sleep(150 * time.Millisecond)
					running.Add(-1)
					return nil
				})
			}()
		}
		for range 21 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(begin); most.Load() != 2 || took < 2*time.Second {
			t.Errorf("%d at once, 21 calls in %s at 10 a second", most.Load(), took)
		}
		calls := 0
		begin = time.Now()
		err = Call(ctx, "Other", func(context.Context) error {
			if calls++; calls == 1 {
				return RetryAfter(40*time.Second, errors.New("slow down"))
			}
			return Quota(errors.New("no more"))
		})
		if class, _ := ClassOf(err); class != ClassQuota || calls != 2 || time.Since(begin) < 40*time.Second {
			t.Errorf("%v after %d calls and %s", err, calls, time.Since(begin))
		}
	})
}
