package ingest

import (
	"hash/maphash"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/proto"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/core"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/inventory"
	"github.com/bigfleet-dev/bigfleet/services/shard/internal/resource"
)

// Batch gates the records of the Lists of a provider. Half a million machines are of a few types and stand in a few hundred racks: what one
// record offers and is labelled with is read once, and the records after it share it. What it gives out of a record is what
// Gate.Machine gives out of the message. A Batch is for one goroutine.
type Batch struct {
	gate         *Gate
	seed         maphash.Seed
	parts        parts
	texts        map[string]string
	labels       memo[[]inventory.Label]
	amounts      memo[[]resource.Quantity]
	attributions memo[parsedMetadata]
	taints       map[string][]inventory.Taint
	room         []byte // of ids and hosts of the records to come
}

// parsedMetadata is what metadata says.
type parsedMetadata struct {
	attribution inventory.Attribution
	has         bool
	owner       string
}

// batchKnown is how many readings of a kind a Batch remembers before it starts over.
const batchKnown = 1 << 14

// memo remembers what sets of map entries were read as.
type memo[T any] map[uint64]reading[T]

type reading[T any] struct {
	entries []string
	value   T
}

// get returns what the same entries, in whatever order, were read as.
func (m memo[T]) get(e *entries) (value T, ok bool) {
	r, ok := m[e.sum]
	if !ok || len(r.entries) != len(e.list) || len(e.list) > 64 {
		return value, false
	}
	found := uint64(0)
	for i, raw := range e.list {
		at := i
		if r.entries[at] != string(raw) {
			for at = 0; at < len(r.entries) && r.entries[at] != string(raw); at++ {
			}
			if at == len(r.entries) {
				return value, false
			}
		}
		found |= 1 << at
	}
	return r.value, found == 1<<len(e.list)-1
}

func (m memo[T]) put(e *entries, value T) {
	if len(m) >= batchKnown {
		clear(m)
	}
	r := reading[T]{value: value}
	for _, raw := range e.list {
		r.entries = append(r.entries, string(raw))
	}
	m[e.sum] = r
}

// Batch returns a Batch that remembers nothing yet.
func (g *Gate) Batch() *Batch {
	return &Batch{gate: g, seed: maphash.MakeSeed(), texts: map[string]string{}, labels: memo[[]inventory.Label]{},
		amounts: memo[[]resource.Quantity]{}, attributions: memo[parsedMetadata]{}, taints: map[string][]inventory.Taint{}}
}

// Record reads and gates one record. Of a refused one the fact has the id. An error says that the bytes are no record, which
// breaks the answer they are in.
func (b *Batch) Record(raw Record) (core.Fact, *Refused, error) {
	p := &b.parts
	apart := len(raw) <= recordTextMax && p.read(b.seed, raw) // no part of it can then be too large
	if apart && p.plain() {
		if f, ok := b.fact(); ok {
			return f, nil, nil
		}
	}
	m := &pb.Machine{}
	if err := proto.Unmarshal(raw, m); err != nil {
		return core.Fact{}, nil, err
	}
	f, refused := b.gate.Machine(m, "")
	if refused != nil {
		f.Machine.ID = clip(m.Id)
	} else if apart {
		b.passed(&p.resources, f.Machine.Resources)
		b.passed(&p.allocatable, f.Machine.Allocatable)
	}
	return f, refused, nil
}

// passed remembers amounts that only the rules could judge: they need them once.
func (b *Batch) passed(e *entries, as []resource.Quantity) {
	if _, ok := decode(e); ok && len(e.list) > 0 {
		b.amounts.put(e, as)
	}
}

// plain is the function plain for a record that is still encoded; its amounts are looked at where they are read.
func (p *parts) plain() bool {
	return plainFields(pb.MachineState(p.state), pb.CapacityType(p.capacity), p.price, p.probability,
		len(p.hostProvider) > 0 || len(p.hostRef) > 0, len(p.cluster) > 0, len(p.lastError) > 0) && len(p.id) > 0 && p.drainSeconds >= 0
}

// fact is the fact of a record that is plain, unless something in it is not.
func (b *Batch) fact() (f core.Fact, ok bool) {
	p := &b.parts
	if !utf8.Valid(p.id) || !utf8.Valid(p.hostRef) || !utf8.Valid(p.lastError) {
		return f, false
	}
	m := &f.Machine
	*m = inventory.Machine{ID: b.own(p.id), State: inventory.State(p.state), CapacityType: inventory.CapacityType(p.capacity),
		Price: inventory.PriceOfDollars(p.price), Probability: inventory.ProbabilityOf(p.probability), LastError: string(p.lastError),
		Failure: p.failure, DrainSeconds: p.drainSeconds, HostRef: b.own(p.hostRef)}
	var texts [4]bool
	m.InstanceType, texts[0] = b.text(p.instanceType)
	m.Zone, texts[1] = b.text(p.zone)
	m.Cluster, texts[2] = b.text(p.cluster)
	m.HostProvider, texts[3] = b.text(p.hostProvider)
	if texts != [4]bool{true, true, true, true} {
		return f, false
	}
	if m.Resources, ok = b.supply(&p.resources); !ok {
		return f, false
	}
	if m.Allocatable, ok = b.supply(&p.allocatable); !ok {
		return f, false
	}
	if m.Labels, ok = b.labelled(); !ok {
		return f, false
	}
	if m.Taints, ok = b.tainted(); !ok {
		return f, false
	}
	said, ok := b.parsed()
	f.Attribution, f.HasAttribution, f.Owner = said.attribution, said.has, said.owner
	return f, ok
}

// own copies what no two records have in common, for many records into one piece of memory.
func (b *Batch) own(s []byte) string {
	if len(s) == 0 {
		return ""
	}
	if cap(b.room)-len(b.room) < len(s) {
		b.room = make([]byte, 0, max(8<<10, len(s)))
	}
	from := len(b.room)
	b.room = append(b.room, s...)
	return unsafe.String(&b.room[from], len(s)) // nothing writes here again
}

// text returns a string that many records have in common.
func (b *Batch) text(s []byte) (string, bool) {
	if len(s) == 0 {
		return "", true
	}
	if known, ok := b.texts[string(s)]; ok {
		return known, true
	}
	if !utf8.Valid(s) {
		return "", false
	}
	if len(b.texts) >= batchKnown {
		clear(b.texts)
	}
	own := string(s)
	b.texts[own] = own
	return own, true
}

// supply reads amounts that are plain or that the rules passed before.
func (b *Batch) supply(e *entries) ([]resource.Quantity, bool) {
	if len(e.list) == 0 {
		return nil, true
	}
	if known, ok := b.amounts.get(e); ok {
		return known, true
	}
	said, ok := decode(e)
	if !ok || !plainAmounts(said) {
		return nil, false
	}
	out, refused := supply("", said)
	if refused != nil {
		return nil, false
	}
	b.amounts.put(e, out)
	return out, true
}

func (b *Batch) labelled() ([]inventory.Label, bool) {
	e := &b.parts.labels
	if len(e.list) == 0 {
		return nil, true
	}
	if known, ok := b.labels.get(e); ok {
		return known, true
	}
	said, ok := decode(e)
	if !ok {
		return nil, false
	}
	out := sortLabels(said)
	b.labels.put(e, out)
	return out, true
}

func (b *Batch) parsed() (parsedMetadata, bool) {
	e := &b.parts.metadata
	if len(e.list) == 0 {
		return parsedMetadata{}, true
	}
	if known, ok := b.attributions.get(e); ok {
		return known, true
	}
	said, ok := decode(e)
	if !ok {
		return parsedMetadata{}, false
	}
	f := core.Fact{}
	readMetadata(&f, said)
	out := parsedMetadata{f.Attribution, f.HasAttribution, f.Owner}
	b.attributions.put(e, out)
	return out, true
}

// tainted reads taints, whose order counts.
func (b *Batch) tainted() ([]inventory.Taint, bool) {
	if len(b.parts.taints) == 0 {
		return nil, true
	}
	key := make([]byte, 0, 128)
	for _, raw := range b.parts.taints {
		key = append(append(key, byte(len(raw)), byte(len(raw)>>8), byte(len(raw)>>16), byte(len(raw)>>24)), raw...)
	}
	if known, ok := b.taints[string(key)]; ok {
		return known, true
	}
	m := &pb.Machine{}
	for _, raw := range b.parts.taints {
		t := &pb.Taint{}
		if proto.Unmarshal(raw, t) != nil {
			return nil, false
		}
		m.Taints = append(m.Taints, t)
	}
	if len(b.taints) >= batchKnown {
		clear(b.taints)
	}
	out := taintsOf(m)
	b.taints[string(key)] = out
	return out, true
}

// decode spells a map out. Where a key comes twice, the order of entries counts, and that is nothing to remember by their sum.
func decode(e *entries) (map[string]string, bool) {
	out := make(map[string]string, len(e.list))
	for _, raw := range e.list {
		k, v, ok := pair(raw)
		if !ok || !utf8.Valid(k) || !utf8.Valid(v) {
			return nil, false
		}
		out[string(k)] = string(v)
	}
	return out, len(out) == len(e.list)
}
