package ingest

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"google.golang.org/protobuf/proto"
)

// SHARD-10.9: rows that each name a resource of their own are bounded by what a plan would hold for them, not by their bytes
// alone: 50,000 such rows, 1.5 MB on the wire, asked for 80 GB. A thousand Pods with distinct extended resources are harmless.
func TestDistinctResourcesAreBounded(t *testing.T) {
	g, err := New(Limits{RollupBytes: 16 << 20, RollupNeeds: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		rows, names int
		ok          bool
	}{{1_000, 1_000, true}, {1_953, 1_024, true}, {1_954, 1_024, false}, {1_025, 1_025, false}, {50_000, 40, true}, {50_000, 41, false}, {50_000, 50_000, false}} {
		m := &pb.ClusterCapacityNeeds{ClusterId: "red"}
		for i := range x.rows {
			q := map[string]string{fmt.Sprintf("example.com/r%d", i%x.names): "1"}
			m.Needs = append(m.Needs, &pb.CapacityNeed{AggregateResources: q, MinUnit: q, RowId: fmt.Sprint("row", i), Group: fmt.Sprint(i)})
		}
		e := g.Rollup(m, "red", proto.Size(m), time.Unix(0, 0))
		if (e.Reject == nil) != x.ok || e.Reject != nil && (e.Reject.Reason != "too_large" || e.Rows != nil) {
			t.Errorf("%d rows with %d names: %+v", x.rows, x.names, e.Reject)
		}
	}
}

// SHARD-10.9: rows that each name a label key or a topology key of their own are bounded: machines are classed by the keys, and each
// topology key has an index of all machines.
func TestDistinctKeysAreBounded(t *testing.T) {
	g, err := New(Limits{RollupBytes: 64 << 20, RollupNeeds: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		op         pb.NodeSelectorRequirement_Operator
		rows, keys int
		ok         bool
	}{
		{pb.NodeSelectorRequirement_OPERATOR_EXISTS, 50_000, 1_024, true},
		{pb.NodeSelectorRequirement_OPERATOR_EXISTS, 50_000, 1_025, false},
		{pb.NodeSelectorRequirement_OPERATOR_SAME, 50_000, 64, true},
		{pb.NodeSelectorRequirement_OPERATOR_SAME, 50_000, 65, false},
		{pb.NodeSelectorRequirement_OPERATOR_SAME, 50_000, 50_000, false},
	} {
		m := &pb.ClusterCapacityNeeds{ClusterId: "red"}
		for i := range x.rows {
			q := map[string]string{"cpu": "1"}
			m.Needs = append(m.Needs, &pb.CapacityNeed{AggregateResources: q, MinUnit: q, RowId: fmt.Sprint("row", i), Group: fmt.Sprint(i),
				Requirements: []*pb.NodeSelectorRequirement{{Key: fmt.Sprint("example.com/k", i%x.keys), Operator: x.op}}})
		}
		e := g.Rollup(m, "red", proto.Size(m), time.Unix(0, 0))
		if (e.Reject == nil) != x.ok || e.Reject != nil && e.Reject.Reason != "too_large" {
			t.Errorf("%d rows with %d keys, %v: %+v", x.rows, x.keys, x.op, e.Reject)
		}
	}
}

// SHARD-10.9: rows that each name a value of their own are bounded where the values of a key are many, and so are the values of one key.
func TestValuesTimesProfilesAreBounded(t *testing.T) {
	g, err := New(Limits{RollupBytes: 64 << 20, RollupNeeds: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		rows, keys, values int // values: different ones of each key, in rows that each name as many as it takes
		ok                 bool
	}{
		{5_000, 1, 5_000, true},
		{5_001, 1, 5_001, false},
		{50_000, 1, 1_024, true},
		{50_000, 1, 1_025, false},
		{50_000, 900, 900, true},
		{381, 1, 65_536, true},
		{382, 1, 65_536, false},
		{50, 1, 65_537, false},
	} {
		m := &pb.ClusterCapacityNeeds{ClusterId: "red"}
		q := map[string]string{"cpu": "1"}
		for i := range x.rows {
			r := &pb.NodeSelectorRequirement{Key: fmt.Sprint("example.com/k", i%x.keys), Operator: pb.NodeSelectorRequirement_OPERATOR_NOT_IN}
			for v := i; v < max(x.values, i+1); v += x.rows {
				r.Values = append(r.Values, fmt.Sprint("v", v%x.values))
			}
			m.Needs = append(m.Needs, &pb.CapacityNeed{AggregateResources: q, MinUnit: q, RowId: fmt.Sprint("row", i), Group: fmt.Sprint(i),
				Requirements: []*pb.NodeSelectorRequirement{r, {Key: "example.com/own", Operator: pb.NodeSelectorRequirement_OPERATOR_EXISTS}},
				Tolerations:  []*pb.Toleration{{Key: fmt.Sprint("t", i), Operator: "Exists"}}, TolerationsStated: true})
		}
		e := g.Rollup(m, "red", proto.Size(m), time.Unix(0, 0))
		if (e.Reject == nil) != x.ok || e.Reject != nil && e.Reject.Reason != "too_large" {
			t.Errorf("%d rows, %d keys of %d values: %+v", x.rows, x.keys, x.values, e.Reject)
		}
	}
}

// SHARD-10.12: how wide a roll-up is comes with it. Rows that differ in size or priority alone count once.
func TestTheWidthOfARollup(t *testing.T) {
	g, err := New(Limits{RollupBytes: 16 << 20, RollupNeeds: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	m := &pb.ClusterCapacityNeeds{ClusterId: "red"}
	row := func(cpu, unit string, priority int32, op pb.NodeSelectorRequirement_Operator, values ...string) {
		m.Needs = append(m.Needs, &pb.CapacityNeed{AggregateResources: map[string]string{"cpu": cpu}, MinUnit: map[string]string{"cpu": unit}, Priority: priority, RowId: fmt.Sprint(len(m.Needs)),
			Group: fmt.Sprint(len(m.Needs)), Requirements: []*pb.NodeSelectorRequirement{{Key: "rack", Operator: op, Values: values}}})
	}
	row("4", "1", 0, pb.NodeSelectorRequirement_OPERATOR_IN, "a", "b")
	row("8", "2", 7, pb.NodeSelectorRequirement_OPERATOR_IN, "a", "b")
	row("8", "2", 7, pb.NodeSelectorRequirement_OPERATOR_NOT_IN, "b", "c")
	e := g.Rollup(m, "red", proto.Size(m), time.Unix(0, 0))
	want := core.Width{Requirements: 2, Values: 3}
	if e.Reject != nil || !reflect.DeepEqual(e.Width, want) {
		t.Errorf("%+v, want %+v; %+v", e.Width, want, e.Reject)
	}
}

// docs/security.md says what the code does.
func TestLimitsAreThoseOfThePage(t *testing.T) {
	text, err := os.ReadFile("../../../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for row, want := range map[string]bool{
		"| 50,000 rows, 1,024 names, 2,000,000 together |":                                     resourceNamesMax == 1024 && rowNamesMax == 2_000_000,
		"| topology keys of a roll-up × machines | 64 keys,":                                   topologyKeysMax == 64,
		"| label keys of a roll-up × machines | 1,024 keys,":                                   labelKeysMax == 1024,
		"| 65,536 values of a key; 25,000,000 together, of keys with more than 1,024 values |": keyValuesMax == 65_536 && profileValuesMax == 25_000_000 && inventory.WideMin == 1024,
		"1,024 × 63 × 16 × 50,000 × 512 | the shard's chart limit of 8 GiB":                    outOfServiceMax == 50_000 && nodeRoomsMax == 512,
	} {
		if !strings.Contains(string(text), row) {
			t.Errorf("the page does not say %q", row)
		} else if !want {
			t.Errorf("the page says %q, and the code another figure", row)
		}
	}
}

// SHARD-8.9: a large roll-up gives way again and again while it is turned into core form, and a small one does not.
func TestLargeRollupsGiveWay(t *testing.T) {
	g, err := New(Limits{RollupBytes: 16 << 20, RollupNeeds: 50_000})
	if err != nil {
		t.Fatal(err)
	}
	ways := 0
	g.GiveWay = func() { ways++ }
	for _, x := range []struct{ rows, times int }{{63, 0}, {640, 20}} {
		m := &pb.ClusterCapacityNeeds{ClusterId: "red"}
		for i := range x.rows {
			q := map[string]string{"cpu": "1"}
			m.Needs = append(m.Needs, &pb.CapacityNeed{AggregateResources: q, MinUnit: q, RowId: fmt.Sprint("row", i), Group: fmt.Sprint(i)})
		}
		ways = 0
		if e := g.Rollup(m, "red", proto.Size(m), time.Unix(0, 0)); e.Reject != nil || ways != x.times {
			t.Errorf("%d rows give way %d times: %+v", x.rows, ways, e.Reject)
		}
	}
}
