package workload

import (
	"fmt"
	"math/bits"
	"strconv"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// RackLabel is the label that Same rows are about.
const RackLabel = "topology.bigfleet/rack"

const (
	zoneLabel = "topology.kubernetes.io/zone"
	typeLabel = "node.kubernetes.io/instance-type"
	gpu       = "nvidia.com/gpu"
)

// Machine returns machine i as a provider sends it: 4 labels, 3 resources (4 with GPUs) as hardware and as
// allocatable.
func (w *World) Machine(i int) *pb.Machine {
	f := w.Fleet
	k := f.Kinds[f.Kind[i]]
	m := &pb.Machine{
		Id: f.ID[i], State: pb.MachineState(f.State[i]), InstanceType: k.Name, Zone: f.Zones[f.Zone(i)],
		CapacityType: pb.CapacityType(f.Capacity[i]), PricePerHour: float64(f.Price[i]) / 1e6,
		InterruptionProbability: float64(f.Probability[i]) / 1e6,
		Labels: map[string]string{
			"kubernetes.io/arch": k.Arch, "kubernetes.io/os": "linux", "topology.kubernetes.io/region": f.Zones[f.Zone(i)][:4],
			RackLabel: RackName(f.Rack[i]),
		},
		Resources:   amounts(k.VCPU*1000, (k.Memory/93*100)>>20<<20, k.GPU, 110),
		Allocatable: amounts(k.CPU, k.Memory, k.GPU, 110),
	}
	if f.State[i] >= Idle {
		m.Host = &pb.HostRef{Provider: "bench", Ref: f.ID[i]}
	}
	if f.Cluster[i] >= 0 {
		m.Cluster = ClusterName(f.Cluster[i])
		if w.Attribution != nil && f.Need[i] >= 0 {
			m.ShardMetadata = w.Attribution(f.Need[i])
		}
	}
	return m
}

// RackName is the value of RackLabel.
func RackName(rack uint16) string { return fmt.Sprintf("rack-%03d", rack) }

func amounts(cpu, memory, gpus, pods int64) *pb.Resources {
	out := map[string]string{"cpu": milli(cpu), "memory": strconv.FormatInt(memory>>20, 10) + "Mi", "pods": strconv.FormatInt(pods, 10)}
	if gpus > 0 {
		out[gpu] = strconv.FormatInt(gpus, 10)
	}
	return &pb.Resources{Resources: out}
}

func milli(n int64) string {
	if n%1000 == 0 {
		return strconv.FormatInt(n/1000, 10)
	}
	return strconv.FormatInt(n, 10) + "m"
}

// Pages is W-pages: all machines as List answers of size machines each. Only the last is complete.
func (w *World) Pages(size int) []*pb.MachineList {
	var out []*pb.MachineList
	for from := 0; from < w.Fleet.Len(); from += size {
		out = append(out, w.page(from, size))
	}
	return out
}

// PageBytes is Pages as they travel, one page built at a time, so that 500,000 machines never exist twice.
func (w *World) PageBytes(size int) [][]byte {
	var out [][]byte
	for from := 0; from < w.Fleet.Len(); from += size {
		data, err := proto.MarshalOptions{Deterministic: true}.Marshal(w.page(from, size))
		if err != nil {
			panic("workload: a page does not marshal: " + err.Error())
		}
		out = append(out, data)
	}
	return out
}

func (w *World) page(from, size int) *pb.MachineList {
	until := min(from+size, w.Fleet.Len())
	last := until == w.Fleet.Len()
	page := &pb.MachineList{More: !last, Complete: last, Revision: []byte(strconv.Itoa(until))}
	for i := from; i < until; i++ {
		page.Machines = append(page.Machines, w.Machine(i))
	}
	return page
}

// Rollup returns the whole demand of cluster c as an operator sends it.
func (w *World) Rollup(c int32) *pb.ClusterCapacityNeeds {
	d := w.Demand
	out := &pb.ClusterCapacityNeeds{ClusterId: ClusterName(c), TimestampUnixNanos: 1}
	for row := d.First[c]; row < d.First[c+1]; row++ {
		out.Needs = append(out.Needs, w.Need(row))
	}
	return out
}

// Need returns one row.
func (w *World) Need(row int32) *pb.CapacityNeed {
	d := w.Demand
	out := &pb.CapacityNeed{
		AggregateResources: vector(d.CPU[row], d.Memory[row], d.GPU[row]), MinUnit: vector(d.UnitCPU[row], d.UnitMemory[row], d.UnitGPU[row]),
		Priority: d.Priority[row], InterruptionPenaltyBucket: pb.PenaltyBucket(d.Interruption[row]),
		ReclamationPenaltyBucket: pb.PenaltyBucket(d.Reclamation[row]), Group: d.Group[row], RowId: "row-" + strconv.Itoa(int(row)),
	}
	if types := d.Types[row]; types != 0 {
		in := &pb.NodeSelectorRequirement{Key: typeLabel, Operator: pb.NodeSelectorRequirement_OPERATOR_IN}
		for left := types; left != 0; left &= left - 1 {
			in.Values = append(in.Values, w.typeName(bits.TrailingZeros64(left)))
		}
		out.Requirements = append(out.Requirements, in)
	}
	switch d.Form[row] {
	case Same:
		out.Requirements = append(out.Requirements, &pb.NodeSelectorRequirement{Key: RackLabel, Operator: pb.NodeSelectorRequirement_OPERATOR_SAME})
	case Spread:
		out.Spread = []*pb.TopologySpread{{TopologyKey: zoneLabel, MaxSkew: 1, WhenUnsatisfiable: pb.TopologySpread_WHEN_UNSATISFIABLE_DO_NOT_SCHEDULE}}
	}
	return out
}

func (w *World) typeName(bit int) string {
	if bit >= len(w.Fleet.Kinds) {
		return "none.0"
	}
	return w.Fleet.Kinds[bit].Name
}

// vector writes memory in bytes: amounts here are sums and parts, not whole MiB.
func vector(cpu, memory, gpus int64) map[string]string {
	out := map[string]string{"cpu": milli(cpu), "memory": strconv.FormatInt(memory, 10)}
	if gpus > 0 {
		out[gpu] = strconv.FormatInt(gpus, 10)
	}
	return out
}
