package convert_test

import (
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/engine"
)

// ENG-19.4: each detail and reason that a plan gives has its number and name in the wire's enum.
func TestDetailsAreThoseOfTheWire(t *testing.T) {
	for d := engine.Detail(1); int(d) < engine.Details; d++ {
		if want := "NEED_DETAIL_" + d.String(); d.Planned() && pb.NeedDetail_name[int32(d)] != want {
			t.Errorf("detail %d is %q on the wire, want %s", d, pb.NeedDetail_name[int32(d)], want)
		}
	}
	for r := engine.PriorityStarved; r <= engine.PreemptionExhausted; r++ {
		if want := "UNMET_REASON_" + r.String(); pb.UnmetReason_name[int32(r)] != want {
			t.Errorf("reason %d is %q on the wire, want %s", r, pb.UnmetReason_name[int32(r)], want)
		}
	}
}
