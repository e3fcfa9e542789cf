package shard

import (
	"strings"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// SHARD-19.12: ceilings are read for all clusters and for one, exactly as they were written, and what cannot be is refused.
func TestCeilingsAreRead(t *testing.T) {
	c, err := ceilings(nil, nil)
	if err != nil || c.Priority.For("red") != 1_000_000_000 || c.Penalty.For("red") != pb.PenaltyBucket_PENALTY_BUCKET_PINNED {
		t.Errorf("without flags: %+v, %v", c, err)
	}
	c, err = ceilings([]string{"5000", "red=7", "system=2147483647"}, []string{"64", "red=0", "blue=8589934592", "pink=0.5"})
	if err != nil || c.Priority.For("red") != 7 || c.Priority.For("blue") != 5000 || c.Priority.For("system") != 2147483647 {
		t.Errorf("%+v, %v", c.Priority, err)
	}
	if got := c.Penalty.For("green"); got != pb.PenaltyBucket_PENALTY_BUCKET_64 {
		t.Errorf("64 dollars are %s", got)
	}
	if c.Penalty.For("red") != pb.PenaltyBucket_PENALTY_BUCKET_ZERO || c.Penalty.For("pink") != pb.PenaltyBucket_PENALTY_BUCKET_HALF_DOLLAR || c.Penalty.For("blue") != pb.PenaltyBucket_PENALTY_BUCKET_PINNED {
		t.Errorf("%+v", c.Penalty)
	}
	for _, bad := range []string{"", "red=", "=4", "x", "red=1=2", "99999999999"} {
		if _, err := ceilings([]string{bad}, nil); err == nil {
			t.Errorf("priority %q was taken", bad)
		}
	}
	for bad, say := range map[string]string{"-1": "2^33", "NaN": "2^33", "1e300": "2^33", "red=-0.1": "2^33", "100": "64 or 128", "0.1": "0 or 0.5", "9000000": "8388608 or 8589934592"} {
		if _, err := ceilings(nil, []string{bad}); err == nil || !strings.Contains(err.Error(), say) {
			t.Errorf("penalty %q: %v", bad, err)
		}
	}
}
