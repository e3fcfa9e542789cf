package ingest

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/identity/quantity"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Refused says why a machine record did not pass the gate (WIRE-3.10).
type Refused struct {
	Reason string
	Text   string
}

func (r *Refused) Error() string { return r.Reason + ": " + r.Text }

// Machine turns a provider's record into a fact, or says why it is refused. A record in an ack or a Get answer must be
// of the machine asked for: pass its id as want, or "" where any will do.
func (g *Gate) Machine(m *pb.Machine, want string) (core.Fact, *Refused) {
	switch {
	case m == nil:
		return core.Fact{}, &Refused{"structural", "no record"}
	case m.Id == "":
		return core.Fact{}, &Refused{"identity", "the record has no id"}
	case len(m.Id) > recordTextMax:
		return core.Fact{}, &Refused{"identity", fmt.Sprintf("the id has %d bytes; at most %d are accepted", len(m.Id), recordTextMax)}
	case keptBytes(m) > recordBytesMax:
		return core.Fact{}, &Refused{"structural", fmt.Sprintf("the record has %d bytes without its metadata; at most %d are accepted", keptBytes(m), recordBytesMax)}
	case want != "" && m.Id != want:
		return core.Fact{}, &Refused{"identity", fmt.Sprintf("the provider answered with a record of %q instead of %q", clip(m.Id), clip(want))}
	}
	if !plain(m) {
		if err := g.rules.Validate(m); err != nil {
			return core.Fact{}, machineViolation(err)
		}
	}
	f := core.Fact{Machine: inventory.Machine{
		ID: m.Id, State: inventory.State(m.State), InstanceType: m.InstanceType, Zone: m.Zone,
		CapacityType: inventory.CapacityType(m.CapacityType), Price: inventory.PriceOfDollars(m.PricePerHour),
		Probability: inventory.ProbabilityOf(m.InterruptionProbability), Cluster: m.Cluster, LastError: cutError(m.LastError),
		Failure: int32(m.Failure), DrainSeconds: m.DrainEstimateSeconds, HostProvider: m.GetHost().GetProvider(), HostRef: m.GetHost().GetRef(),
	}}
	var refused *Refused
	if f.Machine.Resources, refused = supply("resources", m.GetResources().GetResources()); refused != nil {
		return core.Fact{}, refused
	}
	if f.Machine.Allocatable, refused = supply("allocatable", m.GetAllocatable().GetResources()); refused != nil {
		return core.Fact{}, refused
	}
	f.Machine.Labels, f.Machine.Taints = sortLabels(m.Labels), taintsOf(m)
	readMetadata(&f, m.ShardMetadata)
	return f, nil
}

// What a record may hold. A shard keeps it for each of its machines, and a provider may be broken.
const (
	recordBytesMax = 64 << 10 // without metadata, of which little is kept
	recordTextMax  = 4 << 10  // its id, and what is kept of an error
)

// keptBytes is the size of a record without its metadata.
func keptBytes(m *pb.Machine) int {
	n := proto.Size(m)
	if n <= recordBytesMax {
		return n
	}
	for k, v := range m.ShardMetadata {
		n -= len(k) + len(v)
	}
	return n
}

func cutError(s string) string {
	if len(s) <= recordTextMax {
		return s
	}
	return strings.ToValidUTF8(s[:recordTextMax], "")
}

func sortLabels(m map[string]string) []inventory.Label {
	if len(m) == 0 {
		return nil
	}
	out := make([]inventory.Label, 0, len(m))
	for k, v := range m {
		out = append(out, inventory.Label{Key: k, Value: v})
	}
	slices.SortFunc(out, func(x, y inventory.Label) int { return strings.Compare(x.Key, y.Key) })
	return out
}

func taintsOf(m *pb.Machine) (out []inventory.Taint) {
	for _, t := range m.Taints {
		out = append(out, inventory.Taint{Key: t.GetKey(), Value: t.GetValue(), Effect: t.GetEffect()})
	}
	return out
}

func machineViolation(err error) *Refused {
	var bad *protovalidate.ValidationError
	if !errors.As(err, &bad) || len(bad.Violations) == 0 {
		return &Refused{"structural", clip(err.Error())}
	}
	r := &Refused{"structural", clip(err.Error())}
	for _, v := range bad.Violations {
		path := protovalidate.FieldPathString(v.Proto.GetField())
		switch {
		case path == "price_per_hour":
			return &Refused{"price", clip(v.Proto.GetMessage())}
		case path == "interruption_probability":
			r = &Refused{"interruption_probability", clip(v.Proto.GetMessage())}
		case path == "id":
			return &Refused{"identity", clip(v.Proto.GetMessage())}
		case strings.HasPrefix(path, "resources") || strings.HasPrefix(path, "allocatable"):
			if r.Reason == "structural" {
				r = &Refused{"quantity", path + ": " + clip(v.Proto.GetMessage())}
			}
		}
	}
	return r
}

// supply reads what a machine offers, rounded down. A negative amount refuses the record.
func supply(field string, m map[string]string) ([]resource.Quantity, *Refused) {
	if len(m) == 0 {
		return nil, nil
	}
	out := make([]resource.Quantity, 0, len(m))
	for _, name := range sortedNames(m) {
		v, err := quantity.Parse(m[name], quantity.Down)
		switch {
		case err != nil && !errors.Is(err, quantity.ErrRange):
			return nil, &Refused{"quantity", fmt.Sprintf("%s of %s: %q is %v", field, clip(name), clip(m[name]), err)}
		case v < 0:
			return nil, &Refused{"quantity", fmt.Sprintf("%s of %s is negative: %q", field, clip(name), clip(m[name]))}
		case name == "" || v == 0:
			continue
		}
		out = append(out, resource.Quantity{Name: name, Milli: v})
	}
	return out, nil
}

// readMetadata takes the attribution out of the echoed map, key by key: absent leaves zero, unknown is ignored,
// malformed is skipped (SHARD-13.14). The map itself is not kept.
func readMetadata(f *core.Fact, m map[string]string) {
	priority, interruption, reclamation, fingerprint, group, owner := core.MetadataKeys()
	text := func(key string) (string, bool) {
		v, ok := m[key]
		return v, ok && len(v) <= recordTextMax
	}
	if v, ok := text(fingerprint); ok {
		f.Attribution.Fingerprint, f.HasAttribution = v, true
	}
	if v, ok := text(group); ok {
		f.Attribution.Group = v
	}
	if v, ok := m[priority]; ok {
		if n, err := strconv.ParseInt(v, 10, 32); err == nil {
			f.Attribution.Priority, f.HasAttribution = int32(n), true
		}
	}
	if p, ok := penalty(m[interruption]); ok {
		f.Attribution.Interruption, f.HasAttribution = p, true
	}
	if p, ok := penalty(m[reclamation]); ok {
		f.Attribution.Reclamation, f.HasAttribution = p, true
	}
	f.Owner, _ = text(owner)
}

func penalty(s string) (demand.Penalty, bool) {
	if s == "" {
		return 0, false
	}
	d, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(d, 0) || math.IsNaN(d) {
		return 0, false
	}
	return demand.PenaltyOfDollars(d), true
}
