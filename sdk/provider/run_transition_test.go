package provider_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// refusing is a cloud that throttles every launch.
type refusing struct{ *cloud }

func (c refusing) Create(ctx context.Context, op provider.CreateOp) (provider.Host, error) {
	return provider.Host{}, provider.Call(ctx, "cloud.Launch", func(context.Context) error {
		return provider.RetryAfter(time.Millisecond, errors.New("throttled by the account's limit"))
	})
}

// PROV-19.2, 19.7: errors of the substrate that are repeated are in the log, at a bounded rate, and when the time limit passes the last one
// is in the error of the operation.
func TestErrorsOfTheSubstrateAreSeen(t *testing.T) {
	var mu sync.Mutex
	var all []map[string]any
	r := startCloud(t, refusing{newCloud()}, provider.WithTimeouts(provider.Timeouts{Create: 300 * time.Millisecond}),
		provider.WithRetention(provider.Retention{Failed: time.Hour}), provider.WithLogger(slog.New(lines{slog.DiscardHandler, &mu, &all})))
	m := r.must(t, provider.Create, id(0), stFailed)
	if !strings.Contains(m.GetLastError(), "cloud.Launch: throttled by the account's limit") {
		t.Errorf("last_error %q lacks the cause", m.GetLastError())
	}
	mu.Lock()
	defer mu.Unlock()
	said := 0
	for _, line := range all {
		if line["call"] == "cloud.Launch" && line["err"] != nil {
			said++
		}
	}
	if said != 1 {
		t.Errorf("%d lines about some hundred errors in less than 10 s, want 1", said)
	}
}

// PROV-19.2, 19.7: so it is for every call of a backend, also one that repeats nothing itself: the log says that it is repeated, and the
// error of the operation ends with what the substrate answered last.
func TestTransientErrorsOfEachCallAreSeen(t *testing.T) {
	t.Parallel()
	kinds := []provider.Kind{provider.Create, provider.Configure, provider.Drain, provider.Delete}
	good := []bigfleetv1alpha1.MachineState{stIdle, stConfigured, stIdle}
	for at, failing := range kinds {
		t.Run(failing.Label(), func(t *testing.T) {
			t.Parallel()
			begin := time.Now()
			var mu sync.Mutex
			var all []map[string]any
			var short provider.Timeouts
			limit := time.Second
			switch failing {
			case provider.Create:
				short.Create = limit
			case provider.Configure:
				short.Configure = limit
			case provider.Drain:
				short.DrainExtra = limit
			default:
				short.Delete = limit
			}
			backend := newCloud()
			backend.hook = func(_ context.Context, k provider.Kind, _ provider.Machine) error {
				if k == failing {
					return provider.RetryAfter(time.Millisecond, errors.New("dial tcp: connection refused"))
				}
				return nil
			}
			r := startCloud(t, backend, provider.WithTimeouts(short), provider.WithRetention(provider.Retention{Failed: time.Hour}),
				provider.WithLogger(slog.New(lines{slog.DiscardHandler, &mu, &all})))
			for i, k := range kinds[:at] {
				r.must(t, k, id(0), good[i])
			}
			m := r.must(t, failing, id(0), stFailed)
			if !strings.Contains(m.GetLastError(), "last answer of the substrate: dial tcp: connection refused") {
				t.Errorf("last_error %q lacks the cause", m.GetLastError())
			}
			mu.Lock()
			defer mu.Unlock()
			said := 0
			for _, line := range all {
				if err, is := line["err"].(error); is && line["call"] == failing.Label() && strings.Contains(err.Error(), "connection refused") {
					said++
				}
			}
			if took := time.Since(begin); said == 0 || said > 1+int(took/(10*time.Second)) {
				t.Errorf("%d lines about some hundred errors in %s, want one in 10 s", said, took)
			}
		})
	}
}

// gated is a cloud with a readiness gate.
type gated struct {
	*cloud
	ready func(ctx context.Context) error
}

func (g gated) Ready(ctx context.Context, _ provider.Machine) error { return g.ready(ctx) }

// PROV-11.1, 14.1: an error that was overcome is not a cause: where the call worked at last and the node does not become Ready, the operation
// says that. What the readiness gate itself met stays a cause while the call is repeated with success.
func TestAnErrorThatWasOvercomeIsNoCause(t *testing.T) {
	t.Parallel()
	refused := func() error { return provider.RetryAfter(time.Millisecond, errors.New("dial tcp: connection refused")) }
	hangs := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	for _, c := range []struct {
		name             string
		configure, ready int64 // how often each is refused before it works or hangs
		failure          bigfleetv1alpha1.MachineFailure
		says             bool
	}{
		{"the call", 1, 0, bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_NOT_READY, false},
		{"the gate", 0, 1, bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_TIMEOUT, true},
		{"the call, then the gate", 1, 1, bigfleetv1alpha1.MachineFailure_MACHINE_FAILURE_TIMEOUT, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var configured, asked atomic.Int64
			backend := gated{newCloud(), func(ctx context.Context) error {
				if asked.Add(1) <= c.ready {
					return refused()
				}
				return hangs(ctx)
			}}
			backend.hook = func(_ context.Context, k provider.Kind, _ provider.Machine) error {
				if k == provider.Configure && configured.Add(1) <= c.configure {
					return refused()
				}
				return nil
			}
			r := startCloud(t, backend, provider.WithReadiness(provider.SubstrateReadiness()), provider.WithTimeouts(provider.Timeouts{Configure: 4 * time.Second}),
				provider.WithRetention(provider.Retention{Failed: time.Hour}))
			r.mustCreate(t, id(0))
			m := r.must(t, provider.Configure, id(0), stFailed)
			if asked.Load() != c.ready+1 || m.GetFailure() != c.failure || strings.Contains(m.GetLastError(), "refused") != c.says {
				t.Errorf("the gate was asked %d times; failed as %s: %s", asked.Load(), m.GetFailure(), m.GetLastError())
			}
		})
	}
}
