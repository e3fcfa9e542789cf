package lifecycle

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// CapacityType says who pays while a machine is idle (PROV-9.4).
type CapacityType = bigfleetv1alpha1.CapacityType

// The capacity types, without the prefix of the generated names.
const (
	BareMetal = bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_BARE_METAL
	Reserved  = bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_RESERVED
	OnDemand  = bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_ON_DEMAND
	Spot      = bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_SPOT
)

// Taint is a taint that a node registers with.
type Taint struct{ Key, Value, Effect string }

// Attributes describe a machine apart from its life: what it is, where it is, what it costs.
type Attributes struct {
	InstanceType string
	Zone         string
	CapacityType CapacityType
	// PricePerHour is in US dollars per hour; 0 only for capacity without a bill.
	PricePerHour float64
	// InterruptionProbability is the chance per hour, in [0,1].
	InterruptionProbability float64
	// Resources is the request shape per replica; Allocatable what a kubelet will report, nil meaning the same.
	// Resource name to Kubernetes quantity.
	Resources, Allocatable map[string]string
	Labels                 map[string]string
	Taints                 []Taint
	// DrainEstimate is how long a Drain of the machine usually takes, in whole seconds; 0 is unknown (PROV-9.14).
	DrainEstimate time.Duration
}

// Shape is a checked, immutable set of Attributes with its wire encoding. Machines that look alike share one.
type Shape struct {
	attributes Attributes
	wire       []byte
}

// Attributes returns what the shape was made of. The caller must not change the maps.
func (s *Shape) Attributes() Attributes { return s.attributes }

// Wire is the shape as the fields of an encoded Machine. The caller must not change it. Two shapes are equal exactly
// when their wire forms are.
func (s *Shape) Wire() []byte { return s.wire }

// NewShape checks the attributes against the field rules of PROV-9 and encodes them. The maps must not change afterwards.
func NewShape(a Attributes) (*Shape, error) {
	if err := Check(a); err != nil {
		return nil, err
	}
	wire, err := proto.MarshalOptions{Deterministic: true}.Marshal(a.message())
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return &Shape{attributes: a, wire: wire}, nil
}

// ParseShape is the reverse of Wire, for a store. It checks like NewShape.
func ParseShape(wire []byte) (*Shape, error) {
	var m bigfleetv1alpha1.Machine
	if err := proto.Unmarshal(wire, &m); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	a := Attributes{
		InstanceType: m.GetInstanceType(), Zone: m.GetZone(), CapacityType: m.GetCapacityType(),
		PricePerHour: m.GetPricePerHour(), InterruptionProbability: m.GetInterruptionProbability(),
		Resources: m.GetResources().GetResources(), Allocatable: m.GetAllocatable().GetResources(), Labels: m.GetLabels(),
		DrainEstimate: time.Duration(m.GetDrainEstimateSeconds()) * time.Second,
	}
	for _, t := range m.GetTaints() {
		a.Taints = append(a.Taints, Taint{t.GetKey(), t.GetValue(), t.GetEffect()})
	}
	return NewShape(a)
}

func (a Attributes) message() *bigfleetv1alpha1.Machine {
	m := &bigfleetv1alpha1.Machine{
		InstanceType: a.InstanceType, Zone: a.Zone, CapacityType: a.CapacityType,
		PricePerHour: a.PricePerHour, InterruptionProbability: a.InterruptionProbability, Labels: a.Labels,
		DrainEstimateSeconds: int32(min((a.DrainEstimate+time.Second-1)/time.Second, math.MaxInt32)),
	}
	if len(a.Resources) > 0 {
		m.Resources = &bigfleetv1alpha1.Resources{Resources: a.Resources}
	}
	if len(a.Allocatable) > 0 {
		m.Allocatable = &bigfleetv1alpha1.Resources{Resources: a.Allocatable}
	}
	for _, t := range a.Taints {
		m.Taints = append(m.Taints, &bigfleetv1alpha1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect})
	}
	return m
}

// sample is a machine with these attributes, for the rules of Machine.
func (a Attributes) sample() *bigfleetv1alpha1.Machine {
	m := a.message()
	m.Id, m.State = "sample", Speculative
	return m
}

// shadowedLabels may not be labels, because the top-level fields answer them (PROV-9.7).
var shadowedLabels = [...]string{
	"instance-type", "instance_type", "instanceType", "zone", "availability-zone", "availability_zone",
	"capacity-type", "capacity_type", "capacityType",
	"node.kubernetes.io/instance-type", "topology.kubernetes.io/zone",
}

// Check names every broken rule of PROV-9.2 to 9.8 and 9.13, joined: the rules generated from the protos, and what they leave to the
// owner of a record.
func Check(a Attributes) error {
	var all []error
	bad := func(format string, args ...any) { all = append(all, fmt.Errorf(format, args...)) }
	if a.InstanceType == "" {
		bad("instance_type is empty")
	}
	if a.Zone == "" {
		bad("zone is empty; a provider with one location uses its name")
	}
	if a.CapacityType == 0 {
		bad("capacity_type must be bare metal, reserved, on-demand or spot")
	}
	for _, broken := range brokenRules(a.sample()) {
		bad("%s", broken.text)
	}
	if a.PricePerHour == 0 && (a.CapacityType == OnDemand || a.CapacityType == Spot) {
		bad("price_per_hour is missing: on-demand and spot capacity is billed, and a price of 0 wins every ranking")
	}
	if a.InterruptionProbability == 0 && a.CapacityType == Spot {
		bad("interruption_probability of spot capacity must be above 0")
	}
	for _, key := range shadowedLabels {
		if _, set := a.Labels[key]; set {
			bad("label %q is not allowed: the top-level field answers it", key)
		}
	}
	if err := checkText(a); err != nil {
		all = append(all, err)
	}
	if err := CheckQuantities(a.Resources, a.Allocatable); err != nil {
		all = append(all, err)
	}
	for _, t := range a.Taints {
		if t.Key == "" || !slices.Contains([]string{"NoSchedule", "PreferNoSchedule", "NoExecute"}, t.Effect) {
			bad("taint %q with effect %q: the key must not be empty, the effect is NoSchedule, PreferNoSchedule or NoExecute", t.Key, t.Effect)
		}
	}
	return errors.Join(all...)
}

// CheckQuantities names every broken rule of PROV-9.8, joined: quantities parse and are not negative, dimensions that both
// maps have are positive in resources.
func CheckQuantities(resources, allocatable map[string]string) error {
	var all []error
	for _, side := range []struct {
		field string
		m     map[string]string
	}{{"resources", resources}, {"allocatable", allocatable}} {
		for _, name := range sortedKeys(side.m) {
			sign, err := quantity.Sign(side.m[name])
			switch {
			case name == "":
				all = append(all, fmt.Errorf("%s has an empty resource name", side.field))
			case err != nil:
				all = append(all, fmt.Errorf("%s[%s]: %w", side.field, name, err))
			case sign < 0:
				all = append(all, fmt.Errorf("%s[%s] = %s is negative", side.field, name, side.m[name]))
			case sign == 0 && side.field == "resources" && allocatable[name] != "":
				all = append(all, fmt.Errorf("resources[%s] must be positive, because allocatable names it too", name))
			}
		}
	}
	return errors.Join(all...)
}

// checkText refuses text that cannot travel in a proto3 string.
func checkText(a Attributes) error {
	texts := []string{a.InstanceType, a.Zone}
	for _, m := range []map[string]string{a.Labels, a.Resources, a.Allocatable} {
		for k, v := range m {
			texts = append(texts, k, v)
		}
	}
	for _, t := range a.Taints {
		texts = append(texts, t.Key, t.Value)
	}
	for _, s := range texts {
		if !utf8.ValidString(s) {
			return fmt.Errorf("%q is not valid UTF-8", s)
		}
	}
	return nil
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// Machine returns the record as the message that leaves the provider. The caller owns it, but must not change its maps.
func (r *Record) Machine() *bigfleetv1alpha1.Machine {
	m := r.Shape.attributes.message()
	m.Id, m.State, m.Cluster, m.ShardMetadata = r.ID, r.State, r.Cluster, r.Metadata
	m.LastError, m.Failure = r.LastError, r.Failure
	if r.Host.Present() {
		m.Host = &bigfleetv1alpha1.HostRef{Provider: r.Host.Provider, Ref: r.Host.Ref}
	}
	return m
}

// AppendWire appends what the shape does not hold, in the encoding of Machine: AppendWire(nil) followed by Shape.Wire()
// is the whole encoded message. Metadata is written in the order of its keys, so equal records give equal bytes.
func (r *Record) AppendWire(b []byte) []byte {
	b = appendText(b, 1, r.ID)
	b = appendNumber(b, 2, uint64(r.State))
	if r.Host.Present() {
		host := appendText(appendText(nil, 1, r.Host.Provider), 2, r.Host.Ref)
		b = protowire.AppendBytes(protowire.AppendTag(b, 3, protowire.BytesType), host)
	}
	b = appendText(b, 12, r.LastError)
	b = appendText(b, 14, r.Cluster)
	for _, k := range sortedKeys(r.Metadata) {
		// Entries carry key and value even when empty, as every encoder does.
		entry := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), k)
		entry = protowire.AppendString(protowire.AppendTag(entry, 2, protowire.BytesType), r.Metadata[k])
		b = protowire.AppendBytes(protowire.AppendTag(b, 15, protowire.BytesType), entry)
	}
	return appendNumber(b, 1000, uint64(r.Failure))
}

func appendText(b []byte, field protowire.Number, s string) []byte {
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func appendNumber(b []byte, field protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}
