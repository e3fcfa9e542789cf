package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"buf.build/gen/go/bufbuild/protovalidate/protocolbuffers/go/buf/validate"
	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// schemas collects what the RPCs reach, by name within the package.
type schemas struct{ seen map[string]object }

func (s *schemas) sorted() object {
	var out object
	for _, name := range slices.Sorted(maps.Keys(s.seen)) {
		out = out.with(name, s.seen[name])
	}
	return out
}

func name(d protoreflect.Descriptor) string {
	return strings.TrimPrefix(string(d.FullName()), string(d.ParentFile().Package())+".")
}

// message adds a message with all it reaches and returns its name.
func (s *schemas) message(m *protogen.Message) string {
	key := name(m.Desc)
	if _, ok := s.seen[key]; ok {
		return key
	}
	s.seen[key] = nil // ends recursion
	var properties object
	var required []string
	for _, f := range m.Fields {
		rules := proto.GetExtension(f.Desc.Options(), validate.E_Field).(*validate.FieldRules)
		properties = properties.with(f.Desc.JSONName(), s.field(f, rules))
		if f.Desc.ContainingOneof() == nil && refusesZero(f, rules) {
			required = append(required, f.Desc.JSONName())
		}
	}
	out := object{{"type", "object"}, {"description", strings.Join(append([]string{text(m.Comments.Leading)}, oneofs(m)...), "\n\n")}}
	if len(required) > 0 {
		out = out.with("required", required)
	}
	if len(properties) > 0 {
		out = out.with("properties", properties)
	}
	s.seen[key] = out
	return key
}

// oneofs says in words what JSON schema can only say with one subschema per member.
func oneofs(m *protogen.Message) []string {
	var out []string
	for _, o := range m.Oneofs {
		if o.Desc.IsSynthetic() {
			continue
		}
		names := make([]string, len(o.Fields))
		for i, f := range o.Fields {
			names[i] = "`" + f.Desc.JSONName() + "`"
		}
		quantity := "At most"
		if proto.GetExtension(o.Desc.Options(), validate.E_Oneof).(*validate.OneofRules).GetRequired() {
			quantity = "Exactly"
		}
		out = append(out, fmt.Sprintf("%s one of %s is set.", quantity, strings.Join(names, ", ")))
	}
	return out
}

func (s *schemas) enum(e *protogen.Enum) string {
	key := name(e.Desc)
	if _, ok := s.seen[key]; ok {
		return key
	}
	doc := []string{text(e.Comments.Leading), ""}
	values := make([]string, len(e.Values))
	for i, v := range e.Values {
		values[i] = string(v.Desc.Name())
		doc = append(doc, fmt.Sprintf("- `%s`: %s", v.Desc.Name(), text(v.Comments.Leading)))
	}
	s.seen[key] = object{{"type", "string"}, {"description", strings.Join(doc, "\n")}, {"enum", values}}
	return key
}

func (s *schemas) field(f *protogen.Field, rules *validate.FieldRules) object {
	var out object
	switch {
	case f.Desc.IsMap():
		r := rules.GetMap()
		out = object{{"type", "object"}, {"additionalProperties", s.single(f.Message.Fields[1], r.GetValues())}}
		if r.HasMaxPairs() {
			out = out.with("maxProperties", r.GetMaxPairs())
		}
		if keys := stringRules(r.GetKeys().GetString()); len(keys) > 0 {
			out = out.with("propertyNames", keys)
		}
	case f.Desc.IsList():
		r := rules.GetRepeated()
		out = object{{"type", "array"}, {"items", s.single(f, r.GetItems())}}
		if r.HasMaxItems() {
			out = out.with("maxItems", r.GetMaxItems())
		}
	default:
		out = s.single(f, rules)
	}
	return append(object{{"description", text(f.Comments.Leading)}}, out...)
}

// single describes one value in proto3 JSON.
func (s *schemas) single(f *protogen.Field, rules *validate.FieldRules) object {
	switch kind := f.Desc.Kind(); kind {
	case protoreflect.MessageKind:
		return schemaRef(s.message(f.Message))
	case protoreflect.EnumKind:
		return schemaRef(s.enum(f.Enum))
	case protoreflect.StringKind:
		return append(object{{"type", "string"}}, stringRules(rules.GetString())...)
	case protoreflect.BytesKind:
		return object{{"type", "string"}, {"contentEncoding", "base64"}}
	case protoreflect.BoolKind:
		if rules.GetBool().HasConst() {
			return object{{"type", "boolean"}, {"const", rules.GetBool().GetConst()}}
		}
		return object{{"type", "boolean"}}
	case protoreflect.Int32Kind:
		r := rules.GetInt32()
		out := object{{"type", "integer"}, {"format", "int32"}}
		if r.HasGte() {
			out = out.with("minimum", r.GetGte())
		}
		if r.HasLte() {
			out = out.with("maximum", r.GetLte())
		}
		return out
	case protoreflect.Int64Kind, protoreflect.Uint64Kind:
		return object{{"type", "string"}, {"format", kind.String()}}
	case protoreflect.DoubleKind:
		r := rules.GetDouble()
		out := object{{"type", "number"}, {"format", "double"}}
		if r.HasGte() {
			out = out.with("minimum", r.GetGte())
		}
		if r.HasLte() {
			out = out.with("maximum", r.GetLte())
		}
		return out
	default:
		panic(fmt.Sprintf("%s: kind %v has no JSON schema here", f.Desc.FullName(), kind))
	}
}

// stringRules carries over what JSON schema can say. max_bytes becomes maxLength: no text has more characters than bytes.
func stringRules(r *validate.StringRules) object {
	var out object
	if r.HasMinLen() {
		out = out.with("minLength", r.GetMinLen())
	}
	if r.HasMaxLen() {
		out = out.with("maxLength", r.GetMaxLen())
	}
	if r.HasMaxBytes() {
		out = out.with("maxLength", r.GetMaxBytes())
	}
	if r.HasPattern() {
		out = out.with("pattern", r.GetPattern())
	}
	if r.HasConst() {
		out = out.with("const", r.GetConst())
	}
	if in := r.GetIn(); len(in) > 0 {
		out = out.with("enum", in)
	}
	return out
}

// refusesZero tells whether leaving the field out breaks a rule, which is what "required" means in JSON.
func refusesZero(f *protogen.Field, r *validate.FieldRules) bool {
	if f.Desc.HasOptionalKeyword() || r.GetIgnore() == validate.Ignore_IGNORE_ALWAYS {
		return false
	}
	return r.GetRequired() ||
		r.GetString().GetMinLen() > 0 || r.GetString().GetConst() != "" ||
		r.GetString().HasPattern() && !regexp.MustCompile(r.GetString().GetPattern()).MatchString("") ||
		r.GetInt32().GetGte() > 0 || r.GetInt64().GetGte() > 0 || r.GetBool().GetConst() ||
		slices.Contains(r.GetEnum().GetNotIn(), 0)
}
