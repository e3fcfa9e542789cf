// Package codec writes values of the core as bytes and reads them back: events for the decision log, checkpoints, the
// records of shard.db.
//
// The form is that of Protocol Buffers: each field of a struct has a number in its tag, for example `n:"3"`, zero values
// are left out, unknown numbers are skipped. The fields of an embedded struct stand where it stands. So a newer process
// reads what an older one wrote, and any protobuf tool can look into a file. Equal values give equal bytes, on every machine: there are no maps and no floating point numbers
// here, a sum type is a struct with one pointer per case, and slices are written in their order.
//
// The package depends on reflection and protowire only and knows no type of the core. A type that cannot be encoded is
// a defect of the program: Marshal panics, and the test of the type finds it. Unmarshal is fed with files and never
// panics. Start at Marshal.
package codec

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// Marshal returns the bytes of a struct or of a pointer to one.
func Marshal(v any) []byte { return Append(nil, v) }

// Append appends the bytes of a struct or of a pointer to one.
func Append(b []byte, v any) []byte {
	rv := reflect.ValueOf(v)
	if rv.Kind() == reflect.Pointer {
		rv = rv.Elem()
	}
	return appendStruct(b, rv)
}

// Check walks a type and panics where a value of it could not be encoded. Tests call it for every type that is written,
// because Marshal itself meets a field only when it is set.
func Check(v any) { check(reflect.TypeOf(v), map[reflect.Type]bool{}) }

func check(t reflect.Type, seen map[reflect.Type]bool) {
	for t.Kind() == reflect.Pointer || t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Struct:
	case reflect.Map, reflect.Interface, reflect.Func, reflect.Chan, reflect.Float32, reflect.Float64, reflect.Complex64, reflect.Complex128:
		panic(fmt.Sprintf("codec: a %s cannot be encoded", t))
	default:
		return
	}
	if seen[t] {
		return
	}
	seen[t] = true
	for _, f := range fieldsOf(t) {
		check(t.FieldByIndex(f.index).Type, seen)
	}
}

// ErrMalformed is the cause of every Unmarshal error.
var ErrMalformed = errors.New("malformed bytes")

// Unmarshal reads bytes into a pointer to a struct. Fields that the bytes do not mention keep their zero value.
func Unmarshal(b []byte, into any) error {
	return readStruct(b, reflect.ValueOf(into).Elem(), 0)
}

type field struct {
	num   protowire.Number
	index []int
}

// plans caches the tagged fields of each struct type; the result for a type never changes.
var plans sync.Map // reflect.Type -> []field

func fieldsOf(t reflect.Type) []field {
	if p, ok := plans.Load(t); ok {
		return p.([]field)
	}
	var out []field
	seen := map[protowire.Number]bool{}
	add := func(f reflect.StructField, n protowire.Number, index []int) {
		if n < 1 || seen[n] {
			panic(fmt.Sprintf("codec: field %s.%s has a bad number %d", t, f.Name, n))
		}
		seen[n] = true
		out = append(out, field{n, index})
	}
	for i := range t.NumField() {
		f := t.Field(i)
		tag, ok := f.Tag.Lookup("n")
		switch {
		case tag == "-":
		case ok && f.IsExported():
			n, err := strconv.Atoi(tag)
			if err != nil {
				panic(fmt.Sprintf("codec: field %s.%s has a bad number %q", t, f.Name, tag))
			}
			add(f, protowire.Number(n), []int{i})
		case !ok && f.Anonymous && f.Type.Kind() == reflect.Struct:
			for _, g := range fieldsOf(f.Type) { // as if they stood here
				add(f, g.num, append([]int{i}, g.index...))
			}
		default:
			panic(fmt.Sprintf("codec: field %s.%s has no number, or is not exported", t, f.Name))
		}
	}
	slices.SortFunc(out, func(a, b field) int { return int(a.num - b.num) })
	p, _ := plans.LoadOrStore(t, out)
	return p.([]field)
}

func appendStruct(b []byte, v reflect.Value) []byte {
	for _, f := range fieldsOf(v.Type()) {
		b = appendField(b, f.num, v.FieldByIndex(f.index), false)
	}
	return b
}

// appendField appends one field. keep writes zero values too, as elements of a list must be.
func appendField(b []byte, num protowire.Number, v reflect.Value, keep bool) []byte {
	switch v.Kind() {
	case reflect.Bool:
		if v.Bool() || keep {
			b = protowire.AppendTag(b, num, protowire.VarintType)
			b = protowire.AppendVarint(b, protowire.EncodeBool(v.Bool()))
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if v.Int() != 0 || keep {
			b = protowire.AppendTag(b, num, protowire.VarintType)
			b = protowire.AppendVarint(b, protowire.EncodeZigZag(v.Int()))
		}
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if v.Uint() != 0 || keep {
			b = protowire.AppendTag(b, num, protowire.VarintType)
			b = protowire.AppendVarint(b, v.Uint())
		}
	case reflect.String:
		if v.Len() > 0 || keep {
			b = protowire.AppendTag(b, num, protowire.BytesType)
			b = protowire.AppendString(b, v.String())
		}
	case reflect.Struct:
		if keep || !v.IsZero() {
			b = appendMessage(b, num, v)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			b = appendMessage(b, num, v.Elem())
		}
	case reflect.Slice:
		b = appendSlice(b, num, v)
	case reflect.Array:
		for i := range v.Len() {
			b = appendField(b, num, v.Index(i), true)
		}
	default:
		panic(fmt.Sprintf("codec: a %s cannot be encoded", v.Type()))
	}
	return b
}

func appendSlice(b []byte, num protowire.Number, v reflect.Value) []byte {
	switch v.Type().Elem().Kind() {
	case reflect.Uint8:
		if v.Len() > 0 {
			b = protowire.AppendTag(b, num, protowire.BytesType)
			b = protowire.AppendBytes(b, v.Bytes())
		}
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		if v.Len() > 0 {
			var packed []byte
			for i := range v.Len() {
				packed = protowire.AppendVarint(packed, protowire.EncodeZigZag(v.Index(i).Int()))
			}
			b = protowire.AppendTag(b, num, protowire.BytesType)
			b = protowire.AppendBytes(b, packed)
		}
	case reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		if v.Len() > 0 {
			var packed []byte
			for i := range v.Len() {
				packed = protowire.AppendVarint(packed, v.Index(i).Uint())
			}
			b = protowire.AppendTag(b, num, protowire.BytesType)
			b = protowire.AppendBytes(b, packed)
		}
	default:
		for i := range v.Len() {
			b = appendField(b, num, v.Index(i), true)
		}
	}
	return b
}

func appendMessage(b []byte, num protowire.Number, v reflect.Value) []byte {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	start := len(b)
	b = append(b, 0) // most messages are shorter than 128 bytes
	b = appendStruct(b, v)
	n := len(b) - start - 1
	if n < 128 {
		b[start] = byte(n)
		return b
	}
	size := protowire.SizeVarint(uint64(n))
	b = append(b, make([]byte, size-1)...)
	copy(b[start+size:], b[start+1:start+1+n])
	protowire.AppendVarint(b[:start], uint64(n))
	return b
}

// depthMax bounds nesting, so that a file cannot exhaust the stack.
const depthMax = 32

func readStruct(b []byte, v reflect.Value, depth int) error {
	if depth > depthMax {
		return fmt.Errorf("%w: nested too deep", ErrMalformed)
	}
	fields := fieldsOf(v.Type())
	arrayAt := map[protowire.Number]int{}
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			return fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(size))
		}
		for _, f := range fields {
			if f.num != num {
				continue
			}
			target := v.FieldByIndex(f.index)
			if target.Kind() == reflect.Array {
				i := arrayAt[num]
				if i >= target.Len() {
					return fmt.Errorf("%w: too many elements", ErrMalformed)
				}
				arrayAt[num]++
				target = target.Index(i)
			}
			if err := readField(b[:size], typ, target, depth); err != nil {
				return err
			}
			break
		}
		b = b[size:]
	}
	return nil
}

func readField(b []byte, typ protowire.Type, v reflect.Value, depth int) error {
	switch typ {
	case protowire.VarintType:
		u, _ := protowire.ConsumeVarint(b)
		return readVarint(u, v)
	case protowire.BytesType:
		raw, _ := protowire.ConsumeBytes(b)
		return readBytes(raw, v, depth)
	}
	return fmt.Errorf("%w: wire type %d", ErrMalformed, typ)
}

func readVarint(u uint64, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(protowire.DecodeBool(u))
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		i := protowire.DecodeZigZag(u)
		if v.OverflowInt(i) {
			return fmt.Errorf("%w: %d is too large", ErrMalformed, i)
		}
		v.SetInt(i)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if v.OverflowUint(u) {
			return fmt.Errorf("%w: %d is too large", ErrMalformed, u)
		}
		v.SetUint(u)
	case reflect.Slice:
		elem := reflect.New(v.Type().Elem()).Elem()
		if elem.Kind() == reflect.Slice {
			return fmt.Errorf("%w: a number where a list stands", ErrMalformed)
		}
		if err := readVarint(u, elem); err != nil {
			return err
		}
		v.Set(reflect.Append(v, elem))
	default:
		return fmt.Errorf("%w: a number where a %s stands", ErrMalformed, v.Kind())
	}
	return nil
}

func readBytes(raw []byte, v reflect.Value, depth int) error {
	switch v.Kind() {
	case reflect.String:
		v.SetString(string(raw))
		return nil
	case reflect.Struct:
		return readStruct(raw, v, depth+1)
	case reflect.Pointer:
		p := reflect.New(v.Type().Elem())
		v.Set(p)
		return readBytes(raw, p.Elem(), depth)
	case reflect.Slice:
	default:
		return fmt.Errorf("%w: bytes where a %s stands", ErrMalformed, v.Kind())
	}
	switch v.Type().Elem().Kind() {
	case reflect.Uint8:
		v.SetBytes(append([]byte(nil), raw...))
		return nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		if len(raw) > math.MaxInt32 {
			return fmt.Errorf("%w: a list too long", ErrMalformed)
		}
		for len(raw) > 0 {
			u, n := protowire.ConsumeVarint(raw)
			if n < 0 {
				return fmt.Errorf("%w: %w", ErrMalformed, protowire.ParseError(n))
			}
			if err := readVarint(u, v); err != nil {
				return err
			}
			raw = raw[n:]
		}
		return nil
	}
	elem := reflect.New(v.Type().Elem()).Elem()
	if elem.Kind() == reflect.Slice {
		return fmt.Errorf("%w: a list of lists", ErrMalformed)
	}
	if err := readBytes(raw, elem, depth); err != nil {
		return err
	}
	v.Set(reflect.Append(v, elem))
	return nil
}
