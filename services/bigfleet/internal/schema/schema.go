// Package schema writes docs/answers.schema.json: what each verb prints with `-o json`, as JSON Schema (OPS-4.2).
//
// Messages come from their descriptors; the few answers that the command puts together itself are in answers.go, with the list of what
// each verb prints. A test runs every verb and compares. No program imports this package. Start at Document.
package schema

import (
	"encoding/json"
	"maps"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1" // registers the messages
)

//go:generate go run ./write ../../../../docs/answers.schema.json

type object = map[string]any

const (
	dialect   = "https://json-schema.org/draft/2020-12/schema"
	messages  = "bigfleet.v1alpha1."
	namespace = "#/$defs/"
)

// Key is the definition of what a verb prints, for example answer.get-machines.
func Key(verb string) string { return "answer." + strings.ReplaceAll(verb, " ", "-") }

// Document is the schema. A strict one allows no property that it does not name: tests see with it that none is left out.
func Document(strict bool) map[string]any {
	w := writer{defs: object{}, own: map[string]bool{}, strict: strict}
	for name, def := range objects() {
		w.defs[name], w.own[name] = w.closed(def), true
	}
	for verb, items := range Answers() {
		refs := make([]any, len(items))
		for i, item := range items {
			refs[i] = w.item(item)
		}
		var of any = object{"anyOf": refs}
		if len(refs) == 1 {
			of = refs[0]
		}
		answer := object{"type": "object", "required": []any{"items"}, "properties": object{"items": object{"type": "array", "items": of}}, "description": "bigfleet " + verb + " -o json"}
		if strict {
			answer["additionalProperties"] = false
		}
		w.defs[Key(verb)] = answer
	}
	return object{
		"$schema": dialect, "$id": "bigfleet.answers.schema.json", "title": "Answers of the bigfleet command",
		"description": "What each verb prints with -o json is defined as answer.VERB, with - for spaces: #/$defs/answer.get-machines. With -o jsonl each line is one of its items. " +
			"Integers of 64 bits are strings, as in all proto JSON; a field that has its zero value is left out.",
		"$defs": w.defs,
	}
}

// Text is the document as it is committed.
func Text() ([]byte, error) {
	raw, err := json.MarshalIndent(Document(false), "", " ")
	return append(raw, '\n'), err
}

type writer struct {
	defs   object
	own    map[string]bool // those that are no messages
	strict bool
}

func (w *writer) closed(def object) object {
	if w.strict && def["properties"] != nil {
		def["additionalProperties"] = false
	}
	return def
}

// item is a reference to what stands in a list: a message gets the shard that reported it.
func (w *writer) item(name string) object {
	if w.own[name] {
		return object{"$ref": namespace + name}
	}
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(messages + name))
	if err != nil {
		panic("no message " + name) // the list is of this package
	}
	key := "item." + name
	if w.defs[key] == nil {
		w.defs[key] = object{} // before its fields: they may refer to it
		def := w.message(found.(protoreflect.MessageDescriptor))
		if p := def["properties"].(object); p["shard"] == nil {
			p["shard"] = object{"type": "string", "description": "shard that reported it"}
		}
		maps.Copy(def["properties"].(object), beside()[name])
		maps.Copy(def["properties"].(object), everywhere()[name])
		w.defs[key] = def
	}
	return object{"$ref": namespace + key}
}

func (w *writer) ref(m protoreflect.MessageDescriptor) object {
	key := strings.TrimPrefix(string(m.FullName()), messages)
	if w.defs[key] == nil {
		w.defs[key] = object{}
		def := w.message(m)
		maps.Copy(def["properties"].(object), everywhere()[key])
		w.defs[key] = def
	}
	return object{"$ref": namespace + key}
}

// timeSuffixes end the names of Unix times, beside which the command prints RFC 3339.
var timeSuffixes = []string{"UnixNanos", "UnixNs"}

func (w *writer) message(m protoreflect.MessageDescriptor) object {
	properties := object{}
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		properties[f.JSONName()] = w.field(f)
	}
	for i := range m.Fields().Len() {
		for _, suffix := range timeSuffixes {
			short, is := strings.CutSuffix(m.Fields().Get(i).JSONName(), suffix)
			if is && short != "" && properties[short] == nil && !m.Fields().Get(i).IsList() {
				properties[short] = object{"type": "string", "format": "date-time"}
			}
		}
	}
	return w.closed(object{"type": "object", "properties": properties})
}

func (w *writer) field(f protoreflect.FieldDescriptor) object {
	switch {
	case f.IsMap():
		return object{"type": "object", "additionalProperties": w.one(f.MapValue())}
	case f.IsList():
		return object{"type": "array", "items": w.one(f)}
	}
	return w.one(f)
}

func (w *writer) one(f protoreflect.FieldDescriptor) object {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return object{"type": "boolean"}
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind, protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		return object{"type": "integer"}
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind, protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return object{"type": "string", "pattern": "^-?[0-9]+$"}
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return object{"type": []any{"number", "string"}, "description": "a string if it is not a finite number"}
	case protoreflect.EnumKind:
		var names []any
		for i := range f.Enum().Values().Len() {
			names = append(names, string(f.Enum().Values().Get(i).Name()))
		}
		return object{"type": "string", "enum": names}
	case protoreflect.MessageKind, protoreflect.GroupKind:
		if strings.HasPrefix(string(f.Message().FullName()), "google.protobuf.") {
			return object{}
		}
		return w.ref(f.Message())
	}
	return object{"type": "string"}
}
