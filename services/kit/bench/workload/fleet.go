package workload

import (
	"fmt"
	"math/rand/v2"
)

// States and capacity types, numbered as on the wire.
const (
	Speculative uint8 = 1
	Creating    uint8 = 2
	Idle        uint8 = 3
	Configuring uint8 = 4
	Configured  uint8 = 5
	Draining    uint8 = 6
	Deleting    uint8 = 7

	BareMetal uint8 = 1
	Reserved  uint8 = 2
	OnDemand  uint8 = 3
	Spot      uint8 = 4
)

// Kind is one instance type: what it is called, what its hardware offers and what Pods may use of it.
type Kind struct {
	Name, Arch string
	VCPU, GPU  int64
	CPU        int64 // allocatable, thousandths of a core
	Memory     int64 // allocatable, bytes
	Price      int64 // on demand in the first zone, millionths of a dollar per hour
}

// Fleet is machines in columns: the i-th entry of each slice belongs to machine i.
type Fleet struct {
	Kinds []Kind
	Zones []string
	Racks int // rack r stands in zone r modulo the number of zones

	ID          []string // 24 bytes, in no order
	Kind        []uint8  // index in Kinds
	Rack        []uint16
	Capacity    []uint8
	State       []uint8
	Price       []int64 // millionths of a dollar per hour
	Probability []int32 // of an interruption within an hour, parts per million
	Cluster     []int32 // whom it is bound to, or -1
	Need        []int32 // for which row of the Demand it is bound, or -1
}

// Len is the number of machines.
func (f *Fleet) Len() int { return len(f.ID) }

// Zone is the index in Zones of machine i.
func (f *Fleet) Zone(i int) int { return int(f.Rack[i]) % len(f.Zones) }

const (
	zoneCount = 8
	racksMax  = 400
	rackMin   = 25 // machines in a rack of a small fleet; fleets of 10,000 and more have 400 racks
	pricePer  = 40_000
)

// families of the catalogue: memory per vCPU, price relative to the plain one, share of the fleet in percent.
var families = [...]struct {
	name, arch   string
	gibPerVCPU   int64
	pricePercent int64
	share        int
}{
	{"c", "amd64", 2, 90, 30}, {"m", "amd64", 4, 100, 35}, {"r", "arm64", 8, 125, 20}, {"i", "amd64", 8, 160, 10}, {"g", "amd64", 4, 700, 5},
}

var sizes = [...]int64{2, 4, 8, 16, 32, 48, 64, 96} // vCPU

// catalogue is 5 families of 8 sizes: 40 instance types.
func catalogue() []Kind {
	var out []Kind
	for _, family := range families {
		for _, vcpu := range sizes {
			out = append(out, kind(family.name, family.arch, vcpu, family.gibPerVCPU, family.pricePercent))
		}
	}
	return out
}

func kind(family, arch string, vcpu, gibPerVCPU, pricePercent int64) Kind {
	k := Kind{
		Name: fmt.Sprintf("%s7.%d", family, vcpu), Arch: arch, VCPU: vcpu,
		// What kubelets usually keep for the system: 3 % of the cores, 7 % of the memory.
		CPU: vcpu * 970, Memory: vcpu * gibPerVCPU * (1 << 30) / 100 * 93 >> 20 << 20,
		Price: vcpu * pricePer * pricePercent / 100,
	}
	if family == "g" {
		k.GPU = max(1, vcpu/12)
	}
	return k
}

// newFleet draws n machines of kinds with the shares of W-fleet: kinds by weight, racks evenly, 10 % bare metal, 20 %
// reserved, 45 % on demand, 25 % spot. States are for the caller.
func newFleet(n int, seed uint64, racks int, kinds []Kind, weights []int) *Fleet {
	f := &Fleet{
		Kinds: kinds, Racks: racks,
		ID: make([]string, n), Kind: make([]uint8, n), Rack: make([]uint16, n), Capacity: make([]uint8, n), State: make([]uint8, n),
		Price: make([]int64, n), Probability: make([]int32, n), Cluster: make([]int32, n), Need: make([]int32, n),
	}
	for z := range zoneCount {
		f.Zones = append(f.Zones, fmt.Sprintf("eu-%d%c", z/4+1, 'a'+z%4))
	}
	names(f.ID, Stream(seed, "fleet/id"))
	pick := weighted(weights)
	kindOf, rackOf := Stream(seed, "fleet/kind"), Stream(seed, "fleet/rack")
	for i := range n {
		f.Kind[i] = uint8(pick(kindOf))
		f.Rack[i] = uint16(rackOf.IntN(f.Racks))
		f.Cluster[i], f.Need[i] = -1, -1
	}
	for c, part := range parts(Stream(seed, "fleet/capacity"), n, 0.10, 0.20, 0.45) {
		for _, i := range part {
			f.Capacity[i] = uint8(c) + BareMetal
		}
	}
	chance := f.spotChances(Stream(seed, "fleet/interruption"))
	for i := range n {
		f.Price[i], f.Probability[i] = f.price(i), 0
		if f.Capacity[i] == Spot {
			f.Probability[i] = chance[int(f.Kind[i])*zoneCount+f.Zone(i)]
		}
	}
	return f
}

// price spreads over the zones by 10 %; spot costs 35 %.
func (f *Fleet) price(i int) int64 {
	p := f.Kinds[f.Kind[i]].Price * int64(1000+100*f.Zone(i)/(zoneCount-1)) / 1000
	if f.Capacity[i] == Spot {
		p = p * 35 / 100
	}
	return p
}

// spotChances are 0.5 to 8 % an hour per spot pool, that is per kind and zone, as clouds publish them.
func (f *Fleet) spotChances(r *rand.Rand) []int32 {
	out := make([]int32, len(f.Kinds)*zoneCount)
	for i := range out {
		out[i] = 5_000 + int32(r.IntN(75_001))/500*500
	}
	return out
}

// names fills ids of 24 bytes: "i-" and 22 hex digits.
func names(out []string, r *rand.Rand) {
	const digits = "0123456789abcdef"
	var b [24]byte
	b[0], b[1] = 'i', '-'
	for i := range out {
		high, low := r.Uint64(), r.Uint64()
		for d := range 22 {
			nibble := high
			if d >= 16 {
				nibble = low
			}
			b[2+d] = digits[nibble>>(4*(d%16))&15]
		}
		out[i] = string(b[:])
	}
}

// weighted returns a draw of an index by weight.
func weighted(weights []int) func(*rand.Rand) int {
	total := 0
	for _, w := range weights {
		total += w
	}
	return func(r *rand.Rand) int {
		at := r.IntN(total)
		for i, w := range weights {
			if at < w {
				return i
			}
			at -= w
		}
		panic("unreachable")
	}
}

// catalogueWeights gives each size of a family an equal part of the family's share.
func catalogueWeights() []int {
	var out []int
	for _, family := range families {
		for range sizes {
			out = append(out, family.share)
		}
	}
	return out
}

// NewFleet is W-fleet(n) alone: 30 % Configured, 10 % Idle, 2 % in motion, the rest Speculative. Nothing is bound yet;
// Steady binds it to a demand.
func NewFleet(n int, seed uint64) *Fleet {
	f := newFleet(n, seed, min(racksMax, max(1, n/rackMin)), catalogue(), catalogueWeights())
	moving := [...]uint8{Creating, Configuring, Draining, Deleting}
	for p, part := range parts(Stream(seed, "fleet/state"), n, 0.30, 0.10, 0.02) {
		for k, i := range part {
			f.State[i] = [...]uint8{Configured, Idle, moving[k%len(moving)], Speculative}[p]
		}
	}
	return f
}

// Sum is the SHA-256 of the fleet.
func (f *Fleet) Sum() string {
	d := newDigest()
	f.sum(d)
	return d.hex()
}

func (f *Fleet) sum(d digest) {
	for _, k := range f.Kinds {
		d.strings([]string{k.Name, k.Arch})
		d.numbers(k.VCPU, k.GPU, k.CPU, k.Memory, k.Price)
	}
	d.numbers(uint32(f.Racks))
	d.strings(f.Zones, f.ID)
	d.numbers(f.Kind, f.Rack, f.Capacity, f.State, f.Price, f.Probability, f.Cluster, f.Need)
}
