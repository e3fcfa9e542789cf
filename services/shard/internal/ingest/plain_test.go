package ingest

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// drawRecord draws a record of which each part is good most of the time.
func drawRecord(t *rapid.T) *pb.Machine {
	text := func(name string) string { return rapid.SampledFrom([]string{"", "x", "x"}).Draw(t, name) }
	amounts := func(name string) *pb.Resources {
		if rapid.Bool().Draw(t, "no "+name) {
			return nil
		}
		return &pb.Resources{Resources: rapid.MapOfN(rapid.SampledFrom([]string{"", "cpu", "memory"}),
			rapid.SampledFrom([]string{"1", "0", "16Gi", "1500m", "2T", "5k", "7Ei", "1e3", "1.5", "+1", "-1", "", "m", "Gi", "1 ", "1n", "12Gix", "٣", "0x1"}), 0, 2).Draw(t, name)}
	}
	m := &pb.Machine{
		Id: text("id"), State: pb.MachineState(rapid.Int32Range(-1, 10).Draw(t, "state")), InstanceType: text("type"), Zone: text("zone"),
		CapacityType:            pb.CapacityType(rapid.Int32Range(-1, 6).Draw(t, "capacity")),
		PricePerHour:            rapid.SampledFrom([]float64{0, 1, 0.25, -1, math.Inf(1), math.NaN(), math.MaxFloat64}).Draw(t, "price"),
		InterruptionProbability: rapid.SampledFrom([]float64{0, 0.5, 1, 1.01, -0.1, math.NaN(), math.Inf(1)}).Draw(t, "probability"),
		Resources:               amounts("resources"), Allocatable: amounts("allocatable"), LastError: text("error"), Cluster: text("cluster"),
	}
	if rapid.Bool().Draw(t, "host") {
		m.Host = &pb.HostRef{Provider: text("provider"), Ref: text("ref")}
	}
	return m
}

// SHARD-10.1, 10.6: a record that passes without the rules is one that the rules pass.
func TestPlainRecordsPassTheRules(t *testing.T) {
	g, err := New(Limits{RollupBytes: 1 << 20, RollupNeeds: 100})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		for range 50 {
			m := drawRecord(t)
			is := plain(m)
			seen[is]++
			if err := g.rules.Validate(m); is && err != nil {
				t.Fatalf("%v is taken for plain: %v", m, err)
			}
		}
	})
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("plain or not: %v", seen)
	}
}

// usualRecord is a record as real providers send them.
func usualRecord() *pb.Machine {
	return &pb.Machine{Id: "m", State: pb.MachineState_MACHINE_STATE_CONFIGURED, Host: &pb.HostRef{Provider: "p", Ref: "aws:///us-east-1a/i-1"}, InstanceType: "m5.large",
		Zone: "us-east-1a", CapacityType: pb.CapacityType_CAPACITY_TYPE_SPOT, PricePerHour: 0.035, InterruptionProbability: 0.02, Cluster: "blue",
		Resources: &pb.Resources{Resources: map[string]string{"cpu": "1930m", "memory": "7577732Ki", "pods": "29"}}, Labels: map[string]string{"rack": "r1", "arch": "arm64"}}
}

// Such records are plain, or nothing is gained.
func TestUsualRecordsArePlain(t *testing.T) {
	if m := usualRecord(); !plain(m) {
		t.Error("not plain")
	}
}

// SHARD-10.6: what a provider may have kept for one machine is bounded, whichever way its record is read. A long error is cut, and long metadata, which is
// not kept, does no harm.
func TestRecordsAreBounded(t *testing.T) {
	g, err := New(Limits{RollupBytes: 1 << 20, RollupNeeds: 100})
	if err != nil {
		t.Fatal(err)
	}
	long := func(n int) string { return strings.Repeat("ä", n/2) }
	for name, c := range map[string]struct {
		edit func(*pb.Machine)
		want string // why it is refused
	}{
		"a long id":     {func(m *pb.Machine) { m.Id = long(5000) }, "identity"},
		"a long type":   {func(m *pb.Machine) { m.InstanceType = long(1 << 20) }, "structural"},
		"a long host":   {func(m *pb.Machine) { m.Host.Ref = long(1 << 20) }, "structural"},
		"a long error":  {func(m *pb.Machine) { m.LastError = long(1 << 20) }, "structural"},
		"a cut error":   {func(m *pb.Machine) { m.LastError = "x" + long(10_000) }, ""},
		"long metadata": {func(m *pb.Machine) { m.ShardMetadata = map[string]string{"other": long(1 << 20)} }, ""},
		"long labels":   {func(m *pb.Machine) { m.Labels = map[string]string{"k": long(1 << 20)} }, "structural"},
		"many labels": {func(m *pb.Machine) {
			m.Labels = map[string]string{}
			for i := range 10_000 {
				m.Labels[fmt.Sprint("key", i)] = ""
			}
		}, "structural"},
		"many taints": {func(m *pb.Machine) { m.Taints = make([]*pb.Taint, 70_000) }, "structural"},
		"many resources": {func(m *pb.Machine) {
			for i := range 10_000 {
				m.Resources.Resources[fmt.Sprint("r", i)] = "1"
			}
		}, "structural"},
	} {
		m := usualRecord()
		c.edit(m)
		for i := range m.Taints {
			m.Taints[i] = &pb.Taint{}
		}
		raw, err := proto.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		read, refused, err := g.Batch().Record(raw)
		asked, answered := g.Machine(m, "")
		why := map[bool]string{}
		for is, r := range map[bool]*Refused{true: refused, false: answered} {
			if r != nil {
				why[is] = r.Reason
			}
		}
		if err != nil || why[true] != c.want || why[false] != c.want {
			t.Errorf("%s: refused %v in a List and %v alone, want %q; %v", name, refused, answered, c.want, err)
		}
		if n := len(read.Machine.ID) + len(read.Machine.LastError); n > recordTextMax+500 || !utf8.ValidString(read.Machine.LastError) || asked.Machine.LastError != read.Machine.LastError {
			t.Errorf("%s: %d bytes of id and error are kept", name, n)
		}
	}
}
