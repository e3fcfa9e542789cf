package kwok

import (
	"fmt"
	"strconv"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// defaultSlots is the size of the catalogue when nothing is configured.
const defaultSlots = 1000

// Catalogue makes about that many slots: general, compute, memory and GPU types in three zones of one region, in racks,
// on demand, spot, reserved and bare metal. Prices are of the size that clouds publish.
func Catalogue(slots int) []provider.Offering {
	types := []struct {
		name     string
		cpu, gib int
		gpu      int
		price    float64
		share    int // of a hundred
	}{
		{"kw-general.large", 2, 8, 0, 0.096, 20}, {"kw-general.2xlarge", 8, 32, 0, 0.384, 26},
		{"kw-general.8xlarge", 32, 128, 0, 1.536, 14}, {"kw-compute.4xlarge", 16, 32, 0, 0.68, 20},
		{"kw-memory.4xlarge", 16, 128, 0, 1.008, 14}, {"kw-gpu.8xlarge", 32, 244, 4, 12.24, 6},
	}
	classes := []struct {
		class  provider.CapacityType
		factor float64
		p      float64
		share  int // of a hundred
	}{{provider.OnDemand, 1, 0, 45}, {provider.Spot, 0.35, 0.03, 30}, {provider.Reserved, 0.6, 0, 15}, {provider.BareMetal, 0, 0, 10}}
	const zones, racks = 3, 4
	var out []provider.Offering
	for _, t := range types {
		for z := range zones {
			for _, c := range classes {
				for rack := range racks {
					count := (slots*t.share*c.share/10_000 + zones*racks - 1) / (zones * racks)
					if count == 0 {
						continue
					}
					out = append(out, offering(t.name, t.cpu, t.gib, t.gpu, t.price*c.factor, c.class, c.p, z, rack, count))
				}
			}
		}
	}
	return out
}

func offering(name string, cpu, gib, gpu int, price float64, class provider.CapacityType, p float64, z, rack, count int) provider.Offering {
	zone := fmt.Sprintf("kwok-1%c", 'a'+z)
	o := provider.Offering{Count: count, Attributes: provider.Attributes{
		InstanceType: name, Zone: zone, CapacityType: class, PricePerHour: price, InterruptionProbability: p,
		Resources:   map[string]string{"cpu": strconv.Itoa(cpu), "memory": strconv.Itoa(gib) + "Gi", "pods": "110"},
		Allocatable: map[string]string{"cpu": strconv.Itoa(cpu*1000-80) + "m", "memory": strconv.Itoa(gib*1024-400) + "Mi", "pods": "110"},
		Labels: map[string]string{
			"topology.kubernetes.io/region": "kwok-1", "topology.bigfleet/rack": fmt.Sprintf("%s-r%d", zone, rack+1),
			"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
		},
	}}
	o.Name = fmt.Sprintf("%s-r%d", o.Key(), rack+1)
	if gpu > 0 {
		o.Resources["nvidia.com/gpu"], o.Allocatable["nvidia.com/gpu"] = strconv.Itoa(gpu), strconv.Itoa(gpu)
		o.Taints = []provider.Taint{{Key: "nvidia.com/gpu", Value: "present", Effect: "NoSchedule"}}
	}
	return o
}
