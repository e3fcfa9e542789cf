package server

import (
	"strings"
	"testing"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"
)

// PROV-6: a refused token says what refused it. Only a higher epoch shows that another process has taken over.
func TestWhyATokenIsStale(t *testing.T) {
	mark := lifecycle.Token{Epoch: 7, Sequence: 9}
	for _, c := range []struct {
		offered lifecycle.Token
		want    string
	}{
		{lifecycle.Token{Epoch: 6, Sequence: 99}, "another process of this shard has taken over"},
		{lifecycle.Token{Epoch: 7, Sequence: 9}, "also a repeated one, needs a higher sequence"},
		{lifecycle.Token{Epoch: 7, Sequence: 8}, "a call with a later token of the same epoch came first"},
	} {
		err := Refusal(lifecycle.Decision{Reason: lifecycle.Stale}, lifecycle.Request{Token: c.offered, ShardID: "s", MachineID: "m"}, nil, &mark, lifecycle.Rules{})
		if !strings.Contains(err.Error(), c.want) || c.offered.Epoch == mark.Epoch && strings.Contains(err.Error(), "taken over") {
			t.Errorf("%v against %v: %v, want %q", c.offered, mark, err, c.want)
		}
	}
}
