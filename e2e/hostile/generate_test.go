package hostile

import (
	"math"
	"math/rand/v2"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// names exist in the fleet, so that a request gets past the first look-up.
var names = []string{"shard-0", "shard-9", "red", "blue", "node-0", "node-9", "m", "zone", "topology.kubernetes.io/zone", "sim"}

// generator makes requests of a seed. What it makes is at most about budget bytes large.
type generator struct {
	*rand.Rand
	budget int
}

func (g *generator) one(in int) bool { return g.IntN(in) == 0 }

// message fills fields of a message: some, all, too many.
func (g *generator) message(d protoreflect.MessageDescriptor, depth int) *dynamicpb.Message {
	m := dynamicpb.NewMessage(d)
	fill := 1 + g.IntN(4)
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if g.IntN(4) >= fill || g.budget <= 0 || depth <= 0 && f.Message() != nil {
			continue
		}
		switch {
		case f.IsMap():
			entries := m.Mutable(f).Map()
			for range g.length() {
				key := g.scalar(f.MapKey()).MapKey()
				if f.MapValue().Message() != nil {
					entries.Set(key, protoreflect.ValueOfMessage(g.message(f.MapValue().Message(), depth-1)))
				} else {
					entries.Set(key, g.scalar(f.MapValue()))
				}
				if g.budget <= 0 {
					break
				}
			}
		case f.IsList():
			list := m.Mutable(f).List()
			for range g.length() {
				if f.Message() != nil {
					list.Append(protoreflect.ValueOfMessage(g.message(f.Message(), depth-1)))
				} else {
					list.Append(g.scalar(f))
				}
				if g.budget <= 0 {
					break
				}
			}
		case f.Message() != nil:
			m.Set(f, protoreflect.ValueOfMessage(g.message(f.Message(), depth-1)))
		default:
			m.Set(f, g.scalar(f))
		}
	}
	return m
}

func (g *generator) length() int {
	return []int{0, 1, 1, 2, 3, 17, 1000, 100_001}[g.IntN(8)]
}

func (g *generator) text() string {
	s := ""
	switch g.IntN(12) {
	case 0:
	case 1:
		s = strings.Repeat("a", 4096)
	case 2:
		s = strings.Repeat("ä", 2049)
	case 3:
		s = strings.Repeat("x", 1<<20)
	case 4:
		s = "\x1b[2J\u202e\r\n\x00"
	case 5:
		s = "../../etc/passwd"
	default:
		s = names[g.IntN(len(names))]
	}
	g.budget -= len(s)
	return s
}

func (g *generator) scalar(f protoreflect.FieldDescriptor) protoreflect.Value {
	g.budget -= 8
	extremes := []int64{0, 1, -1, 7, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}
	n := extremes[g.IntN(len(extremes))]
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(g.one(2))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber([]int32{0, 1, 2, 3, 99, -1, math.MaxInt32}[g.IntN(7)]))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(n))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(n)
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(n))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32([]float32{0, 1, -1, math.MaxFloat32, float32(math.NaN())}[g.IntN(5)])
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64([]float64{0, 0.5, -1, math.Inf(1), math.Inf(-1), math.NaN()}[g.IntN(6)])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(g.text()))
	default:
		return protoreflect.ValueOfString(g.text())
	}
}

// request is the data of a generated request of a method.
func (g *generator) request(method protoreflect.MethodDescriptor) []byte {
	g.budget = []int{1 << 10, 64 << 10, 2 << 20, 12 << 20}[g.IntN(4)]
	data, err := proto.MarshalOptions{AllowPartial: true}.Marshal(g.message(method.Input(), 6))
	if err != nil {
		return nil
	}
	if g.one(8) && len(data) > 0 { // damaged on the way
		data[g.IntN(len(data))] ^= 1 << g.IntN(8)
	}
	return data
}

// deep is a message that is nested in itself, in a field that no message has.
func deep(levels int) []byte {
	data := []byte(nil)
	for range levels {
		data = protowire.AppendTag(data, 1, protowire.StartGroupType)
	}
	return data
}

// hollow is a message of one unknown field full of zeros, which compresses to a thousandth.
func hollow(size int) []byte {
	data := protowire.AppendTag(nil, 536_870_911, protowire.BytesType)
	return append(protowire.AppendVarint(data, uint64(size)), make([]byte, size)...)
}
