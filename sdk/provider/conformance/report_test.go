package conformance_test

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/sdk/provider"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/conformance"

	"connectrpc.com/connect"
)

// recorded runs behaviours against a right provider and returns the mutations that they sent.
func recorded(t *testing.T, seed uint64, only ...string) (calls []string) {
	t.Helper()
	client, _, control := good(t, provider.SubstrateReadiness())
	var mu sync.Mutex
	ofTheRun := regexp.MustCompile(`nobody-[0-9a-f]+-`)
	w := &wrong{good: client, before: func(_ context.Context, q *mutation) (*pbAck, error) {
		mu.Lock()
		defer mu.Unlock()
		calls = append(calls, fmt.Sprintf("%s %s %q %d", q.kind, ofTheRun.ReplaceAllString(q.machine, ""), q.cluster, q.grace))
		return nil, nil
	}}
	mux := http.NewServeMux()
	mux.Handle(bigfleetv1alpha1connect.NewCapacityProviderHandler(w, connect.WithReadMaxBytes(64<<20)))
	report, err := conformance.Execute(t.Context(), quick(serve(t, mux), control, conformance.Core, conformance.Cloud, conformance.Spot),
		conformance.Options{Seed: seed, Only: only})
	if err != nil {
		t.Fatal(err)
	}
	if report.Seed != seed || report.Verdict != conformance.Conformant {
		t.Errorf("%s with seed %d, want a pass with %d", report.Verdict, report.Seed, seed)
	}
	return calls
}

// PROV-29.10: the same seed sends the same calls, another one others; the report holds it.
func TestASeedReplaysTheCalls(t *testing.T) {
	t.Parallel()
	first, again, other := recorded(t, 7, "args/random", "fence/random"), recorded(t, 7, "args/random", "fence/random"), recorded(t, 8, "args/random", "fence/random")
	if len(first) < 300 || !slices.Equal(first, again) {
		t.Errorf("%d calls and then %d others with one seed", len(first), len(again))
	}
	if slices.Equal(first, other) {
		t.Error("another seed sends the same calls")
	}
}

// PROV-29.11, 29.12, 29.16: a report says when it is not a certificate: a part of the suite, or stretched ceilings.
func TestAPartIsNoCertificate(t *testing.T) {
	t.Parallel()
	_, addr, control := good(t, provider.SubstrateReadiness())
	target := quick(addr, control, conformance.Core, conformance.Cloud, conformance.Spot)
	target.Slack = 3
	report, err := conformance.Execute(t.Context(), target, conformance.Options{Only: []string{"args/empty-id"}})
	if err != nil {
		t.Fatal(err)
	}
	var text, badge, jsonText strings.Builder
	for _, err := range []error{report.WriteText(&text), report.WriteBadge(&badge), report.WriteJSON(&jsonText)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if !strings.Contains(text.String(), "only args/empty-id ran, so this is not a certificate") || !strings.Contains(text.String(), "multiplied by 3, so this is not a certificate for profile scale") {
		t.Errorf("%s", text.String())
	}
	if !strings.Contains(badge.String(), "partly tested") || !strings.Contains(jsonText.String(), `"only"`) || !strings.Contains(jsonText.String(), `"slack": 3`) {
		t.Errorf("%s\n%s", badge.String(), jsonText.String())
	}
}

// PROV-29.5: what only the provider's own time limit can end is not judged where that limit is too long to wait for; it is no
// failure of the provider, and nothing is left hanging for the behaviours that follow.
func TestLongLimitsAreNotJudged(t *testing.T) {
	t.Parallel()
	_, addr, control := good(t, provider.SubstrateReadiness(),
		provider.WithTimeouts(provider.Timeouts{Create: time.Hour, Configure: time.Hour, Delete: time.Hour, DrainExtra: time.Hour}))
	target := quick(addr, control, conformance.Core, conformance.Cloud, conformance.Spot, conformance.Fault)
	target.Limit = 0 // as GetProvider says
	report, err := conformance.Execute(t.Context(), target, conformance.Options{Only: []string{"race/slow-one", "fail/hang", "fail/late-success", "fail/drain-without-grace", "ready"}})
	if err != nil {
		t.Fatal(err)
	}
	if report.Verdict != conformance.Incomplete || len(report.Failed) > 0 {
		t.Errorf("%s, left FAILED %v", report.Verdict, report.Failed)
	}
	for _, r := range report.Results {
		if r.Outcome == conformance.Fail || r.Outcome == conformance.CannotJudge && !strings.Contains(r.Reason, "time limit is 1h") {
			t.Errorf("%s: %s, %s", r.Name, r.Outcome, r.Reason)
		}
	}
}
