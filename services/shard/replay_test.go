package shard_test

import (
	"bytes"
	"cmp"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard"
	. "github.com/bigfleet-dev/bigfleet/services/shard/internal/shardtest"
)

// SHARD-28.2, 28.10, 33.11: what a real shard wrote down replays to the same decisions, byte for byte; of a log that was cut or
// damaged the replay says where and why it stops, and keeps everything before.
func TestRealLogReplays(t *testing.T) {
	p := NewProvider(slots(6)...).Serve(t)
	s := start(t, p)
	o := Connect(t, s.Addr, "red", AllFeatures...)
	o.Rollup(Need("10", 5))
	Eventually(t, "three machines are configured", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_CONFIGURED) == 3 })
	configured := time.Now()
	o.Rollup(Need("3", 5))
	Eventually(t, "one was given back", func() bool { return p.Count(pb.MachineState_MACHINE_STATE_IDLE) >= 1 })
	o.Close()
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	got, err := shard.Replay(t.Context(), shard.ReplayConfig{Dir: s.Dir, State: true, Records: true}, &out)
	if err != nil || got.Damage != nil || got.Records < 12 || got.Steps < 10 || got.Shard != "shard-0" || got.Lost != 0 {
		t.Fatalf("%+v, %v\n%s", got, err, &out)
	}
	for _, want := range []string{"machine m1 ", "cluster red ", "records and", `"ACTION_KIND_PROVISION"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, &out)
		}
	}
	billed := 0
	for _, m := range regexp.MustCompile(`(?m)^machine \S+ (\S+) `).FindAllStringSubmatch(out.String(), -1) {
		if m[1] != "speculative" {
			billed++
		}
	}
	half, err := shard.Replay(t.Context(), shard.ReplayConfig{Dir: s.Dir, StopAt: got.Steps / 2}, &out)
	if err != nil || !half.Stopped || half.Steps >= got.Steps {
		t.Errorf("stopped half-way: %+v, %v", half, err)
	}

	more := &pb.PlanRequest{ClusterId: "red", LiftHolds: true, Demand: []*pb.DemandEdit{{ClusterId: "red", Edit: &pb.DemandEdit_Add{Add: Need("8", 70)}}}}
	out.Reset()
	again, err := shard.Replay(t.Context(), shard.ReplayConfig{Dir: s.Dir, Plan: more, Policy: map[string]string{"JoinTimeout": "5m", "Sharing": "false"}}, &out)
	serves := func(a *pb.DecisionRecord) bool { return a.RowId == "row-8" }
	if err != nil || again.Plan == nil || !slices.ContainsFunc(again.Plan.Actions, serves) || slices.ContainsFunc(again.Plan.BaselineActions, serves) {
		t.Errorf("planned again with more demand: %+v, %v", again.Plan, err)
	}
	// OPS-4.19: what the machines cost over the log; at its end it is what the core knows.
	for _, points := range []int{1, 3, 500} {
		bill, err := shard.Replay(t.Context(), shard.ReplayConfig{Dir: s.Dir, Cost: &shard.ReplayCost{GroupBy: []string{"cluster"}, Points: points}}, io.Discard)
		if err != nil || len(bill.Costs) == 0 || len(bill.Costs) > 2*max(points, 2) {
			t.Fatalf("%d points asked for, %d found: %v", points, len(bill.Costs), err)
		}
		if !slices.IsSortedFunc(bill.Costs, func(a, b *pb.CostPoint) int { return cmp.Compare(a.AtUnixNanos, b.AtUnixNanos) }) {
			t.Errorf("points are not in the order of time: %v", bill.Costs)
		}
		machines := int32(0)
		for _, row := range bill.Costs[len(bill.Costs)-1].Rows {
			machines += row.Machines
		}
		if int(machines) != billed {
			t.Errorf("%d machines cost something at the end, want %d", machines, billed)
		}
	}
	// OPS-4.19: what was spent between two times; two parts add up to the whole.
	spent := func(from, to int64) (float64, []*pb.CostPoint) {
		bill, err := shard.Replay(t.Context(), shard.ReplayConfig{Dir: s.Dir, Cost: &shard.ReplayCost{GroupBy: []string{"cluster"}, Points: 4, From: from, To: to}}, io.Discard)
		if err != nil {
			t.Fatal(err)
		}
		return bill.Spent, bill.Costs
	}
	all, points := spent(0, 0)
	middle := (configured.UnixNano() + points[len(points)-1].AtUnixNanos) / 2
	before, early := spent(0, middle)
	after, late := spent(middle, 0)
	if all <= 0 || before <= 0 || after <= 0 || math.Abs(before+after-all) > all/1e6 {
		t.Errorf("%g until the middle and %g from there on; the whole is %g", before, after, all)
	}
	if early[len(early)-1].AtUnixNanos != middle || late[0].AtUnixNanos != middle {
		t.Errorf("the first part ends at %d and the second begins at %d, want %d", early[len(early)-1].AtUnixNanos, late[0].AtUnixNanos, middle)
	}
	if _, soon := spent(configured.UnixNano(), 0); soon[0].AtUnixNanos != configured.UnixNano() { // less than a second after the log's beginning
		t.Errorf("the first point is at %d, want %d", soon[0].AtUnixNanos, configured.UnixNano())
	}
	if none, points := spent(points[len(points)-1].AtUnixNanos+1, 0); none != 0 || len(points) != 0 {
		t.Errorf("after the end of the log %g was spent, %v", none, points)
	}
	for name, value := range map[string]string{"Nonsense": "1", "JoinTimeout": "5", "ParkAfter": "soon", "Sharing": "maybe"} {
		if _, err := shard.Replay(t.Context(), shard.ReplayConfig{Dir: s.Dir, Policy: map[string]string{name: value}}, &out); err == nil {
			t.Errorf("a policy with %s=%s is taken", name, value)
		}
	}

	files, err := filepath.Glob(filepath.Join(s.Dir, "decisions", "*.log"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	whole, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{len(whole) / 2, len(whole) - 3} {
		spoilt := bytes.Clone(whole)
		spoilt[n] ^= 1
		if err := os.WriteFile(files[0], spoilt, 0o600); err != nil {
			t.Fatal(err)
		}
		out.Reset()
		bad, err := shard.Replay(t.Context(), shard.ReplayConfig{Dir: s.Dir}, &out)
		if err != nil || bad.Damage == nil || bad.Damage.Offset > int64(n) || bad.Damage.Why == "" || bad.Damage.File != files[0] {
			t.Errorf("a byte at %d was changed: %+v, %v", n, bad, err)
		}
		if bad.Steps > 0 && !strings.Contains(out.String(), "everything before it was replayed") {
			t.Errorf("the output does not say what stands:\n%s", &out)
		}
	}
	if _, err := shard.Replay(t.Context(), shard.ReplayConfig{Dir: t.TempDir()}, &out); err == nil {
		t.Error("an empty directory replays")
	}
}
