package contract

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// Listing writes the schema as sorted lines, one fact each: names, numbers, types, labels, oneofs, reservations, values,
// rules, methods, imports. Two schemas are equal exactly if their listings are.
func (s *Spec) Listing() []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	for _, f := range s.Files {
		add("file %s", f.Name)
		for _, i := range f.Imports {
			add("file %s: import %s", f.Name, i)
		}
	}
	for _, m := range s.Messages {
		add("message %s in %s", m.Name, m.File)
		for _, f := range m.Fields {
			add("%s", fieldLine(m.Name, f))
		}
		for _, r := range m.Reserved {
			add("message %s: reserved %d", m.Name, r.Number)
			add("message %s: reserved %s", m.Name, r.Name)
		}
		for _, r := range m.Rules {
			add("message %s: %s", m.Name, r)
		}
	}
	for _, e := range s.Enums {
		add("enum %s in %s", e.Name, e.File)
		for _, v := range e.Values {
			add("enum %s: %s = %d", e.Name, v.Name, v.Number)
		}
	}
	for _, v := range s.Services {
		add("service %s", v.Name)
		for _, r := range v.RPCs {
			add("%s", rpcLine(v.Name, r))
		}
	}
	slices.Sort(out)
	return out
}

func fieldLine(message string, f Field) string {
	var b strings.Builder
	fmt.Fprintf(&b, "message %s: ", message)
	if f.Oneof != "" {
		fmt.Fprintf(&b, "oneof %s: ", f.Oneof)
	}
	if f.Label != "" {
		b.WriteString(f.Label + " ")
	}
	fmt.Fprintf(&b, "%s %s = %d", f.Type, f.Name, f.Number)
	for _, r := range f.Rules {
		fmt.Fprintf(&b, "; %s", r)
	}
	return b.String()
}

func rpcLine(service string, r RPC) string {
	stream := func(on bool, name string) string {
		if on {
			return "stream " + name
		}
		return name
	}
	line := fmt.Sprintf("service %s: rpc %s(%s) returns (%s)", service, r.Name, stream(r.ClientStream, r.Request), stream(r.ServerStream, r.Response))
	if r.Read {
		line += " read"
	}
	return line
}

// Listing writes compiled files the way Spec.Listing does.
func Listing(files []protoreflect.FileDescriptor) []string {
	l := &lister{}
	for _, fd := range files {
		l.file(fd)
	}
	slices.Sort(l.out)
	return l.out
}

type lister struct{ out []string }

func (l *lister) add(format string, args ...any) { l.out = append(l.out, fmt.Sprintf(format, args...)) }

func (l *lister) file(fd protoreflect.FileDescriptor) {
	name := strings.TrimSuffix(strings.TrimPrefix(fd.Path(), "bigfleet/v1alpha1/"), ".proto")
	l.add("file %s", name)
	for i := range fd.Imports().Len() {
		l.add("file %s: import %s", name, fd.Imports().Get(i).Path())
	}
	l.messages(fd.Messages(), name)
	l.enums(fd.Enums(), name)
	for i := range fd.Services().Len() {
		s := fd.Services().Get(i)
		l.add("service %s", short(s))
		for j := range s.Methods().Len() {
			m := s.Methods().Get(j)
			o, _ := m.Options().(*descriptorpb.MethodOptions)
			l.add("%s", rpcLine(short(s), RPC{
				Name: string(m.Name()), Request: short(m.Input()), Response: short(m.Output()),
				ClientStream: m.IsStreamingClient(), ServerStream: m.IsStreamingServer(),
				Read: o.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS,
			}))
		}
	}
}

func short(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), Package+".")
}

func (l *lister) enums(enums protoreflect.EnumDescriptors, file string) {
	for i := range enums.Len() {
		e := enums.Get(i)
		l.add("enum %s in %s", short(e), file)
		for j := range e.Values().Len() {
			v := e.Values().Get(j)
			l.add("enum %s: %s = %d", short(e), v.Name(), v.Number())
		}
		for j := range e.ReservedRanges().Len() {
			l.add("enum %s: reserved %v", short(e), e.ReservedRanges().Get(j))
		}
		for j := range e.ReservedNames().Len() {
			l.add("enum %s: reserved %s", short(e), e.ReservedNames().Get(j))
		}
	}
}

func (l *lister) messages(messages protoreflect.MessageDescriptors, file string) {
	for i := range messages.Len() {
		m := messages.Get(i)
		if m.IsMapEntry() {
			continue
		}
		name := short(m)
		l.add("message %s in %s", name, file)
		for j := range m.Fields().Len() {
			l.field(name, m.Fields().Get(j))
		}
		for j := range m.ReservedRanges().Len() {
			r := m.ReservedRanges().Get(j)
			for n := r[0]; n < r[1]; n++ {
				l.add("message %s: reserved %d", name, n)
			}
		}
		for j := range m.ReservedNames().Len() {
			l.add("message %s: reserved %s", name, m.ReservedNames().Get(j))
		}
		rules := proto.GetExtension(m.Options(), validate.E_Message).(*validate.MessageRules)
		for _, r := range rules.GetCel() {
			l.add("message %s: %s", name, celRule(r.GetId(), name, r.GetExpression(), r.GetMessage()))
		}
		for _, r := range flatten(rules.ProtoReflect(), "") {
			l.add("message %s: rule %s", name, r)
		}
		for j := range m.Oneofs().Len() {
			o := m.Oneofs().Get(j)
			if r := proto.GetExtension(o.Options(), validate.E_Oneof).(*validate.OneofRules); r.GetRequired() {
				l.add("message %s: oneof %s: required = true", name, o.Name())
			}
		}
		l.messages(m.Messages(), file)
		l.enums(m.Enums(), file)
	}
}

func (l *lister) field(message string, fd protoreflect.FieldDescriptor) {
	f := Field{Name: string(fd.Name()), Number: int32(fd.Number())}
	switch {
	case fd.IsMap():
		f.Type = fmt.Sprintf("map<%s,%s>", typeName(message, fd.MapKey()), typeName(message, fd.MapValue()))
	case fd.IsList():
		f.Label, f.Type = "repeated", typeName(message, fd)
	default:
		f.Type = typeName(message, fd)
	}
	if o := fd.ContainingOneof(); o != nil && o.IsSynthetic() {
		f.Label = "optional"
	} else if o != nil {
		f.Oneof = string(o.Name())
	}
	rules := proto.GetExtension(fd.Options(), validate.E_Field).(*validate.FieldRules)
	for _, r := range rules.GetRepeated().GetItems().GetCel() {
		l.add("message %s: %s", message, celRule(r.GetId(), message+"."+f.Name+"[]", r.GetExpression(), r.GetMessage()))
	}
	f.Rules = flatten(rules.ProtoReflect(), "")
	slices.Sort(f.Rules)
	l.add("%s", fieldLine(message, f))
}

// typeName names a type as the tables do: an enum nested in the message itself goes without the message's name.
func typeName(message string, fd protoreflect.FieldDescriptor) string {
	switch fd.Kind() {
	case protoreflect.MessageKind:
		return short(fd.Message())
	case protoreflect.EnumKind:
		return strings.TrimPrefix(short(fd.Enum()), message+".")
	default:
		return fd.Kind().String()
	}
}

// flatten writes a rules message as "path = value".
func flatten(m protoreflect.Message, prefix string) []string {
	var out []string
	m.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		path := prefix + string(fd.Name())
		switch {
		case path == "cel" && m.Descriptor().Name() == "MessageRules", path == "repeated.items.cel": // listed by the caller
		case fd.IsList() && fd.Message() != nil:
			out = append(out, path+" = "+v.String()) // a rule form no table uses: it shows up as a difference
		case fd.IsList():
			values := make([]string, v.List().Len())
			for i := range values {
				values[i] = scalar(fd, v.List().Get(i), true)
			}
			out = append(out, fmt.Sprintf("%s = [%s]", path, strings.Join(values, ", ")))
		case fd.Message() != nil:
			out = append(out, flatten(v.Message(), path+".")...)
		default:
			out = append(out, path+" = "+scalar(fd, v, fd.Name() != "pattern"))
		}
		return true
	})
	return out
}

func scalar(fd protoreflect.FieldDescriptor, v protoreflect.Value, quote bool) string {
	switch fd.Kind() {
	case protoreflect.StringKind:
		if quote {
			return strconv.Quote(v.String())
		}
		return v.String()
	case protoreflect.EnumKind:
		return string(fd.Enum().Values().ByNumber(v.Enum()).Name())
	default:
		return v.String()
	}
}
