package contract_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/bigfleet-dev/bigfleet/gen/go/bigfleet/v1alpha1/bigfleetv1alpha1connect"
	"github.com/bigfleet-dev/bigfleet/tools/contract"
)

type openAPI struct {
	OpenAPI string
	Info    struct{ Title, Version string }
	Paths   map[string]map[string]operation

	Components struct{ Schemas map[string]schema }
}

type operation struct {
	OperationID string `yaml:"operationId"`
	Parameters  []any
	RequestBody struct {
		Content map[string]struct{ Schema schema }
	} `yaml:"requestBody"`
	Responses map[string]struct {
		Ref     string `yaml:"$ref"`
		Content map[string]struct{ Schema schema }
	}
}

func readOpenAPI(t *testing.T) openAPI {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "gen", "openapi", "bigfleet.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var doc openAPI
	if err := yaml.Unmarshal(text, &doc); err != nil {
		t.Fatal(err)
	}
	return doc
}

// WIRE-4.6, 4.8, 12.3: the document has exactly the unary RPCs, as POST, and as GET where they only read.
func TestOpenAPIDescribesTheUnaryRPCs(t *testing.T) {
	doc := readOpenAPI(t)
	if doc.OpenAPI != "3.1.0" || doc.Info.Title != "BigFleet" || doc.Info.Version != "v1alpha1" {
		t.Errorf("OpenAPI %s, title %q, version %q", doc.OpenAPI, doc.Info.Title, doc.Info.Version)
	}
	want, ids := map[string]string{}, map[string]bool{}
	for _, s := range spec(t).Services {
		for _, r := range s.RPCs {
			if r.ClientStream || r.ServerStream {
				continue
			}
			path := "/" + contract.Package + "." + s.Name + "/" + r.Name
			want[path] = "post"
			if r.Read {
				want[path] = "get post"
			}
			post := doc.Paths[path]["post"]
			if got := post.RequestBody.Content["application/json"].Schema.Ref; got != "#/components/schemas/"+r.Request {
				t.Errorf("%s takes %q", path, got)
			}
			for method, o := range doc.Paths[path] {
				if got := o.Responses["200"].Content["application/json"].Schema.Ref; got != "#/components/schemas/"+r.Response {
					t.Errorf("%s %s answers %q", method, path, got)
				}
				if o.Responses["default"].Ref != "#/components/responses/Error" {
					t.Errorf("%s %s has no error", method, path)
				}
				if ids[o.OperationID] {
					t.Errorf("operationId %s is there twice", o.OperationID)
				}
				ids[o.OperationID] = true
			}
		}
	}
	got := map[string]string{}
	for path, methods := range doc.Paths {
		got[path] = strings.Join(slices.Sorted(maps.Keys(methods)), " ")
	}
	if !maps.Equal(got, want) {
		t.Errorf("paths and methods:\n got %v\nwant %v", got, want)
	}
}

// Every message the document describes, with every field set, is valid as protojson writes it: no name, type or enum value is
// missing or wrong. WIRE-4.6.
func TestOpenAPISchemasFitTheJSON(t *testing.T) {
	doc := readOpenAPI(t)
	seen := 0
	for _, fd := range contract.Generated() {
		for i := range fd.Messages().Len() {
			md := fd.Messages().Get(i)
			s, ok := doc.Components.Schemas[string(md.Name())]
			if !ok {
				continue
			}
			seen++
			for _, m := range samples(md) {
				text, err := protojson.Marshal(m)
				if err != nil {
					t.Fatal(err)
				}
				if err := doc.valid(s, text); err != nil {
					t.Errorf("%s: %v\n%s", md.Name(), err, text)
				}
			}
			if len(s.Properties) != md.Fields().Len() {
				t.Errorf("%s has %d fields, the document %d", md.Name(), md.Fields().Len(), len(s.Properties))
			}
		}
	}
	if seen < 200 {
		t.Errorf("only %d messages are described", seen)
	}
}

// WIRE-4.9, 5.3, 12: what a Connect server of ours answers to curl is what the document says, errors and details included.
func TestOpenAPIFitsALiveServer(t *testing.T) {
	doc := readOpenAPI(t)
	path, handler := bigfleetv1alpha1connect.NewCapacityProviderHandler(&peer{})
	mux := http.NewServeMux()
	mux.Handle(path, handler)
	server := httptest.NewServer(mux)
	defer server.Close()

	get := server.URL + path + "Get?" + url.Values{"connect": {"v1"}, "encoding": {"json"}, "message": {`{"id":"m-1"}`}}.Encode()
	byGet, code := body(t)(http.Get(get))
	byPost, _ := body(t)(http.Post(server.URL+path+"Get", "application/json", strings.NewReader(`{"id":"m-1"}`)))
	if code != http.StatusOK || compact(t, byGet) != compact(t, byPost) {
		t.Errorf("GET answers %d %s, POST %s", code, byGet, byPost)
	}
	if err := doc.valid(doc.Components.Schemas["Machine"], byGet); err != nil {
		t.Errorf("%v: %s", err, byGet)
	}

	refused, code := body(t)(http.Post(server.URL+path+"Drain", "application/json", strings.NewReader(`{"machineId":"m-1","sequenceNumber":"7"}`)))
	if code != http.StatusBadRequest {
		t.Errorf("failed_precondition answers %d", code)
	}
	if err := doc.valid(doc.Components.Schemas["connect.Error"], refused); err != nil {
		t.Errorf("%v: %s", err, refused)
	}
	var problem struct {
		Code    string
		Details []struct{ Type, Value string }
	}
	if err := json.Unmarshal(refused, &problem); err != nil || problem.Code != "failed_precondition" || len(problem.Details) != 1 ||
		problem.Details[0].Type != "bigfleet.v1alpha1.FenceDetail" {
		t.Errorf("%v: %s", err, refused)
	}
}

// body reads an answer; it is called with the results of http.Get or http.Post.
func body(t *testing.T) func(*http.Response, error) ([]byte, int) {
	return func(res *http.Response, err error) ([]byte, int) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return text, res.StatusCode
	}
}

// compact evens out the spaces that protojson varies on purpose.
func compact(t *testing.T, text []byte) string {
	t.Helper()
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return fmt.Sprint(v)
}

// samples returns messages with every field set to a value the rules allow: one per member of the largest oneof.
func samples(md protoreflect.MessageDescriptor) []protoreflect.ProtoMessage {
	members := 1
	for i := range md.Oneofs().Len() {
		members = max(members, md.Oneofs().Get(i).Fields().Len())
	}
	var out []protoreflect.ProtoMessage
	for i := range members {
		m := dynamicpb.NewMessage(md)
		fill(m, i, 3)
		out = append(out, m)
	}
	return out
}

func fill(m protoreflect.Message, member, depth int) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		fd := fields.Get(i)
		if o := fd.ContainingOneof(); o != nil && o.Fields().Get(member%o.Fields().Len()) != fd {
			continue
		}
		if depth == 0 && fd.Message() != nil && !fd.IsMap() {
			continue
		}
		switch {
		case fd.IsMap():
			entries := m.Mutable(fd).Map()
			value := entries.NewValue()
			if fd.MapValue().Message() == nil {
				value = example(fd.MapValue())
			} else if depth > 0 {
				fill(value.Message(), member, depth-1)
			}
			entries.Set(protoreflect.ValueOfString("cpu").MapKey(), value)
		case fd.IsList() && fd.Message() != nil:
			fill(m.Mutable(fd).List().AppendMutable().Message(), member, depth-1)
		case fd.IsList():
			m.Mutable(fd).List().Append(example(fd))
		case fd.Message() != nil:
			fill(m.Mutable(fd).Message(), member, depth-1)
		default:
			m.Set(fd, example(fd))
		}
	}
}

// example is a value within every rule of the schema; "1" is a quantity, an id and a label value.
func example(fd protoreflect.FieldDescriptor) protoreflect.Value {
	switch fd.Kind() {
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(fd.Enum().Values().Get(1).Number())
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte{0, 255, 62})
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(1 << 60)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(1 << 60)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.5)
	default:
		switch fd.FullName().Name() {
		case "group_by":
			return protoreflect.ValueOfString("cluster")
		case "confirm":
			return protoreflect.ValueOfString("the shard is down")
		}
		return protoreflect.ValueOfString("1")
	}
}
