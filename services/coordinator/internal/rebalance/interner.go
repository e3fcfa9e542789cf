package rebalance

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
)

// Label keys that buckets answer (COORD-12.6).
const (
	keyType   = "node.kubernetes.io/instance-type"
	keyZone   = "topology.kubernetes.io/zone"
	keyRegion = "topology.kubernetes.io/region"
	keyArch   = "kubernetes.io/arch"
	keyOS     = "kubernetes.io/os"
)

// Interner interns what reports repeat: names, vectors, kinds of machines and sets of requirements. Thousands of shards say
// much the same. What is interned stays valid for its holders; a table that reached the bound starts over, since every
// shard says again within an interval what is still true. It lives as long as one leadership. Safe for concurrent use.
type Interner struct {
	most    int // entries of each table but names
	mu      sync.Mutex
	names   map[string]uint32
	list    []string
	vectors map[string]*Vector
	kinds   map[Kind]*Kind
	reqs    map[string]*Requirements
}

// internedMax is above what a fleet of the designed size says at a time: 4,000 shards with 100 shortfalls each.
const internedMax = 1 << 19

// intern returns what a table holds under a key, made at the first call. A table at the bound starts over.
func intern[K comparable, V any](table *map[K]*V, most int, key K, make func() *V) *V {
	v, ok := (*table)[key]
	if !ok {
		if len(*table) >= most {
			*table = map[K]*V{}
		}
		v = make()
		(*table)[key] = v
	}
	return v
}

// NewInterner returns an empty Interner.
func NewInterner() *Interner {
	return &Interner{most: internedMax, names: map[string]uint32{}, vectors: map[string]*Vector{}, kinds: map[Kind]*Kind{}, reqs: map[string]*Requirements{}}
}

// Dim is one dimension of a vector, in thousandths.
type Dim struct {
	Name  uint32
	Milli int64
}

// Vector is an interned vector of resources, by dimension.
type Vector struct {
	Dims []Dim
	Wire *v1.Resources
}

// Kind is what the machines of a bucket have in common, but for their size. Interned: equal kinds are one pointer, as a rule.
type Kind struct {
	InstanceType, Zone, Arch, OS, Region string
	CapacityType                         v1.CapacityType
}

// short is the part of a kind that a move's selector carries.
func (k *Kind) short() Kind {
	return Kind{InstanceType: k.InstanceType, Zone: k.Zone, CapacityType: k.CapacityType}
}

// Requirements is an interned set of constraints.
type Requirements struct {
	Wire []*v1.NodeSelectorRequirement
	Same bool // holds a Same constraint: never resolved across shards
}

// Bucket is the supply of one kind in one shard.
type Bucket struct {
	Kind                          *Kind
	Idle, Speculative, Configured int32
	Allocatable                   *Vector
	Price                         float64
}

// Shortfall is one unmet need of one shard.
type Shortfall struct {
	Fingerprint   string
	Priority      int32
	AgeCycles     int32
	AgeSeconds    int64
	Bucket        v1.PenaltyBucket
	Unmet         v1.UnmetReason
	TopologyBound bool
	Requirements  *Requirements
	MinUnit       *Vector
	Deficit       []Dim
	// Reports is in how many reports of the shard it was in a row.
	Reports int32
}

func (b *Interner) name(s string) uint32 {
	id, ok := b.names[s]
	if !ok {
		id = uint32(len(b.list))
		s = strings.Clone(s)
		b.names[s], b.list = id, append(b.list, s)
	}
	return id
}

// dims reads a vector; what does not parse or is not positive is left out.
func (b *Interner) dims(r *v1.Resources) []Dim {
	if len(r.GetResources()) == 0 {
		return nil
	}
	out := make([]Dim, 0, len(r.GetResources()))
	for name, text := range r.GetResources() {
		if milli, err := quantity.Parse(text, quantity.Up); (err == nil || errors.Is(err, quantity.ErrRange)) && name != "" && milli > 0 {
			out = append(out, Dim{b.name(name), milli})
		}
	}
	slices.SortFunc(out, func(x, y Dim) int { return cmp.Compare(b.list[x.Name], b.list[y.Name]) })
	return slices.Clip(out)
}

func (b *Interner) vector(r *v1.Resources) *Vector {
	var key strings.Builder
	names := make([]string, 0, len(r.GetResources()))
	for name := range r.GetResources() {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		key.WriteString(name + "\x00" + r.GetResources()[name] + "\x00")
	}
	return intern(&b.vectors, b.most, key.String(), func() *Vector { return &Vector{Dims: b.dims(r), Wire: r} })
}

func (b *Interner) requirements(list []*v1.NodeSelectorRequirement) *Requirements {
	var key strings.Builder
	same := false
	for _, r := range list {
		key.WriteString(r.GetKey() + "\x00" + r.GetOperator().String() + "\x00" + strings.Join(r.GetValues(), "\x01") + "\x00")
		if c := r.GetComparison(); c != nil {
			fmt.Fprintf(&key, "%v %d\x00", c.GetLess(), c.GetBound())
		}
		same = same || r.GetOperator() == v1.NodeSelectorRequirement_OPERATOR_SAME
	}
	return intern(&b.reqs, b.most, key.String(), func() *Requirements { return &Requirements{Wire: list, Same: same} })
}

// Supply interns the buckets of one report, at most most of them, and says how many were left out (COORD-7.7).
func (b *Interner) Supply(in []*v1.SupplyBucket, most int) ([]Bucket, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	kept := in[:min(len(in), most)]
	out := make([]Bucket, 0, len(kept))
	for _, s := range kept {
		kind := Kind{InstanceType: s.GetInstanceType(), Zone: s.GetZone(), CapacityType: s.GetCapacityType(), Arch: s.GetArch(), OS: s.GetOs(), Region: s.GetRegion()}
		k := intern(&b.kinds, b.most, kind, func() *Kind { return &kind })
		price := s.GetPricePerHour()
		if math.IsNaN(price) || price < 0 {
			price = 0
		}
		out = append(out, Bucket{Kind: k, Idle: max(s.GetIdle(), 0), Speculative: max(s.GetSpeculative(), 0), Configured: max(s.GetConfigured(), 0),
			Allocatable: b.vector(s.GetAllocatable()), Price: price})
	}
	return out, len(in) - len(kept)
}

// Shortfalls interns the shortfalls of one report. before are those of the report it replaces.
func (b *Interner) Shortfalls(in []*v1.Shortfall, before []Shortfall, most int) ([]Shortfall, int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := make(map[string]int32, len(before))
	for _, s := range before {
		seen[s.Fingerprint] = s.Reports
	}
	kept := in[:min(len(in), most)]
	out := make([]Shortfall, 0, len(kept))
	for _, s := range kept {
		out = append(out, Shortfall{
			Fingerprint: strings.Clone(s.GetFingerprint()), Priority: s.GetPriority(), AgeCycles: s.GetAgeCycles(), AgeSeconds: s.GetAgeSeconds(),
			Bucket: s.GetInterruptionPenaltyBucket(), Unmet: s.GetUnmetReason(), TopologyBound: s.GetTopologyBound(),
			Requirements: b.requirements(s.GetRequirements()), MinUnit: b.vector(s.GetMinUnit()), Deficit: b.dims(s.GetDeficit()),
			Reports: min(seen[s.GetFingerprint()]+1, 1<<20),
		})
	}
	return out, len(in) - len(kept)
}

// WireSupply turns buckets back into what was reported.
func (b *Interner) WireSupply(in []Bucket) []*v1.SupplyBucket {
	out := make([]*v1.SupplyBucket, 0, len(in))
	for _, s := range in {
		out = append(out, &v1.SupplyBucket{InstanceType: s.Kind.InstanceType, Zone: s.Kind.Zone, CapacityType: s.Kind.CapacityType, Arch: s.Kind.Arch,
			Os: s.Kind.OS, Region: s.Kind.Region, Idle: s.Idle, Speculative: s.Speculative, Configured: s.Configured, Allocatable: s.Allocatable.Wire, PricePerHour: s.Price})
	}
	return out
}

// WireShortfalls turns shortfalls back into what was reported, requirements included. Quantities of the deficit come
// back as equal values, not always in the same spelling.
func (b *Interner) WireShortfalls(in []Shortfall) []*v1.Shortfall {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]*v1.Shortfall, 0, len(in))
	for _, s := range in {
		deficit := &v1.Resources{Resources: map[string]string{}}
		for _, d := range s.Deficit {
			deficit.Resources[b.list[d.Name]] = quantity.Format(b.list[d.Name], d.Milli)
		}
		out = append(out, &v1.Shortfall{Requirements: s.Requirements.Wire, Deficit: deficit, Priority: s.Priority, AgeCycles: s.AgeCycles,
			InterruptionPenaltyBucket: s.Bucket, AgeSeconds: s.AgeSeconds, MinUnit: s.MinUnit.Wire, Fingerprint: s.Fingerprint,
			UnmetReason: s.Unmet, TopologyBound: s.TopologyBound})
	}
	return out
}
