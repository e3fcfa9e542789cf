package guards

import (
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// user-asks 16: no guard names a time that has passed, and a pause without an end says so.
func TestGuardsNameNoPastTime(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	lifted := map[string]string{}
	for _, g := range guardsOf(&state{status: &pb.GetStatusResponse{
		Pauses: []*pb.Pause{{PauseId: "p-1", Reason: "trial", Actor: "eve"}},
		Providers: []*pb.ProviderStatus{{Name: "demo", Breaker: "closed", StockedOutPools: []*pb.PoolStatus{
			{Pool: "past", Failures: 2, RetryAtUnixNanos: now.Add(-time.Hour).UnixNano()}, {Pool: "coming", Failures: 1, RetryAtUnixNanos: now.Add(time.Minute).UnixNano()},
		}}},
	}}, now) {
		lifted[g.Scope+" "+g.State] = g.LiftedBy
	}
	for of, want := range map[string]string{
		"past refused 2 times":                     "the next need that requires it",
		"coming refused 1 time":                    "a retry at 2026-01-02T15:01:00Z, or bigfleet backoff clear --pool coming",
		"shard trial, by eve, until it is resumed": "bigfleet resume p-1",
	} {
		if lifted[of] != want {
			t.Errorf("%s: %q, want %q; all: %v", of, lifted[of], want, lifted)
		}
	}
	for _, said := range lifted {
		if strings.Contains(said, "14:00:00") {
			t.Errorf("a past time: %s", said)
		}
	}
}
