package provider_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

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
