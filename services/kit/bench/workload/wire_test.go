package workload_test

import (
	"fmt"
	"testing"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/kit/bench/workload"
)

// W-small stays small enough for brute force and covers every form and state.
func TestSmallShape(t *testing.T) {
	forms, states, worlds := map[workload.Form]bool{}, map[uint8]bool{}, map[string]bool{}
	for i := range 1_000 {
		w := workload.Small(i, 1)
		if n := w.Fleet.Len(); n < 1 || n > workload.SmallMachinesMax {
			t.Fatalf("%d machines", n)
		}
		if n := w.Demand.Rows(); n < 1 || n > workload.SmallNeedsMax {
			t.Fatalf("%d needs", n)
		}
		for _, f := range w.Demand.Form {
			forms[f] = true
		}
		for _, s := range w.Fleet.State {
			states[s] = true
		}
		worlds[w.Sum()] = true
	}
	if len(forms) != 4 || len(states) != 7 || len(worlds) != 1_000 {
		t.Errorf("%d forms, %d states, %d different worlds", len(forms), len(states), len(worlds))
	}
}

// W-requests: profiles, shapes, gangs; members of a gang are alike.
func TestRequestsShape(t *testing.T) {
	q := workload.NewRequests(25_000, 1)
	if len(q.Profiles) != 8 || len(q.Shapes) != 12 || len(q.Profile) != 25_000 {
		t.Fatalf("%d profiles, %d shapes, %d requests", len(q.Profiles), len(q.Shapes), len(q.Profile))
	}
	if total := q.Total(); total.CPU < 25_000*100 || total.Memory <= 0 {
		t.Errorf("%+v", total)
	}
	g := workload.NewGangRequests(25_000, 1)
	size, profile := map[int32]int{}, map[int32]uint16{}
	for i, gang := range g.Gang {
		if gang < 0 {
			continue
		}
		if p, seen := profile[gang]; seen && p != g.Profile[i] {
			t.Fatalf("gang %d has two profiles", gang)
		}
		profile[gang] = g.Profile[i]
		size[gang]++
	}
	if len(g.Profiles) != 400 || len(size) != 200 || size[0] != 32 {
		t.Errorf("%d profiles, %d gangs of %d", len(g.Profiles), len(size), size[0])
	}
	texts := map[string]bool{}
	for _, p := range g.Profiles {
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(p)
		if err != nil {
			t.Fatal(err)
		}
		texts[string(data)] = true
	}
	if len(texts) != 400 {
		t.Errorf("only %d of 400 profiles differ", len(texts))
	}
}

// W-sessions: about 2 KB each, phases over the whole period.
func TestSessionsShape(t *testing.T) {
	s := workload.NewSessions(1_000, 1)
	early := 0
	for i := range int32(1_000) {
		if size := proto.Size(s.Rollup(i)); size < 1_800 || size > 2_048 {
			t.Fatalf("roll-up of %d bytes", size)
		}
		if s.Phase[i] < 0 || s.Phase[i] >= workload.Period {
			t.Fatalf("phase %s", s.Phase[i])
		}
		if s.Phase[i] < workload.Period/2 {
			early++
		}
	}
	if early < 400 || early > 600 {
		t.Errorf("%d of 1000 send in the first half of the period", early)
	}
}

// What is generated is what conforming peers send: it passes the generated rules of the wire.
func TestMessagesAreValid(t *testing.T) {
	check := func(m proto.Message) {
		t.Helper()
		if err := protovalidate.Validate(m); err != nil {
			t.Fatalf("%v\n%v", err, m)
		}
	}
	worlds := []*workload.World{steady(1_000, 100, 20, 1), workload.One(100, 1), workload.Gangs(1, 1), workload.NewSessions(10, 1).World}
	for i := range 100 {
		worlds = append(worlds, workload.Small(i, 1))
	}
	for _, w := range worlds {
		w.Attribution = func(row int32) map[string]string { return map[string]string{"row": fmt.Sprint(row)} }
		for i := range min(w.Fleet.Len(), 2_000) {
			m := w.Machine(i)
			check(m)
			if len(m.GetLabels()) != 4 || len(m.GetAllocatable().GetResources()) < 3 || (m.GetShardMetadata() == nil) != (w.Fleet.Need[i] < 0) {
				t.Fatalf("%v", m)
			}
		}
		for c := range int32(w.Demand.Clusters()) {
			check(w.Rollup(c))
		}
	}
	for _, p := range workload.NewGangRequests(100, 1).Profiles {
		check(p)
	}
}

// W-pages: every machine once, only the last page complete; PageBytes are the same pages.
func TestPages(t *testing.T) {
	w := steady(2_500, 100, 20, 1)
	pages, data := w.Pages(1_000), w.PageBytes(1_000)
	if len(pages) != 3 || len(data) != 3 {
		t.Fatalf("%d pages, %d encoded", len(pages), len(data))
	}
	seen := map[string]bool{}
	for n, page := range pages {
		for _, m := range page.GetMachines() {
			seen[m.GetId()] = true
		}
		if last := n == 2; page.GetComplete() != last || page.GetMore() == last {
			t.Errorf("page %d: complete %v, more %v", n, page.GetComplete(), page.GetMore())
		}
		var decoded pb.MachineList
		if err := proto.Unmarshal(data[n], &decoded); err != nil || !proto.Equal(&decoded, page) {
			t.Errorf("page %d differs from its bytes: %v", n, err)
		}
	}
	if len(seen) != 2_500 {
		t.Errorf("%d machines", len(seen))
	}
}
