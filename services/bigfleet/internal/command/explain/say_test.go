package explain

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/app"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/env"
	"github.com/bigfleet-dev/bigfleet/services/bigfleet/internal/subject"
)

// OPS-4.15: where a shard's answer may be cut, the command says so, and only there.
func TestCutListsSaySo(t *testing.T) {
	answer := func(n int) *pb.ExplainResponse {
		r := &pb.ExplainResponse{Verdict: "Short.", Need: &pb.NeedView{}, Cycle: 1}
		for i := range n {
			r.Winners = append(r.Winners, &pb.Holder{Need: &pb.NeedRef{ClusterId: "red", RowId: fmt.Sprint("r", i)}, Machines: 1})
			r.Domains = append(r.Domains, &pb.DomainCoverage{Domain: fmt.Sprint("rack-", i)})
			r.Candidates = append(r.Candidates, &pb.Candidate{MachineId: fmt.Sprint("m-", i)})
		}
		return r
	}
	for _, c := range []struct {
		n    int
		cuts []string
	}{
		{4, nil},
		{5, []string{"At most 5 needs are shown."}},
		{9, []string{"At most 5 needs are shown."}},
		{10, []string{"At most 5 needs are shown.", "At most 10 domains are shown.", "At most 10 candidates are shown."}},
	} {
		var out bytes.Buffer
		say(app.New(env.System()), &out, subject.Subject{Kind: subject.Need, Scope: "red", Name: "web"}, answer(c.n), true)
		var got []string
		for line := range strings.Lines(out.String()) {
			if line = strings.TrimSpace(line); strings.HasPrefix(line, "At most") {
				got = append(got, line)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(c.cuts) {
			t.Errorf("of %d each the command says %q, want %q:\n%s", c.n, got, c.cuts, &out)
		}
	}
}
