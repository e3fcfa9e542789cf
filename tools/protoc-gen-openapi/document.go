package main

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/compiler/protogen"
	"google.golang.org/protobuf/types/descriptorpb"
)

// document builds the whole document. Paths stand in the order of files, services and methods; schemas by name.
func document(p *protogen.Plugin, o options) (object, error) {
	s := &schemas{seen: map[string]object{}}
	var tags []object
	var paths object
	for _, f := range p.Files {
		if !f.Generate {
			continue
		}
		for _, service := range f.Services {
			var unary bool
			for _, m := range service.Methods {
				if m.Desc.IsStreamingClient() || m.Desc.IsStreamingServer() {
					continue
				}
				unary = true
				paths = paths.with(fmt.Sprintf("/%s/%s", service.Desc.FullName(), m.Desc.Name()), operations(s, service, m))
			}
			if unary {
				tags = append(tags, object{{"name", string(service.Desc.Name())}, {"description", text(service.Comments.Leading)}})
			}
		}
	}
	problem, err := errorSchema(p, s, o.details)
	if err != nil {
		return nil, err
	}
	s.seen["connect.Error"] = problem
	return object{
		{"openapi", "3.1.0"},
		{"info", object{
			{"title", o.title},
			{"version", o.version},
			{"description", "The unary RPCs as Connect serves them with JSON. 64-bit integers are strings, bytes are base64, enums are full names, zero values are left out and unknown fields are ignored. Streaming RPCs are not described here: use a Connect, gRPC or gRPC-Web client."},
		}},
		{"tags", tags},
		{"paths", paths},
		{"components", object{
			{"parameters", parameters()},
			{"responses", object{{"Error", object{
				{"description", "The call failed. Programs read `code`, never the HTTP status."},
				{"content", jsonContent("connect.Error")},
			}}}},
			{"schemas", s.sorted()},
		}},
	}, nil
}

// operations describes POST, and GET for a method without side effects (https://connectrpc.com/docs/protocol).
func operations(s *schemas, service *protogen.Service, m *protogen.Method) object {
	request, response := s.message(m.Input), s.message(m.Output)
	doc := text(m.Comments.Leading)
	head := func(id string) object {
		return object{
			{"tags", []string{string(service.Desc.Name())}},
			{"operationId", id},
			{"summary", firstSentence(doc)},
			{"description", doc},
		}
	}
	responses := object{
		{"200", object{{"description", "Done."}, {"content", jsonContent(response)}}},
		{"default", object{{"$ref", "#/components/responses/Error"}}},
	}
	id := string(service.Desc.Name()) + "_" + string(m.Desc.Name())
	out := object{{"post", head(id).
		with("parameters", refs("parameters", "protocolVersion", "timeout")).
		with("requestBody", object{{"required", true}, {"content", jsonContent(request)}}).
		with("responses", responses)}}
	if m.Desc.Options().(*descriptorpb.MethodOptions).GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS {
		message := object{
			{"name", "message"}, {"in", "query"}, {"required", true},
			{"description", "The request as JSON."},
			{"content", jsonContent(request)},
		}
		out = out.with("get", head(id+"_get").
			with("parameters", append(refs("parameters", "connect", "encoding", "timeout"), message)).
			with("responses", responses))
	}
	return out
}

func firstSentence(doc string) string {
	if i := strings.Index(doc, ". "); i >= 0 {
		return doc[:i+1]
	}
	return doc
}

func jsonContent(schema string) object {
	return object{{"application/json", object{{"schema", schemaRef(schema)}}}}
}

func schemaRef(name string) object { return object{{"$ref", "#/components/schemas/" + name}} }

func refs(kind string, names ...string) []object {
	out := make([]object, len(names))
	for i, n := range names {
		out[i] = object{{"$ref", "#/components/" + kind + "/" + n}}
	}
	return out
}

func parameters() object {
	return object{
		{"connect", object{
			{"name", "connect"}, {"in", "query"}, {"required", true},
			{"description", "Version of the Connect protocol."},
			{"schema", object{{"type", "string"}, {"const", "v1"}}},
		}},
		{"encoding", object{
			{"name", "encoding"}, {"in", "query"}, {"required", true},
			{"description", "Encoding of the message."},
			{"schema", object{{"type", "string"}, {"const", "json"}}},
		}},
		{"protocolVersion", object{
			{"name", "Connect-Protocol-Version"}, {"in", "header"},
			{"description", "Version of the Connect protocol. May be left out."},
			{"schema", object{{"type", "string"}, {"const", "1"}}},
		}},
		{"timeout", object{
			{"name", "Connect-Timeout-Ms"}, {"in", "header"},
			{"description", "Deadline of the call in milliseconds; without it the call has none."},
			{"schema", object{{"type", "string"}, {"pattern", "^[0-9]{1,10}$"}}},
		}},
	}
}

// errorSchema is the body of a failed call. Details carry their message as base64 and, for people, as JSON.
func errorSchema(p *protogen.Plugin, s *schemas, details []string) (object, error) {
	byName := map[string]*protogen.Message{}
	for _, f := range p.Files {
		for _, m := range f.Messages {
			byName[string(m.Desc.Name())] = m
		}
	}
	var debug []object
	slices.Sort(details)
	for _, name := range details {
		m := byName[name]
		if m == nil {
			return nil, fmt.Errorf("option detail=%s: no such message", name)
		}
		debug = append(debug, schemaRef(s.message(m)))
	}
	detail := object{
		{"type", "object"},
		{"required", []string{"type", "value"}},
		{"properties", object{
			{"type", object{{"type", "string"}, {"description", "Full name of the message, for example `bigfleet.v1alpha1.FenceDetail`."}}},
			{"value", object{{"type", "string"}, {"contentEncoding", "base64"}, {"description", "The message in protobuf encoding, base64 without padding."}}},
			{"debug", object{{"description", "The message as JSON, for people."}, {"anyOf", append(debug, object{{"type", "object"}})}}},
		}},
	}
	codes := []string{"canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists", "permission_denied",
		"resource_exhausted", "failed_precondition", "aborted", "out_of_range", "unimplemented", "internal", "unavailable", "data_loss", "unauthenticated"}
	return object{
		{"type", "object"},
		{"description", "Body of a failed call."},
		{"required", []string{"code"}},
		{"properties", object{
			{"code", object{{"type", "string"}, {"enum", codes}, {"description", "What went wrong, for programs."}}},
			{"message", object{{"type", "string"}, {"description", "What failed, why and what to do, for people."}}},
			{"details", object{{"type", "array"}, {"items", detail}, {"description", "More facts. Nobody may depend on a detail being there."}}},
		}},
	}, nil
}
