package explain

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// OPS-4.15: what a shard left out of its answer is counted, and an answer that is whole says nothing.
func TestCutListsSaySo(t *testing.T) {
	answer := func(shown int, all int32) *pb.ExplainResponse {
		r := &pb.ExplainResponse{Verdict: "Short.", Need: &pb.NeedView{}, Cycle: 1, WinnerCount: all, DomainCount: all, CandidateCount: all}
		for i := range shown {
			r.Winners = append(r.Winners, &pb.Holder{Need: &pb.NeedRef{ClusterId: "red", RowId: fmt.Sprint("r", i)}, Machines: 1})
			r.Domains = append(r.Domains, &pb.DomainCoverage{Domain: fmt.Sprint("rack-", i)})
			r.Candidates = append(r.Candidates, &pb.Candidate{MachineId: fmt.Sprint("m-", i)})
		}
		return r
	}
	for _, c := range []struct {
		shown int
		all   int32
		cuts  []string
	}{
		{5, 5, nil},
		{5, 0, nil}, // an earlier shard
		{5, 6, []string{"1 more need is not shown.", "1 more domain is not shown.", "1 more candidate is not shown."}},
		{5, 12, []string{"7 more needs are not shown.", "7 more domains are not shown.", "7 more candidates are not shown."}},
	} {
		var out bytes.Buffer
		say(app.New(env.System()), &out, subject.Subject{Kind: subject.Need, Scope: "red", Name: "web"}, answer(c.shown, c.all), true)
		var got []string
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimSpace(line); strings.HasSuffix(line, "not shown.") {
				got = append(got, line)
			}
		}
		if !slices.Equal(got, c.cuts) {
			t.Errorf("%d of %d each: the command says %q, want %q:\n%s", c.shown, c.all, got, c.cuts, &out)
		}
	}
}

// SHARD-10.12: a cluster of which no demand is in force is not called met.
func TestDemandThatIsSetAsideIsNotMet(t *testing.T) {
	var out bytes.Buffer
	a := app.New(env.System())
	a.Out = &out
	sayCluster(a, "shard-0", &pb.ClusterView{ClusterId: "red", Connected: true, LastDisposition: pb.RollupDisposition_ROLLUP_DISPOSITION_REJECTED, LastRollupReason: "too_wide"}, &pb.GetStatusResponse{})
	if said := out.String(); !strings.HasPrefix(said, "The demand of cluster red is set aside by shard-0") || strings.Contains(said, "is met") {
		t.Errorf("the command says %q", said)
	}
}
