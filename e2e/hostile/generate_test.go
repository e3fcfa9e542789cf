package hostile

import (
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
)

// names exist in the fleet, so that a request gets past the first look-up.
var names = []string{"shard-0", "shard-9", "red", "blue", "node-0", "node-9", "m", "zone", "topology.kubernetes.io/zone", "sim"}

// generator makes requests of a seed. What it makes is at most about budget bytes large. One that obeys gets past the rules of the protos to what is behind
// them, with values at the edges of the rules; one that does not knows no rule.
type generator struct {
	*rand.Rand
	budget   int
	obeys    bool
	patterns map[string]*regexp.Regexp // compiled
}

func newGenerator(seed, of uint64) *generator {
	return &generator{Rand: rand.New(rand.NewPCG(seed, of)), patterns: map[string]*regexp.Regexp{}}
}

func (g *generator) one(in int) bool { return g.IntN(in) == 0 }

// rulesOf is what the contract says of a field, or nil.
func rulesOf(f protoreflect.FieldDescriptor) *validate.FieldRules {
	r, _ := proto.GetExtension(f.Options(), validate.E_Field).(*validate.FieldRules)
	return r
}

// message fills fields of a message: some, all, too many.
func (g *generator) message(d protoreflect.MessageDescriptor, depth int) *dynamicpb.Message {
	m := dynamicpb.NewMessage(d)
	fill := 1 + g.IntN(4)
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		rules := rulesOf(f)
		wanted := g.obeys && (rules.GetRequired() || rules.GetString().GetMinLen() > 0 || rules.GetString().HasPattern())
		if !wanted && (g.IntN(4) >= fill || g.budget <= 0) || depth <= 0 && f.Message() != nil {
			continue
		}
		switch {
		case f.IsMap():
			entries := m.Mutable(f).Map()
			for range g.length(rules.GetMap().GetMaxPairs()) {
				key := g.scalar(f.MapKey(), rules.GetMap().GetKeys()).MapKey()
				if f.MapValue().Message() != nil {
					entries.Set(key, protoreflect.ValueOfMessage(g.message(f.MapValue().Message(), depth-1)))
				} else {
					entries.Set(key, g.scalar(f.MapValue(), rules.GetMap().GetValues()))
				}
				if g.budget <= 0 {
					break
				}
			}
		case f.IsList():
			list := m.Mutable(f).List()
			for range g.length(rules.GetRepeated().GetMaxItems()) {
				if f.Message() != nil {
					list.Append(protoreflect.ValueOfMessage(g.message(f.Message(), depth-1)))
				} else {
					list.Append(g.scalar(f, rules.GetRepeated().GetItems()))
				}
				if g.budget <= 0 {
					break
				}
			}
		case f.Message() != nil:
			m.Set(f, protoreflect.ValueOfMessage(g.message(f.Message(), depth-1)))
		default:
			m.Set(f, g.scalar(f, rules))
		}
	}
	return m
}

// length is how many elements a list gets, and most is what its rules allow, or 0.
func (g *generator) length(most uint64) int {
	edges := []int{0, 1, 1, 2, 3, 17, 1000}
	if most > 0 && most <= 100_000 {
		edges = append(edges, int(most))
	}
	if !g.obeys {
		edges = append(edges, int(most)+1, 100_001)
	}
	return edges[g.IntN(len(edges))]
}

// text obeys the rules as far as one of a few guesses does.
func (g *generator) text(r *validate.StringRules) string {
	s := ""
	most := int(max(r.GetMaxBytes(), r.GetMaxLen()))
	switch n := g.IntN(14); {
	case r.HasConst() && g.obeys:
		s = r.GetConst()
	case g.obeys && r.HasPattern():
		s = g.matching(r.GetPattern())
	case n < 2 && most > 0:
		s = strings.Repeat("a", most)
	case n == 2 && most > 0 && !g.obeys:
		s = strings.Repeat("a", most+1)
	case n == 3 && most > 0 && !g.obeys:
		s = strings.Repeat("ä", (most+1)/2)
	case n == 4 && most == 0:
		s = strings.Repeat("a", 4096)
	case n == 5 && !g.obeys:
		s = strings.Repeat("ä", 2049)
	case n == 6 && !g.obeys && g.one(4):
		s = strings.Repeat("x", 1<<20)
	case n == 7:
		s = "\x1b[2J\u202e\r\n\x00"
	case n == 8:
		s = "../../etc/passwd"
	case n == 9 && !g.obeys:
	default:
		s = names[g.IntN(len(names))]
	}
	g.budget -= len(s)
	return s
}

// matching is a text that a pattern takes, long or short, if a guess finds one.
func (g *generator) matching(pattern string) string {
	guesses := append([]string{"1", "500m", "9223372036854775807", "-1", "1e30", strings.Repeat("a", 63), strings.Repeat("a", 128), strings.Repeat("9", 200), strings.Repeat("a", 253)}, names...)
	g.Shuffle(len(guesses), func(i, j int) { guesses[i], guesses[j] = guesses[j], guesses[i] })
	compiled := g.patterns[pattern]
	if compiled == nil {
		compiled = regexp.MustCompile(pattern)
		g.patterns[pattern] = compiled
	}
	for _, s := range guesses {
		if compiled.MatchString(s) {
			return s
		}
	}
	return guesses[0]
}

// integer is a number at an edge of its type, or of the rules: the edge, and beyond it unless the rules are obeyed.
func (g *generator) integer(low, high int64, ruled ...int64) int64 {
	edges := []int64{0, 1, -1, 7, low, high}
	for _, n := range ruled {
		edges = append(edges, n-1, n, n+1)
	}
	if g.obeys {
		edges = slices.DeleteFunc(edges, func(n int64) bool { return n < 0 })
	}
	return min(max(edges[g.IntN(len(edges))], low), high)
}

func (g *generator) scalar(f protoreflect.FieldDescriptor, r *validate.FieldRules) protoreflect.Value {
	g.budget -= 8
	switch f.Kind() {
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(g.one(2))
	case protoreflect.EnumKind:
		values := f.Enum().Values()
		if g.obeys || g.one(2) {
			return protoreflect.ValueOfEnum(values.Get(g.IntN(values.Len())).Number())
		}
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber([]int32{99, -1, math.MaxInt32}[g.IntN(3)]))
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		return protoreflect.ValueOfInt32(int32(g.integer(math.MinInt32, math.MaxInt32, int64(r.GetInt32().GetGte()), int64(r.GetInt32().GetLte()))))
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return protoreflect.ValueOfUint32(uint32(g.integer(0, math.MaxUint32)))
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(g.integer(math.MinInt64, math.MaxInt64, r.GetInt64().GetGte(), r.GetInt64().GetLte()))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(uint64(g.integer(math.MinInt64, math.MaxInt64)))
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32([]float32{0, 1, -1, math.MaxFloat32, float32(math.NaN())}[g.IntN(5)])
	case protoreflect.DoubleKind:
		edges := []float64{0, 0.5, 1, math.Nextafter(1, 2), math.SmallestNonzeroFloat64, math.MaxFloat64, -1, math.Inf(1), math.Inf(-1), math.NaN()}
		if g.obeys {
			edges = edges[:3]
		}
		return protoreflect.ValueOfFloat64(edges[g.IntN(len(edges))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(g.text(nil)))
	default:
		return protoreflect.ValueOfString(g.text(r.GetString()))
	}
}

// request is the data of a generated request of a method.
func (g *generator) request(method protoreflect.MethodDescriptor) []byte {
	g.budget = []int{256, 1 << 10, 1 << 10, 4 << 10, 4 << 10, 64 << 10, 64 << 10, 64 << 10, 2 << 20, 12 << 20}[g.IntN(10)]
	g.obeys = g.one(2)
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
