package shard_test

import (
	"fmt"
	"slices"
	"testing"

	"connectrpc.com/connect"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// WIRE-9.1: a list of machines can be entered anywhere, by how many to leave out or from a token, and says how many match; what enters it in
// pieces sees each machine once. A part of a name finds machines.
func TestMachinesFromAnyPlace(t *testing.T) {
	p := NewProvider(slots(23)...).Serve(t)
	s := start(t, p)
	Connect(t, s.Addr, "red", AllFeatures...).Rollup(Need("20", 0))
	Eventually(t, "machines are bought", func() bool { return s.status(t).MachinesByState["MACHINE_STATE_CONFIGURED"] == 5 })
	list := func(q *pb.ListMachinesRequest) (ids []string, got *pb.ListMachinesResponse) {
		t.Helper()
		l, err := s.Read.ListMachines(t.Context(), connect.NewRequest(q))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range l.Msg.Machines {
			ids = append(ids, m.Machine.Id)
		}
		return ids, l.Msg
	}
	for _, q := range []*pb.ListMachinesRequest{{}, {OwnedOnly: true}, {ClusterId: "red"}, {States: []pb.MachineState{pb.MachineState_MACHINE_STATE_SPECULATIVE}}, {InstanceType: "none"},
		{Flags: []pb.MachineFlag{pb.MachineFlag_MACHINE_FLAG_FOREIGN}}} {
		all, _ := list(q)
		for skip := range 25 {
			q := &pb.ListMachinesRequest{OwnedOnly: q.OwnedOnly, ClusterId: q.ClusterId, States: q.States, InstanceType: q.InstanceType, Flags: q.Flags, Skip: int32(skip), PageSize: 4, Count: true}
			ids, got := list(q)
			if want := all[min(skip, len(all)):min(skip+4, len(all))]; !slices.Equal(ids, want) || got.Total != int64(len(all)) || (got.NextPageToken != "") != (skip+4 < len(all)) {
				t.Errorf("%v: %v of %d, token %q; want %v of %d", q, ids, got.Total, got.NextPageToken, want, len(all))
			}
			if q.PageToken, q.Skip = got.NextPageToken, 2; q.PageToken == "" {
				continue
			}
			ids, got = list(q)
			if want := all[min(skip+6, len(all)):min(skip+10, len(all))]; !slices.Equal(ids, want) || got.Total != int64(len(all)) {
				t.Errorf("from a token, %v: %v of %d, want %v of %d", q, ids, got.Total, want, len(all))
			}
		}
	}
	if ids, _ := list(&pb.ListMachinesRequest{NamePart: "M1"}); len(ids) != 11 || ids[0] != "m1" {
		t.Errorf("names that hold M1: %v", ids)
	}
}

// WIRE-9.4: a reader that asks for what changed since an answer gets the needs of clusters that changed, each whole, and knows from the number of
// all needs when a cluster went; a revision that the process does not know brings everything.
func TestNeedsThatChanged(t *testing.T) {
	s := start(t, NewProvider(slots(10)...).Serve(t))
	red, blue := Connect(t, s.Addr, "red", AllFeatures...), Connect(t, s.Addr, "blue", AllFeatures...)
	red.Rollup(Need("2", 0), Need("3", 7))
	blue.Rollup(Need("1", 0))
	Eventually(t, "both are met", func() bool { st := s.status(t); return st.Needs == 3 && st.UnsatisfiedNeeds == 0 })
	h, rows := s.needs(t, &pb.InspectNeedsRequest{})
	if len(rows) != 3 || h.ChangesOnly || h.Revision == "" {
		t.Fatalf("%v with %d rows", h, len(rows))
	}
	for _, since := range []string{"x", "1.1", fmt.Sprint(h.Revision, "x.")} {
		if h, rows := s.needs(t, &pb.InspectNeedsRequest{ChangedSince: since}); h.ChangesOnly || len(rows) != 3 {
			t.Errorf("since %q: %v with %d rows, want all", since, h, len(rows))
		}
	}
	blue.Rollup(Need("4", 0))
	Eventually(t, "blue's change is seen and met", func() bool {
		now, rows := s.needs(t, &pb.InspectNeedsRequest{ChangedSince: h.Revision})
		for _, r := range rows {
			if r.ClusterId == "blue" && r.Satisfied && r.Need.RowId == "row-4" {
				return now.ChangesOnly && now.TotalNeeds == 3
			}
		}
		return false
	})
	Eventually(t, "what is known does not come again", func() bool { // a view of the very moment of a change brings it twice
		next, _ := s.needs(t, &pb.InspectNeedsRequest{ChangedSince: h.Revision})
		after, rows := s.needs(t, &pb.InspectNeedsRequest{ChangedSince: next.Revision})
		red := slices.ContainsFunc(rows, func(r *pb.NeedView) bool { return r.ClusterId == "red" })
		return after.ChangesOnly && after.TotalNeeds == 3 && !red
	})
}

// SHARD-23.1: the costs by several keys, each by itself, are those of each key alone.
func TestCostsByEachKey(t *testing.T) {
	s := start(t, NewProvider(slots(6)...).Serve(t))
	Connect(t, s.Addr, "red", AllFeatures...).Rollup(Need("16", 0))
	Eventually(t, "machines are in use", func() bool { return s.status(t).MachinesByState["MACHINE_STATE_CONFIGURED"] == 4 })
	keys := []string{"cluster", "priority", "provider", "type", "capacity", "zone", "penalty"}
	all, err := s.Read.GetCost(t.Context(), connect.NewRequest(&pb.GetCostRequest{GroupBy: keys, Separate: true}))
	if err != nil || len(all.Msg.Points) != len(keys) {
		t.Fatal(all, err)
	}
	for i, k := range keys {
		one, err := s.Read.GetCost(t.Context(), connect.NewRequest(&pb.GetCostRequest{GroupBy: []string{k}}))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(all.Msg.Points[i].Rows), fmt.Sprint(one.Msg.Points[0].Rows); got != want {
			t.Errorf("%s: %s, alone %s", k, got, want)
		}
		if one.Msg.Points[0].Rows[0].Machines != 4 {
			t.Errorf("%s: %v", k, one.Msg)
		}
	}
	if _, err := s.Read.GetCost(t.Context(), connect.NewRequest(&pb.GetCostRequest{GroupBy: keys})); connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("seven keys combined: %v", err)
	}
}
