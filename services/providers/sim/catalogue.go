package sim

import (
	"fmt"
	"strconv"

	"github.com/bigfleet-dev/bigfleet/sdk/provider"
)

// family is a line of instance types: sizes share the ratio of memory to cpu and the price per cpu.
type family struct {
	name      string
	arch      string
	gibPerCPU int
	usdPerCPU float64 // an hour, on demand
	spot      float64 // share of the on-demand price
	risk      float64 // chance of interruption an hour
	cpus      []int
	gpu       string // resource name, empty for none
	perGPU    int    // cpus per gpu
	usdPerGPU float64
	share     int // of a thousand slots
}

// families are 13 lines and 54 types. Prices have the shape that clouds publish: linear in size, arm cheaper than amd, memory
// dearer than compute, GPUs dearest; spot about a third, with more risk where capacity is scarce. They are not the list of any cloud.
var families = []family{
	{name: "sg5", arch: "amd64", gibPerCPU: 4, usdPerCPU: 0.048, spot: 0.36, risk: 0.02, cpus: []int{2, 4, 8, 16, 32, 64}, share: 220},
	{name: "sg6", arch: "amd64", gibPerCPU: 4, usdPerCPU: 0.050, spot: 0.38, risk: 0.025, cpus: []int{2, 4, 8, 16, 32, 64, 96}, share: 220},
	{name: "sg6a", arch: "arm64", gibPerCPU: 4, usdPerCPU: 0.0385, spot: 0.40, risk: 0.015, cpus: []int{2, 4, 8, 16, 32, 64}, share: 110},
	{name: "sc5", arch: "amd64", gibPerCPU: 2, usdPerCPU: 0.0425, spot: 0.37, risk: 0.03, cpus: []int{2, 4, 8, 16, 36}, share: 120},
	{name: "sc6a", arch: "arm64", gibPerCPU: 2, usdPerCPU: 0.034, spot: 0.41, risk: 0.02, cpus: []int{2, 4, 8, 16, 32}, share: 70},
	{name: "sm5", arch: "amd64", gibPerCPU: 8, usdPerCPU: 0.063, spot: 0.32, risk: 0.035, cpus: []int{2, 4, 8, 16, 32}, share: 90},
	{name: "sm6a", arch: "arm64", gibPerCPU: 8, usdPerCPU: 0.0504, spot: 0.35, risk: 0.025, cpus: []int{2, 4, 8, 16}, share: 50},
	{name: "sx2", arch: "amd64", gibPerCPU: 16, usdPerCPU: 0.0834, spot: 0.30, risk: 0.05, cpus: []int{16, 32, 64}, share: 15},
	{name: "sb3", arch: "amd64", gibPerCPU: 4, usdPerCPU: 0.0208, spot: 0.30, risk: 0.01, cpus: []int{2, 4, 8}, share: 60},
	{name: "st4", arch: "amd64", gibPerCPU: 4, usdPerCPU: 0.048, spot: 0.32, risk: 0.06, cpus: []int{4, 8, 16, 48}, gpu: "nvidia.com/gpu", perGPU: 12, usdPerGPU: 0.30, share: 20},
	{name: "sa10", arch: "amd64", gibPerCPU: 4, usdPerCPU: 0.050, spot: 0.40, risk: 0.08, cpus: []int{16, 32, 64}, gpu: "nvidia.com/gpu", perGPU: 16, usdPerGPU: 0.85, share: 12},
	{name: "sa100", arch: "amd64", gibPerCPU: 12, usdPerCPU: 0.055, spot: 0.40, risk: 0.12, cpus: []int{96}, gpu: "nvidia.com/gpu", perGPU: 12, usdPerGPU: 3.40, share: 8},
	{name: "sh100", arch: "amd64", gibPerCPU: 10, usdPerCPU: 0.060, spot: 0.45, risk: 0.15, cpus: []int{96, 192}, gpu: "nvidia.com/gpu", perGPU: 24, usdPerGPU: 7.80, share: 5},
}

// Regions and zones of the built-in catalogue. Price is relative to the first region.
var regions = []struct {
	name  string
	price float64
	zones []string
}{
	{"sim-east-1", 1, []string{"sim-east-1a", "sim-east-1b", "sim-east-1c"}},
	{"sim-west-2", 1.08, []string{"sim-west-2a", "sim-west-2b"}},
}

const (
	racksPerZone = 4
	slotsDefault = 6000
)

// owned is the part of the slots that is reserved and bare metal, in percent; spot and on demand share the rest.
const (
	percentReserved  = 12
	percentBareMetal = 8
	percentSpot      = 35
	reservedDiscount = 0.60
	bareMetalFamily  = "sg5"
)

// Catalogue makes about that many slots, at least one of each type, zone and class; 0 means 6,000.
func Catalogue(slots int) []provider.Offering {
	if slots <= 0 {
		slots = slotsDefault
	}
	zones := 0
	for _, r := range regions {
		zones += len(r.zones)
	}
	var out []provider.Offering
	for _, f := range families {
		for _, cpu := range f.cpus {
			each := float64(slots) * float64(f.share) / 1000 / float64(len(f.cpus)) / float64(zones)
			for _, r := range regions {
				for _, zone := range r.zones {
					out = append(out, f.offerings(cpu, r.name, r.price, zone, each)...)
				}
			}
		}
	}
	return out
}

// offerings are one type in one zone: on demand, spot and reserved, and bare metal for the largest of one family.
func (f family) offerings(cpu int, region string, factor float64, zone string, each float64) []provider.Offering {
	gpus := 0
	if f.gpu != "" {
		gpus = max(1, cpu/f.perGPU)
	}
	price := (float64(cpu)*f.usdPerCPU + float64(gpus)*f.usdPerGPU) * factor
	type class struct {
		class   provider.CapacityType
		percent int
		price   float64
		risk    float64
	}
	all := []class{
		{provider.OnDemand, 100 - percentReserved - percentSpot, price, 0},
		{provider.Spot, percentSpot, price * f.spot, f.risk},
		{provider.Reserved, percentReserved, price * reservedDiscount, 0},
	}
	if f.name == bareMetalFamily && cpu == f.cpus[len(f.cpus)-1] {
		all = append(all, class{provider.BareMetal, percentBareMetal * len(f.cpus), 0, 0})
	}
	var out []provider.Offering
	for i, c := range all {
		count := max(1, int(each*float64(c.percent)/100+0.5))
		// A pool of one type, zone and class is spread over racks; few slots fill few racks.
		racks := min(racksPerZone, count)
		for rack := range racks {
			n := count / racks
			if rack < count%racks {
				n++
			}
			o := f.offering(cpu, gpus, region, zone, (rack+i)%racksPerZone, n)
			o.CapacityType, o.PricePerHour, o.InterruptionProbability = c.class, round(c.price), c.risk
			o.Name = o.Key() + "-r" + strconv.Itoa((rack+i)%racksPerZone+1)
			out = append(out, o)
		}
	}
	return out
}

func (f family) offering(cpu, gpus int, region, zone string, rack, count int) provider.Offering {
	gib := cpu * f.gibPerCPU
	o := provider.Offering{Count: count, Attributes: provider.Attributes{
		InstanceType: fmt.Sprintf("%s.%dx", f.name, cpu), Zone: zone,
		Resources: map[string]string{"cpu": strconv.Itoa(cpu), "memory": strconv.Itoa(gib) + "Gi", "pods": "110"},
		// What a kubelet reserves: a little cpu, and memory that grows with the size.
		Allocatable: map[string]string{
			"cpu": strconv.Itoa(cpu*1000-60-cpu*5) + "m", "memory": strconv.Itoa(gib*1024-400-gib*16) + "Mi", "pods": "110",
		},
		Labels: map[string]string{
			"topology.kubernetes.io/region": region, "topology.bigfleet/rack": fmt.Sprintf("%s-r%d", zone, rack+1),
			"kubernetes.io/arch": f.arch, "kubernetes.io/os": "linux", "sim.bigfleet/family": f.name,
		},
	}}
	if gpus > 0 {
		o.Resources[f.gpu], o.Allocatable[f.gpu] = strconv.Itoa(gpus), strconv.Itoa(gpus)
		o.Taints = []provider.Taint{{Key: f.gpu, Value: "present", Effect: "NoSchedule"}}
	}
	return o
}

// round keeps prices readable: hundredths of a cent.
func round(usd float64) float64 { return float64(int(usd*10_000+0.5)) / 10_000 }
