package shard

import (
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// SHARD-19.12: ceilings are read for all clusters and for one, never above what was written, and what is no number is refused.
func TestCeilingsAreRead(t *testing.T) {
	c, err := ceilings(nil, nil)
	if err != nil || c.Priority.For("red") != 1_000_000_000 || c.Penalty.For("red") != pb.PenaltyBucket_PENALTY_BUCKET_PINNED {
		t.Errorf("without flags: %+v, %v", c, err)
	}
	c, err = ceilings([]string{"5000", "red=7", "system=2147483647"}, []string{"100", "red=0", "blue=8589934592"})
	if err != nil || c.Priority.For("red") != 7 || c.Priority.For("blue") != 5000 || c.Priority.For("system") != 2147483647 {
		t.Errorf("%+v, %v", c.Priority, err)
	}
	if got := c.Penalty.For("green"); got != pb.PenaltyBucket_PENALTY_BUCKET_64 {
		t.Errorf("100 dollars are %s", got)
	}
	if c.Penalty.For("red") != pb.PenaltyBucket_PENALTY_BUCKET_ZERO || c.Penalty.For("blue") != pb.PenaltyBucket_PENALTY_BUCKET_PINNED {
		t.Errorf("%+v", c.Penalty)
	}
	for _, bad := range []string{"", "red=", "=4", "x", "red=1=2", "99999999999"} {
		if _, err := ceilings([]string{bad}, nil); err == nil {
			t.Errorf("priority %q was taken", bad)
		}
	}
	for _, bad := range []string{"-1", "NaN", "1e300", "red=-0.1"} {
		if _, err := ceilings(nil, []string{bad}); err == nil {
			t.Errorf("penalty %q was taken", bad)
		}
	}
}
