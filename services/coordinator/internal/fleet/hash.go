package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"iter"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Hash is the SHA-256 over a canonical walk of all tables, as hex (COORD-3.7). The walk is our own (fields by number,
// maps by key, floats by bits, unknown fields left out) because the generated encoding does not promise equal bytes
// across versions of its library, and replicas of two versions must agree.
func (s *State) Hash() string {
	h := sha256.New()
	w := canonical{h: h}
	w.message(s.Meta().ProtoReflect())
	w.message(s.Policy().ProtoReflect())
	for _, t := range s.stored() {
		w.text(t.name)
		for row := range t.rows {
			w.message(row.ProtoReflect())
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// storedTable is one table as snapshot and hash see it.
type storedTable struct {
	name string
	len  int
	rows iter.Seq[proto.Message]
}

// stored walks the tables in the order of COORD-3.1.
func (s *State) stored() []storedTable {
	return []storedTable{
		stored("peers", s.peers), stored("shards", s.shards), stored("clusters", s.clusters), stored("domains", s.domains),
		stored("providers", s.providers), stored("quotas", s.quotas), stored("exceptions", s.exceptions),
		stored("moves", s.moves), stored("audit", s.audit),
	}
}

func stored[T any, P interface {
	*T
	proto.Message
}](name string, t table[T]) storedTable {
	return storedTable{name: name, len: t.len(), rows: func(yield func(proto.Message) bool) {
		for _, row := range t.all() {
			if !yield(P(row)) {
				return
			}
		}
	}}
}

// canonical writes messages in a form that depends on nothing but their known fields.
type canonical struct {
	h   hash.Hash
	buf []byte
}

func (w *canonical) number(n uint64) {
	w.buf = binary.AppendUvarint(w.buf[:0], n)
	w.h.Write(w.buf)
}

func (w *canonical) text(s string) {
	w.number(uint64(len(s)))
	w.buf = append(w.buf[:0], s...)
	w.h.Write(w.buf)
}

func (w *canonical) message(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	var set []protoreflect.FieldDescriptor
	for i := range fields.Len() {
		if fd := fields.Get(i); m.Has(fd) {
			set = append(set, fd)
		}
	}
	slices.SortFunc(set, func(x, y protoreflect.FieldDescriptor) int { return cmp.Compare(x.Number(), y.Number()) })
	for _, fd := range set {
		w.number(uint64(fd.Number()))
		w.field(fd, m.Get(fd))
	}
	w.number(0)
}

func (w *canonical) field(fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case fd.IsList():
		list := v.List()
		w.number(uint64(list.Len()))
		for i := range list.Len() {
			w.scalar(fd, list.Get(i))
		}
	case fd.IsMap():
		type pair struct {
			key   string
			value protoreflect.Value
		}
		var pairs []pair
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			pairs = append(pairs, pair{k.String(), v})
			return true
		})
		slices.SortFunc(pairs, func(x, y pair) int { return cmp.Compare(x.key, y.key) })
		w.number(uint64(len(pairs)))
		for _, p := range pairs {
			w.text(p.key)
			w.scalar(fd.MapValue(), p.value)
		}
	default:
		w.scalar(fd, v)
	}
}

func (w *canonical) scalar(fd protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch x := v.Interface().(type) {
	case protoreflect.Message:
		w.message(x)
	case string:
		w.text(x)
	case []byte:
		w.text(string(x))
	case bool:
		if x {
			w.number(1)
		} else {
			w.number(0)
		}
	case int32:
		w.number(uint64(int64(x)))
	case int64:
		w.number(uint64(x))
	case uint32:
		w.number(uint64(x))
	case uint64:
		w.number(x)
	case float32:
		w.number(uint64(math.Float32bits(x)))
	case float64:
		w.number(math.Float64bits(x))
	case protoreflect.EnumNumber:
		w.number(uint64(int64(x)))
	}
}
