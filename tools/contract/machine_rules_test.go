package contract_test

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

func idle(id string) *v1.Machine {
	return &v1.Machine{
		Id: id, State: v1.MachineState_MACHINE_STATE_IDLE, Host: &v1.HostRef{Provider: "sim", Ref: "sim://eu-1a/h-17"},
		InstanceType: "m6i.large", Zone: "eu-1a", CapacityType: v1.CapacityType_CAPACITY_TYPE_ON_DEMAND, PricePerHour: 0.1,
		Labels:      map[string]string{"kubernetes.io/arch": "amd64", "topology.kubernetes.io/region": "eu-1"},
		Allocatable: &v1.Resources{Resources: map[string]string{"cpu": "1930m", "memory": "7Gi", "pods": "29"}},
	}
}

// WIRE scenario 6, 7.2: every state × host {absent, empty, set} × cluster {empty, set} × last_error {empty, set}.
func TestMachineStateRules(t *testing.T) {
	v := validator(t)
	hosts := map[string]*v1.HostRef{"absent": nil, "empty": {}, "set": {Provider: "sim", Ref: "h"}, "provider only": {Provider: "sim"}, "ref only": {Ref: "h"}}
	for state := range v1.MachineState_name {
		for hostName, host := range hosts {
			for _, cluster := range []string{"", "red"} {
				for _, lastError := range []string{"", "no capacity"} {
					hasHost := hostName != "absent" && hostName != "empty"
					var legal bool
					switch v1.MachineState(state) {
					case v1.MachineState_MACHINE_STATE_SPECULATIVE, v1.MachineState_MACHINE_STATE_CREATING:
						legal = !hasHost && cluster == ""
					case v1.MachineState_MACHINE_STATE_IDLE, v1.MachineState_MACHINE_STATE_CONFIGURING, v1.MachineState_MACHINE_STATE_DELETING:
						legal = hasHost // a cluster on IDLE or DELETING is read as empty
					case v1.MachineState_MACHINE_STATE_CONFIGURED, v1.MachineState_MACHINE_STATE_DRAINING:
						legal = hasHost && cluster != ""
					case v1.MachineState_MACHINE_STATE_FAILED:
						legal = lastError != ""
					}
					m := &v1.Machine{Id: "m", State: v1.MachineState(state), Host: host, Cluster: cluster, LastError: lastError}
					if found, _ := violations(t, v, m); (found == nil) != legal {
						t.Errorf("%v, host %s, cluster %q, last_error %q: %q, want legal=%v", m.State, hostName, cluster, lastError, found, legal)
					}
				}
			}
		}
	}
}

// WIRE-3.10: the paths and rules behind the reasons price, interruption_probability, identity, quantity and structural.
func TestMachineFieldRules(t *testing.T) {
	v := validator(t)
	inf, nan := math.Inf(1), math.NaN()
	for _, c := range []struct {
		what   string
		change func(*v1.Machine)
		want   string // "" when legal
	}{
		{"as it is", func(*v1.Machine) {}, ""},
		{"NaN price", func(m *v1.Machine) { m.PricePerHour = nan }, "price_per_hour"},
		{"infinite price", func(m *v1.Machine) { m.PricePerHour = inf }, "price_per_hour"},
		{"negative price", func(m *v1.Machine) { m.PricePerHour = -0.01 }, "price_per_hour"},
		{"owned hardware", func(m *v1.Machine) { m.PricePerHour = 0 }, ""},
		{"probability above 1", func(m *v1.Machine) { m.InterruptionProbability = 1.5 }, "interruption_probability"},
		{"negative probability", func(m *v1.Machine) { m.InterruptionProbability = -0.1 }, "interruption_probability"},
		{"NaN probability", func(m *v1.Machine) { m.InterruptionProbability = nan }, "interruption_probability"},
		{"certain interruption", func(m *v1.Machine) { m.InterruptionProbability = 1 }, ""},
		{"no id", func(m *v1.Machine) { m.Id = "" }, "id"},
		{"odd id", func(m *v1.Machine) { m.Id = "projects/x/zones/a b\x00/ü" }, ""},
		{"unparsable allocatable", func(m *v1.Machine) { m.Allocatable.Resources["cpu"] = "two" }, `allocatable.resources["cpu"]`},
		{"unparsable resources", func(m *v1.Machine) { m.Resources = &v1.Resources{Resources: map[string]string{"cpu": ""}} }, `resources.resources["cpu"]`},
		{"empty resource name", func(m *v1.Machine) { m.Allocatable.Resources[""] = "1" }, ""},
		{"state 0", func(m *v1.Machine) { m.State = 0 }, "state"},
		{"state 9", func(m *v1.Machine) { m.State = 9 }, "state"},
		{"capacity type 0", func(m *v1.Machine) { m.CapacityType = 0 }, ""},
		{"capacity type 5", func(m *v1.Machine) { m.CapacityType = 5 }, "capacity_type"},
		{"any metadata", func(m *v1.Machine) { m.ShardMetadata = map[string]string{"": "", "k\x00": "v\x00ü"} }, ""},
		{"unknown failure class", func(m *v1.Machine) { m.Failure = 99 }, ""},
		{"odd taint", func(m *v1.Machine) { m.Taints = []*v1.Taint{{Effect: "Perhaps"}} }, ""},
		{"cluster on IDLE", func(m *v1.Machine) { m.Cluster = "red" }, ""},
	} {
		m := idle("m")
		c.change(m)
		found, _ := violations(t, v, m)
		ok := c.want == "" && found == nil
		if c.want != "" {
			ok = len(found) > 0 && !slices.ContainsFunc(found, func(f string) bool { return !strings.HasPrefix(f, c.want+": ") })
		}
		if !ok {
			t.Errorf("%s: %q, want a violation at %q", c.what, found, c.want)
		}
	}
}

// WIRE scenario 5, 3.6: one NaN price among 1,000 machines refuses that record alone.
func TestOneBadMachineInAList(t *testing.T) {
	v := validator(t)
	list := &v1.MachineList{Machines: make([]*v1.Machine, 1000)}
	for i := range list.Machines {
		list.Machines[i] = idle("m")
	}
	list.Machines[417].PricePerHour = math.NaN()
	raw, err := proto.Marshal(list)
	if err != nil {
		t.Fatal(err)
	}
	var received v1.MachineList
	if err := proto.Unmarshal(raw, &received); err != nil {
		t.Fatal(err)
	}
	if found, _ := violations(t, v, &received); found != nil {
		t.Fatalf("the list is refused: %q", found)
	}
	var bad []int
	for i, m := range received.GetMachines() {
		if found, _ := violations(t, v, m); found != nil {
			bad = append(bad, i)
			if !strings.HasPrefix(found[0], "price_per_hour: ") {
				t.Errorf("machine %d: %q", i, found)
			}
		}
	}
	if !slices.Equal(bad, []int{417}) {
		t.Errorf("refused records: %v, want 417 alone", bad)
	}
}

// WIRE scenario 10, 7.7, 7.12: no rule refuses a fencing token, whatever its sign, nor any metadata.
func TestTokensAreNeverRefused(t *testing.T) {
	v := validator(t)
	for _, token := range [][2]int64{{-7, -7}, {-7, -8}, {0, 0}, {math.MaxInt64, math.MaxInt64}, {math.MinInt64, math.MinInt64}} {
		epoch, sequence := token[0], token[1]
		for _, shard := range []string{"", "shard-0", "any text at all"} {
			for _, m := range []proto.Message{
				&v1.CreateRequest{MachineId: "m", ShardId: shard, ShardEpoch: epoch, SequenceNumber: sequence},
				&v1.ConfigureRequest{MachineId: "m", ClusterId: "c", ShardId: shard, ShardEpoch: epoch, SequenceNumber: sequence,
					ShardMetadata: map[string]string{"": "\x00"}},
				&v1.DrainRequest{MachineId: "m", GracePeriodSeconds: -1, ShardId: shard, ShardEpoch: epoch, SequenceNumber: sequence},
				&v1.DeleteRequest{MachineId: "m", ShardId: shard, ShardEpoch: epoch, SequenceNumber: sequence},
			} {
				if found, _ := violations(t, v, m); found != nil {
					t.Errorf("%T %v: %q", m, token, found)
				}
			}
		}
	}
	for _, m := range []proto.Message{&v1.CreateRequest{}, &v1.ConfigureRequest{ClusterId: "c"}, &v1.DrainRequest{}, &v1.DeleteRequest{}} {
		if found, _ := violations(t, v, m); !slices.Equal(found, []string{"machine_id: string.min_len"}) {
			t.Errorf("%T without machine: %q", m, found)
		}
	}
	if found, _ := violations(t, v, &v1.ListFilter{States: []v1.MachineState{99}, MaxResults: -1, SinceRevision: []byte("no cursor of yours")}); found != nil {
		t.Errorf("an odd filter is refused: %q", found)
	}
}

// BenchmarkMachineIngest guards WIRE-3.14: what one machine record costs a shard before it is trusted. Scenario 30 reads the ratio:
// rules may cost about twice the decoding. A record whose bytes equal the last good ones skips both (WIRE-3.15).
func BenchmarkMachineIngest(b *testing.B) {
	v := validator(b)
	raw, err := proto.Marshal(idle("m6i-eu-1a-17"))
	if err != nil {
		b.Fatal(err)
	}
	last := bytes.Clone(raw)
	b.Run("decode", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m v1.Machine
			if err := proto.Unmarshal(raw, &m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("rules", func(b *testing.B) {
		b.ReportAllocs()
		m := idle("m6i-eu-1a-17")
		for b.Loop() {
			if err := v.Validate(m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("decode and rules", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			var m v1.Machine
			if err := proto.Unmarshal(raw, &m); err != nil {
				b.Fatal(err)
			}
			if err := v.Validate(&m); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("unchanged", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if !bytes.Equal(raw, last) {
				b.Fatal("changed")
			}
		}
	})
}
