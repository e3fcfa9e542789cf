package provider

import (
	"encoding/json"
	"io"
	"reflect"
	"strings"
	"time"
)

// printSchema writes the JSON Schema of the configuration file, made from the Go types (PROV-20.3).
func printSchema(w io.Writer, name string, document reflect.Value) error {
	s := schemaOf(document.Elem().Type())
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Configuration of bigfleet-provider-" + name
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(s)
}

func schemaOf(t reflect.Type) map[string]any {
	if t == reflect.TypeFor[time.Duration]() {
		return map[string]any{"type": "string", "pattern": `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$`}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Struct:
		properties := map[string]any{}
		addProperties(t, properties)
		return map[string]any{"type": "object", "additionalProperties": false, "properties": properties}
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	}
	return map[string]any{"type": "string"}
}

func addProperties(t reflect.Type, into map[string]any) {
	for i := range t.NumField() {
		field := t.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		switch name {
		case "-":
			continue
		case "": // inline
			addProperties(field.Type, into)
			continue
		}
		s := schemaOf(field.Type)
		if doc := field.Tag.Get("doc"); doc != "" {
			s["description"] = doc
		}
		into[name] = s
	}
}
