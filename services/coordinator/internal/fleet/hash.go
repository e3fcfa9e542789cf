package fleet

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"iter"
	"math"
	"math/bits"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// Hash is the hash of all tables, as hex (COORD-3.7): the SHA-256 over the rows about the group and the policy, and over
// each table's name, length and digest. The digests are kept with the tables, so that asking costs nothing.
func (s *State) Hash() string {
	w := canonical{}
	w.message(s.Meta().ProtoReflect())
	w.message(s.Policy().ProtoReflect())
	for _, t := range s.stored() {
		w.text(t.name)
		w.number(uint64(t.len))
		for _, word := range t.digest {
			w.buf = binary.BigEndian.AppendUint64(w.buf, word)
		}
	}
	sum := sha256.Sum256(w.buf)
	return hex.EncodeToString(sum[:])
}

// digest stands for a set of rows: the sum of their SHA-256 as numbers of 256 bits, the lowest word first. A row has its
// key in it, so no table holds two equal ones, and the order of changes does not matter.
type digest [4]uint64

func digestOf(row proto.Message) digest {
	w := canonical{buf: make([]byte, 0, 512)}
	w.message(row.ProtoReflect())
	sum := sha256.Sum256(w.buf)
	var d digest
	for i := range d {
		d[i] = binary.LittleEndian.Uint64(sum[8*i:])
	}
	return d
}

func (d *digest) add(x digest) {
	carry := uint64(0)
	for i := range d {
		d[i], carry = bits.Add64(d[i], x[i], carry)
	}
}

func (d *digest) remove(x digest) {
	borrow := uint64(0)
	for i := range d {
		d[i], borrow = bits.Sub64(d[i], x[i], borrow)
	}
}

// storedTable is one table as snapshot and hash see it.
type storedTable struct {
	name   string
	len    int
	digest digest
	rows   iter.Seq[proto.Message]
}

// stored walks the tables in the order of COORD-3.1.
func (s *State) stored() []storedTable {
	return []storedTable{
		stored("peers", s.peers), stored("shards", s.shards), stored("clusters", s.clusters), stored("domains", s.domains),
		stored("providers", s.providers), stored("quotas", s.quotas), stored("exceptions", s.exceptions),
		stored("moves", s.moves), stored("audit", s.audit),
	}
}

func stored[T any, P rowOf[T]](name string, t hashedTable[T, P]) storedTable {
	return storedTable{name: name, len: t.len(), digest: t.digest, rows: func(yield func(proto.Message) bool) {
		for _, row := range t.all() {
			if !yield(P(row)) {
				return
			}
		}
	}}
}

// canonical appends messages in a form that depends on nothing but their known fields: fields by number, maps by key,
// floats by bits. It is our own because the generated encoding does not promise equal bytes across versions of its
// library, and replicas of two versions must agree.
type canonical struct{ buf []byte }

func (w *canonical) number(n uint64) { w.buf = binary.AppendUvarint(w.buf, n) }

func (w *canonical) text(s string) {
	w.number(uint64(len(s)))
	w.buf = append(w.buf, s...)
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
