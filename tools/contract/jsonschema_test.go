package contract_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// schema is the part of JSON schema that gen/openapi uses. Decoding fails on nothing, so valid is strict instead: a value that no
// keyword describes is an error.
type schema struct {
	Ref                  string `yaml:"$ref"`
	Type, Format         string
	ContentEncoding      string `yaml:"contentEncoding"`
	Properties           map[string]schema
	Required             []string
	Items                *schema
	AdditionalProperties *schema `yaml:"additionalProperties"`
	PropertyNames        *schema `yaml:"propertyNames"`
	MaxProperties        *int    `yaml:"maxProperties"`
	MaxItems             *int    `yaml:"maxItems"`
	Enum                 []string
	Const                any
	Pattern              string
	MinLength            *int `yaml:"minLength"`
	MaxLength            *int `yaml:"maxLength"`
	Minimum, Maximum     *float64
	AnyOf                []schema `yaml:"anyOf"`
}

func (doc openAPI) valid(s schema, text []byte) error {
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return err
	}
	return doc.check(s, v, "$")
}

func (doc openAPI) check(s schema, v any, path string) error {
	if s.Ref != "" {
		target, ok := doc.Components.Schemas[strings.TrimPrefix(s.Ref, "#/components/schemas/")]
		if !ok {
			return fmt.Errorf("%s: %s does not exist", path, s.Ref)
		}
		return doc.check(target, v, path)
	}
	if s.Const != nil && s.Const != v {
		return fmt.Errorf("%s: %v is not %v", path, v, s.Const)
	}
	switch v := v.(type) {
	case map[string]any:
		return doc.checkObject(s, v, path)
	case []any:
		if s.Type != "array" || s.Items == nil || s.MaxItems != nil && len(v) > *s.MaxItems {
			return fmt.Errorf("%s: a list of %d does not fit %q", path, len(v), s.Type)
		}
		for i, item := range v {
			if err := doc.check(*s.Items, item, fmt.Sprintf("%s[%d]", path, i)); err != nil {
				return err
			}
		}
	case string:
		return checkString(s, v, path)
	case bool:
		if s.Type != "boolean" {
			return fmt.Errorf("%s: a boolean where %q is said", path, s.Type)
		}
	case float64:
		whole := v == math.Trunc(v)
		if s.Type != "number" && (s.Type != "integer" || !whole) || s.Minimum != nil && v < *s.Minimum || s.Maximum != nil && v > *s.Maximum {
			return fmt.Errorf("%s: %v does not fit %q", path, v, s.Type)
		}
	default:
		return fmt.Errorf("%s: %T is nowhere in our JSON", path, v)
	}
	return nil
}

func (doc openAPI) checkObject(s schema, v map[string]any, path string) error {
	for _, alternative := range s.AnyOf {
		if doc.check(alternative, v, path) == nil {
			return nil
		}
	}
	if s.Type != "object" || len(s.AnyOf) > 0 || s.MaxProperties != nil && len(v) > *s.MaxProperties {
		return fmt.Errorf("%s: an object where %q is said", path, s.Type)
	}
	for _, name := range s.Required {
		if _, ok := v[name]; !ok {
			return fmt.Errorf("%s.%s is required", path, name)
		}
	}
	for name, value := range v {
		at, ok := s.Properties[name]
		if !ok && s.AdditionalProperties != nil {
			at, ok = *s.AdditionalProperties, true
		}
		if !ok {
			return fmt.Errorf("%s.%s is not described", path, name)
		}
		if s.PropertyNames != nil {
			if err := checkString(schema{Type: "string", MinLength: s.PropertyNames.MinLength, MaxLength: s.PropertyNames.MaxLength}, name, path); err != nil {
				return err
			}
		}
		if err := doc.check(at, value, path+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func checkString(s schema, v, path string) error {
	n := utf8.RuneCountInString(v)
	switch {
	case s.Type != "string":
		return fmt.Errorf("%s: text where %q is said", path, s.Type)
	case s.MinLength != nil && n < *s.MinLength, s.MaxLength != nil && n > *s.MaxLength:
		return fmt.Errorf("%s: %d characters", path, n)
	case len(s.Enum) > 0 && !slices.Contains(s.Enum, v):
		return fmt.Errorf("%s: %q is not one of %v", path, v, s.Enum)
	case s.Pattern != "" && !regexp.MustCompile(s.Pattern).MatchString(v):
		return fmt.Errorf("%s: %q does not match %s", path, v, s.Pattern)
	}
	var err error
	switch {
	case s.Format == "int64":
		_, err = strconv.ParseInt(v, 10, 64)
	case s.Format == "uint64":
		_, err = strconv.ParseUint(v, 10, 64)
	case s.ContentEncoding == "base64":
		_, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(v, "="))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
