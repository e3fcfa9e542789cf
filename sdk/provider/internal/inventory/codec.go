package inventory

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bigfleet-dev/bigfleet/sdk/provider/lifecycle"

	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of a stored record. Numbers are never reused; an unknown one is skipped, so an older program can read what a
// newer one of the same format wrote.
const (
	fieldRevision     = 1
	fieldState        = 2
	fieldHostProvider = 3
	fieldHostRef      = 4
	fieldCluster      = 5
	fieldMetadataKey  = 6 // followed by its fieldMetadataValue
	fieldMetadataVal  = 7
	fieldLastError    = 8
	fieldFailure      = 9
	fieldShape        = 10
	fieldOperations   = 11 // four times, in the order of the kinds
	fieldOffering     = 12
	fieldIndex        = 13
	fieldGeneration   = 14
	fieldDoing        = 15
	fieldLost         = 16
	fieldGrace        = 17
	fieldAcceptedAt   = 18
	fieldChangedAt    = 19
)

func appendRow(b []byte, w *Row) []byte {
	r := w.Record
	text := func(f protowire.Number, s string) {
		if s != "" {
			b = protowire.AppendString(protowire.AppendTag(b, f, protowire.BytesType), s)
		}
	}
	num := func(f protowire.Number, v uint64) {
		if v != 0 {
			b = protowire.AppendVarint(protowire.AppendTag(b, f, protowire.VarintType), v)
		}
	}
	num(fieldRevision, w.Revision)
	num(fieldState, uint64(r.State))
	text(fieldHostProvider, r.Host.Provider)
	text(fieldHostRef, r.Host.Ref)
	text(fieldCluster, r.Cluster)
	for _, k := range slices.Sorted(maps.Keys(r.Metadata)) {
		b = protowire.AppendString(protowire.AppendTag(b, fieldMetadataKey, protowire.BytesType), k)
		b = protowire.AppendString(protowire.AppendTag(b, fieldMetadataVal, protowire.BytesType), r.Metadata[k])
	}
	text(fieldLastError, r.LastError)
	num(fieldFailure, uint64(r.Failure))
	b = protowire.AppendBytes(protowire.AppendTag(b, fieldShape, protowire.BytesType), r.Shape.Wire())
	if r.Operations != [5]string{} {
		for _, k := range lifecycle.Kinds() {
			b = protowire.AppendString(protowire.AppendTag(b, fieldOperations, protowire.BytesType), r.Operation(k))
		}
	}
	text(fieldOffering, r.Origin.Offering)
	num(fieldIndex, uint64(r.Origin.Index))
	num(fieldGeneration, uint64(r.Origin.Generation))
	num(fieldDoing, uint64(r.Doing))
	num(fieldLost, protowire.EncodeBool(r.Lost))
	num(fieldGrace, uint64(r.GraceSeconds))
	num(fieldAcceptedAt, nanos(r.AcceptedAt))
	num(fieldChangedAt, nanos(r.ChangedAt))
	return b
}

// shapes interns shapes while the store is loaded: a fleet has few of them.
type shapes map[string]*lifecycle.Shape

func (s shapes) get(wire []byte) (*lifecycle.Shape, error) {
	if found, ok := s[string(wire)]; ok {
		return found, nil
	}
	shape, err := lifecycle.ParseShape(wire)
	if err != nil {
		return nil, err
	}
	s[string(wire)] = shape
	return shape, nil
}

func decodeRow(id string, b []byte, known shapes) (*Row, error) {
	r := &lifecycle.Record{ID: id}
	var revision uint64
	var key string
	operation := 0
	err := eachField(b, func(f protowire.Number, n uint64, v []byte) error {
		switch f {
		case fieldRevision:
			revision = n
		case fieldState:
			r.State = lifecycle.State(n)
		case fieldHostProvider:
			r.Host.Provider = string(v)
		case fieldHostRef:
			r.Host.Ref = string(v)
		case fieldCluster:
			r.Cluster = string(v)
		case fieldMetadataKey:
			key = string(v)
		case fieldMetadataVal:
			if r.Metadata == nil {
				r.Metadata = map[string]string{}
			}
			r.Metadata[key] = string(v)
		case fieldLastError:
			r.LastError = string(v)
		case fieldFailure:
			r.Failure = lifecycle.Failure(n)
		case fieldShape:
			shape, err := known.get(v)
			if err != nil {
				return err
			}
			r.Shape = shape
		case fieldOperations:
			if operation < 4 {
				r.Operations[lifecycle.Kinds()[operation]] = string(v)
				operation++
			}
		case fieldOffering:
			r.Origin.Offering = string(v)
		case fieldIndex:
			r.Origin.Index = int(n)
		case fieldGeneration:
			r.Origin.Generation = int(n)
		case fieldDoing:
			r.Doing = lifecycle.Kind(n)
		case fieldLost:
			r.Lost = n != 0
		case fieldGrace:
			r.GraceSeconds = int64(n)
		case fieldAcceptedAt:
			r.AcceptedAt = moment(n)
		case fieldChangedAt:
			r.ChangedAt = moment(n)
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case r.Shape == nil:
		return nil, errors.New("record without a shape")
	case r.State < lifecycle.Speculative || r.State > lifecycle.Failed || r.Doing > lifecycle.Delete:
		return nil, fmt.Errorf("record with state %d, operation %d", r.State, r.Doing)
	}
	row := newRow(r)
	row.Revision = revision
	return row, nil
}

// eachField walks protobuf-encoded fields of the two kinds that records use.
func eachField(b []byte, visit func(f protowire.Number, n uint64, v []byte) error) error {
	for len(b) > 0 {
		f, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		var n uint64
		var v []byte
		switch kind {
		case protowire.VarintType:
			n, size = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			v, size = protowire.ConsumeBytes(b)
		default:
			size = protowire.ConsumeFieldValue(f, kind, b)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		if err := visit(f, n, v); err != nil {
			return err
		}
	}
	return nil
}

// nanos and moment keep a zero time as 0.
func nanos(t time.Time) uint64 {
	if t.IsZero() {
		return 0
	}
	return uint64(t.UnixNano())
}

func moment(n uint64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, int64(n))
}

// A mark key is the length of the machine id, the id, the shard: any bytes may stand in both.
func appendMarkKey(b []byte, machine, shard string) []byte {
	b = binary.AppendUvarint(b, uint64(len(machine)))
	return append(append(b, machine...), shard...)
}

func parseMarkKey(b []byte) (machine, shard string, err error) {
	n, size := binary.Uvarint(b)
	if size <= 0 || n > uint64(len(b)-size) {
		return "", "", errors.New("mark key")
	}
	return string(b[size : size+int(n)]), string(b[size+int(n):]), nil
}

func appendMark(b []byte, t lifecycle.Token, at int64) []byte {
	b = binary.AppendVarint(b, t.Epoch)
	b = binary.AppendVarint(b, t.Sequence)
	return binary.AppendVarint(b, at)
}

func decodeMark(b []byte) (t lifecycle.Token, at int64, err error) {
	var values [3]int64
	for i := range values {
		v, size := binary.Varint(b)
		if size <= 0 {
			return t, 0, errors.New("mark value")
		}
		values[i], b = v, b[size:]
	}
	return lifecycle.Token{Epoch: values[0], Sequence: values[1]}, values[2], nil
}

func appendRemoval(b []byte, w *Row) []byte {
	return append(binary.BigEndian.AppendUint64(b, nanos(w.removed)), w.id...)
}

func decodeRemoval(key, value []byte) (*Row, error) {
	revision, err := parseNumber(key)
	if err != nil || len(value) < 9 {
		return nil, errors.New("removal")
	}
	return &Row{Revision: revision, id: strings.Clone(string(value[8:])), removed: moment(binary.BigEndian.Uint64(value))}, nil
}
