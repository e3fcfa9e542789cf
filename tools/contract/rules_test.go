package contract_test

import (
	"errors"
	"strings"
	"testing"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"buf.build/go/protovalidate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"
	"pgregory.net/rapid"

	v1 "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1"
	"github.com/bigfleet-dev/bigfleet/tools/contract"
)

func validator(t testing.TB) protovalidate.Validator {
	t.Helper()
	v, err := protovalidate.New()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// violations returns the paths and rule ids that m breaks, as "path: rule", and the violations themselves.
func violations(t testing.TB, v protovalidate.Validator, m proto.Message) ([]string, []*validate.Violation) {
	t.Helper()
	err := v.Validate(m)
	if err == nil {
		return nil, nil
	}
	var bad *protovalidate.ValidationError
	if !errors.As(err, &bad) {
		t.Fatalf("%s could not be evaluated: %v", m.ProtoReflect().Descriptor().FullName(), err)
	}
	var out []string
	var protos []*validate.Violation
	for _, violation := range bad.Violations {
		p := violation.Proto
		out = append(out, protovalidate.FieldPathString(p.GetField())+": "+p.GetRuleId())
		protos = append(protos, p)
	}
	return out, protos
}

func contractMessages(t testing.TB) []protoreflect.MessageDescriptor {
	t.Helper()
	s := spec(t)
	var out []protoreflect.MessageDescriptor
	for _, fd := range contract.Generated() {
		for i := range fd.Messages().Len() {
			if m := s.Message(string(fd.Messages().Get(i).Name())); m != nil && m.Contract {
				out = append(out, fd.Messages().Get(i))
			}
		}
	}
	return out
}

// WIRE-13.5: the rules of every message compile, before any is used.
func TestEveryValidatorCompiles(t *testing.T) {
	var all []protoreflect.MessageDescriptor
	for _, fd := range contract.Generated() {
		for i := range fd.Messages().Len() {
			all = append(all, fd.Messages().Get(i))
		}
	}
	v, err := protovalidate.New(protovalidate.WithMessageDescriptors(all...), protovalidate.WithDisableLazy())
	if err != nil {
		t.Fatal(err)
	}
	for _, md := range all { // a message that was not compiled, or whose rules do not fit it, fails with another error
		violations(t, v, dynamicpb.NewMessage(md))
	}
}

// WIRE-3.13, scenario 1: no rule of an extension field refuses its zero value.
func TestEmptyMessagesNeverFailOnAnExtension(t *testing.T) {
	v := validator(t)
	for _, md := range contractMessages(t) {
		_, found := violations(t, v, dynamicpb.NewMessage(md))
		namesNoExtension(t, found)
	}
}

func namesNoExtension(t rapid.TB, found []*validate.Violation) {
	t.Helper()
	for _, violation := range found {
		for _, e := range violation.GetField().GetElements() {
			if e.GetFieldNumber() >= contract.ExtensionStart {
				t.Errorf("%s: %s names %s", violation.GetRuleId(), violation.GetMessage(), protovalidate.FieldPathString(violation.GetField()))
			}
		}
	}
}

// WIRE scenario 1: whatever a peer that knows no extension sends, no violation names a number from 1000 up.
func TestContractOnlyMessagesNeverFailOnAnExtension(t *testing.T) {
	v := validator(t)
	all := contractMessages(t)
	rapid.Check(t, func(t *rapid.T) {
		md := rapid.SampledFrom(all).Draw(t, "message")
		m := dynamicpb.NewMessage(md)
		fillContract(t, m, 3)
		var bad *protovalidate.ValidationError
		if err := v.Validate(m); err != nil && !errors.As(err, &bad) {
			t.Fatalf("%s: %v", md.FullName(), err)
		} else if bad != nil {
			namesNoExtension(t, bad.ToProto().GetViolations())
		}
	})
}

// fillContract sets random contract fields to random values, conforming or not.
func fillContract(t *rapid.T, m protoreflect.Message, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if fd.Number() >= contract.ExtensionStart || !rapid.Bool().Draw(t, string(fd.Name())) {
			continue
		}
		switch {
		case fd.IsMap():
			for range rapid.IntRange(0, 2).Draw(t, "entries") {
				if fd.MapValue().Message() == nil {
					m.Mutable(fd).Map().Set(scalar(t, fd.MapKey()).MapKey(), scalar(t, fd.MapValue()))
				}
			}
		case fd.Message() != nil && depth == 0:
		case fd.IsList() && fd.Message() != nil:
			for range rapid.IntRange(0, 2).Draw(t, "items") {
				fillContract(t, m.Mutable(fd).List().AppendMutable().Message(), depth-1)
			}
		case fd.IsList():
			for range rapid.IntRange(0, 2).Draw(t, "items") {
				m.Mutable(fd).List().Append(scalar(t, fd))
			}
		case fd.Message() != nil:
			fillContract(t, m.Mutable(fd).Message(), depth-1)
		default:
			m.Set(fd, scalar(t, fd))
		}
	}
}

func scalar(t *rapid.T, fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(rapid.SampledFrom([]string{"", "a", "cpu", "1", "12x", "-1", "x y", "\x00"}).Draw(t, "string"))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes(rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "bytes"))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(rapid.Bool().Draw(t, "bool"))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(rapid.Int32Range(-1, 30).Draw(t, "enum")))
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(rapid.Int32().Draw(t, "int32"))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(rapid.Int64().Draw(t, "int64"))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(rapid.Float64().Draw(t, "double"))
	default:
		t.Fatalf("%s: kind %v is new to the contract", fd.FullName(), fd.Kind())
		return protoreflect.Value{}
	}
}

// WIRE-3.14: no rule iterates over a map in CEL, and every expression compiles without functions of ours.
func TestNoCELRuleTouchesAMap(t *testing.T) {
	for _, fd := range contract.Generated() {
		for i := range fd.Messages().Len() {
			md := fd.Messages().Get(i)
			rules := proto.GetExtension(md.Options(), validate.E_Message).(*validate.MessageRules)
			for _, rule := range rules.GetCel() {
				for j := range md.Fields().Len() {
					if f := md.Fields().Get(j); f.IsMap() && strings.Contains(rule.GetExpression(), "this."+string(f.Name())) {
						t.Errorf("%s reads the map %s", rule.GetId(), f.FullName())
					}
				}
			}
		}
	}
}

// WIRE-3.6, scenario 4: a bad record never refuses what carries it, not even behind a validating interceptor.
func TestRecordsAreGatedOneByOne(t *testing.T) {
	v := validator(t)
	badNeeds := &v1.ClusterCapacityNeeds{}
	for what, m := range map[string]proto.Message{
		"roll-up in its frame":     &v1.OperatorMessage{Payload: &v1.OperatorMessage_Rollup{Rollup: badNeeds}},
		"hello in its frame":       &v1.OperatorMessage{Payload: &v1.OperatorMessage_Hello{Hello: &v1.Hello{}}},
		"drain report in a frame":  &v1.OperatorMessage{Payload: &v1.OperatorMessage_DrainReport{DrainReport: &v1.DrainReport{}}},
		"node report in a frame":   &v1.OperatorMessage{Payload: &v1.OperatorMessage_NodeReport{NodeReport: &v1.NodeReport{}}},
		"unplaced pods in a frame": &v1.OperatorMessage{Payload: &v1.OperatorMessage_UnplacedPods{UnplacedPods: &v1.UnplacedPods{Rows: []*v1.UnplacedRow{{}}}}},
		"machine in a list":        &v1.MachineList{Machines: []*v1.Machine{{}}},
		"machine in an ack":        &v1.TransitionAck{Machine: &v1.Machine{}},
		"instruction in an ack":    &v1.ReportAck{Instructions: []*v1.CoordinatorInstruction{{}}},
		"machine in a view":        &v1.MachineView{Machine: &v1.Machine{}},
		"need in a view":           &v1.NeedView{Need: &v1.CapacityNeed{Requirements: []*v1.NodeSelectorRequirement{{}}}},
		"shortfall in a report": &v1.ShardReport{ShardId: "s", Shortfalls: []*v1.Shortfall{{
			Requirements: []*v1.NodeSelectorRequirement{{}}, Deficit: &v1.Resources{Resources: map[string]string{"cpu": "12x"}}}}},
	} {
		if found, _ := violations(t, v, m); found != nil {
			t.Errorf("%s: refused with %q", what, found)
		}
	}
	if found, _ := violations(t, v, badNeeds); found == nil {
		t.Error("the payload alone passes")
	}
}
