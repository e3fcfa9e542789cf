package ingest

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/codec"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/demand"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Limits of what a roll-up may be (WIRE-4.4).
type Limits struct {
	RollupBytes int64
	RollupNeeds int64
}

// Gate checks what comes from outside.
type Gate struct {
	rules  protovalidate.Validator
	limits Limits
	// GiveWay is called now and then while a large roll-up is turned into core form; it may wait for what has to come first. May be nil.
	GiveWay func()
}

// rowsAtOnce is how many rows are turned into core form, or named, before what has to come first has its way.
const rowsAtOnce = 64

func (g *Gate) giveWay(row int) {
	if g.GiveWay != nil && row%rowsAtOnce == rowsAtOnce-1 {
		g.GiveWay()
	}
}

// New compiles the rules once.
func New(l Limits) (*Gate, error) {
	v, err := protovalidate.New(protovalidate.WithMessages(&pb.ClusterCapacityNeeds{}, &pb.Machine{}, &pb.Hello{}, &pb.BootstrapBlobResponse{},
		&pb.ReclaimAck{}, &pb.NodeReport{}, &pb.DrainReport{}, &pb.UnplacedPods{}, &pb.CoordinatorInstruction{}))
	if err != nil {
		return nil, fmt.Errorf("compile the rules of the wire contract: %w", err)
	}
	return &Gate{rules: v, limits: l}, nil
}

// Check runs the generated rules on one payload and says in one line what is wrong.
func (g *Gate) Check(m proto.Message) error { return g.rules.Validate(m) }

// Oversize refuses a roll-up by its size, before it is decoded: decoding takes many times as much memory. ok is false if it is small enough.
func (g *Gate) Oversize(raw []byte, cluster string) (e core.RollupArrived, ok bool) {
	if int64(len(raw)) <= g.limits.RollupBytes {
		return e, false
	}
	e = core.RollupArrived{Cluster: cluster, Bytes: int64(len(raw)), Reject: g.tooManyBytes(len(raw))}
	for rest := raw; len(rest) > 0; {
		num, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			break
		}
		if num == 2 && kind == protowire.VarintType { // when it was made, which the answer repeats
			if at, m := protowire.ConsumeVarint(rest[n:]); m > 0 {
				e.Timestamp = int64(at)
			}
		}
		size := protowire.ConsumeFieldValue(num, kind, rest[n:])
		if size < 0 {
			break
		}
		rest = rest[n+size:]
	}
	return e, true
}

func (g *Gate) tooManyBytes(size int) *core.Rejection {
	return reject("too_large", fmt.Sprintf("%d bytes; at most %d are accepted", size, g.limits.RollupBytes), -1, "")
}

// Soft limits, above which a roll-up is accepted with a warning (WIRE-4.4).
const (
	softBytes = 1 << 20
	softNeeds = 1000
	aheadMax  = 10 * time.Minute
	warnings  = 20 // lines kept per roll-up
)

// Rollup turns a roll-up into core form, or says why it is refused. size is its encoded size, cluster the session's,
// now the receiver's clock. The event's session and arrival are for the caller to fill in.
func (g *Gate) Rollup(m *pb.ClusterCapacityNeeds, cluster string, size int, now time.Time) core.RollupArrived {
	e := core.RollupArrived{Cluster: cluster, Bytes: int64(size)}
	if m == nil {
		e.Reject = reject("empty", "the roll-up has no payload", -1, "")
		return e
	}
	e.Timestamp, e.RowCount = m.TimestampUnixNanos, int64(len(m.Needs))
	if e.Reject = g.refuse(m, cluster, size); e.Reject != nil {
		return e
	}
	r := reader{}
	r.soft(m, size, now)
	rows := make([]demand.Row, len(m.Needs))
	for i, n := range m.Needs {
		rows[i] = r.need(i, n)
		rows[i].Seal()
		g.giveWay(i)
	}
	e.Rows = rows
	e.Overhead = r.quantities(-1, "node_overhead", m.NodeOverhead)
	for _, n := range m.NodeRooms {
		e.Rooms = append(e.Rooms, demand.Room{Type: n.GetInstanceType(), Amounts: r.quantities(-1, "node_rooms", n.GetResources())})
	}
	e.Warnings = r.warnings
	if e.Reject = cmp.Or(sums(e.Rows), tooWide(e.Rows), tooManyKeys(&e), tooManyValues(&e)); e.Reject != nil {
		e.Rows, e.Overhead, e.Rooms, e.LabelKeys, e.TopologyKeys = nil, nil, nil, nil, nil
		return e
	}
	e.Rows = inOrder(rows)
	e.OutOfService = outOfService(m.OutOfService)
	e.Hash = g.contentHash(e.Rows, e.Overhead, e.OutOfService, e.Rooms)
	return e
}

// inOrder returns rows by profile and group, and those of one group as they came. Rows are large, so they are moved once.
func inOrder(rows []demand.Row) []demand.Row {
	at := make([]int32, len(rows))
	for i := range at {
		at[i] = int32(i)
	}
	slices.SortFunc(at, func(a, b int32) int {
		x, y := &rows[a], &rows[b]
		if c := strings.Compare(x.Fingerprint, y.Fingerprint); c != 0 {
			return c
		}
		return cmp.Or(strings.Compare(x.Group, y.Group), cmp.Compare(a, b))
	})
	out := make([]demand.Row, len(rows))
	for i, from := range at {
		out[i] = rows[from]
	}
	return out
}

func reject(reason, message string, index int64, path string) *core.Rejection {
	return &core.Rejection{Reason: reason, Message: message, NeedIndex: index, FieldPath: path}
}

// refuse applies the hard rules in the order of WIRE-3.9.
func (g *Gate) refuse(m *pb.ClusterCapacityNeeds, cluster string, size int) *core.Rejection {
	switch {
	case int64(size) > g.limits.RollupBytes:
		return g.tooManyBytes(size)
	case int64(len(m.Needs)) > g.limits.RollupNeeds:
		return reject("too_large", fmt.Sprintf("%d rows; at most %d are accepted", len(m.Needs), g.limits.RollupNeeds), -1, "needs")
	case m.ClusterId != cluster:
		return reject("foreign_cluster", fmt.Sprintf("the roll-up names cluster %q, but the session belongs to %q", clip(m.ClusterId), cluster), -1, "cluster_id")
	}
	for i, n := range m.Needs {
		if olderGeneration(n) {
			return reject("invalid", "the roll-up has an older generation than the last one", int64(i), "needs.4")
		}
	}
	return g.inParts(m)
}

// olderGeneration finds field number 4, which an older generation used for a replica count: both decode without error
// and mean different amounts (WIRE-1.8).
func olderGeneration(n *pb.CapacityNeed) bool {
	if n == nil {
		return false
	}
	for b := n.ProtoReflect().GetUnknown(); len(b) > 0; {
		num, typ, l := protowire.ConsumeTag(b)
		if l < 0 {
			return false
		}
		if num == 4 {
			return true
		}
		size := protowire.ConsumeFieldValue(num, typ, b[l:])
		if size < 0 {
			return false
		}
		b = b[l+size:]
	}
	return false
}

// sums refuses amounts whose total over the roll-up leaves 63 bits: past that point nothing can be compared.
func sums(rows []demand.Row) *core.Rejection {
	total := map[string]int64{}
	for i := range rows {
		for _, q := range rows[i].Aggregate {
			if total[q.Name]+q.Milli < total[q.Name] {
				return reject("quantity", fmt.Sprintf("the sum of %s over the roll-up does not fit", clip(q.Name)), int64(i),
					fmt.Sprintf("needs[%d].aggregate_resources[%q]", i, clip(q.Name)))
			}
			total[q.Name] += q.Milli
		}
	}
	return nil
}

// A plan keeps a few numbers for each row and each resource that any row of its cluster names.
const (
	resourceNamesMax = 1024      // distinct names in a roll-up; a cluster knows a few dozen
	rowNamesMax      = 2_000_000 // rows times distinct names: 48 MB in a plan
)

// tooWide refuses what would take memory out of proportion to its size: each row with a resource of its own makes a table of
// rows times rows.
func tooWide(rows []demand.Row) *core.Rejection {
	names := map[string]bool{}
	for i := range rows {
		for _, list := range [...][]resource.Quantity{rows[i].Aggregate, rows[i].MinUnit} {
			for _, q := range list {
				names[q.Name] = true
			}
		}
		if len(names) > resourceNamesMax {
			return reject("too_large", fmt.Sprintf("more than %d resource names in one roll-up", resourceNamesMax), int64(i), "needs")
		}
	}
	if n := len(rows) * len(names); n > rowNamesMax {
		return reject("too_large", fmt.Sprintf("%d rows times %d resource names; at most %d are accepted", len(rows), len(names), rowNamesMax), -1, "needs")
	}
	return nil
}

// The shard classes its machines by the label keys that rows name, and keeps an index of all machines for each topology key.
const (
	labelKeysMax    = 1024
	topologyKeysMax = 64
)

// tooManyKeys refuses what would make the shard look at all of its machines too often: rows that each name a key of their own.
func tooManyKeys(e *core.RollupArrived) *core.Rejection {
	switch e.LabelKeys, e.TopologyKeys = demand.KeysOf(e.Rows); {
	case len(e.TopologyKeys) > topologyKeysMax:
		return reject("too_large", fmt.Sprintf("%d topology keys in one roll-up; at most %d are accepted", len(e.TopologyKeys), topologyKeysMax), -1, "needs")
	case len(e.LabelKeys) > labelKeysMax:
		return reject("too_large", fmt.Sprintf("%d label keys in one roll-up; at most %d are accepted", len(e.LabelKeys), labelKeysMax), -1, "needs")
	}
	return nil
}

// A shard keeps a few bytes for each class of machines that each different profile matches, and values of keys that tell many machines apart make classes
// (ENG-6.5b). Of a key with up to inventory.WideMin values it is machines that make them.
const (
	keyValuesMax     = 65_536     // of one key
	profileValuesMax = 25_000_000 // of keys with more than inventory.WideMin, times different profiles
)

// tooManyValues refuses what would take memory and time out of proportion to its size: rows that each name a value of its own tell as many classes apart.
func tooManyValues(e *core.RollupArrived) *core.Rejection {
	named, wide := demand.ValuesOf(e.Rows, keyValuesMax), 0
	for _, key := range slices.Sorted(maps.Keys(named)) {
		if named[key] > keyValuesMax {
			return reject("too_large", fmt.Sprintf("more than %d values of label key %s in one roll-up", keyValuesMax, clip(key)), -1, "needs")
		}
		if e.Width.Values += int64(named[key]); named[key] > inventory.WideMin {
			wide += named[key]
		}
	}
	n := demand.Matches(e.Rows)
	if e.Width.Requirements = int64(n); n*wide > profileValuesMax {
		return reject("too_large", fmt.Sprintf("%d different combinations of requirements and tolerations, times %d values of label keys of which the roll-up names more than %d; "+
			"at most %d are accepted", n, wide, inventory.WideMin, profileValuesMax), -1, "needs")
	}
	return nil
}

// outOfService reads the machines whose nodes take no Pods, by id. One that is named twice counts once.
func outOfService(list []*pb.MachineOutOfService) (out []core.OutOfService) {
	for _, m := range list {
		out = append(out, core.OutOfService{Machine: m.GetMachineId(), Reason: int32(m.GetReason()), Since: m.GetSinceUnixNanos(), Pods: max(0, int64(m.GetPods())), Detail: clip(m.GetDetail())})
	}
	slices.SortStableFunc(out, func(a, b core.OutOfService) int { return strings.Compare(a.Machine, b.Machine) })
	return slices.CompactFunc(out, func(a, b core.OutOfService) bool { return a.Machine == b.Machine })
}

// contentHash names the content of a roll-up: equal content, whatever the order of rows on the wire, has equal names.
func (g *Gate) contentHash(rows []demand.Row, overhead []resource.Quantity, out []core.OutOfService, rooms []demand.Room) string {
	type rest struct {
		Overhead []resource.Quantity `n:"2"`
		Out      []core.OutOfService `n:"3"`
		Rooms    []demand.Room       `n:"4"`
	}
	sum, buf := sha256.New(), []byte(nil)
	write := func(v any) { // a part at a time: a roll-up may have 256 MiB
		buf = codec.Append(buf[:0], v)
		sum.Write(binary.BigEndian.AppendUint64(nil, uint64(len(buf))))
		sum.Write(buf)
	}
	for i := range rows {
		write(&rows[i])
		g.giveWay(i)
	}
	write(rest{overhead, out, rooms})
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

func sortedNames(m map[string]string) []string {
	names := make([]string, 0, len(m))
	for n := range m {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func clip(s string) string {
	const most = 256
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}
