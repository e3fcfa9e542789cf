package ingest

import (
	"encoding/binary"
	"hash/maphash"
	"math"

	"google.golang.org/protobuf/encoding/protowire"

	pb "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
)

// parts are the fields of one encoded record, as slices of it.
type parts struct {
	id, hostProvider, hostRef, instanceType, zone, lastError, cluster []byte

	state, capacity, failure int32
	drainSeconds             int32
	price, probability       float64

	resources, allocatable, labels, metadata entries
	taints                                   [][]byte
}

// entries are the encoded entries of a map. Encoders write a map in any order; sum is the same for each of them.
type entries struct {
	list [][]byte
	sum  uint64
}

func (e *entries) add(seed maphash.Seed, raw []byte) {
	e.list = append(e.list, raw)
	e.sum += maphash.Bytes(seed, raw)
}

func (e *entries) reset() { e.list, e.sum = e.list[:0], 0 }

// The fields of Machine that are read here, and how they are encoded.
const (
	fieldID           = 1
	fieldState        = 2
	fieldHost         = 3
	fieldInstanceType = 4
	fieldZone         = 5
	fieldCapacity     = 6
	fieldPrice        = 7
	fieldProbability  = 8
	fieldResources    = 9
	fieldLabels       = 10
	fieldLastError    = 12
	fieldAllocatable  = 13
	fieldCluster      = 14
	fieldMetadata     = 15
	fieldFailure      = 1000
	fieldTaints       = 1001
	fieldDrainSeconds = 1002
)

// read takes a record apart. It knows what encoders write; for anything else that bytes may be (a field twice, one of another
// type, groups, bytes that end early) it answers false, and proto.Unmarshal says what they are.
func (p *parts) read(seed maphash.Seed, raw []byte) bool {
	labels, metadata, taints, resources, allocatable := p.labels, p.metadata, p.taints[:0], p.resources, p.allocatable
	for _, e := range []*entries{&labels, &metadata, &resources, &allocatable} {
		e.reset()
	}
	*p = parts{labels: labels, metadata: metadata, taints: taints, resources: resources, allocatable: allocatable}
	seen := uint32(0)
	for len(raw) > 0 {
		num, kind, n := protowire.ConsumeTag(raw)
		if n < 0 {
			return false
		}
		raw = raw[n:]
		if num < 32 && num != fieldLabels && num != fieldMetadata {
			if seen&(1<<num) != 0 {
				return false
			}
			seen |= 1 << num
		}
		var ok bool
		switch kind {
		case protowire.BytesType:
			var v []byte
			if v, n = protowire.ConsumeBytes(raw); n >= 0 {
				ok = p.bytes(seed, num, v)
			}
		case protowire.VarintType:
			var v uint64
			if v, n = protowire.ConsumeVarint(raw); n >= 0 {
				ok = p.varint(num, v)
			}
		case protowire.Fixed64Type:
			if n = 8; len(raw) >= n {
				ok = p.double(num, math.Float64frombits(binary.LittleEndian.Uint64(raw)))
			}
		}
		if !ok {
			return false
		}
		raw = raw[n:]
	}
	return true
}

func (p *parts) bytes(seed maphash.Seed, num protowire.Number, v []byte) bool {
	switch num {
	case fieldID:
		p.id = v
	case fieldHost:
		return p.readHost(v)
	case fieldInstanceType:
		p.instanceType = v
	case fieldZone:
		p.zone = v
	case fieldResources:
		return p.resources.readMap(seed, v)
	case fieldAllocatable:
		return p.allocatable.readMap(seed, v)
	case fieldLabels:
		p.labels.add(seed, v)
	case fieldLastError:
		p.lastError = v
	case fieldCluster:
		p.cluster = v
	case fieldMetadata:
		p.metadata.add(seed, v)
	case fieldTaints:
		p.taints = append(p.taints, v)
	default:
		return !known(num)
	}
	return true
}

func (p *parts) varint(num protowire.Number, v uint64) bool {
	switch num {
	case fieldState:
		p.state = int32(v)
	case fieldCapacity:
		p.capacity = int32(v)
	case fieldFailure:
		p.failure = int32(v)
	case fieldDrainSeconds:
		p.drainSeconds = int32(v)
	default:
		return !known(num)
	}
	return true
}

func (p *parts) double(num protowire.Number, v float64) bool {
	switch num {
	case fieldPrice:
		p.price = v
	case fieldProbability:
		p.probability = v
	default:
		return !known(num)
	}
	return true
}

// known reports whether Machine has a field of a number. One that it does not have is newer than this program and is left alone.
func known(num protowire.Number) bool { return machineFields.ByNumber(num) != nil }

var machineFields = (&pb.Machine{}).ProtoReflect().Descriptor().Fields()

// readMap reads Resources: a message of one map.
func (e *entries) readMap(seed maphash.Seed, raw []byte) bool {
	for len(raw) > 0 {
		v, rest, ok := cut(raw, 1)
		if !ok {
			return false
		}
		e.add(seed, v)
		raw = rest
	}
	return true
}

func (p *parts) readHost(raw []byte) (ok bool) {
	if len(raw) > 0 && raw[0] == 1<<3|byte(protowire.BytesType) {
		if p.hostProvider, raw, ok = cut(raw, 1); !ok {
			return false
		}
	}
	if len(raw) > 0 {
		if p.hostRef, raw, ok = cut(raw, 2); !ok {
			return false
		}
	}
	return len(raw) == 0
}

// cut takes the field num, which is bytes, off the front of a message.
func cut(raw []byte, num byte) (v, rest []byte, ok bool) {
	if len(raw) < 2 || raw[0] != num<<3|byte(protowire.BytesType) {
		return nil, nil, false
	}
	if size := int(raw[1]); size < 0x80 && len(raw) >= 2+size {
		return raw[2 : 2+size], raw[2+size:], true
	}
	v, n := protowire.ConsumeBytes(raw[1:])
	if n < 0 {
		return nil, nil, false
	}
	return v, raw[1+n:], true
}

// pair reads an entry of a map of strings.
func pair(raw []byte) (key, value []byte, ok bool) {
	if len(raw) > 0 && raw[0] == 1<<3|byte(protowire.BytesType) {
		if key, raw, ok = cut(raw, 1); !ok {
			return nil, nil, false
		}
	}
	if len(raw) > 0 {
		if value, raw, ok = cut(raw, 2); !ok {
			return nil, nil, false
		}
	}
	return key, value, len(raw) == 0
}
