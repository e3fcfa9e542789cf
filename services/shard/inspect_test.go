package shard_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

func needRef(cluster, row string) *pb.ExplainRequest {
	return &pb.ExplainRequest{Subject: &pb.ExplainRequest_Need{Need: &pb.NeedRef{ClusterId: cluster, RowId: row}}}
}

// SHARD-23.1, ENG-19.8, OPS-4.15: Explain says of a short need why, with the funnel, who has the machines and one change
// that helps; of a machine whom it serves; and both come with their records.
func TestExplain(t *testing.T) {
	p := NewProvider(slots(3)...).Serve(t)
	s := start(t, p)
	red, blue := Connect(t, s.Addr, "red", AllFeatures...), Connect(t, s.Addr, "blue", AllFeatures...)
	red.Rollup(Need("10", 50))
	Eventually(t, "red has all machines", func() bool { return s.status(t).MachinesByState["MACHINE_STATE_CONFIGURED"] == 3 })
	blue.Rollup(Need("4", 10))
	Eventually(t, "blue is short", func() bool { return s.status(t).UnsatisfiedNeeds == 1 })

	e, err := s.Read.Explain(t.Context(), connect.NewRequest(needRef("blue", "row-4")))
	if err != nil {
		t.Fatal(err)
	}
	x := e.Msg
	if x.Need.GetSatisfied() || x.Need.GetUnmetSinceUnixNanos() == 0 || x.Verdict == "" || x.Suggestion == "" || x.Cycle == 0 || x.CycleAtUnixNanos == 0 {
		t.Errorf("explained as %v", x)
	}
	if len(x.Funnel) < 3 || x.Funnel[0].Machines != 3 || x.Funnel[len(x.Funnel)-1].Machines != 0 {
		t.Errorf("funnel %v", x.Funnel)
	}
	if len(x.Winners) != 1 || x.WinnerCount != 1 || x.Winners[0].Need.GetClusterId() != "red" || x.Winners[0].Machines != 3 || x.Winners[0].Priority != 50 || x.Winners[0].Why == "" {
		t.Errorf("winners %v", x.Winners)
	}
	e, err = s.Read.Explain(t.Context(), connect.NewRequest(needRef("red", "row-10")))
	if err != nil || !e.Msg.Need.GetSatisfied() || len(e.Msg.Records) == 0 || len(e.Msg.Candidates) != 3 || e.Msg.CandidateCount != 3 {
		t.Errorf("a met need: %v, %v", e, err)
	}
	e, err = s.Read.Explain(t.Context(), connect.NewRequest(&pb.ExplainRequest{Subject: &pb.ExplainRequest_MachineId{MachineId: "m1"}}))
	if err != nil || e.Msg.Machine.GetKeepReason() != pb.KeepReason_KEEP_REASON_CLAIMED || !strings.Contains(e.Msg.Verdict, "red") || len(e.Msg.Records) == 0 {
		t.Errorf("a machine: %v, %v", e, err)
	}
	for _, q := range []*pb.ExplainRequest{needRef("blue", "row-5"), needRef("green", "row-4"),
		{Subject: &pb.ExplainRequest_MachineId{MachineId: "m9"}}} {
		if _, err := s.Read.Explain(t.Context(), connect.NewRequest(q)); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%v: %v", q, err)
		}
	}
	if _, err := s.Read.Explain(t.Context(), connect.NewRequest(&pb.ExplainRequest{})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("no subject: %v", err)
	}
}

// SHARD-23.1, 23.5, ENG-20.2, OPS-4.16: Plan changes nothing, and says exactly what the shard then does when the same
// roll-up really comes.
func TestPlanPredictsWhatHappens(t *testing.T) {
	p := NewProvider(slots(6)...).Serve(t)
	s := start(t, p)
	red := Connect(t, s.Addr, "red", AllFeatures...)
	red.Rollup(Need("4", 5))
	Eventually(t, "red has a machine", func() bool { return s.status(t).MachinesByState["MACHINE_STATE_CONFIGURED"] == 1 })

	more := &pb.ClusterCapacityNeeds{ClusterId: "red", Needs: []*pb.CapacityNeed{Need("14", 5)}}
	q := &pb.PlanRequest{Demand: []*pb.DemandEdit{{ClusterId: "red", Edit: &pb.DemandEdit_Replace{Replace: more}}}}
	a, err := s.Read.Plan(t.Context(), connect.NewRequest(q))
	if err != nil {
		t.Fatal(err)
	}
	var predicted []string
	for _, r := range a.Msg.Actions {
		predicted = append(predicted, fmt.Sprint(r.Kind, " ", r.MachineId, " ", r.ClusterId, " ", r.Cause, " ", r.EffectiveCost))
	}
	if len(predicted) != 3 || len(a.Msg.BaselineActions) != 0 || a.Msg.CostPerHourBefore != 1 || a.Msg.CostPerHourAfter != 4 || len(a.Msg.Needs) != 1 {
		t.Errorf("planned %v", a.Msg)
	}
	if n := len(p.Calls("Create")); n != 1 {
		t.Errorf("a what-if led to %d Creates", n-1)
	}
	red.Rollup(more.Needs...)
	Eventually(t, "it has happened", func() bool { return s.status(t).MachinesByState["MACHINE_STATE_CONFIGURED"] == 4 })
	h, err := s.Read.GetMachineHistory(t.Context(), connect.NewRequest(&pb.GetMachineHistoryRequest{Subject: &pb.GetMachineHistoryRequest_ClusterId{ClusterId: "red"}}))
	if err != nil {
		t.Fatal(err)
	}
	var happened []string
	for _, r := range slices.Backward(h.Msg.Records) {
		if r.Type == pb.RecordType_RECORD_TYPE_STARTED && r.Cycle > a.Msg.BaseCycle && r.Cause != "phase1.handover" {
			happened = append(happened, fmt.Sprint(r.Kind, " ", r.MachineId, " ", r.ClusterId, " ", r.Cause, " ", r.EffectiveCost))
		}
	}
	if !slices.Equal(predicted, happened) {
		t.Errorf("predicted %v, then happened %v", predicted, happened)
	}

	settled, err := s.Read.Plan(t.Context(), connect.NewRequest(&pb.PlanRequest{Settle: true, Flags: map[string]string{"provision-rate": "1"},
		Demand: []*pb.DemandEdit{{ClusterId: "red", Edit: &pb.DemandEdit_Scale{Scale: 0.5}}, {ClusterId: "green", Edit: &pb.DemandEdit_Add{Add: Need("100", 9)}}},
		Machines: []*pb.MachineEdit{{Edit: &pb.MachineEdit_Put{Put: Slot("big", 2, "128", "1Ti")}}, {Edit: &pb.MachineEdit_Remove{Remove: "m6"}},
			{Edit: &pb.MachineEdit_Remove{Remove: "no-such"}}}}))
	if err != nil || settled.Msg.Rounds < 2 || len(settled.Msg.Warnings) != 2 {
		t.Errorf("settled %v, %v", settled, err)
	}
	bad := Need("12x", 1)
	for name, q := range map[string]*pb.PlanRequest{
		"a bad quantity": {Demand: []*pb.DemandEdit{{ClusterId: "red", Edit: &pb.DemandEdit_Add{Add: bad}}}},
		"a bad machine":  {Machines: []*pb.MachineEdit{{Edit: &pb.MachineEdit_Put{Put: &pb.Machine{Id: "x", PricePerHour: -1}}}}},
		"a bad flag":     {Flags: map[string]string{"listen": ":1"}},
		"no edit":        {Demand: []*pb.DemandEdit{{ClusterId: "red"}}},
	} {
		if _, err := s.Read.Plan(t.Context(), connect.NewRequest(q)); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// SHARD-23.1, OPS-4.18: two cycles of this process can be compared; others are not guessed.
func TestCompareCycles(t *testing.T) {
	p := NewProvider(slots(2)...).Serve(t)
	s := start(t, p)
	Eventually(t, "a cycle has run", func() bool { return s.status(t).Cycle > 0 })
	first := s.status(t).Cycle
	red := Connect(t, s.Addr, "red", AllFeatures...)
	red.Rollup(Need("12", 5))
	Eventually(t, "red has both machines and is short", func() bool {
		st := s.status(t)
		return st.MachinesByState["MACHINE_STATE_CONFIGURED"] == 2 && st.UnsatisfiedNeeds == 1
	})
	last := s.status(t).Cycle
	c, err := s.Read.CompareCycles(t.Context(), connect.NewRequest(&pb.CompareCyclesRequest{FirstCycle: first, SecondCycle: last}))
	if err != nil || len(c.Msg.Needs) != 1 || c.Msg.Needs[0].Before != nil || c.Msg.Needs[0].After.GetSatisfied() {
		t.Fatalf("%v, %v", c, err)
	}
	added := 0
	for n := first; n < last; n++ {
		c, err := s.Read.CompareCycles(t.Context(), connect.NewRequest(&pb.CompareCyclesRequest{FirstCycle: n, SecondCycle: n + 1}))
		if err != nil {
			t.Fatal(err)
		}
		added += len(c.Msg.Added)
	}
	if added < 2 {
		t.Errorf("%d actions were added between the cycles", added)
	}
	for name, q := range map[string]*pb.CompareCyclesRequest{
		"another epoch": {ShardEpoch: 5, FirstCycle: first, SecondCycle: last},
		"the future":    {FirstCycle: first, SecondCycle: last + 1_000_000},
	} {
		if _, err := s.Read.CompareCycles(t.Context(), connect.NewRequest(q)); connect.CodeOf(err) != connect.CodeNotFound {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Read.CompareCycles(t.Context(), connect.NewRequest(&pb.CompareCyclesRequest{FirstCycle: last, SecondCycle: first})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("backwards: %v", err)
	}

	// A time stands for the last cycle that had ended then, and the needs can be read as they stood.
	now := time.Now().UnixNano()
	c, err = s.Read.CompareCycles(t.Context(), connect.NewRequest(&pb.CompareCyclesRequest{FirstCycle: first, SecondAtUnixNanos: now}))
	if err != nil || c.Msg.FirstCycle != first || c.Msg.SecondCycle < last || len(c.Msg.Needs) != 1 {
		t.Errorf("by time: %v, %v", c, err)
	}
	if _, err := s.Read.CompareCycles(t.Context(), connect.NewRequest(&pb.CompareCyclesRequest{FirstAtUnixNanos: now - int64(time.Hour)})); connect.CodeOf(err) != connect.CodeNotFound || !strings.Contains(err.Error(), "the oldest cycle in memory is of") {
		t.Errorf("before the process: %v", err)
	}
	red.Rollup()
	Eventually(t, "the demand is gone", func() bool { return s.status(t).Needs == 0 && s.status(t).UnsatisfiedNeeds == 0 })
	then, err := s.Read.InspectNeeds(t.Context(), connect.NewRequest(&pb.InspectNeedsRequest{AtUnixNanos: now}))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = then.Close() }()
	if !then.Receive() || then.Msg().GetHeader().GetTotalNeeds() != 1 || then.Msg().GetHeader().GetCycle() < last || then.Msg().GetHeader().GetComputedAtUnixNanos() > now || !then.Receive() || then.Msg().GetNeed().GetSatisfied() {
		t.Errorf("the needs as they stood: %v, %v", then.Msg(), then.Err())
	}
}

// WIRE-9.1: lists page by opaque tokens to an end, a bad token is refused, and so is a page above the maximum.
func TestPaging(t *testing.T) {
	p := NewProvider(slots(25)...).Serve(t)
	s := start(t, p)
	for i := range 7 {
		Connect(t, s.Addr, fmt.Sprintf("c%d", i), AllFeatures...).Rollup(Need("1", int32(i)))
	}
	Eventually(t, "all are there", func() bool {
		st := s.status(t)
		return st.Sessions == 7 && st.MachinesByState["MACHINE_STATE_CONFIGURED"] == 7
	})
	ctx := t.Context()
	Eventually(t, "each cluster has its hint", func() bool { // a cluster's hints are looked at once in five seconds
		l, err := s.Read.ListHints(ctx, connect.NewRequest(&pb.ListHintsRequest{}))
		if err != nil || len(l.Msg.Hints) != 7 {
			return false
		}
		for _, h := range l.Msg.Hints {
			if (h.Confidence == "NONE" || h.Confidence == "LOW") != (h.Reason != "") {
				t.Errorf("a hint that promises little says why, and no other: %v", h)
			}
		}
		return true
	})
	pages := func(each func(size int32, token string) (ids []string, next string, err error), size int32) (all []string, n int) {
		for token := ""; ; n++ {
			ids, next, err := each(size, token)
			if err != nil {
				t.Fatal(err)
			}
			if len(ids) > int(size) {
				t.Errorf("a page of %d has %d", size, len(ids))
			}
			all = append(all, ids...)
			if token = next; token == "" {
				return all, n + 1
			}
		}
	}
	lists := map[string]struct {
		want int
		each func(int32, string) ([]string, string, error)
	}{
		"machines": {25, func(size int32, token string) (ids []string, next string, err error) {
			l, err := s.Read.ListMachines(ctx, connect.NewRequest(&pb.ListMachinesRequest{PageSize: size, PageToken: token}))
			if err != nil {
				return nil, "", err
			}
			for _, m := range l.Msg.Machines {
				ids = append(ids, m.Machine.Id)
			}
			return ids, l.Msg.NextPageToken, nil
		}},
		"clusters": {7, func(size int32, token string) (ids []string, next string, err error) {
			l, err := s.Read.ListClusters(ctx, connect.NewRequest(&pb.ListClustersRequest{PageSize: size, PageToken: token}))
			if err != nil {
				return nil, "", err
			}
			for _, c := range l.Msg.Clusters {
				ids = append(ids, c.ClusterId)
			}
			return ids, l.Msg.NextPageToken, nil
		}},
		"hints": {7, func(size int32, token string) (ids []string, next string, err error) {
			l, err := s.Read.ListHints(ctx, connect.NewRequest(&pb.ListHintsRequest{PageSize: size, PageToken: token}))
			if err != nil {
				return nil, "", err
			}
			for _, h := range l.Msg.Hints {
				ids = append(ids, h.ClusterId+"/"+h.ProfileFingerprint)
			}
			return ids, l.Msg.NextPageToken, nil
		}},
		"history": {-1, func(size int32, token string) (ids []string, next string, err error) {
			l, err := s.Read.GetMachineHistory(ctx, connect.NewRequest(&pb.GetMachineHistoryRequest{PageSize: size, PageToken: token,
				UntilUnixNanos: time.Now().Add(-10 * time.Millisecond).UnixNano()}))
			if err != nil {
				return nil, "", err
			}
			for _, r := range l.Msg.Records {
				ids = append(ids, fmt.Sprint(r.ShardEpoch, "/", r.Sequence))
			}
			return ids, l.Msg.NextPageToken, nil
		}},
	}
	for name, l := range lists {
		all, n := pages(l.each, 4)
		sorted := slices.Compact(slices.Sorted(slices.Values(all)))
		if len(sorted) != len(all) || l.want >= 0 && len(all) != l.want || n < 2 {
			t.Errorf("%s: %d in %d pages, %d different, want %d", name, len(all), n, len(sorted), l.want)
		}
		if _, _, err := l.each(4, "garbage"); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: a bad token: %v", name, err)
		}
		if _, _, err := l.each(5001, ""); connect.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: a page of 5001: %v", name, err)
		}
	}
}
