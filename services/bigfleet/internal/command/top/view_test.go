package top

import (
	"bytes"
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// Needs that the view leaves out are counted, and reasons are not counted from a part.
func TestNeedsLeftOut(t *testing.T) {
	short := &pb.NeedView{ClusterId: "red", Need: &pb.CapacityNeed{RowId: "r1"}, Status: pb.NeedState_NEED_STATE_SHORT, UnmetReason: pb.UnmetReason_UNMET_REASON_NO_MATCHING_SUPPLY}
	for total, want := range map[int32]string{1: "", 2: "1 more need is not shown: --rows 0 shows all", 3: "2 more needs are not shown: --rows 0 shows all"} {
		var out bytes.Buffer
		p := picture{status: &pb.GetStatusResponse{ShardId: "shard-0"}, header: &pb.InspectNeedsHeader{Cycle: 1, TotalNeeds: total, UnsatisfiedNeeds: total}, needs: []*pb.NeedView{short}}
		view{}.summary(&out, time.Now(), "", p)
		if said := strings.Contains(out.String(), "not shown"); said != (want != "") || !strings.Contains(out.String(), want) {
			t.Errorf("1 of %d needs: %q is not said once:\n%s", total, want, &out)
		}
		if counted := p.reasons() != ""; counted != (total == 1) {
			t.Errorf("1 of %d needs: the reasons are %q", total, p.reasons())
		}
	}
}
