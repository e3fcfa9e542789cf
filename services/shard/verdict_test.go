package shard_test

import (
	"net"
	"strings"
	"sync"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// said is what one place says of a need.
type said struct {
	met    bool
	detail pb.NeedDetail
	text   string
}

// places asks every place that says something of the only need of a shard. CLI and console show what the reads answer, the operator's events what it
// heard, the alerts what the metrics count.
func (r *running) places(t *testing.T, o *Operator) map[string]said {
	t.Helper()
	out := map[string]said{}
	_, rows := r.needs(t, &pb.InspectNeedsRequest{})
	if len(rows) != 1 {
		return nil
	}
	row := rows[0]
	out["InspectNeeds"] = said{row.GetSatisfied(), row.GetDetail(), row.GetDetailText()}
	e, err := r.Read.Explain(t.Context(), connect.NewRequest(&pb.ExplainRequest{
		Subject: &pb.ExplainRequest_Need{Need: &pb.NeedRef{ClusterId: "red", RowId: row.GetNeed().GetRowId()}}}))
	if err != nil {
		t.Fatal(err)
	}
	x := e.Msg.GetNeed()
	out["Explain"] = said{x.GetSatisfied(), x.GetDetail(), x.GetDetailText()}
	for _, f := range o.Frames() {
		if s := f.GetNeedStatus(); s.GetRowId() == row.GetNeed().GetRowId() {
			out["the operator"] = said{s.GetSatisfied(), s.GetDetail(), s.GetText()}
		}
	}
	counted := func(unmet float64) said { return said{unmet == 0, row.GetDetail(), row.GetDetailText()} } // a count has no words
	out["GetStatus"] = counted(float64(r.status(t).GetUnsatisfiedNeeds()))
	sum := 0.0
	for _, reason := range []string{"priority_starved", "no_matching_supply", "topology_unsatisfiable", "preemption_exhausted", "held_back"} {
		sum += r.metric(t, `bigfleet_shard_needs_unmet{reason="`+reason+`"}`)
	}
	out["needs_unmet"] = counted(sum)
	out["unmet_oldest_seconds"] = counted(r.metric(t, "bigfleet_shard_unmet_oldest_seconds"))
	return out
}

// SHARD-23.8: every place that says how a need stands says the same: whether it is met, which detail, and the sentence.
func TestOneVerdictInEveryPlace(t *testing.T) {
	for _, x := range []struct {
		name   string
		edit   func(*shard.Config)
		before func(r *running, stop func())
		dead   bool // the provider does not even answer when the shard starts
		cpu    string
		met    bool
		detail pb.NeedDetail
		says   string
	}{
		{name: "met", cpu: "4", met: true, says: "Met."},
		{name: "short", cpu: "100", detail: pb.NeedDetail_NEED_DETAIL_HELD_BY_OTHERS},
		{name: "paused", cpu: "4", detail: pb.NeedDetail_NEED_DETAIL_PAUSED, says: "deploy freeze", before: func(r *running, _ func()) {
			_, err := r.Admin.PauseActuation(t.Context(), connect.NewRequest(&pb.PauseActuationRequest{Reason: "deploy freeze", TtlSeconds: 3600}))
			if err != nil {
				t.Fatal(err)
			}
		}},
		{name: "dry run", cpu: "4", detail: pb.NeedDetail_NEED_DETAIL_PAUSED, says: "dry run", edit: func(c *shard.Config) { c.DryRun = true }},
		{name: "ceiling", cpu: "12", detail: pb.NeedDetail_NEED_DETAIL_LIMIT, edit: func(c *shard.Config) { c.ClusterMachinesMax = 1 }},
		{name: "rate", cpu: "12", detail: pb.NeedDetail_NEED_DETAIL_RAIL, says: "--provision-rate", edit: func(c *shard.Config) { c.ProvisionRate = 1 }},
		{name: "provider down", cpu: "4", detail: pb.NeedDetail_NEED_DETAIL_PROVIDER_BREAKER, says: "provider test does not answer", before: func(r *running, stop func()) {
			Eventually(t, "the provider is listed", func() bool { return r.status(t).GetReady() })
			stop()
		}},
		{name: "provider never there", cpu: "4", dead: true, detail: pb.NeedDetail_NEED_DETAIL_PROVIDER_DOWN, says: "provider test has not answered"},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			p := NewProvider(slots(4)...)
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			p.Addr = ln.Addr().String()
			stop := sync.OnceFunc(p.ServeOn(t, ln, nil))
			t.Cleanup(stop)
			if x.dead {
				stop()
			}
			edit := x.edit
			if edit == nil {
				edit = func(*shard.Config) {}
			}
			r := start(t, p, edit)
			o := Connect(t, r.Addr, "red", AllFeatures...)
			if x.before != nil {
				x.before(r, stop)
			}
			o.Rollup(Need(x.cpu, 0))
			want := said{met: x.met, detail: x.detail}
			var got map[string]said
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("want %+v; %+v", want, got)
				}
			})
			Eventually(t, "all places agree on "+want.detail.String(), func() bool {
				got = r.places(t, o)
				if len(got) < 6 {
					return false
				}
				want.text = got["InspectNeeds"].text
				for _, s := range got {
					if s != want {
						return false
					}
				}
				return strings.Contains(want.text, x.says)
			})
		})
	}
}
