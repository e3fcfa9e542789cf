package conformance

import (
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"

	bigfleetv1alpha1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"buf.build/go/protovalidate"
	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
)

// faultsOf is recordFaults, remembered: a large inventory is listed again and again, and its records are alike but for the id.
func (s *suite) faultsOf(m *machine) []string {
	if m.GetId() == "" {
		return recordFaults(m)
	}
	id := m.GetId()
	m.Id = "x" // no rule looks at an id beyond its being there
	bytes, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	m.Id = id
	if err != nil {
		return recordFaults(m)
	}
	key := maphash.Bytes(s.judgedSeed, bytes)
	if faults, known := s.judged.Load(key); known {
		return faults.([]string)
	}
	faults := recordFaults(m)
	s.judged.Store(key, faults)
	return faults
}

// recordFaults lists the rules of PROV-3 and PROV-9 that a record breaks.
func recordFaults(m *machine) (all []string) {
	bad := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if err := protovalidate.Validate(m); err != nil {
		bad("%v", err)
	}
	state, hasHost := m.GetState(), m.GetHost().GetProvider() != "" || m.GetHost().GetRef() != ""
	bound := lifecycle.Bound(state)
	switch {
	case state == failed:
	case hasHost && !lifecycle.HasHost(state):
		bad("%s with a host", name(state))
	case !hasHost && lifecycle.HasHost(state):
		bad("%s without a host", name(state))
	case bound && m.GetCluster() == "":
		bad("%s without a cluster", name(state))
	case !bound && (m.GetCluster() != "" || len(m.GetShardMetadata()) > 0):
		bad("%s with cluster %q and %d metadata keys", name(state), m.GetCluster(), len(m.GetShardMetadata()))
	}
	if state == failed && m.GetLastError() == "" {
		bad("FAILED without last_error")
	}
	if state != failed && m.GetLastError() != "" {
		bad("%s with last_error %q", name(state), m.GetLastError())
	}
	if len(m.GetLastError()) > 2048 {
		bad("last_error has %d bytes", len(m.GetLastError()))
	}
	if m.GetInstanceType() == "" {
		bad("instance_type is missing")
	}
	if hasHost && m.GetZone() == "" {
		bad("the machine has a host but no zone")
	}
	if m.GetCapacityType() == 0 {
		bad("capacity_type is missing")
	}
	if p := m.GetPricePerHour(); math.IsNaN(p) || math.IsInf(p, 0) || p < 0 {
		bad("price_per_hour %v", p)
	}
	if m.GetCapacityType() == bigfleetv1alpha1.CapacityType_CAPACITY_TYPE_SPOT && m.GetInterruptionProbability() <= 0 {
		bad("SPOT with interruption_probability %v", m.GetInterruptionProbability())
	}
	for _, key := range []string{
		"instance-type", "instance_type", "instanceType", "zone", "availability-zone", "availability_zone",
		"capacity-type", "capacity_type", "capacityType",
	} {
		if _, there := m.GetLabels()[key]; there {
			bad("label %q repeats a top-level field", key)
		}
	}
	return append(all, quantityFaults(m)...)
}

func quantityFaults(m *machine) (all []string) {
	if m.GetResources() != nil && len(m.GetResources().GetResources()) == 0 || m.GetAllocatable() != nil && len(m.GetAllocatable().GetResources()) == 0 {
		all = append(all, "resources or allocatable is set and empty")
	}
	if err := lifecycle.CheckQuantities(m.GetResources().GetResources(), m.GetAllocatable().GetResources()); err != nil {
		all = append(all, err.Error())
	}
	return all
}

// difference says how two pictures of one machine differ, empty when they do not. Prices may move by themselves.
func difference(a, b *machine) string {
	x, y := proto.CloneOf(a), proto.CloneOf(b)
	for _, m := range []*machine{x, y} {
		m.PricePerHour, m.InterruptionProbability = 0, 0
	}
	if proto.Equal(x, y) {
		return ""
	}
	var out []string
	field := func(what string, a, b any) {
		if fmt.Sprint(a) != fmt.Sprint(b) {
			out = append(out, fmt.Sprintf("%s %v -> %v", what, a, b))
		}
	}
	field("state", name(x.GetState()), name(y.GetState()))
	field("host", x.GetHost(), y.GetHost())
	field("cluster", x.GetCluster(), y.GetCluster())
	field("last_error", x.GetLastError(), y.GetLastError())
	if !maps.Equal(x.GetShardMetadata(), y.GetShardMetadata()) {
		out = append(out, "shard_metadata")
	}
	if len(out) == 0 {
		out = append(out, "attributes")
	}
	return strings.Join(out, ", ")
}

// dialogue records calls and answers, the newest few hundred.
type dialogue struct {
	mu    sync.Mutex
	all   []string
	lost  int
	again int // repetitions of the newest line
}

const dialogueMax = 200

func (d *dialogue) add(line string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if n := len(d.all); n > 0 && d.all[n-1] == line {
		d.again++
		return
	}
	d.flush()
	d.all = append(d.all, line)
	if len(d.all) > dialogueMax {
		d.all = slices.Delete(d.all, 0, 1)
		d.lost++
	}
}

func (d *dialogue) flush() {
	if d.again > 0 {
		d.all[len(d.all)-1] += fmt.Sprintf("   (%d times)", d.again+1)
		d.again = 0
	}
}

func (d *dialogue) lines() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.flush()
	if d.lost > 0 {
		return append([]string{fmt.Sprintf("(%d earlier lines)", d.lost)}, d.all...)
	}
	return slices.Clone(d.all)
}

func (d *dialogue) mutation(q request, a *ack, err error) {
	line := fmt.Sprintf("%s %s", q.kind, short(q.machine))
	switch q.kind {
	case lifecycle.Configure:
		line += fmt.Sprintf(" cluster=%s metadata=%d", short(q.cluster), len(q.metadata))
	case lifecycle.Drain:
		line += fmt.Sprintf(" grace=%d", q.grace)
	}
	line += fmt.Sprintf(" token=(%s, %d, %d)", short(q.fence.shard), q.fence.epoch, q.fence.sequence)
	if err != nil {
		d.add(line + " -> " + problem(err))
		return
	}
	d.add(fmt.Sprintf("%s -> OK %s %s", line, short(a.GetOperationId()), brief(a.GetMachine())))
}

func (d *dialogue) reads(what string, m *machine, err error) {
	if err != nil {
		d.add(short(what) + " -> " + problem(err))
		return
	}
	d.add(short(what) + " -> " + brief(m))
}

func (d *dialogue) listed(f *bigfleetv1alpha1.ListFilter, res *connect.Response[bigfleetv1alpha1.MachineList], err error) {
	line := fmt.Sprintf("List states=%v max=%d since=%x", f.GetStates(), f.GetMaxResults(), f.GetSinceRevision()[:min(len(f.GetSinceRevision()), 24)])
	if err != nil {
		d.add(line + " -> " + problem(err))
		return
	}
	l := res.Msg
	d.add(fmt.Sprintf("%s -> %d machines, %d removed, complete=%v more=%v revision=%x", line, len(l.GetMachines()), len(l.GetRemovedIds()),
		l.GetComplete(), l.GetMore(), l.GetRevision()[:min(len(l.GetRevision()), 40)]))
}

func problem(err error) string { return codeName(codeOf(err)) + ": " + short(err.Error()) }

func brief(m *machine) string {
	if m == nil {
		return "no machine"
	}
	out := name(m.GetState())
	if m.GetHost().GetRef() != "" {
		out += " host=" + short(m.GetHost().GetRef())
	}
	if m.GetCluster() != "" {
		out += fmt.Sprintf(" cluster=%s metadata=%d", short(m.GetCluster()), len(m.GetShardMetadata()))
	}
	if m.GetLastError() != "" {
		out += fmt.Sprintf(" last_error=%q", short(m.GetLastError()))
	}
	return out
}

// short keeps a line readable.
func short(s string) string {
	s = strings.Map(func(r rune) rune {
		if r < ' ' {
			return '?'
		}
		return r
	}, s)
	if len(s) > 120 {
		return s[:100] + fmt.Sprintf("… (%d bytes)", len(s))
	}
	return s
}
