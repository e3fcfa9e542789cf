package conformance

import (
	"context"
	"strings"
	"testing"
	"time"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"

	"connectrpc.com/connect"
)

// PROV-25.11: a provider that is too slow is one on an idle machine, and one that is as slow as a bare handler beside it is not; a moment of
// other work is forgiven.
func TestCeiling(t *testing.T) {
	const limit = 10 * time.Millisecond
	sample := func() []*machine { return []*machine{{Id: "m"}} }
	for name, c := range map[string]struct {
		took []time.Duration // of the provider, round by round
		bare time.Duration
		want string
	}{
		"fast":                {[]time.Duration{limit}, limit, ""},
		"slow":                {[]time.Duration{limit + 1, 3 * limit, 2 * limit}, limit / 10, "beside 1ms of a bare handler"},
		"once slow":           {[]time.Duration{5 * limit, limit}, limit / 10, ""},
		"busy machine":        {[]time.Duration{4 * limit}, 2 * limit, ""},
		"too slow there, too": {[]time.Duration{5 * limit, 5 * limit, 5 * limit}, 2 * limit, "the ceiling is 10ms, or 2 times"},
	} {
		one := &Case{Target: Target{Slack: 1}, ctx: t.Context()}
		round, asked := 0, 0
		one.ceiling("it", limit, sample, func(client bigfleetv1alpha1connect.CapacityProviderClient) time.Duration {
			if client != one.client {
				asked++
				a, err := client.Create(context.Background(), connect.NewRequest(&bigfleetv1alpha1.CreateRequest{}))
				l, failed := client.List(context.Background(), connect.NewRequest(&filter{}))
				if err != nil || failed != nil || a.Msg.GetMachine().GetId() != "m" || len(l.Msg.GetMachines()) != 1 {
					t.Errorf("%s: the bare handler answers %v, %v, %v, %v", name, a, err, l, failed)
				}
				return c.bare
			}
			round++
			return c.took[round-1]
		})
		if found := strings.Join(one.faults, "; "); (found == "") != (c.want == "") || !strings.Contains(found, c.want) {
			t.Errorf("%s: %q, want %q", name, found, c.want)
		}
		if round != len(c.took) || name == "fast" && asked > 0 {
			t.Errorf("%s: %d rounds, %d of the bare handler", name, round, asked)
		}
	}
}
